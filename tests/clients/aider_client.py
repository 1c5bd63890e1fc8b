#!/usr/bin/env python3
"""A turn of Aider, as it comes, through Ollama's API: tests/clients/aider_client.py URL. Needs aider-chat. It asks for contexts
that grow with the conversation (`num_ctx`), whatever the model has.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from checks import check, finish

URL = sys.argv[1]


def turn(model, **variables):
    """What Aider says to a question in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            pathlib.Path(sys.executable).with_name("aider"), "--model", model, "--message", "Say hello.", "--yes-always",
            "--no-git", "--no-check-update", "--no-show-model-warnings", "--no-analytics", "--no-auto-lint", "--map-tokens", "0",
            "--edit-format", "ask"]
        done = subprocess.run(
            command, cwd=folder, env=os.environ | variables | {"HOME": folder}, capture_output=True, text=True, timeout=400)
        said = done.stdout + done.stderr
        assert done.returncode == 0 and re.search(r"Tokens: \d+ sent, [1-9]", said), said


@check
def through_ollamas_api():
    turn("ollama_chat/smollm2:135m", OLLAMA_API_BASE=URL)


@check
def through_openais_api():
    turn("openai/smollm2:135m", OPENAI_API_BASE=f"{URL}/v1", OPENAI_API_KEY="none")


finish()
