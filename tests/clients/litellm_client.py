#!/usr/bin/env python3
"""LiteLLM, as library and as proxy, against a running server: tests/clients/litellm_client.py URL. Needs litellm[proxy].
Prints one line per check; the protocol is checked, not the model's wit.
"""
import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import litellm
from checks import check, finish

URL = sys.argv[1]
MODEL, EMBEDDER = "smollm2:135m", "all-minilm:l6-v2"
OPENAI = {"api_base": f"{URL}/v1", "api_key": "none"}
KEY = "sk-" + secrets.token_hex(32)
HELLO = [{"role": "user", "content": "Hello!"}]


@check
def chat_streams():
    answer = litellm.completion(model=f"openai/{MODEL}", messages=HELLO, max_tokens=8, temperature=0, **OPENAI)
    chunks = litellm.completion(
        model=f"openai/{MODEL}", messages=HELLO, max_tokens=8, temperature=0, stream=True, **OPENAI)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert streamed == answer.choices[0].message.content != ""


@check
def anthropic_and_ollama_names():
    claude = litellm.completion(model="anthropic/claude-x", messages=HELLO, max_tokens=8, api_base=URL, api_key="none")
    assert claude.choices[0].message.content
    ollama = litellm.completion(model=f"ollama_chat/{MODEL}", messages=HELLO, max_tokens=8, num_ctx=200000, api_base=URL)
    assert ollama.choices[0].message.content


@check
def responses_go_on():
    first = litellm.responses(model=f"openai/{MODEL}", input="My name is Ada.", max_output_tokens=16, **OPENAI)
    second = litellm.responses(
        model=f"openai/{MODEL}", input="And yours?", previous_response_id=first.id, max_output_tokens=16, **OPENAI)
    assert second.usage.input_tokens > first.usage.input_tokens


@check
def a_prompt_that_is_too_long_is_known_as_such():
    try:
        litellm.completion(
            model=f"openai/{MODEL}", messages=[{"role": "user", "content": "word " * 300000}], max_tokens=8, **OPENAI)
    except litellm.ContextWindowExceededError:
        return
    raise AssertionError("no error")


@check
def embeddings_and_ranking():
    vectors = litellm.embedding(model=f"openai/{EMBEDDER}", input=["a", "b"], **OPENAI)
    assert len(vectors.data) == 2
    # Of random weights: it ranks, in no sensible order.
    for provider in ["hosted_vllm", "jina_ai", "cohere"]:
        ranked = litellm.rerank(
            model=f"{provider}/cross-bert", query="What is blue?", documents=["The sky.", "Grass."], api_base=URL,
            api_key="none")
        assert sorted(result["index"] for result in ranked.results) == [0, 1], (provider, ranked)


@check
def through_its_proxy():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {"model_list": [{"model_name": "small", "litellm_params": {"model": f"openai/{MODEL}", **OPENAI}}]}
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(json.dumps(config))
    litellm_command = pathlib.Path(sys.executable).with_name("litellm")
    proxy = subprocess.Popen(
        [litellm_command, "--config", folder / "config.json", "--port", str(port), "--host", "127.0.0.1"],
        stdout=open(folder / "log", "w"), stderr=subprocess.STDOUT, env=os.environ | {"HOME": str(folder), "LITELLM_MASTER_KEY": KEY})
    try:
        base = f"http://127.0.0.1:{port}"
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{base}/health/liveliness").read()
                break
            except OSError:
                assert proxy.poll() is None, (folder / "log").read_text()
                time.sleep(0.2)
        body = json.dumps({"model": "small", "messages": HELLO, "max_tokens": 8}).encode()
        request = urllib.request.Request(
            f"{base}/v1/chat/completions", body, {"content-type": "application/json", "authorization": f"Bearer {KEY}"})
        answer = json.load(urllib.request.urlopen(request))
        assert answer["choices"][0]["message"]["content"], answer
    finally:
        proxy.terminate()
        proxy.wait()


finish()
