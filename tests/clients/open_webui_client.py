#!/usr/bin/env python3
"""Open WebUI, as it comes, in front of a running server: tests/clients/open_webui_client.py URL. Needs open-webui, which is large.
Its own server is started without accounts and asked as its pages ask it.
"""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from checks import check, finish

URL = sys.argv[1]
MODEL = "smollm2:135m"
FOLDER = pathlib.Path(tempfile.mkdtemp())
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    PORT = free.getsockname()[1]
BASE = f"http://127.0.0.1:{PORT}"
SETTINGS = {
    "OLLAMA_BASE_URL": URL, "OPENAI_API_BASE_URL": f"{URL}/v1", "OPENAI_API_KEY": "none", "WEBUI_AUTH": "False",
    "DATA_DIR": str(FOLDER), "WEBUI_SECRET_KEY": "secret", "RAG_EMBEDDING_ENGINE": "ollama", "HF_HUB_OFFLINE": "1",
    "RAG_OLLAMA_BASE_URL": URL, "RAG_EMBEDDING_MODEL": "all-minilm:l6-v2", "ENABLE_VERSION_UPDATE_CHECK": "False",
}
TOKEN = None


def ask(path, body=None, method=None):
    """The answer of Open WebUI's server, as text."""
    headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {TOKEN}"} if TOKEN else {})
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{BASE}{path}", data, headers, method=method)
    return urllib.request.urlopen(request, timeout=120).read().decode()


def start():
    log = open(FOLDER / "log", "w")
    command = [pathlib.Path(sys.executable).with_name("open-webui"), "serve", "--host", "127.0.0.1", "--port", str(PORT)]
    server = subprocess.Popen(command, stdout=log, stderr=log, cwd=FOLDER, env=os.environ | SETTINGS)
    for _ in range(600):
        try:
            ask("/health")
            return server
        except OSError:
            assert server.poll() is None, (FOLDER / "log").read_text()[-3000:]
            time.sleep(0.5)
    raise TimeoutError("open-webui did not start")


server = start()
TOKEN = json.loads(ask("/api/v1/auths/signin", {"email": "", "password": ""}))["token"]


@check
def its_lists_hold_the_models_of_both_apis():
    tags = json.loads(ask("/ollama/api/tags"))["models"]
    assert any(model["model"] == MODEL for model in tags), tags
    assert json.loads(ask("/ollama/api/version"))["version"]
    models = json.loads(ask("/api/models"))["data"]
    assert any(model["id"] == MODEL for model in models), models


@check
def a_chat_through_its_page_with_a_context_that_is_too_large():
    body = {
        "model": MODEL, "stream": True, "messages": [{"role": "user", "content": "Hello!"}],
        "params": {"num_ctx": 131072, "max_tokens": 8}, "options": {"num_ctx": 131072, "num_predict": 8}}
    answer = ask("/api/chat/completions", body)
    assert "data: " in answer and "error" not in answer.lower(), answer


@check
def ollamas_calls_through_it():
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": False, "options": {"num_predict": 6}}
    assert json.loads(ask("/ollama/api/chat", body))["message"]["content"]
    assert json.loads(ask("/ollama/api/show", {"model": MODEL}))["capabilities"]
    assert json.loads(ask("/ollama/api/embed", {"model": "all-minilm:l6-v2", "input": ["a"]}))["embeddings"]


@check
def a_model_made_and_deleted_on_its_settings_page():
    made = ask("/ollama/api/create/0", {"model": "mario", "from": MODEL, "system": "You are Mario."})
    assert "success" in made, made
    ask("/ollama/api/delete/0", {"model": "mario"}, method="DELETE")


server.terminate()
server.wait()
finish()
