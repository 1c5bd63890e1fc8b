#!/usr/bin/env python3
"""Two models on the same cores: what each keeps of its speed when both have more work than they can do.

    cargo build --release
    benches/sharing.py [--beside embeddings|prompts] [--ropeway target/release/ropeway] [--seconds 10] [--rounds 3]

Streams of one model beside embeddings, or beside long prompts of another model.

Each alone, then both together, in turn; medians of the rounds. Shares near a half of each are fair, a sum near one means that taking
turns costs nothing. Python's standard library only.
"""

import argparse
import collections
import itertools
import json
import pathlib
import statistics
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
from served import Served

STREAMS, TEXTS, SENDERS = 8, 32, 2
FIRST, SECOND = "streaming", "reading"
DEFAULT_MODEL = pathlib.Path.home() / ".cache/ropeway/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"
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


def embed(server):
    """Texts for the embedding model."""
    texts = dict(model="all-minilm", input=[f"{i} {WORDS}" for i in range(TEXTS)])
    post(f"{server.url}/v1/embeddings", texts)
    return lambda: Load(SENDERS, lambda: len(post(f"{server.url}/v1/embeddings", texts)["data"]))


def read_prompts(server):
    """Long prompts for a second model: steps that take many times as long as those of the streams."""
    numbers = itertools.count()

    def ask():
        prompt = f"{next(numbers)} " + WORDS * 30
        body = dict(model=SECOND, prompt=prompt, max_tokens=1, temperature=0)
        return post(f"{server.url}/v1/completions", body)["usage"]["prompt_tokens"]

    return lambda: Load(SENDERS, ask)


class Predictions:
    """How well steps were predicted while both models ran, from the server's own counters."""

    COUNTERS = ("steps_total", "mispredicted_steps_total", "step_compute_seconds_total", "step_predicted_seconds_total")

    def __init__(self, server):
        self.server, self.totals = server, collections.Counter()

    def read(self):
        with urllib.request.urlopen(f"{self.server.url}/metrics", timeout=10) as page:
            lines = (line.split() for line in page.read().decode().splitlines())
            values = {line[0]: float(line[-1]) for line in lines if line[0] != "#"}
        names = ((model, counter) for model in (FIRST, SECOND) for counter in self.COUNTERS)
        return {(model, counter): values.get(f'ropeway_{counter}{{model_name="{model}"}}', 0) for model, counter in names}

    def begin(self):
        self.before = self.read()

    def end(self):
        for name, value in self.read().items():
            self.totals[name] += value - self.before[name]

    def report(self):
        for model in (FIRST, SECOND):
            steps, off, computed, predicted = (self.totals[model, counter] for counter in self.COUNTERS)
            if steps:
                print(f"{model}: {steps:.0f} steps computed in {computed / predicted:.2f} of predicted, {1 - off / steps:.0%} within 20 %")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ropeway", default="target/release/ropeway")
    parser.add_argument("--beside", choices=["embeddings", "prompts"], default="embeddings")
    parser.add_argument("--model", default=str(DEFAULT_MODEL), help="the file of both models that generate")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = [pathlib.Path(folder, f"{name}.gguf") for name in (FIRST, SECOND)]
        for model in models:
            model.symlink_to(pathlib.Path(options.model).resolve())
        command = [options.ropeway, "serve", "--model", models[0], "--model", models[1], "--listen"]
        with Served(lambda port: [*command, f"127.0.0.1:{port}"], "/health/ready") as server:
            compare(server, options)


def compare(server, options):
    # Short answers, so that what is done is counted in small parts.
    chat = dict(model=FIRST, prompt=WORDS, max_tokens=8, ignore_eos=True, temperature=0)
    other = dict(embeddings=embed, prompts=read_prompts)[options.beside](server)

    def generate():
        return Load(STREAMS, lambda: post(f"{server.url}/v1/completions", chat)["usage"]["completion_tokens"])

    rounds, predictions = [], Predictions(server)
    for _ in range(options.rounds):
        (tokens,), (others,) = rates([generate()], options.seconds), rates([other()], options.seconds)
        predictions.begin()
        both = rates([generate(), other()], options.seconds)
        predictions.end()
        rounds.append((tokens, others, both[0] / tokens, both[1] / others))
    tokens, others, kept, shared = (statistics.median(column) for column in zip(*rounds))
    unit = dict(embeddings="texts", prompts="prompt tokens")[options.beside]
    print(f"alone: {tokens:.0f} tokens/s of {STREAMS} streams, {others:.0f} {unit}/s")
    print(f"together: generation keeps {kept:.2f}, {options.beside} {shared:.2f} of that")
    predictions.report()


if __name__ == "__main__":
    main()
