#!/usr/bin/env python3
"""Writes smollm2_bf16.json beside this script: how far transformers in bfloat16 is from float32 on the default model.

    python3 -m venv V && V/bin/pip install torch transformers accelerate gguf sentencepiece
    V/bin/python tests/golden/bf16.py FOLDER/SmolLM2-135M-Instruct.Q4_1.gguf

Every recorded answer, and the recorded text, are scored token by token. `agreed` counts likeliest tokens that are those of float32,
`logprob_difference` is the mean absolute difference of what the tokens' log-probabilities are.
"""

import json
import pathlib
import sys

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent


def load(path, dtype):
    """With the attention that transformers chooses by itself."""
    return transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=dtype).eval()


def score(model, ids, first):
    """Log-probabilities of ids[first:], and the tokens that are likeliest in their places."""
    with torch.no_grad():
        scores = model(torch.tensor([ids]), use_cache=False).logits[0, first - 1 : -1].float().log_softmax(-1)
    return scores.gather(1, torch.tensor(ids[first:])[:, None])[:, 0], scores.argmax(-1)


def score_all(model):
    items = json.loads((HERE / "smollm2_greedy.json").read_text())["items"]
    answers = [score(model, item["prompt_ids"] + item["greedy_ids"], len(item["prompt_ids"])) for item in items]
    text = json.loads((HERE / "ppl.json").read_text())["tokens"]
    return dict(answers=[torch.cat(parts) for parts in zip(*answers)], text=score(model, text, 1))


def compare(exact, rounded):
    (want, likeliest), (got, chosen) = exact, rounded
    return dict(
        tokens=len(want),
        agreed=int((likeliest == chosen).sum()),
        logprob_difference=round(float((want - got).abs().mean()), 5),
    )


def main():
    path = pathlib.Path(sys.argv[1])
    exact, rounded = (score_all(load(path, dtype)) for dtype in (torch.float32, torch.bfloat16))
    found = {name: compare(exact[name], rounded[name]) for name in exact}
    made_by = f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}, CPU"
    record = dict(model="SmolLM2-135M-Instruct Q4_1 GGUF dequantised to bfloat16", impl=made_by, **found)
    (HERE / "smollm2_bf16.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
