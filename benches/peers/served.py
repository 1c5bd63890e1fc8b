"""A server process on a free local port, for the length of a `with` block. Python's standard library only."""

import socket
import subprocess
import time
import urllib.error
import urllib.request

START_LIMIT_S = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Served:
    """Starts `command(port)` and waits until `path` answers 200."""

    def __init__(self, command, path):
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.path, self.command = path, [str(part) for part in command(port)]

    def __enter__(self):
        quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.process = subprocess.Popen(self.command, **quiet)
        give_up = time.monotonic() + START_LIMIT_S
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > give_up:
                self.__exit__()
                raise SystemExit(f"it did not start: {' '.join(self.command)}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def is_ready(self):
        try:
            return urllib.request.urlopen(self.url + self.path, timeout=1).status == 200
        except (urllib.error.URLError, TimeoutError):
            return False

    def resident_mb(self):
        """Resident memory, in MB."""
        with open(f"/proc/{self.process.pid}/status") as status:
            line = next(line for line in status if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1e3
