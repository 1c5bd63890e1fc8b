#!/usr/bin/env python3
"""Texts of 16 words over HTTP, one a request: Ropeway beside llama-server on all-MiniLM-L6-v2.

    benches/peers/setup.sh
    benches/peers/minilm_gguf.py FOLDER minilm.gguf
    benches/peers/embedding_servers.py --model FOLDER --gguf minilm.gguf [--ropeway target/release/ropeway] [--rounds 3]

As many requests at once as said, each over a connection of its own that is open already; the time is that of the last answer.
Interleaved rounds, medians. Python's standard library only.
"""

import argparse
import http.client
import json
import statistics
import threading
import time
import urllib.parse

from llama_server import PEERS
from served import Served

WORDS = (
    "station cable morning engine summit valley carries slowly people between winter report measured traffic signal under "
    "bright river because machine letters garden quickly sound"
).split()
BURSTS = 15


def body(seed, model):
    text = " ".join(WORDS[(seed * 7 + i * (5 + seed % 11)) % len(WORDS)] for i in range(16))
    return json.dumps(dict(model=model, input=text, encoding_format="base64")).encode()


class Client(threading.Thread):
    """One connection that sends a request whenever all of them do."""

    def __init__(self, url, start, end):
        super().__init__(daemon=True)
        self.connection = http.client.HTTPConnection(urllib.parse.urlparse(url).netloc, timeout=60)
        self.start_line, self.end_line, self.body = start, end, None

    def run(self):
        while True:
            self.start_line.wait()
            if self.body is None:
                return
            self.connection.request("POST", "/v1/embeddings", self.body, {"Content-Type": "application/json"})
            answer = self.connection.getresponse()
            assert answer.status == 200, answer.read()
            answer.read()
            self.end_line.wait()


def milliseconds(url, model, at_once):
    """How long a burst takes, by median."""
    start, end = threading.Barrier(at_once + 1), threading.Barrier(at_once + 1)
    clients = [Client(url, start, end) for _ in range(at_once)]
    for client in clients:
        client.start()
    took = []
    for burst in range(BURSTS):
        for number, client in enumerate(clients):
            client.body = body(burst * at_once + number, model)
        began = time.perf_counter()
        start.wait()
        end.wait()
        took.append((time.perf_counter() - began) * 1e3)
    for client in clients:
        client.body = None
    start.wait()
    return statistics.median(took[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="the folder of all-MiniLM-L6-v2")
    parser.add_argument("--gguf", required=True, help="the same as GGUF")
    parser.add_argument("--ropeway", default="target/release/ropeway")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    chat = ["--kv-memory", "64MiB", "--embed-model", options.model, "--threads", options.threads]
    ropeway = [options.ropeway, "serve", *chat]
    llama = [PEERS / "llama.cpp/build/bin/llama-server", "-m", options.gguf, "--embedding", "-t", options.threads]
    llama += ["-np", "64", "-c", "16384", "-b", "4096", "-ub", "4096"]
    sides = {
        "Ropeway": lambda: Served(lambda port: [*ropeway, "--listen", f"127.0.0.1:{port}"], "/health/ready"),
        "Ropeway --embed-int8": lambda: Served(
            lambda port: [*ropeway, "--embed-int8", "--listen", f"127.0.0.1:{port}"], "/health/ready"),
        "llama-server": lambda: Served(lambda port: [*llama, "--port", port], "/health"),
    }
    found = {side: {10: [], 64: []} for side in sides}
    for _ in range(options.rounds):
        for side, serve in sides.items():
            with serve() as server:
                model = "model" if side == "llama-server" else None
                for at_once, times in found[side].items():
                    times.append(milliseconds(server.url, model, at_once))
    for side, times in found.items():
        middle = {at_once: statistics.median(all_times) for at_once, all_times in times.items()}
        print(f"{side:22} 10 at once {middle[10]:7.1f} ms, 64 at once {middle[64]:7.1f} ms")


if __name__ == "__main__":
    main()
