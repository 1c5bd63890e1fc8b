#!/usr/bin/env python3
"""LlamaIndex, as it comes, against a running server: tests/clients/llama_index_client.py URL. Needs
llama-index-llms-openai-like, llama-index-llms-ollama and their embeddings. Prints one line per check; the protocol is checked,
not the model's wit.
"""
import sys

from checks import check, finish
from llama_index.core.llms import ChatMessage
from llama_index.embeddings.ollama import OllamaEmbedding
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.ollama import Ollama
from llama_index.llms.openai_like import OpenAILike

URL = sys.argv[1]
MODEL, EMBEDDER = "smollm2:135m", "all-minilm:l6-v2"
HELLO = [ChatMessage(role="user", content="Name three colours.")]


@check
def openais_side():
    model = OpenAILike(model=MODEL, api_base=f"{URL}/v1", api_key="none", is_chat_model=True, max_tokens=12, temperature=0)
    whole = model.chat(HELLO).message.content
    assert whole and "".join(chunk.delta or "" for chunk in model.stream_chat(HELLO)) == whole
    assert model.complete("Once upon a time").text


@check
def ollamas_side_with_a_context_that_is_too_large():
    model = Ollama(model=MODEL, base_url=URL, context_window=131072, request_timeout=120, additional_kwargs={"num_predict": 12})
    assert model.chat(HELLO).message.content
    assert "".join(chunk.delta or "" for chunk in model.stream_chat(HELLO))


@check
def embeddings():
    openai = OpenAILikeEmbedding(model_name=EMBEDDER, api_base=f"{URL}/v1", api_key="none")
    ollama = OllamaEmbedding(model_name=EMBEDDER, base_url=URL)
    one, other = openai.get_text_embedding("The sky is blue."), ollama.get_text_embedding("The sky is blue.")
    assert len(one) == 384 and sum(a * b for a, b in zip(one, other, strict=True)) > 0.9999


finish()
