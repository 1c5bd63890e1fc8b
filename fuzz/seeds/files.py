"""Files of models: weights, tokenizers and templates."""

import json
import struct

from encoding import ALIGNMENT, HERE, TYPES, array, entry, gguf, pair, safetensors, string, write, write_all


def gguf_seeds():
    for kind, (_, values, _) in TYPES.items():
        write("gguf", kind, gguf([("t", [values * 2, 2], kind)]))
    write("gguf", "experts", gguf([("e", [32, 2, 3], "q8_0"), ("n", [8], "f32")]))
    entries = [
        entry("general.alignment", 4, struct.pack("<I", ALIGNMENT)),
        entry("name", 8, string("näme")),
        entry("flag", 7, b"\x01"),
        entry("big", 10, struct.pack("<Q", 2**40)),
        entry("eps", 6, struct.pack("<f", 1e-5)),
        entry("tokens", 9, array(8, 3, string("a") + string("") + string("日本"))),
        entry("types", 9, array(5, 2, struct.pack("<ii", -1, 3))),
        entry("scores", 9, array(6, 2, struct.pack("<ff", 0.5, -1.0))),
        entry("flags", 9, array(7, 3, b"\x00\x01\x01")),
    ]
    write("gguf", "metadata", gguf([("t", [8], "f32")], entries))


def safetensors_seeds():
    file = safetensors({"a": ("F32", [2, 2], 16), "b": ("BF16", [3], 6), "i": ("I64", [1], 8)})
    write("safetensors", "single", pair(None, file))
    write("safetensors", "sharded", pair({"weight_map": {"a": "s", "b": "s"}}, file))


def mlx_seeds():
    four = {"m.weight": ("U32", [2, 8], 64), "m.scales": ("F16", [2, 2], 8), "m.biases": ("F16", [2, 2], 8)}
    eight = {"m.weight": ("U32", [2, 16], 128), "m.scales": ("F32", [2, 1], 8), "m.biases": ("F32", [2, 1], 8)}
    write("mlx", "four", pair({"quantization": {"bits": 4, "group_size": 32}}, safetensors(four)))
    own = {"quantization": {"bits": 4, "group_size": 128, "m": {"bits": 8, "group_size": 64}}}
    write("mlx", "override", pair(own, safetensors(eight)))
    write("mlx", "plain", pair({}, safetensors({"n.weight": ("BF16", [4], 8)})))


def tokenizer_file_seeds():
    letters = {letter: index for index, letter in enumerate("abcdehlorw Ġ▁")}
    special = [{"id": 90, "content": "<s>", "special": True, "single_word": False, "lstrip": False, "rstrip": True, "normalized": False},
               {"id": 91, "content": "Word", "special": False, "single_word": True, "lstrip": True, "rstrip": False, "normalized": True}]
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [90], "tokens": ["<s>"]}}}
    split = {"type": "Split", "pattern": {"Regex": "\\p{L}+|\\s+(?!\\S)|\\s"}, "behavior": "Isolated", "invert": False}
    files = {
        "bpe": {"added_tokens": special, "normalizer": {"type": "NFC"}, "post_processor": template,
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                    split, {"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False}]},
                "decoder": {"type": "ByteLevel"},
                "model": {"type": "BPE", "vocab": {**letters, "he": 20, "ll": 21, "hell": 22}, "merges": ["h e", ["l", "l"], "he ll"]}},
        "fallback": {"added_tokens": special, "normalizer": {"type": "Sequence", "normalizers": [
                        {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
                     "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                                 {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
                     "model": {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True,
                               "vocab": {**letters, "<unk>": 30, "<0x0A>": 31, "<0xE6>": 32}, "merges": []}},
        "unigram": {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
                    "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"},
                    "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": False,
                              "vocab": [["<unk>", 0.0], ["▁", -2.0], ["he", -3.5], ["l", -4.0], ["hello", -1.0], ["a", -9.25]]}},
        "wordpiece": {"added_tokens": special, "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                                                              "strip_accents": None, "lowercase": True},
                      "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
                      "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 4], "cls": ["[CLS]", 3]},
                      "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
                                "vocab": {"[UNK]": 0, "he": 1, "##llo": 2, "[CLS]": 3, "[SEP]": 4, ",": 5}}},
        # Attacks: an id that would make a table of gigabytes, a merge that refers to nothing, an expression that takes for ever.
        "attack_id": {"model": {"type": "BPE", "vocab": {"a": 4294967295}, "merges": []}},
        "attack_merge": {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b", "a", ""]}},
        "attack_pattern": {"pre_tokenizer": {**split, "pattern": {"Regex": "((a{1,100}){1,100}){1,100}(?=.*b)"}},
                           "model": {"type": "BPE", "vocab": letters, "merges": []}},
    }
    config = {"bos_token": "<s>", "eos_token": {"content": "Word"}, "add_bos_token": True, "add_eos_token": True}
    for name, file in files.items():
        own = None if name.startswith("attack") else config
        write("tokenizer_file", name, pair(own, json.dumps(file).encode()))
    strings = lambda texts: array(8, len(texts), b"".join(map(string, texts)))
    tokens = ["<unk>", "<s>", "a", "b", "ab", "▁", "<0x0A>", "Ġ", "##a"]
    for model in ["gpt2", "llama", "bert", "t5"]:
        entries = [
            entry("tokenizer.ggml.model", 8, string(model)),
            entry("tokenizer.ggml.pre", 8, string("llama-bpe")),
            entry("tokenizer.ggml.tokens", 9, strings(tokens)),
            entry("tokenizer.ggml.merges", 9, strings(["a b"])),
            entry("tokenizer.ggml.scores", 9, array(6, len(tokens), struct.pack(f"<{len(tokens)}f", *(-float(n) for n in range(len(tokens)))))),
            entry("tokenizer.ggml.token_type", 9, array(5, len(tokens), struct.pack(f"<{len(tokens)}i", 2, 3, 1, 1, 1, 1, 6, 1, 4))),
            entry("tokenizer.ggml.bos_token_id", 4, struct.pack("<I", 1)),
            entry("tokenizer.ggml.eos_token_id", 4, struct.pack("<I", 400)),
            entry("tokenizer.ggml.add_bos_token", 7, b"\x01"),
            entry("tokenizer.ggml.add_space_prefix", 7, b"\x01"),
        ]
        write("tokenizer_file", f"gguf_{model}", pair(None, gguf([], entries)))


def tokenize_seeds():
    texts = {
        "words": "Hello, world! How's it going? 1234567 don't DON'T",
        "scripts": "naïve Ελληνικά русский עברית العربية हिन्दी 日本語 한국어 ไทย",
        "marks": "e\u0301 \u1100\u1161\u11a8 \u2126 \ufb01 \u00bd",
        "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f",
        "spaces": "  a\t\tb\r\n\r\n c\u00a0\u3000\u2028d   ",
        "controls": "\0\x01\x7f\x85\u200b\ufeff\ufffd\u2581\u2581",
        "specials": "<s></s><|im_start|>user<|im_end|><|endoftext|>[CLS][SEP]<unk><0x0A><tool_call>",
        "run": "a" * 300,
        "code": "fn main() {\n    println!(\"{}\", 0x1F + 1e-9);\n}\n",
        "not_text": "",
    }
    # Every seventh tokenizer or so; the fuzzer finds the others.
    for number, (name, text) in enumerate(texts.items()):
        write("tokenize", name, bytes([number * 7 % 15]) + text.encode())
    write("tokenize", "not_text", b"\x03a\xff\xc3\x28\xe2\x82\xed\xa0\x80\xf0\x9f")


def template_seeds():
    request = {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
               "variables": {"enable_thinking": False}}
    for file in (HERE / "../../crates/text/tests/fixtures/templates").resolve().glob("*.jinja"):
        write("template", file.stem, pair(request, file.read_bytes()))
    sources = {
        "messages": "{% for m in messages %}{{ m.role + ': ' + m['content'] | string | trim }}{% endfor %}",
        "filters": "{{ messages | tojson(indent=2) }}{{ [3, 1] | sort | join(',') }}{{ 'a b'.split() | list | length }}",
        "macro": "{% macro f(x, y=1) %}{{ x ~ y }}{% endmacro %}{{ f(2) }}{% set ns = namespace(n=0) %}"
                 "{% for i in range(3) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
        "strings": "{{ 'abc'.upper()[::-1].replace('A', 'x').startswith('C') }}{{ '%s-%d' | format('a', 3) }}",
        "time": "{{ strftime_now('%Y-%m-%d %H:%M:%S %j %A %B %%') }}{{ raise_exception('no') }}",
        "attack_repeat": "{{ 'a' * 100000000000 }}",
        "attack_range": "{% for i in range(1000000000) %}{{ i }}{% endfor %}",
        "attack_indent": "{{ 'a' | indent(100000000000) }}{{ messages | tojson(indent=100000000000) }}",
        "attack_width": "{{ '%100000000000d' | format(1) }}{{ 'a'.ljust(100000000000) }}{{ 'a' | center(100000000000) }}",
        "attack_recursion": "{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}",
        "attack_deep": "{{ " + "(" * 500 + "1" + ")" * 500 + " }}",
        "attack_nested": "{{ " + "[" * 1000 + "]" * 1000 + " }}",
        "attack_power": "{{ 9 ** 9 ** 9 }}{{ 1 // 0 }}{{ -9223372036854775808 // -1 }}{{ 1 % 0 }}",
    }
    write_all("template", {name: pair(None, source.encode()) for name, source in sources.items()})


def write_seeds():
    gguf_seeds()
    safetensors_seeds()
    mlx_seeds()
    tokenizer_file_seeds()
    tokenize_seeds()
    template_seeds()
