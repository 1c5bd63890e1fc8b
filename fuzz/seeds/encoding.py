"""How the files of the seed corpus are written: GGUF, safetensors, and what stands before them in an input."""

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
    """Writes one input of a fuzz target."""
    folder = HERE / target
    folder.mkdir(exist_ok=True)
    (folder / name).write_bytes(data)


def write_all(target, inputs):
    """Writes inputs by name; texts as UTF-8."""
    for name, data in inputs.items():
        write(target, name, data.encode() if isinstance(data, str) else data)
