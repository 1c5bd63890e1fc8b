#!/usr/bin/env python3
"""A folder in Hugging Face's format for servers that make up weights themselves: tiny_model.py FOLDER

The fixture's tokenizer, a template, and a shape that the attention of vLLM's CPU build can compute, which wants heads of 32 numbers or more.
"""
import json
import pathlib
import shutil
import sys

FIXTURE = pathlib.Path(__file__).resolve().parents[1] / "fixtures/models/llama"
TEMPLATE = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
SHAPE = {"hidden_size": 128, "head_dim": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 1024}

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
shutil.copy(FIXTURE / "tokenizer.json", folder)
config = json.loads((FIXTURE / "config.json").read_text())
(folder / "config.json").write_text(json.dumps({**config, **SHAPE}))
tokenizer = json.loads((FIXTURE / "tokenizer_config.json").read_text())
(folder / "tokenizer_config.json").write_text(json.dumps({**tokenizer, "chat_template": TEMPLATE}))
