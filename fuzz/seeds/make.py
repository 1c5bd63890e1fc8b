"""Writes the seed corpus beside this file: small valid files, grammars, answers and requests for the fuzzers to start from, and
attacks that were found. Needs only Python."""

import json
import pathlib
import struct

HERE = pathlib.Path(__file__).parent
ALIGNMENT = 32

# Tensor type: number, values in a block, bytes of a block.
TYPES = {
    "f32": (0, 1, 4),
    "f16": (1, 1, 2),
    "bf16": (30, 1, 2),
    "q4_0": (2, 32, 18),
    "q4_1": (3, 32, 20),
    "q5_0": (6, 32, 22),
    "q5_1": (7, 32, 24),
    "q8_0": (8, 32, 34),
    "q2_k": (10, 256, 84),
    "q3_k": (11, 256, 110),
    "q4_k": (12, 256, 144),
    "q5_k": (13, 256, 176),
    "q6_k": (14, 256, 210),
    "iq4_nl": (20, 32, 18),
    "iq4_xs": (23, 256, 136),
}


def string(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def padded(data):
    return data + bytes(-len(data) % ALIGNMENT)


def counting(size):
    return bytes(index % 251 for index in range(size))


def gguf(tensors, entries=()):
    table, data = b"", b""
    for name, dims, kind in tensors:
        number, values, size = TYPES[kind]
        count = 1
        for dim in dims:
            count *= dim
        shape = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
        table += string(name) + shape + struct.pack("<IQ", number, len(data))
        data += padded(counting(count // values * size))
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    return padded(header + b"".join(entries) + table) + data


def entry(key, kind, value):
    return string(key) + struct.pack("<I", kind) + value


def array(kind, count, elements):
    return struct.pack("<IQ", kind, count) + elements


def safetensors(tensors):
    header, end = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + counting(end)


def pair(first, second):
    text = json.dumps(first, separators=(",", ":")).encode() if first is not None else b""
    return struct.pack("<H", len(text)) + text + second


def write(target, name, data):
    folder = HERE / target
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)


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


def output_seeds():
    call = '{"name": "f", "arguments": {"a": ["x\\n", 1.5, null]}}'
    arguments = '{"a": "\\ud83d\\ude00"}'
    answers = {
        "hermes": f"<think>\nHm.\n</think>\n\n<tool_call>\n{call}\n</tool_call>\n<tool_call>{call}</tool_call>",
        "json": f"[{call}, {call}]",
        "string": '{"name": "f", "arguments": "{\\"a\\": 1}"}; ' + call,
        "python": "[f(a=1, b='x', c=[True, {\"k\": None}]), f()]",
        "python_tag": f"<|python_tag|>{call}",
        "function": f"<function=f>{arguments}</function>",
        "mistral": f"[TOOL_CALLS]f[ARGS]{arguments}[TOOL_CALLS][{call}]",
        "deepseek": "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n"
        f"{arguments}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        f"{arguments}<|tool_call_end|><|tool_calls_section_end|>",
    }
    for name, answer in answers.items():
        write("output", name, b"\x08" + answer.encode())
    # The high four bits are the style, in the order of src/answers.rs.
    styles = {
        "style_plain": (1, "<think>x</think>" + call),
        "style_json": (2, call),
        "style_python_tag": (3, f"<|python_tag|>{call}; {call}"),
        "style_function": (4, f"<function=f>{arguments}</function>"),
        "style_python_start": (5, "<|python_start|>[f(a=1)]<|python_end|>"),
        "style_python": (6, "[f(a={'k': [1, None]}, b=-1.5e3)]"),
        "style_lfm": (7, "<|tool_call_start|>[f(a='x\\n')]<|tool_call_end|>done"),
        "style_mistral": (8, f"[TOOL_CALLS]f[CALL_ID]1[ARGS]{arguments}"),
        "style_deepseek": (9, f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>"),
        "style_kimi": (10, answers["kimi"]),
        "style_command": (11, '<|START_ACTION|>[{"tool_name": "f", "parameters": {"a": 1}}]<|END_ACTION|>'),
        "style_think": (12, "<think>a</think>b"),
        "style_think_brackets": (13, "[THINK]a[/THINK]b" + call),
        "style_think_command": (14, "<|START_THINKING|>a<|END_THINKING|>b"),
    }
    for name, (style, answer) in styles.items():
        write("output", name, bytes([style << 4]) + answer.encode())


def request_seeds():
    messages = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    tool = {"name": "f", "description": "", "parameters": {"type": "object"}}
    function = {"type": "function", "function": tool}
    chat = {"model": "m", "messages": messages, "max_tokens": 2, "temperature": 0.5, "stop": ["x"], "n": 2, "logprobs": True,
            "top_logprobs": 2, "logit_bias": {"1": 1}, "tools": [function], "tool_choice": "auto", "stream": True}
    shape = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    # In the order of the paths in targets/requests.rs.
    bodies = [
        ("chat", chat),
        ("completion", {"prompt": [[5, 6]], "max_tokens": 2, "echo": True, "logprobs": 1, "guided_regex": "[a-z]+"}),
        ("response", {"input": messages, "instructions": "x", "max_output_tokens": 2, "tools": [{"type": "function", **tool}]}),
        ("tokenize", {"messages": messages, "add_special_tokens": True, "return_token_strs": True}),
        ("detokenize", {"tokens": [5, 6]}),
        ("message", {"model": "m", "max_tokens": 2, "system": [{"type": "text", "text": "x"}], "stop_sequences": ["x"], "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "x", "is_error": True}]}]}),
        ("count", {"model": "m", "messages": messages, "tools": [{"name": "f", "input_schema": {}}]}),
        ("ollama_chat", {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "options": {"num_predict": 2, "top_k": 3},
                         "format": shape}),
        ("ollama_generate", {"model": "m", "prompt": "Hi", "raw": True, "context": [5], "options": {"num_predict": 2}}),
        ("show", {"model": "m"}),
        ("generate", {"prompt": "Hi", "max_tokens": 2, "seed": 1}),
        ("batch", {"prompts": ["Hi", ""], "max_tokens": 2, "stream": True}),
        ("stream", {"prompt": "Hi", "max_tokens": 2}),
    ]
    for path, (name, body) in enumerate(bodies):
        write("requests", name, bytes([path]) + json.dumps(body).encode())


def schema_seeds():
    text = {"type": "string"}
    schemas = {
        "object": {"type": "object", "properties": {"a": text, "b": {"type": "integer", "minimum": 0, "maximum": 9}},
                   "required": ["a"], "additionalProperties": False},
        "lists": {"type": "array", "items": {"enum": ["x", 1, None, True]}, "minItems": 1, "maxItems": 3, "uniqueItems": True},
        "strings": {"type": "string", "pattern": "^[a-z]{2,4}$", "minLength": 2, "maxLength": 4},
        "formats": {"anyOf": [{"type": "string", "format": name} for name in
                              ["date-time", "date", "time", "email", "uuid", "uri", "ipv4", "ipv6", "hostname", "duration"]]},
        "numbers": {"type": "number", "exclusiveMinimum": -1.5, "exclusiveMaximum": 1e3, "multipleOf": 0.25},
        "references": {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "object", "properties": {
            "left": {"$ref": "#/$defs/tree"}, "value": {"type": "number"}}}}},
        "combined": {"oneOf": [{"const": "a"}, {"allOf": [text, {"maxLength": 3}]}], "not": {"const": "b"}},
        "patterns": {"type": "object", "patternProperties": {"^x": {"type": "boolean"}}, "propertyNames": {"maxLength": 3},
                     "minProperties": 1, "maxProperties": 2},
        "tuple": {"type": ["array", "null"], "prefixItems": [text, {"type": "null"}], "items": False},
        "conditional": {"if": {"required": ["a"]}, "then": {"required": ["b"]}, "else": {"dependentRequired": {"c": ["d"]}}},
        "anything": True,
        # Attacks: each compiled without end.
        "attack_multiples": {"allOf": [{"type": "integer", "multipleOf": 9973}, {"type": "integer", "multipleOf": 9967}]},
        "attack_multiple": {"type": "integer", "multipleOf": 999983},
        "attack_patterns": {"allOf": [{"type": "string", "pattern": f"(.*a){{{n}}}.*b"} for n in range(4, 10)]},
        "attack_lengths": {"type": "array", "items": {"type": "string", "maxLength": 100000}, "maxItems": 100000},
    }
    for name, schema in schemas.items():
        write("schema", name, b"\0" + json.dumps(schema).encode())
    # As a tool's arguments, and as either.
    for name, switches in [("tool", 4), ("either", 7)]:
        write("schema", name, bytes([switches]) + json.dumps(schemas["references"]).encode())


def regex_seeds():
    expressions = {
        "classes": r"[a-z]+\d{2,4}(foo|bar)?[^\s]*",
        "unicode": r"\p{L}+[à-ÿ]\x41\u00e9",
        "flags": r"(?i)abc(?-i:d)(?s:.)*?",
        "anchors": r"^a\b.*$",
        "email": r"[\w.+-]+@[\w-]+(\.[\w-]+){1,3}",
        "nothing": "",
        "attack_counts": r"((((a{1,50}){1,50}){1,50}){1,50})",
        "attack_lookback": r"(.*a.{20}b){5}",
        "attack_deep": "(" * 200 + "a" + ")*" * 200,
    }
    for name, expression in expressions.items():
        write("regex", name, expression.encode())


def lark_seeds():
    grammars = {
        "words": 'start: greeting " " NAME\ngreeting: "Hello" | "Hi"\nNAME: /[A-Z][a-z]+/\n',
        "sum": 'start: term (("+" | "-") term)*\nterm: NUMBER | "(" start ")"\nNUMBER: /[0-9]+/\n%ignore /\\s+/\n',
        "json": 'start: "x" answer\nanswer: %json {"type": "object", "properties": {"a": {"type": "integer"}}}\n',
        "counts": 'start: A{2,3} b? c*\nA: "a"\nb: "b"\nc: /c/i\n',
        "attributes": 'start[temperature=0.5]: text[lazy] T\ntext[max_tokens=3]: /.*/\nT[lazy]: /x.*y/\n',
        "combined": "start: T\nT: /a.*/ & /.*b/ & ~/.*c.*/\n",
        "special": "start: <|eos|> | /a/\n",
        "regex_tag": 'start: %regex {"substring_words": "a b c d"}\n',
        # Attacks: each compiled without end.
        "attack_and": "start: T\nT: " + " & ".join(f"/(.*a.{{{n}}}b)*/" for n in range(1, 31)) + "\n",
        "attack_json": 'start: %json {"allOf": [{"type": "integer", "multipleOf": 9973}, {"type": "integer", "multipleOf": 9967}]}\n',
        "attack_counts": 'start: a{1,1000}\na: b{1,1000}\nb: "c"{1,1000}\n',
        "attack_ambiguous": 'start: start start | "a" | ""\n',
        "attack_nested_json": "start: " + "%json " * 50 + "{}\n",
    }
    for name, grammar in grammars.items():
        write("lark", name, grammar.encode())


def gbnf_seeds():
    grammars = {
        "object": 'root ::= "{" ws pair ("," ws pair)* "}"\npair ::= "\\"" [a-z]+ "\\":" ws value\nvalue ::= [0-9]{1,3} | "true"\nws ::= [ \\t\\n]*\n',
        "escapes": 'root ::= [^"\\\\\\x7F\\u0000-\\U0000001F] "\\x41" . # a comment\n',
        "counts": 'root ::= a? b+ c{2} d{1,} e{,3}\na ::= "a"\nb ::= "b"\nc ::= "c"\nd ::= "d"\ne ::= ("e" | "f")\n',
        "attack_counts": 'root ::= (((("a"{1,100}){1,100}){1,100}){1,100})\n',
        "attack_left": 'root ::= root root | "a" |\n',
        "attack_deep": "root ::= " + "(" * 300 + '"a"' + ")" * 300 + "\n",
    }
    for name, grammar in grammars.items():
        write("gbnf", name, grammar.encode())


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
    for name, source in sources.items():
        write("template", name, pair(None, source.encode()))


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


def http_seeds():
    def post(path, body, *headers):
        lines = [f"POST {path} HTTP/1.1", "host: localhost", "content-type: application/json", *headers]
        if not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in headers):
            lines.append(f"content-length: {len(body)}")
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + body

    chat = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}).encode()
    streamed = json.dumps({"model": "m", "prompt": "Hi", "max_tokens": 2, "stream": True}).encode()
    get = lambda path, *headers: "\r\n".join([f"GET {path} HTTP/1.1", "host: localhost", *headers]).encode() + b"\r\n\r\n"
    chunks = b"5\r\n" + chat[:5] + b"\r\n" + f"{len(chat) - 5:x};x=1".encode() + b"\r\n" + chat[5:] + b"\r\n0\r\n\r\n"
    connections = {
        "health": get("/health"),
        "metrics": get("/metrics", "connection: close"),
        "models": get("/v1/models/m", "authorization: Bearer x", "x-request-id: a"),
        "tags": get("/api/tags") + get("/api/ps") + get("/api/version"),
        "docs": get("/openapi.json", "accept-encoding: gzip"),
        "chat": post("/v1/chat/completions", chat, "connection: close"),
        "stream": post("/v1/completions", streamed),
        "pipelined": post("/v1/messages", chat, "x-priority: bulk") + get("/health") + post("/api/chat", chat),
        "chunked": post("/v1/chat/completions", chunks, "transfer-encoding: chunked"),
        "expect": post("/v1/chat/completions", chat, "expect: 100-continue", "x-session-id: s"),
        "preflight": b"OPTIONS /v1/models HTTP/1.1\r\nhost: localhost\r\norigin: http://x\r\naccess-control-request-method: GET\r\n\r\n",
        "foreign": get("/v1/models").replace(b"localhost", b"evil.example"),
        "delete": b"DELETE /api/delete HTTP/1.1\r\nhost: localhost\r\ncontent-length: 13\r\n\r\n{\"model\":\"m\"}",
        "head": b"HEAD / HTTP/1.0\r\nhost: localhost\r\n\r\n",
        "trace": get("/", "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "x-forwarded-for: 1.2.3.4"),
        "half_head": b"POST /v1/chat/completions HTTP/1.1\r\nhost: local",
        "half_body": post("/v1/chat/completions", chat[:20], "content-length: 100"),
        "two_lengths": post("/tokenize", chat, "content-length: 5", "content-length: 6"),
        "smuggled": post("/tokenize", b"0\r\n\r\nGET /health HTTP/1.1\r\n\r\n", "content-length: 5", "transfer-encoding: chunked"),
        "long_length": post("/tokenize", b"{}", "content-length: 18446744073709551615"),
        "escaped": get("/v1/models/%2e%2e%2f%00%ff?x=%zz"),
        "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        "tls": b"\x16\x03\x01\x00\xf1\x01\x00\x00\xed\x03\x03" + bytes(40),
    }
    for name, sent in connections.items():
        write("http", name, sent)


if __name__ == "__main__":
    gguf_seeds()
    safetensors_seeds()
    mlx_seeds()
    tokenizer_file_seeds()
    tokenize_seeds()
    template_seeds()
    output_seeds()
    schema_seeds()
    regex_seeds()
    lark_seeds()
    gbnf_seeds()
    request_seeds()
    http_seeds()
