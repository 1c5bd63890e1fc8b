#!/usr/bin/env python3
"""Embedding and generation on the same cores: what each keeps of its speed when both have more work than they can do.

    cargo build --release
    benches/sharing.py [--ropeway target/release/ropeway] [--seconds 10] [--rounds 3]

Each alone, then both together, in turn; medians of the rounds. Shares near a half of each are fair, a sum near one means that taking
turns costs nothing. Python's standard library only.
"""

import argparse
import json
import pathlib
import statistics
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
from served import Served

STREAMS, TEXTS, SENDERS = 8, 32, 2
WORDS = "station cable morning engine summit valley carries slowly people between winter report measured traffic signal under"


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


class Load:
    """Threads that ask again and again, and count what they get."""

    def __init__(self, threads, ask):
        self.ask, self.done, self.stop = ask, 0, threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.run) for _ in range(threads)]

    def run(self):
        while not self.stop.is_set():
            count = self.ask()
            with self.lock:
                self.done += count


def rates(loads, seconds):
    """What each load gets done in a second while all of them run."""
    for thread in (thread for load in loads for thread in load.threads):
        thread.start()
    time.sleep(1)
    before, began = [load.done for load in loads], time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    result = [(load.done - done) / took for load, done in zip(loads, before)]
    for load in loads:
        load.stop.set()
    for thread in (thread for load in loads for thread in load.threads):
        thread.join()
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ropeway", default="target/release/ropeway")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    command = [options.ropeway, "serve", "--listen"]
    with Served(lambda port: [*command, f"127.0.0.1:{port}"], "/health/ready") as server:
        chat = dict(prompt=WORDS, max_tokens=32, ignore_eos=True, temperature=0)
        texts = dict(model="all-minilm", input=[f"{i} {WORDS}" for i in range(TEXTS)])
        post(f"{server.url}/v1/embeddings", texts)

        def generate():
            return Load(STREAMS, lambda: post(f"{server.url}/v1/completions", chat)["usage"]["completion_tokens"])

        def embed():
            return Load(SENDERS, lambda: len(post(f"{server.url}/v1/embeddings", texts)["data"]))

        rounds = []
        for _ in range(options.rounds):
            (tokens,), (vectors,) = rates([generate()], options.seconds), rates([embed()], options.seconds)
            both = rates([generate(), embed()], options.seconds)
            rounds.append((tokens, vectors, both[0] / tokens, both[1] / vectors))
    tokens, vectors, kept, shared = (statistics.median(column) for column in zip(*rounds))
    print(f"alone: {tokens:.0f} tokens/s of {STREAMS} streams, {vectors:.0f} texts/s")
    print(f"together: generation keeps {kept:.2f}, embedding {shared:.2f} of that")


if __name__ == "__main__":
    main()
