#!/usr/bin/env python3
"""The official openai, anthropic and ollama libraries against a running server.

    cargo test -p ropeway-cli --test clients

makes an environment with the three libraries, starts a server and runs this. By hand:

    python3 -m venv clients && clients/bin/pip install openai anthropic ollama
    ROPEWAY_API_KEYS='sk-everything name=all admin; sk-one-at-a-time name=one concurrency=1' ropeway serve --alias 'claude-*=smollm2:135m' &
    clients/bin/python tests/clients/conformance.py http://127.0.0.1:8000

Prints one line per check; the exit code says whether all of them passed.
"""
import functools
import json
import re
import sys
import time
import traceback
import typing
import urllib.request

import anthropic
import ollama
import openai
import pydantic

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
# The keys that the server knows: one for everything, one that may ask for one thing at a time.
KEY, ONE_AT_A_TIME = "sk-everything", "sk-one-at-a-time"
MODELS = [model.id for model in openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY).models.list().data]
MODEL, EMBEDDER = MODELS[0], next(name for name in MODELS if "minilm" in name)
COLOURS = [{"role": "user", "content": "Name three colours."}]
# Long enough to be still running when the next thing is asked.
LONG = 2000
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}

MOVED = [{"role": "user", "content": "Alice moved to Paris in 2021. Answer as JSON."}]


class Move(pydantic.BaseModel):
    """What an answer in a given form says."""

    person: str = pydantic.Field(max_length=20)
    city: typing.Literal["Paris", "Berlin"]
    years: list[int] = pydantic.Field(max_length=2)


def close(one, other):
    return len(one) == len(other) and all(abs(a - b) < 1e-6 for a, b in zip(one, other))


def fails(error, call):
    """The error that a call must raise."""
    try:
        call()
    except error as raised:
        return raised
    raise AssertionError(f"no {error.__name__}")


def metric(name, label=""):
    """The sum of a metric over the labels that contain this; None if the server has no such metric of any model."""
    request = urllib.request.Request(f"{URL}/metrics", headers={"authorization": f"Bearer {KEY}"})
    page = urllib.request.urlopen(request).read().decode()
    samples = re.findall(rf"^ropeway_{name}{{(.*)}} (.*)$", page, re.M)
    return sum(float(value) for labels, value in samples if label in labels) if samples else None


def is_cancelled(stream, close):
    """Reads a little of a stream and leaves; the server must let go of it."""
    before = metric("request_success_total", '"cancelled"')
    for _ in zip(range(3), stream):
        pass
    assert metric("num_requests_running") == 1
    close()
    patience = time.monotonic() + 30
    # A server in front of others does not count what became of their requests.
    is_counted = before is not None
    while metric("num_requests_running") > 0 or is_counted and metric("request_success_total", '"cancelled"') == before:
        assert time.monotonic() < patience, "nothing was cancelled"
        time.sleep(0.02)


def several_tries(check):
    """For answers whose length so small a model leaves to chance: too short to be cancelled, or without an end."""

    @functools.wraps(check)
    def tried():
        for left in reversed(range(5)):
            try:
                return check()
            except Exception:
                if left == 0:
                    raise

    return tried


def openai_client(key=KEY):
    return openai.OpenAI(base_url=f"{URL}/v1", api_key=key, max_retries=0)


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


def openai_prediction():
    client = openai_client()
    ask = lambda **more: client.chat.completions.create(model=MODEL, messages=COLOURS, max_tokens=24, temperature=0, **more)
    plain = ask(extra_body={"speculation": {"enabled": False}})
    text = plain.choices[0].message.content
    for content in (text, [{"type": "text", "text": text}]):
        predicted = ask(prediction={"type": "content", "content": content})
        assert predicted.choices[0].message.content == text
        details = predicted.usage.completion_tokens_details
        assert details.accepted_prediction_tokens >= 0 and details.rejected_prediction_tokens >= 0
    assert plain.usage.completion_tokens_details.accepted_prediction_tokens == 0
    error = fails(openai.BadRequestError, lambda: ask(prediction={"type": "content", "content": 5}))
    assert error.param == "prediction.content", error.param
    error = fails(openai.BadRequestError, lambda: ask(extra_body={"speculation": {"num_speculative_tokens": 17}}))
    assert error.param == "speculation.num_speculative_tokens", error.param


def openai_tools():
    tools = [{"type": "function", "function": WEATHER}]
    answer = openai_client().chat.completions.create(
        model=MODEL, messages=COLOURS, tools=tools, tool_choice="auto", max_tokens=12)
    assert answer.choices[0].finish_reason in ("length", "stop", "tool_calls")
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'}}
    turn = [*COLOURS, {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}]
    answer = openai_client().chat.completions.create(model=MODEL, messages=turn, tools=tools, max_tokens=4)
    assert answer.choices[0].message.content


def openai_completions():
    answer = openai_client().completions.create(model=MODEL, prompt=["Once upon a time", "Hello"], max_tokens=4, logprobs=1)
    assert len(answer.choices) == 2 and len(answer.choices[0].logprobs.tokens) == 4
    pieces = list(openai_client().completions.create(model=MODEL, prompt="Once upon a time", max_tokens=4, stream=True))
    assert "".join(piece.choices[0].text for piece in pieces)


def openai_responses():
    client = openai_client()
    response = client.responses.create(
        model=MODEL, input="Name three colours.", instructions="Be brief.", max_output_tokens=12, temperature=0)
    assert response.output_text and response.status in ("completed", "incomplete")
    assert response.usage.output_tokens <= 12
    with client.responses.stream(
            model=MODEL, input=COLOURS, instructions="Be brief.", max_output_tokens=12, temperature=0) as stream:
        events = list(stream)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == response.output_text and events[-1].type in ("response.completed", "response.incomplete")


def openai_responses_with_tools():
    client = openai_client()
    tools = [{"type": "function", **WEATHER}]
    items = [*COLOURS, {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{}"},
             {"type": "function_call_output", "call_id": "c1", "output": "sunny"}]
    assert client.responses.create(model=MODEL, input=items, tools=tools, max_output_tokens=4).output
    error = fails(openai.BadRequestError, lambda: client.responses.create(
        model=MODEL, input="Hi", tools=[{"type": "web_search"}], tool_choice="required"))
    assert error.param == "tool_choice", error.param
    error = fails(openai.BadRequestError, lambda: client.responses.create(
        model=MODEL, input="Hi", previous_response_id="resp_1"))
    assert error.param == "previous_response_id", error.param


def openai_models_and_errors():
    client = openai_client()
    assert MODEL in [model.id for model in client.models.list()]
    assert client.models.retrieve(MODEL).id == MODEL
    error = fails(openai.NotFoundError, lambda: client.chat.completions.create(model="gpt-9", messages=COLOURS))
    assert error.code == "model_not_found" and error.request_id
    fails(openai.BadRequestError, lambda: client.chat.completions.create(model=MODEL, messages=[]))
    error = fails(openai.BadRequestError, lambda: client.chat.completions.create(
        model=MODEL, messages=COLOURS, temperature=-1))
    assert error.param == "temperature"
    error = fails(openai.AuthenticationError, lambda: openai_client("sk-wrong").models.list())
    assert error.code == "invalid_api_key"


def openai_one_at_a_time():
    client = openai_client(ONE_AT_A_TIME)
    ask = lambda **more: client.chat.completions.create(model=MODEL, messages=COLOURS, **more)
    with ask(max_tokens=LONG, stream=True, extra_body={"ignore_eos": True}) as stream:
        next(stream)
        error = fails(openai.RateLimitError, lambda: ask(max_tokens=1))
        assert int(error.response.headers["retry-after"]) > 0


@several_tries
def openai_cancellation():
    stream = openai_client().chat.completions.create(
        model=MODEL, messages=COLOURS, max_tokens=LONG, stream=True, extra_body={"ignore_eos": True})
    is_cancelled(stream, stream.close)


@several_tries
def openai_structured():
    answer = openai_client().chat.completions.parse(model=MODEL, messages=MOVED, response_format=Move, max_tokens=200)
    assert isinstance(answer.choices[0].message.parsed, Move), answer
    answer = openai_client().responses.parse(model=MODEL, input=MOVED, text_format=Move, max_output_tokens=200)
    assert isinstance(answer.output_parsed, Move), answer
    named = {"type": "function", "function": {"name": "get_weather"}}
    answer = openai_client().chat.completions.create(
        model=MODEL, messages=COLOURS, tools=[{"type": "function", "function": WEATHER}], tool_choice=named, max_tokens=200)
    call = answer.choices[0].message.tool_calls[0].function
    assert call.name == "get_weather" and "city" in json.loads(call.arguments)


def openai_embeddings():
    client = openai_client()
    texts = ["The sky is blue.", "Ropeways carry many cabins."]
    both = client.embeddings.create(model=EMBEDDER, input=texts)
    assert [item.index for item in both.data] == [0, 1] and both.usage.prompt_tokens > 0
    # The library asks for base64 unless told otherwise.
    plain = client.embeddings.create(model=EMBEDDER, input=texts[0], encoding_format="float")
    assert close(plain.data[0].embedding, both.data[0].embedding)
    assert len(client.embeddings.create(model=EMBEDDER, input=texts, dimensions=64).data[0].embedding) == 64
    fails(openai.NotFoundError, lambda: client.embeddings.create(model="gpt-9", input=texts))


def anthropic_client(key=KEY):
    return anthropic.Anthropic(base_url=URL, api_key=key, max_retries=0)


def anthropic_messages():
    message = anthropic_client().messages.create(model="claude-opus-4-8", max_tokens=12, messages=COLOURS, system="Be brief.")
    assert message.content[0].text and message.stop_reason in ("max_tokens", "end_turn") and message.model == MODEL


TOOL = {"name": "get_weather", "description": "The weather", "input_schema": WEATHER["parameters"]}


def anthropic_stream_and_tools():
    with anthropic_client().messages.stream(model=MODEL, max_tokens=12, messages=COLOURS, tools=[TOOL]) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert final.usage.output_tokens > 0 and (text or final.stop_reason == "tool_use")
    events = [event.type for event in anthropic_client().messages.create(
        model=MODEL, max_tokens=4, messages=COLOURS, stream=True)]
    assert events[0] == "message_start" and events[-1] == "message_stop" and "content_block_delta" in events


def anthropic_tool_turns():
    turn = [
        {"role": "user", "content": [{"type": "text", "text": "How is the weather in Rome?"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Rome"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}]},
    ]
    message = anthropic_client().messages.create(model=MODEL, max_tokens=8, messages=turn, tools=[TOOL], tool_choice={"type": "auto"})
    assert message.content and message.usage.output_tokens > 0


@several_tries
def anthropic_structured():
    form = {"format": {"type": "json_schema", "schema": Move.model_json_schema()}}
    answer = anthropic_client().messages.create(
        model="claude-x", messages=MOVED, max_tokens=200, extra_body={"output_config": form})
    Move.model_validate_json(answer.content[0].text)
    tool = {"name": WEATHER["name"], "input_schema": WEATHER["parameters"]}
    answer = anthropic_client().messages.create(
        model="claude-x", messages=COLOURS, max_tokens=200, tools=[tool], tool_choice={"type": "any"})
    call = answer.content[-1]
    assert call.type == "tool_use" and "city" in call.input


def anthropic_counts_and_errors():
    client = anthropic_client()
    counted = client.messages.count_tokens(model=MODEL, messages=COLOURS).input_tokens
    usage = client.messages.create(model=MODEL, messages=COLOURS, max_tokens=1).usage
    assert counted == usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens > 10
    assert MODEL in [model.id for model in client.models.list()]
    ask = lambda client=client, **more: client.messages.create(**{"model": MODEL, "max_tokens": 1, "messages": COLOURS, **more})
    for error, kind, call in [
        (anthropic.NotFoundError, "not_found_error", lambda: ask(model="gpt-9")),
        (anthropic.BadRequestError, "invalid_request_error", lambda: ask(messages=[])),
        (anthropic.BadRequestError, "invalid_request_error", lambda: ask(extra_body={"temperature": -1})),
        (anthropic.AuthenticationError, "authentication_error", lambda: ask(anthropic_client("sk-wrong"))),
    ]:
        assert fails(error, call).body["error"]["type"] == kind
    one = anthropic_client(ONE_AT_A_TIME)
    with ask(one, max_tokens=LONG, stream=True) as stream:
        next(stream)
        error = fails(anthropic.RateLimitError, lambda: ask(one))
        assert error.body["error"]["type"] == "rate_limit_error" and int(error.response.headers["retry-after"]) > 0


@several_tries
def anthropic_cancellation():
    story = [{"role": "user", "content": "Write a very long story about a ropeway."}]
    stream = anthropic_client().messages.create(model=MODEL, max_tokens=LONG, messages=story, stream=True)
    is_cancelled(stream, stream.close)


def ollama_client(key=KEY):
    return ollama.Client(host=URL, headers={"authorization": f"Bearer {key}"})


def ollama_chat():
    client = ollama_client()
    answer = client.chat(model=MODEL, messages=COLOURS, options={"num_predict": 6, "temperature": 0})
    assert answer.message.content and answer.done and answer.eval_count == 6
    pieces = list(client.chat(model=MODEL, messages=COLOURS, options={"num_predict": 6, "temperature": 0}, stream=True))
    assert pieces[-1].done and "".join(piece.message.content for piece in pieces)
    tools = [{"type": "function", "function": WEATHER}]
    turn = [*COLOURS, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "get_weather", "arguments": {}}}]},
            {"role": "tool", "tool_name": "get_weather", "content": "sunny"}]
    assert client.chat(model=MODEL, messages=turn, tools=tools, options={"num_predict": 4}).done


def ollama_generate():
    client = ollama_client()
    assert client.generate(model=MODEL, prompt="Hi", options={"num_predict": 4}).response
    pieces = list(client.generate(model=MODEL, prompt="Hi", options={"num_predict": 4}, stream=True))
    assert pieces[-1].done and pieces[-1].done_reason == "length" and pieces[-1].eval_count == 4
    assert client.generate(model=MODEL).done_reason == "load"


@several_tries
def ollama_structured():
    answer = ollama_client().chat(model=MODEL, messages=MOVED, format=Move.model_json_schema(), options={"num_predict": 200})
    Move.model_validate_json(answer.message.content)
    assert answer.done_reason == "stop"
    answer = ollama_client().generate(model=MODEL, prompt=MOVED[0]["content"], format="json", options={"num_predict": 60})
    assert isinstance(json.loads(answer.response), dict)


def ollama_embeddings():
    client = ollama_client()
    one = client.embed(model=EMBEDDER, input="The sky is blue.").embeddings
    assert close(one[0], client.embed(model=EMBEDDER, input=["Grass", "The sky is blue."]).embeddings[1])
    assert close(one[0], client.embeddings(model=EMBEDDER, prompt="The sky is blue.").embedding)


def ollama_models_and_errors():
    client = ollama_client()
    # Ollama lists no name without a tag.
    listed = MODEL if ":" in MODEL else f"{MODEL}:latest"
    assert listed in [model.model for model in client.list().models]
    assert client.show(listed).template
    shown = client.show(MODEL)
    assert shown.template and "completion" in shown.capabilities
    assert listed in [model.model for model in client.ps().models]
    for status, call in [
        (404, lambda: client.chat(model="gpt-9", messages=COLOURS)),
        (400, lambda: client.chat(model=MODEL, messages=[{"role": "robot", "content": "Hi"}])),
        (400, lambda: client.generate(model=MODEL, prompt="Hi", options={"temperature": -1.0})),
        (401, lambda: ollama_client("sk-wrong").list()),
    ]:
        error = fails(ollama.ResponseError, call)
        assert error.status_code == status and error.error, (error.status_code, error.error)


def ollama_derived_models():
    client = ollama_client()
    made = client.create(model="mario", from_=MODEL, system="You are Mario.", parameters={"num_predict": 5}, stream=True)
    assert [line.status for line in made][-1] == "success"
    answer = client.chat(model="mario", messages=COLOURS)
    assert answer.model == "mario" and answer.eval_count <= 5
    shown = client.show("mario")
    assert "num_predict" in shown.parameters and "SYSTEM" in shown.modelfile and shown.details.parent_model == MODEL
    client.copy("mario", "luigi")
    # Every family knows it, and puts its system prompt before the question.
    openai_side = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY).chat.completions
    asked = [openai_side.create(model=model, messages=COLOURS, max_tokens=2).usage.prompt_tokens for model in ("luigi", MODEL)]
    assert asked[0] != asked[1]
    for name in ("mario", "luigi"):
        assert client.delete(name).status == "success"
    assert fails(ollama.ResponseError, lambda: client.show("mario")).status_code == 404


def ollama_thoughts_and_probabilities():
    client = ollama_client()
    answer = client.chat(model=MODEL, messages=COLOURS, options={"num_predict": 4}, logprobs=True, top_logprobs=3)
    assert len(answer.logprobs) == 4 and all(len(one.top_logprobs) == 3 for one in answer.logprobs)
    error = fails(ollama.ResponseError, lambda: client.chat(model=MODEL, messages=COLOURS, think=True))
    assert error.status_code == 400 and "does not support thinking" in error.error
    assert client.chat(model=MODEL, messages=COLOURS, think=False, options={"num_predict": 2, "num_ctx": 10**6}).done


@several_tries
def ollama_cancellation():
    stream = ollama_client().generate(
        model=MODEL, prompt="Write a very long story about a ropeway.", options={"num_predict": LONG}, stream=True)
    is_cancelled(stream, stream.close)


CHECKS = [
    openai_chat, openai_chat_stream, openai_logprobs_and_n, openai_prediction, openai_tools, openai_completions, openai_responses,
    openai_responses_with_tools, openai_structured, openai_embeddings, openai_models_and_errors, openai_one_at_a_time, openai_cancellation,
    anthropic_messages, anthropic_stream_and_tools, anthropic_tool_turns, anthropic_structured, anthropic_counts_and_errors,
    anthropic_cancellation, ollama_chat, ollama_generate, ollama_structured, ollama_embeddings, ollama_models_and_errors,
    ollama_derived_models, ollama_thoughts_and_probabilities, ollama_cancellation,
]


def main():
    failed = 0
    for check in CHECKS:
        began = time.monotonic()
        try:
            check()
            print(f"ok      {check.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
        except Exception:  # every kind of surprise is a failed check
            failed += 1
            print(f"FAILED  {check.__name__}", flush=True)
            traceback.print_exc()
    sys.exit(1 if failed else 0)


main()
