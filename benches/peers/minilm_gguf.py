#!/usr/bin/env python3
"""all-MiniLM-L6-v2 as a GGUF file, so that llama.cpp can be measured on it. Needs gguf, numpy and safetensors from PyPI.

    benches/peers/minilm_gguf.py FOLDER OUT.gguf
"""

import json
import pathlib
import sys

import gguf
import numpy as np
from safetensors.numpy import load_file

NAMES = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm": "token_embd_norm",
}
PARTS = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def renamed(name):
    if name in NAMES:
        return NAMES[name]
    stem, end = name.rsplit(".", 1)
    if stem in NAMES:
        return f"{NAMES[stem]}.{end}"
    if not stem.startswith("encoder.layer."):
        return None
    layer, part = stem.removeprefix("encoder.layer.").split(".", 1)
    return f"blk.{layer}.{PARTS[part]}.{end}"


def spelled(word):
    """How llama.cpp writes a WordPiece token: the beginning of a word has a mark, what goes on has none."""
    if word.startswith("[") and word.endswith("]"):
        return word
    return word[2:] if word.startswith("##") else "\u2581" + word


def main():
    folder, out = pathlib.Path(sys.argv[1]), sys.argv[2]
    config = json.loads((folder / "config.json").read_text())
    vocab = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    words = sorted(vocab, key=vocab.get)
    writer = gguf.GGUFWriter(out, "bert")
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_tokenizer_model("bert")
    writer.add_token_list([spelled(word) for word in words])
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    writer.add_token_types([control if word.startswith("[") and word.endswith("]") else normal for word in words])
    writer.add_pad_token_id(vocab["[PAD]"])
    writer.add_unk_token_id(vocab["[UNK]"])
    writer.add_bos_token_id(vocab["[CLS]"])
    writer.add_sep_token_id(vocab["[SEP]"])
    writer.add_eos_token_id(vocab["[SEP]"])
    writer.add_mask_token_id(vocab["[MASK]"])
    for name, tensor in load_file(folder / "model.safetensors").items():
        if (target := renamed(name)) is not None:
            is_matrix = tensor.ndim == 2 and "norm" not in target and "position" not in target and "types" not in target
            writer.add_tensor(target, tensor.astype(np.float16 if is_matrix else np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
