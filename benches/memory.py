#!/usr/bin/env python3
"""Resident memory of the server: at its start, after 64 clients at once, and after many more requests.

    cargo build --release
    benches/memory.py [--ropeway target/release/ropeway] [--kv-memory 256MiB] [--requests 10000]

KV memory fills up as prompts are cached and is then used again, so a bound is given that the first load fills. Python's standard
library only.
"""

import argparse
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
from served import Served


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ropeway", default="target/release/ropeway")
    parser.add_argument("--kv-memory", default="256MiB")
    parser.add_argument("--requests", type=int, default=10_000)
    options = parser.parse_args()
    command = [options.ropeway, "serve", "--kv-memory", options.kv_memory, "--listen"]
    with Served(lambda port: [*command, f"127.0.0.1:{port}"], "/health/ready") as server:

        def load(requests, prompt, output):
            sizes = ["--concurrency", "64", "--requests", str(requests), "--prompt", str(prompt), "--output", str(output)]
            run = [options.ropeway, "bench", "serve", "--url", server.url, "--repeat", "1", *sizes]
            subprocess.run(run, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        print(f"at the start: {server.resident_mb():.0f} MB")
        load(192, 100, 64)
        before = server.resident_mb()
        print(f"after 64 clients at once: {before:.0f} MB")
        load(options.requests, 16, 2)
        after = server.resident_mb()
        print(f"after {options.requests} more requests: {after:.0f} MB ({after / before:.3f}x)")


if __name__ == "__main__":
    main()
