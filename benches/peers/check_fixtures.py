#!/usr/bin/env python3
"""Asks llama.cpp about the GGUF files in tests/fixtures/models: it and transformers, which made them, must agree.

Compares log-probabilities of the whole vocabulary after the whole prompt and after its first half. Run it after the
fixtures were made anew; setup.sh gets llama.cpp.
"""

import json
import math
import pathlib
import sys

from llama_server import LlamaServer

MODELS = pathlib.Path(__file__).resolve().parents[2] / "tests/fixtures/models"
# llama.cpp multiplies 16-bit matrices by activations rounded to 16 bits, and Q8_0 ones by activations rounded to 8.
ALLOWED = {"f32": 0.002, "f16": 0.05, "bf16": 0.2, "q8_0": 0.3}
# llama.cpp reads the YaRN betas of some architectures only.
NOT_READ = {"llama-rope-yarn": ["--yarn-beta-fast", "2", "--yarn-beta-slow", "0.5"]}
PLAIN = ["-ctk", "f32", "-ctv", "f32", "-fa", "off", "--no-warmup", "-t", "1"]


def log_softmax(logits):
    top = max(logits)
    total = top + math.log(sum(math.exp(x - top) for x in logits))
    return [x - total for x in logits]


def worst_difference(server, expected):
    """Over the vocabulary, at the positions that have more than one token before them."""
    worst = 0.0
    for position, logits in list(zip(expected["positions"], expected["logits"]))[1:]:
        theirs = server.next_token(expected["prompt_ids"][: position + 1], len(logits))
        ours = log_softmax(logits)
        worst = max(worst, max(abs(ours[i] - logprob) for i, logprob in theirs.items()))
    return worst


def main():
    failed = []
    for entry in json.loads((MODELS / "index.json").read_text()):
        if not entry["path"].endswith(".gguf"):
            continue
        expected = json.loads((MODELS / entry["expected"]).read_text())
        name, file_type, _ = pathlib.Path(entry["path"]).name.split(".")
        options = PLAIN + NOT_READ.get(name, [])
        with LlamaServer(MODELS / entry["path"], 2 * expected["context"], options) as server:
            worst = worst_difference(server, expected)
        if worst > ALLOWED[file_type]:
            failed.append(entry["path"])
        print(f"{entry['path']}: worst difference of a log-probability {worst:.5f}")
    sys.exit(f"too far apart: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
