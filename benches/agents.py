#!/usr/bin/env python3
"""Agents that come back: first tokens of many long conversations that take turns, with memory for few of them.

    cargo build --release
    benches/agents.py [--ropeway target/release/ropeway] [--agents 30] [--tokens 4000] [--room 5]

Every agent asks about its own long text, twice: the first time it is computed, the second time it comes from disk (`--kv-disk`).
Beside them one client streams. The same is done without a disk, to see what it changes between the stream's tokens. Then the server
is started again, and every agent asks a third time. Answers are greedy and compared. Python's standard library only.
"""

import argparse
import http.client
import json
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
from served import Served

# Bytes of a token's keys and values of the default model, rounded up.
TOKEN_BYTES = 24 << 10


def events(url, body):
    """The moments and texts of a streamed completion's events, and its usage."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=600)
    body = dict(body, stream=True, temperature=0, stream_options=dict(include_usage=True))
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    for line in answer:
        if line.startswith(b"data: {"):
            yield time.monotonic(), json.loads(line[6:])
    connection.close()


def ask(url, prompt):
    """Seconds to the first token, the text, and how many tokens were cached."""
    began, first, text, cached = time.monotonic(), None, "", 0
    for moment, event in events(url, dict(prompt=prompt, max_tokens=16)):
        if event.get("choices"):
            first = first or moment - began
            text += event["choices"][0]["text"]
        if event.get("usage"):
            cached = event["usage"]["prompt_tokens_details"]["cached_tokens"]
    return first, text, cached


class Stream:
    """A client that streams answers until it is told to stop; notes the time between tokens."""

    def __init__(self, url):
        self.url, self.gaps, self.stopped = url, [], False
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        while not self.stopped:
            last = None
            body = dict(prompt=f"Story {random.random()}: once upon a time", max_tokens=400, ignore_eos=True, speculation=dict(enabled=False))
            for moment, _ in events(self.url, body):
                if last:
                    self.gaps.append(moment - last)
                last = moment
                if self.stopped:
                    return

    def stop(self):
        self.stopped = True
        self.thread.join()
        return sorted(self.gaps)


def turns(url, prompts):
    return [ask(url, prompt) for prompt in prompts]


def at(values, share):
    return 1e3 * values[min(len(values) - 1, int(share * len(values)))]


def show(name, turn, gaps=None):
    firsts = sorted(first for first, _, _ in turn)
    cached = statistics.median(cached for _, _, cached in turn)
    beside = f"   beside them p50 {at(gaps, 0.5):.0f} p99 {at(gaps, 0.99):.0f} ms between tokens" if gaps else ""
    print(f"{name:34} first token p50 {at(firsts, 0.5):6.0f} p90 {at(firsts, 0.9):6.0f} ms   cached {cached:.0f}{beside}", flush=True)


def rounds(url, name, prompts, stream):
    """Every agent's first turn, then its second, each with a stream beside it or without."""
    for turn in ("first", "second"):
        beside = Stream(url) if stream else None
        answers = turns(url, prompts)
        show(f"{name}, {turn} turn", answers, beside and beside.stop())
        yield answers


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ropeway", default="target/release/ropeway")
    parser.add_argument("--agents", type=int, default=30)
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--room", type=int, default=5, help="conversations that fit into memory")
    parser.add_argument("--threads", default="2")
    options = parser.parse_args()
    random.seed(1)
    prompts = [[random.randrange(1000, 40000) for _ in range(options.tokens)] for _ in range(options.agents)]
    memory = options.room * (options.tokens + 600) * TOKEN_BYTES
    command = [options.ropeway, "serve", "--no-embeddings", "--threads", options.threads, "--kv-memory", str(memory)]
    with tempfile.TemporaryDirectory() as folder:
        disk = ["--kv-disk", "16GiB", "--kv-disk-dir", folder]
        serve = lambda more: Served(lambda port: [*command, *more, "--listen", f"127.0.0.1:{port}"], "/health/ready")
        with serve(disk) as server:
            alone = list(rounds(server.url, "disk", prompts, stream=False))
        with serve(disk) as server:
            again = turns(server.url, prompts)
            show("disk, after a restart", again)
            shown = list(rounds(server.url, "disk, beside a stream", prompts, stream=True))
        with serve([]) as server:
            without = list(rounds(server.url, "no disk, beside a stream", prompts[: options.agents // 3], stream=True))
    texts = [[text for _, text, _ in turn] for turn in [*alone, again, *shown]]
    same = all(turn == texts[0] for turn in texts) and all(
        [text for _, text, _ in turn] == texts[0][: len(turn)] for turn in without
    )
    speed = statistics.median(cold[0] for cold in alone[0]) / statistics.median(warm[0] for warm in alone[1])
    print(f"first token {speed:.1f}x sooner from disk; answers {'equal' if same else 'DIFFER'}")


if __name__ == "__main__":
    main()
