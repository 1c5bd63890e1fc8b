#!/usr/bin/env python3
"""Compares a front with the server behind it: check.py FRONT UPSTREAM MODEL

Every check prints a line. What a server can't do may be a 400 that says so, never a 500 and never silence. Texts of greedy requests must be
the server's own. Ends with 1 if a check failed.
"""
import json
import re
import socket
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

PATIENCE = 300
QUESTION = [{"role": "user", "content": "Name three colours."}]


class Refused(Exception):
    """A 4xx, with its message."""


def call(base, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        text = error.read().decode(errors="replace")
        if 400 <= error.code < 500:
            raise Refused(f"{error.code}: {text[:200]}") from None
        raise AssertionError(f"{path}: status {error.code}: {text[:300]}") from None


def events(base, path, body):
    """The JSON objects of a streamed answer, each with the time it came."""
    data = json.dumps({**body, "stream": True}).encode()
    request = urllib.request.Request(base + path, data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        for line in answer:
            line = line.decode().strip()
            if line.startswith("data: ") and line != "data: [DONE]":
                yield time.monotonic(), json.loads(line[len("data: "):])


class Check:
    def __init__(self, front, upstream, model):
        self.front, self.upstream, self.model = front, upstream, model

    def body(self, **more):
        return {"model": self.model, "temperature": 0, "max_tokens": 24, **more}

    def chat(self, base, **more):
        return call(base, "/v1/chat/completions", self.body(messages=QUESTION, **more))["choices"][0]

    def lists_the_model(self):
        ids = [row["id"] for row in call(self.front, "/v1/models")["data"]]
        assert self.model in ids, ids

    def greedy_chat_is_the_servers_own(self):
        theirs, ours = self.chat(self.upstream), self.chat(self.front)
        assert ours["message"]["content"] == theirs["message"]["content"], (ours, theirs)
        assert ours["finish_reason"] == theirs["finish_reason"], (ours, theirs)

    def greedy_completion_is_the_servers_own(self):
        body = self.body(prompt="Once upon a time")
        theirs = call(self.upstream, "/v1/completions", body)["choices"][0]["text"]
        assert call(self.front, "/v1/completions", body)["choices"][0]["text"] == theirs

    def a_stream_is_the_same_as_a_whole_answer(self):
        body = self.body(messages=QUESTION, stream_options={"include_usage": True})
        chunks = [chunk for _, chunk in events(self.front, "/v1/chat/completions", body)]
        deltas = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk["choices"]]
        assert "".join(deltas) == self.chat(self.front)["message"]["content"], deltas
        assert chunks[-1]["usage"]["completion_tokens"] > 0, chunks[-1]

    def a_stream_comes_piece_by_piece(self):
        # Not a matter of speed: with a server that sends each token, there are many events.
        body = self.body(messages=QUESTION, max_tokens=40)
        count = sum(1 for _ in events(self.front, "/v1/chat/completions", body))
        assert count > 5, count

    def logprobs(self):
        choice = self.chat(self.front, logprobs=True, top_logprobs=2)
        content = choice["logprobs"]["content"]
        assert content and all(len(one["top_logprobs"]) == 2 and one["logprob"] <= 0 for one in content), content

    def json_schema(self):
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False}
        form = {"type": "json_schema", "json_schema": {"name": "form", "strict": True, "schema": schema}}
        answer = self.chat(self.front, response_format=form, max_tokens=64)
        text = answer["message"]["content"]
        if answer["finish_reason"] == "length":
            # A model of made-up weights may write nothing but space where a form allows it.
            assert re.fullmatch(r'\{\s*("ok"\s*(:\s*(true|false)?\s*)?)?', text), text
        else:
            assert isinstance(json.loads(text)["ok"], bool), text

    def stop_strings(self):
        text = self.chat(self.front, max_tokens=24)["message"]["content"]
        word = next((word for word in text.split() if len(word) > 2), None)
        if word is None:
            raise Refused("the model's answer has no word to stop at")
        cut = self.chat(self.front, stop=[word], max_tokens=24)
        assert cut["message"]["content"] == text[:text.index(word)] and cut["finish_reason"] == "stop", (cut, text)

    def several_answers(self):
        answer = call(self.front, "/v1/chat/completions", self.body(messages=QUESTION, n=2))
        first, second = (choice["message"]["content"] for choice in answer["choices"])
        assert first == second, answer

    def seeds(self):
        first, again = (self.chat(self.front, temperature=1.0, seed=7)["message"]["content"] for _ in range(2))
        assert first == again, (first, again)

    def other_families(self):
        theirs = self.chat(self.front)["message"]["content"]
        message = call(self.front, "/v1/messages", self.body(messages=QUESTION))
        assert "".join(block.get("text", "") for block in message["content"]).strip() == theirs.strip(), (message, theirs)
        options = {"temperature": 0, "num_predict": 24, "top_k": 0, "top_p": 1.0}
        chat = call(self.front, "/api/chat", {"model": self.model, "messages": QUESTION, "stream": False, "options": options})
        assert chat["message"]["content"].strip() == theirs.strip(), (chat, theirs)

    def an_unknown_model_is_refused(self):
        try:
            call(self.front, "/v1/chat/completions", {**self.body(messages=QUESTION), "model": "no-such-model"})
        except Refused as refused:
            assert str(refused).startswith("404"), refused
        else:
            raise AssertionError("it was answered")

    def clients_that_leave(self):
        url = urllib.parse.urlparse(self.front)
        body = json.dumps({**self.body(messages=QUESTION, max_tokens=80), "stream": True})
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: {url.netloc}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        for _ in range(10):
            with socket.create_connection((url.hostname, url.port), timeout=PATIENCE) as client:
                client.sendall((head + body).encode())
                client.recv(1024)
        self.greedy_chat_is_the_servers_own()

    def run(self):
        failed = 0
        for name in [name for name in vars(Check) if not name.startswith("_") and name not in ("body", "chat", "run")]:
            begin = time.monotonic()
            try:
                getattr(self, name)()
                verdict, why = "ok", ""
            except Refused as refused:
                verdict, why = "refused", f": {refused}"
            except Exception as error:  # noqa: BLE001 - every failure is a line, and the rest goes on.
                verdict, why, failed = "FAILED", f": {type(error).__name__}: {error}", failed + 1
            print(f"{verdict:8}{name.replace('_', ' ')} ({time.monotonic() - begin:.1f} s){why}", flush=True)
        return failed


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(1 if Check(*(argument.rstrip("/") for argument in sys.argv[1:])).run() else 0)
