#!/usr/bin/env python3
"""What clients see when KV memory is short: interactive ones beside bulk prompts, and one long prompt among short ones.

    cargo build --release
    benches/shortage.py                          # starts servers of its own, one after another; some minutes

Each question is asked in interleaved rounds, with and without the disturbance, on the same server; medians are printed.
"""

import argparse
import http.client
import json
import os
import pathlib
import random
import statistics
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
from served import Served

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
VOCABULARY = 40000


class Server(Served):
    """Ropeway with so much KV memory."""

    def __init__(self, binary, memory):
        command = lambda port: [binary, "serve", "--listen", f"127.0.0.1:{port}", "--kv-memory", memory]
        super().__init__(command, "/health/ready")

    def ask(self, tokens, new, priority, model="smollm2:135m"):
        """Streams one completion of random tokens; seconds to the first token, all gaps, and to the end."""
        body = {
            "model": model,
            "prompt": [random.randrange(1000, VOCABULARY) for _ in range(tokens)],
            "max_tokens": new,
            "min_tokens": new,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
        }
        began = time.monotonic()
        connection = http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=600)
        headers = {"content-type": "application/json", "x-priority": priority}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        response = connection.getresponse()
        if response.status != 200:
            raise SystemExit(f"{response.status}: {response.read()[:300]}")
        moments = []
        for line in response:
            if line.startswith(b"data: {") and b'"choices":[{' in line:
                moments.append(time.monotonic())
        connection.close()
        gaps = [after - before for before, after in zip(moments, moments[1:])]
        return moments[0] - began, gaps, time.monotonic() - began


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


class Clients:
    """So many clients that each ask again as soon as they are answered, after a pause."""

    def __init__(self, server, count, tokens, new, priority, pause=0.0):
        self.results, self.stopped = [], threading.Event()
        self.threads = [
            threading.Thread(target=self.run, args=(server, tokens, new, priority, pause)) for _ in range(count)
        ]
        for thread in self.threads:
            thread.start()

    def run(self, server, tokens, new, priority, pause):
        while not self.stopped.is_set():
            self.results.append(server.ask(tokens, new, priority))
            time.sleep(random.uniform(0, 2 * pause))

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join()
        return self.results


def first_tokens(server, options, bulk):
    """First tokens of interactive clients, with so many bulk prompts always open."""
    others = Clients(server, bulk, options.long, 16, "bulk") if bulk else None
    if others:
        time.sleep(2)
    clients = Clients(server, options.clients, options.short, options.new, "interactive", options.pause)
    time.sleep(options.seconds)
    firsts = [first for first, _, _ in clients.stop()]
    done = others.stop() if others else []
    return firsts, [total for _, _, total in done]


def long_prompt(server, options, tokens, shorts):
    """Seconds of one long prompt among so many clients with short ones, and the first tokens of these."""
    clients = Clients(server, shorts, options.short, options.new, "default", options.pause) if shorts else None
    if clients:
        time.sleep(2)
    _, _, total = server.ask(tokens, 16, "default")
    firsts = [first for first, _, _ in clients.stop()] if clients else []
    return total, firsts


def report(name, values):
    print(f"  {name:<44} p50 {quantile(values, 0.5) * 1e3:7.0f} ms   p99 {quantile(values, 0.99) * 1e3:7.0f} ms   "
          f"longest {max(values, default=float('nan')) * 1e3:7.0f} ms   ({len(values)})", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default=os.path.join(ROOT, "target/release/ropeway"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--short", type=int, default=60, help="tokens of a short prompt")
    parser.add_argument("--new", type=int, default=16, help="tokens of a short answer")
    parser.add_argument("--long", type=int, default=2700, help="tokens of a bulk prompt")
    parser.add_argument("--pause", type=float, default=0.3, help="mean pause between two requests of a client")
    parser.add_argument("--only", choices=["classes", "long"])
    options = parser.parse_args()
    if options.only != "long":
        with_bulk, without, done = [], [], []
        with Server(options.binary, "64MiB") as server:
            server.ask(500, 16, "default")
            for _ in range(options.rounds):
                without += first_tokens(server, options, 0)[0]
                firsts, totals = first_tokens(server, options, 2)
                with_bulk, done = with_bulk + firsts, done + totals
        print(f"{options.clients} interactive clients, {options.short} in, {options.new} out, at 64 MiB")
        report("first token without bulk work", without)
        report(f"beside two bulk prompts of {options.long}", with_bulk)
        print(f"  p99 ratio {quantile(with_bulk, 0.99) / quantile(without, 0.99):.2f}; {len(done)} bulk requests done, "
              f"{statistics.median(done):.1f} s each")
    if options.only != "classes":
        for tokens, memory in [(2700, "64MiB"), (7000, "170MiB")]:
            alone, among, quiet, beside = [], [], [], []
            with Server(options.binary, memory) as server:
                server.ask(500, 16, "default")
                for _ in range(options.rounds):
                    alone.append(long_prompt(server, options, tokens, 0)[0])
                    total, firsts = long_prompt(server, options, tokens, options.clients)
                    among.append(total)
                    beside += firsts
                    clients = Clients(server, options.clients, options.short, options.new, "default", options.pause)
                    time.sleep(options.seconds / 2)
                    quiet += [first for first, _, _ in clients.stop()]
            alone, among = statistics.median(alone), statistics.median(among)
            print(f"a prompt of {tokens} at {memory}: {alone:.1f} s alone, {among:.1f} s among "
                  f"{options.clients} clients with short ones ({among / alone:.2f}x)")
            report("first token of the short ones, without it", quiet)
            report("beside it", beside)


if __name__ == "__main__":
    main()
