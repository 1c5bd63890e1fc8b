#!/usr/bin/env python3
"""openai-agents and the openai library's stored responses against a running server.

    python3 -m venv agents && agents/bin/pip install openai-agents
    ropeway serve &
    agents/bin/python tests/clients/openai_agents.py http://127.0.0.1:8000

Prints one line per check; the exit code says whether all of them passed. The protocol is checked, not the model's wit.
"""
import asyncio
import sys
import time
import traceback
import typing

import openai
import pydantic
from agents import (
    Agent,
    ModelSettings,
    OpenAIConversationsSession,
    Runner,
    function_tool,
    set_default_openai_client,
    set_tracing_disabled,
)

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
KEY = sys.argv[2] if len(sys.argv) > 2 else "none"
CLIENT = openai.AsyncOpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
PLAIN = openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0)
MODEL = PLAIN.models.list().data[0].id
SHORT = ModelSettings(max_tokens=64, temperature=0)
CALLS = []


class Guess(pydantic.BaseModel):
    """An answer that ends, however small the model is: runs that are cut are errors to openai-agents."""

    name: typing.Literal["Ada", "Bob"]


@function_tool
def warmth(city: str) -> str:
    """How warm it is in a city."""
    CALLS.append(city)
    return f"20 degrees in {city}"


def agent(**more):
    usual = {"model_settings": SHORT} if "tools" in more else {"model_settings": SHORT, "output_type": Guess}
    return Agent(name="helper", instructions="Be brief.", model=MODEL, **(usual | more))


async def two_turns_with_previous_response_id():
    one = await Runner.run(agent(), "My name is Ada.")
    assert one.last_response_id.startswith("resp_"), one.last_response_id
    two = await Runner.run(agent(), "What is my name?", previous_response_id=one.last_response_id)
    items = PLAIN.responses.input_items.list(two.last_response_id, order="asc").data
    texts = [part.text for item in items for part in item.content]
    assert texts[0] == "My name is Ada." and texts[-1] == "What is my name?", texts
    assert Guess.model_validate_json(texts[1]) == one.final_output, texts
    assert two.final_output.name in ("Ada", "Bob")


async def a_session_is_a_conversation():
    session = OpenAIConversationsSession(openai_client=CLIENT)
    for question in ["My name is Ada.", "What is my name?"]:
        await Runner.run(agent(), question, session=session)
    items = await session.get_items()
    assert [item["role"] for item in items] == ["user", "assistant"] * 2, items
    last = await session.pop_item()
    assert last["role"] == "assistant" and len(await session.get_items()) == 3
    await session.clear_session()


async def a_conversation_is_gone_on_with():
    conversation = PLAIN.conversations.create(metadata={"topic": "names"})
    for question in ["My name is Ada.", "What is my name?"]:
        await Runner.run(agent(), question, conversation_id=conversation.id)
    items = PLAIN.conversations.items.list(conversation.id, order="asc", limit=2)
    assert items.has_more and len(list(items)) == 4, items
    assert PLAIN.conversations.retrieve(conversation.id).metadata == {"topic": "names"}
    assert PLAIN.conversations.delete(conversation.id).deleted


async def a_tool_is_called_and_answered():
    settings = ModelSettings(max_tokens=64, temperature=0, tool_choice="required")
    result = await Runner.run(agent(tools=[warmth], model_settings=settings), "How warm is it in Oslo?")
    kinds = [item.type for item in result.new_items]
    assert kinds[:2] == ["tool_call_item", "tool_call_output_item"] and CALLS, kinds


async def a_run_is_streamed():
    settings = ModelSettings(max_tokens=64, temperature=0, tool_choice="required")
    run = Runner.run_streamed(agent(tools=[warmth], model_settings=settings), "How warm is it in Rome?")
    raw = [event.data.type async for event in run.stream_events() if event.type == "raw_response_event"]
    assert "response.function_call_arguments.done" in raw and raw.count("response.completed") + raw.count(
        "response.incomplete"
    ) == raw.count("response.created"), raw


async def the_library_streams_into_a_whole_response():
    with PLAIN.responses.stream(
        model=MODEL, input="Who was it?", max_output_tokens=64, text_format=Guess
    ) as stream:
        numbers = [event.sequence_number for event in stream]
        whole = stream.get_final_response()
    assert numbers == list(range(len(numbers))), numbers
    assert PLAIN.responses.retrieve(whole.id).output_text == whole.output_text


async def a_response_in_the_background_is_polled_and_cancelled():
    short = PLAIN.responses.create(model=MODEL, input="Hi", max_output_tokens=8, background=True)
    assert short.status in ("queued", "in_progress"), short.status
    for _ in range(200):
        done = PLAIN.responses.retrieve(short.id)
        if done.status not in ("queued", "in_progress"):
            break
        time.sleep(0.05)
    assert done.status in ("completed", "incomplete") and done.output, done
    endless = PLAIN.responses.create(model=MODEL, input="Count.", background=True, max_output_tokens=4000)
    assert PLAIN.responses.cancel(endless.id).status in ("cancelled", "completed")
    PLAIN.responses.delete(endless.id)


async def what_is_not_there_is_said_in_openais_words():
    for call, code in [
        (lambda: PLAIN.responses.retrieve("resp_none"), None),
        (
            lambda: PLAIN.responses.create(model=MODEL, input="Hi", previous_response_id="resp_none"),
            "previous_response_not_found",
        ),
        (lambda: PLAIN.conversations.retrieve("conv_none"), None),
    ]:
        try:
            call()
        except openai.APIStatusError as error:
            assert "not found" in error.message and error.code == code, error
        else:
            raise AssertionError("there is nothing of that name")


async def a_custom_tool_takes_text():
    answer = PLAIN.responses.create(
        model=MODEL,
        input="Write a patch.",
        tools=[{"type": "custom", "name": "patch", "description": "Applies a patch."}, {"type": "web_search"}],
        tool_choice={"type": "custom", "name": "patch"},
        max_output_tokens=64,
    )
    call = next(item for item in answer.output if item.type == "custom_tool_call")
    assert call.name == "patch" and isinstance(call.input, str), call
    try:
        PLAIN.responses.create(
            model=MODEL, input="Hi", tools=[{"type": "web_search"}], tool_choice={"type": "web_search"}
        )
    except openai.BadRequestError as error:
        assert "web_search" in error.message, error
    else:
        raise AssertionError("a tool that does not exist was forced")


async def main():
    set_default_openai_client(CLIENT)
    set_tracing_disabled(True)
    checks = [value for name, value in globals().items() if asyncio.iscoroutinefunction(value) and name != "main"]
    failed = 0
    for check in checks:
        began = time.monotonic()
        try:
            await check()
            print(f"ok      {check.__name__} ({time.monotonic() - began:.1f} s)")
        except Exception:
            failed += 1
            print(f"FAILED  {check.__name__}")
            traceback.print_exc()
    sys.exit(1 if failed else 0)


asyncio.run(main())
