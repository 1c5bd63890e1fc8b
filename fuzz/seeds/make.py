"""Writes the seed corpus beside this file: small valid checkpoints, answers and requests for the fuzzers to start from. Needs only Python."""

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


if __name__ == "__main__":
    gguf_seeds()
    safetensors_seeds()
    mlx_seeds()
    output_seeds()
    request_seeds()
