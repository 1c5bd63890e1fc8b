#!/usr/bin/env python3
"""Ropeway beside sentence-transformers on all-MiniLM-L6-v2: texts of 16 words, same machine, in turn.

64 requests at once beside a batch of 64, and 10 at once beside the same 10 one by one, as servers without batching run them.

    pip install sentence-transformers
    benches/peers/embeddings.py --model FOLDER [--ropeway target/release/ropeway] [--threads 2] [--rounds 3]

Wall clock where nothing else runs; CPU time per text says more on a machine that is shared, but only with --threads 1.
"""

import argparse
import json
import resource
import statistics
import subprocess
import time

import torch
from sentence_transformers import SentenceTransformer

# The texts of `ropeway bench embed`.
WORDS = (
    "station cable morning engine summit valley carries slowly people between winter report measured traffic signal under "
    "bright river because machine letters garden quickly sound"
).split()
BATCH, FEW, REPEAT = 64, 10, 10


def text(seed):
    return " ".join(WORDS[(seed * 7 + i * (5 + seed % 11) + seed // 24) % len(WORDS)] for i in range(16))


def peer(model, texts):
    began, cpu = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF).ru_utime
    for _ in range(REPEAT):
        model.encode(texts, batch_size=BATCH)
    count = REPEAT * BATCH
    used = resource.getrusage(resource.RUSAGE_SELF).ru_utime - cpu
    return dict(texts_per_second=count / (time.perf_counter() - began), cpu_ms=used / count * 1e3)


def one_by_one(model, texts):
    """Milliseconds for a few texts, each by itself."""
    began = time.perf_counter()
    for _ in range(REPEAT):
        for one in texts:
            model.encode([one])
    return (time.perf_counter() - began) / REPEAT * 1e3


def few_at_once(options, extra):
    """Milliseconds for as many requests that arrive together."""
    command = [options.ropeway, "bench", "embed", "-m", options.model, "--threads", str(options.threads), "--json"]
    result, _ = cpu_of_children([*command, "--at-once", str(FEW), "--repeat", str(REPEAT), *extra])
    return FEW / result["rates"][0]["texts_per_second"] * 1e3


def cpu_of_children(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(output), resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def ropeway(options, extra):
    command = [options.ropeway, "bench", "embed", "-m", options.model, "--threads", str(options.threads), "--json"]
    command += ["--at-once", str(BATCH), "--max-batch", str(BATCH), *extra]
    # Loading is in both runs, so the difference is computing alone.
    _, short = cpu_of_children([*command, "--repeat", "1"])
    result, long = cpu_of_children([*command, "--repeat", str(REPEAT + 1)])
    return dict(
        texts_per_second=result["rates"][0]["texts_per_second"], cpu_ms=(long - short) / (REPEAT * BATCH) * 1e3
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--ropeway", default="target/release/ropeway")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = SentenceTransformer(options.model, device="cpu")
    texts = [text(seed) for seed in range(BATCH)]
    model.encode(texts, batch_size=BATCH)
    sides = {"sentence-transformers": [], "Ropeway": [], "Ropeway --int8": []}
    few = {side: [] for side in sides}
    for _ in range(options.rounds):
        sides["sentence-transformers"].append(peer(model, texts))
        sides["Ropeway"].append(ropeway(options, []))
        sides["Ropeway --int8"].append(ropeway(options, ["--int8"]))
        few["sentence-transformers"].append(one_by_one(model, texts[:FEW]))
        few["Ropeway"].append(few_at_once(options, []))
        few["Ropeway --int8"].append(few_at_once(options, ["--int8"]))
    for side, rounds in sides.items():
        middle = {key: statistics.median(one[key] for one in rounds) for key in rounds[0]}
        print(
            f"{side:24} {BATCH} at once {middle['texts_per_second']:8.0f} texts/s {middle['cpu_ms']:8.2f} ms of CPU a text; "
            f"{FEW} {'one by one' if side.startswith('s') else 'at once'} {statistics.median(few[side]):8.1f} ms"
        )


if __name__ == "__main__":
    main()
