"""llama.cpp's server as a judge of the next token: ids in, log-probabilities out. Python's standard library only."""

import json
import os
import pathlib
import socket
import subprocess
import time
import urllib.error
import urllib.request

PEERS = pathlib.Path(os.environ.get("ROPEWAY_PEERS", pathlib.Path.home() / ".cache/ropeway-peers"))
START_LIMIT_S = 60
ANSWER_LIMIT_S = 120


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class LlamaServer:
    """One model on a free local port, for the length of a `with` block."""

    def __init__(self, model, context, options=()):
        binary = PEERS / "llama.cpp/build/bin/llama-server"
        if not binary.exists():
            raise SystemExit(f"no {binary}: run benches/peers/setup.sh, or set ROPEWAY_PEERS")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.command = [binary, "-m", model, "-c", str(context), "-np", "1", "--port", str(port), *options]

    def __enter__(self):
        quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.process = subprocess.Popen(self.command, **quiet)
        give_up = time.monotonic() + START_LIMIT_S
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > give_up:
                self.__exit__()
                raise SystemExit(f"llama-server did not start: {' '.join(map(str, self.command))}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def is_ready(self):
        try:
            return urllib.request.urlopen(f"{self.url}/health", timeout=1).status == 200
        except (urllib.error.URLError, TimeoutError):
            return False

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
