#!/usr/bin/env python3
"""How close llama.cpp stays to float32 on recorded continuations, by teacher forcing.

    benches/peers/quality.py --model FILE.gguf --golden GREEDY.json

GREEDY.json has `items` with `prompt_ids` and `greedy_ids` from a float32 implementation, and may have
`greedy_logprobs` of those ids. After each true prefix llama.cpp is asked for its next token: how often is it the
recorded one, and how far is that token's log-probability from the recorded one?
"""

import argparse
import json
import pathlib

from llama_server import LlamaServer

# Enough that the recorded token is always among them.
CANDIDATES = 2000


def judge(server, item):
    """For each recorded token: was it llama.cpp's choice, and with which log-probability."""
    known, rows = list(item["prompt_ids"]), []
    for token in item["greedy_ids"]:
        theirs = server.next_token(known, CANDIDATES)
        rows.append((next(iter(theirs)) == token, theirs[token]))
        known.append(token)
    return rows


def summary(rows, recorded):
    agreed = sum(same for same, _ in rows) / len(rows)
    figures = dict(positions=len(rows), argmax_agreement=round(agreed, 4))
    if len(recorded) == len(rows):
        apart = [abs(theirs - ours) for (_, theirs), ours in zip(rows, recorded)]
        figures["mean_abs_logprob_difference"] = round(sum(apart) / len(apart), 4)
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--golden", type=pathlib.Path, required=True)
    given = parser.parse_args()
    items = json.loads(given.golden.read_text())["items"]
    with LlamaServer(given.model, 2048) as server:
        rows = [row for item in items for row in judge(server, item)]
    recorded = [logprob for item in items for logprob in item.get("greedy_logprobs", [])]
    print(json.dumps(summary(rows, recorded)))


if __name__ == "__main__":
    main()
