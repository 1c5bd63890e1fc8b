#!/usr/bin/env python3
"""LangChain, as it comes, against a running server: tests/clients/langchain_client.py URL. Needs langchain-openai and
langchain-ollama. Prints one line per check; the protocol is checked, not the model's wit.
"""
import os
import sys

from checks import check, finish
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

URL = sys.argv[1]
os.environ.update(OPENAI_BASE_URL=f"{URL}/v1", OPENAI_API_KEY="none")
MODEL, EMBEDDER = "smollm2:135m", "all-minilm:l6-v2"


def weather(city: str) -> str:
    """The weather of a city."""
    return f"Sunny in {city}."


@check
def chat_streams():
    model = ChatOpenAI(model=MODEL, max_tokens=12, temperature=0)
    whole = model.invoke("Name three colours.")
    assert whole.content and whole.usage_metadata["output_tokens"] == 12, whole
    assert "".join(chunk.content for chunk in model.stream("Name three colours.")) == whole.content


@check
def responses_go_on_from_the_one_before():
    model = ChatOpenAI(model=MODEL, max_tokens=24, use_responses_api=True, use_previous_response_id=True)
    first = model.invoke("My name is Ada.")
    assert first.response_metadata["id"].startswith("resp_"), first.response_metadata
    second = model.invoke([("user", "My name is Ada."), first, ("user", "What is my name?")])
    assert second.usage_metadata["input_tokens"] > first.usage_metadata["input_tokens"]


@check
def tools_are_called():
    model = ChatOpenAI(model=MODEL, temperature=0, max_tokens=64).bind_tools([weather], tool_choice="weather")
    call = model.invoke("How is the weather in Paris?").tool_calls[0]
    assert call["name"] == "weather" and "city" in call["args"], call


@check
def structured_output_follows_its_schema():
    schema = {"title": "colour", "type": "object", "properties": {"name": {"enum": ["red", "blue"]}}, "required": ["name"]}
    model = ChatOpenAI(model=MODEL, max_tokens=32).with_structured_output(schema, method="json_schema")
    assert model.invoke("Name a colour.")["name"] in ("red", "blue")


@check
def completions():
    assert OpenAI(model=MODEL, max_tokens=8).invoke("Once upon a time")


@check
def embeddings_as_they_come_equal_those_of_the_text():
    """Sends token ids of OpenAI's tokenizer, whose file has to be there or within reach."""
    texts = ["The sky is blue.", "Ropeways carry people up mountains."]
    as_it_comes = OpenAIEmbeddings(model=EMBEDDER).embed_documents(texts)
    as_text = OpenAIEmbeddings(model=EMBEDDER, check_embedding_ctx_length=False).embed_documents(texts)
    for one, other in zip(as_it_comes, as_text, strict=True):
        cosine = sum(a * b for a, b in zip(one, other, strict=True))
        assert cosine > 0.9999, cosine


@check
def ollamas_side():
    model = ChatOllama(base_url=URL, model=MODEL, num_predict=8, num_ctx=131072)
    assert model.invoke("Hello!").content
    assert len(OllamaEmbeddings(base_url=URL, model=EMBEDDER).embed_query("Hello!")) == 384


finish()
