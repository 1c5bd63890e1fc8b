"""llama.cpp's server as a judge of the next token: ids in, log-probabilities out. Python's standard library only."""

import json
import os
import pathlib
import urllib.request

from served import Served

PEERS = pathlib.Path(os.environ.get("ROPEWAY_PEERS", pathlib.Path.home() / ".cache/ropeway-peers"))
ANSWER_LIMIT_S = 120


class LlamaServer(Served):
    """One model and one slot."""

    def __init__(self, model, context, options=()):
        binary = PEERS / "llama.cpp/build/bin/llama-server"
        if not binary.exists():
            raise SystemExit(f"no {binary}: run benches/peers/setup.sh, or set ROPEWAY_PEERS")
        command = [binary, "-m", model, "-c", str(context), "-np", "1", *options]
        super().__init__(lambda port: [*command, "--port", port], "/health")

    def next_token(self, ids, count):
        """The `count` likeliest next tokens after `ids`, likeliest first: {id: log-probability}.

        The answer itself is forced to be a plain letter: the server keeps the probabilities back when it ends the text
        or stops within a character. They are of the logits before any bias.
        """
        plain_answer = dict(n_predict=1, logit_bias=[["a", 1000]], temperature=0)
        body = json.dumps(dict(prompt=ids, n_probs=count, cache_prompt=True, **plain_answer)).encode()
        request = urllib.request.Request(f"{self.url}/completion", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=ANSWER_LIMIT_S) as answer:
            first = json.load(answer)["completion_probabilities"][0]
        return {entry["id"]: entry["logprob"] for entry in first["top_logprobs"]}
