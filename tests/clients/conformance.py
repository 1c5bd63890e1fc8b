#!/usr/bin/env python3
"""The official openai, anthropic and ollama libraries against a running server.

    python3 -m venv clients && clients/bin/pip install openai anthropic ollama
    ropeway serve --alias 'claude-*=smollm2:135m' &
    clients/bin/python tests/clients/conformance.py http://127.0.0.1:8000

Prints one line per check; the exit code says whether all of them passed.
"""
import sys
import traceback

import anthropic
import ollama
import openai

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
MODEL = "smollm2:135m"
COLOURS = [{"role": "user", "content": "Name three colours."}]
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def openai_client():
    return openai.OpenAI(base_url=f"{URL}/v1", api_key="none", max_retries=0)


def openai_chat():
    answer = openai_client().chat.completions.create(model=MODEL, messages=COLOURS, max_tokens=12, temperature=0)
    assert answer.choices[0].message.content and answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 12


def openai_chat_stream():
    chunks = list(openai_client().chat.completions.create(
        model=MODEL, messages=COLOURS, max_tokens=12, temperature=0, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text and chunks[-1].usage.completion_tokens == 12 and chunks[-1].choices == []


def openai_logprobs_and_n():
    answer = openai_client().chat.completions.create(
        model=MODEL, messages=COLOURS, max_tokens=3, n=2, seed=1, logprobs=True, top_logprobs=2)
    assert len(answer.choices) == 2 and len(answer.choices[0].logprobs.content) == 3
    assert len(answer.choices[0].logprobs.content[0].top_logprobs) == 2


def openai_tools():
    tools = [{"type": "function", "function": WEATHER}]
    answer = openai_client().chat.completions.create(model=MODEL, messages=COLOURS, tools=tools, max_tokens=12)
    assert answer.choices[0].finish_reason in ("length", "stop", "tool_calls")


def openai_completions():
    answer = openai_client().completions.create(model=MODEL, prompt=["Once upon a time", "Hello"], max_tokens=4, logprobs=1)
    assert len(answer.choices) == 2 and len(answer.choices[0].logprobs.tokens) == 4


def openai_models_and_errors():
    client = openai_client()
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL
    for error, call in [
        (openai.NotFoundError, lambda: client.chat.completions.create(model="gpt-9", messages=COLOURS)),
        (openai.BadRequestError, lambda: client.chat.completions.create(model=MODEL, messages=[])),
        (openai.BadRequestError, lambda: client.chat.completions.create(model=MODEL, messages=COLOURS, temperature=-1)),
    ]:
        try:
            call()
        except error:
            continue
        raise AssertionError(f"no {error.__name__}")


def anthropic_client():
    return anthropic.Anthropic(base_url=URL, api_key="none", max_retries=0)


def anthropic_messages():
    message = anthropic_client().messages.create(model="claude-opus-4-8", max_tokens=12, messages=COLOURS, system="Be brief.")
    assert message.content[0].text and message.stop_reason in ("max_tokens", "end_turn") and message.model == MODEL


def anthropic_stream_and_tools():
    tool = {"name": "get_weather", "description": "The weather", "input_schema": WEATHER["parameters"]}
    with anthropic_client().messages.stream(model=MODEL, max_tokens=12, messages=COLOURS, tools=[tool]) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert final.usage.output_tokens > 0 and (text or final.stop_reason == "tool_use")


def anthropic_counts_and_errors():
    client = anthropic_client()
    assert client.messages.count_tokens(model=MODEL, messages=COLOURS).input_tokens > 10
    assert MODEL in [model.id for model in client.models.list()]
    try:
        client.messages.create(model="gpt-9", max_tokens=1, messages=COLOURS)
    except anthropic.NotFoundError:
        return
    raise AssertionError("no NotFoundError")


def ollama_chat_and_generate():
    client = ollama.Client(host=URL)
    answer = client.chat(model=MODEL, messages=COLOURS, options={"num_predict": 6})
    assert answer.message.content and answer.done and answer.eval_count == 6
    pieces = list(client.chat(model=MODEL, messages=COLOURS, options={"num_predict": 6}, stream=True))
    assert pieces[-1].done and "".join(piece.message.content for piece in pieces)
    assert client.generate(model=MODEL, prompt="Hi", options={"num_predict": 4}).response


def ollama_models():
    client = ollama.Client(host=URL)
    assert MODEL in [model.model for model in client.list().models]
    assert client.show(MODEL).template and client.ps().models[0].model == MODEL


CHECKS = [
    openai_chat, openai_chat_stream, openai_logprobs_and_n, openai_tools, openai_completions, openai_models_and_errors,
    anthropic_messages, anthropic_stream_and_tools, anthropic_counts_and_errors, ollama_chat_and_generate, ollama_models,
]


def main():
    failed = 0
    for check in CHECKS:
        try:
            check()
            print(f"ok      {check.__name__}")
        except Exception:  # every kind of surprise is a failed check
            failed += 1
            print(f"FAILED  {check.__name__}")
            traceback.print_exc()
    sys.exit(1 if failed else 0)


main()
