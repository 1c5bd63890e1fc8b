"""One line per check, and an exit code for all of them."""
import sys
import time
import traceback

FAILED = []


def check(function):
    began = time.monotonic()
    try:
        function()
    except BaseException:
        FAILED.append(function.__name__)
        traceback.print_exc()
        print(f"FAILED  {function.__name__}", flush=True)
    else:
        print(f"ok      {function.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
    return function


def finish():
    sys.exit(1 if FAILED else 0)
