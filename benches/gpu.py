#!/usr/bin/env python3
"""Measures `ropeway` on a GPU with models of real shapes and random weights, through files, engine and HTTP.

    python3 benches/gpu.py BINARY [--shapes 1.5b,8b] [--device cuda] [--folder FOLDER] [--tokenizer tokenizer.json]
                           [--parts start,engine,trio,serve,beside] [--vllm 'vllm serve']

For each shape a checkpoint in bf16 is written once (numpy, or PyTorch where it is there; the latter is many times faster). Then:

    start    from starting `ropeway serve` to the first token, kernels and products remembered, files in the page cache
    engine   `bench engine`: output tokens a second at 1, 64 and 256 streams, 128 tokens in, 256 out, and a prompt of 17,616 tokens
    trio     prompts of 85, 113 and 17,616 tokens, alone and together
    serve    `bench serve` at 64 and 256 open requests, over HTTP
    beside   `bench serve` of Ropeway and vLLM in turn, both on this GPU at the same time, each with half of its memory; needs --vllm

Every finding is a line that begins with RES. Nothing but this machine is asked; servers that it starts are ended.
"""

import argparse
import functools
import json
import os
import pathlib
import shlex
import socket
import statistics
import struct
import subprocess
import tempfile
import time
import urllib.request

LONG = 17_616
# Seconds that vLLM may take to start: it compiles the model first.
LONGEST_START = 600

# hidden, intermediate, layers, heads, KV heads, head size, vocabulary, tied, biases
SHAPES = {
    "tiny": dict(hidden=64, inner=96, layers=2, heads=4, kv_heads=2, head_dim=16, vocab=49_152, tied=True, bias=False),
    "135m": dict(hidden=576, inner=1536, layers=30, heads=9, kv_heads=3, head_dim=64, vocab=49_152, tied=True, bias=False),
    "1.5b": dict(hidden=1536, inner=8960, layers=28, heads=12, kv_heads=2, head_dim=128, vocab=151_936, tied=True, bias=True),
    "8b": dict(hidden=4096, inner=14_336, layers=32, heads=32, kv_heads=8, head_dim=128, vocab=128_256, tied=False, bias=False),
}


def config(shape):
    """A configuration of the family that has such biases."""
    return {
        "model_type": "qwen2" if shape["bias"] else "llama",
        "architectures": ["Qwen2ForCausalLM" if shape["bias"] else "LlamaForCausalLM"],
        "hidden_size": shape["hidden"],
        "intermediate_size": shape["inner"],
        "num_hidden_layers": shape["layers"],
        "num_attention_heads": shape["heads"],
        "num_key_value_heads": shape["kv_heads"],
        "head_dim": shape["head_dim"],
        "vocab_size": shape["vocab"],
        "tie_word_embeddings": shape["tied"],
        "max_position_embeddings": 32_768,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500_000.0,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "bos_token_id": 0,
        "eos_token_id": 0,
    }


def tensors(shape):
    """Names and shapes of all weights."""
    hidden, inner, q = shape["hidden"], shape["inner"], shape["heads"] * shape["head_dim"]
    kv = shape["kv_heads"] * shape["head_dim"]
    yield "model.embed_tokens.weight", (shape["vocab"], hidden)
    if not shape["tied"]:
        yield "lm_head.weight", (shape["vocab"], hidden)
    yield "model.norm.weight", (hidden,)
    for layer in range(shape["layers"]):
        name = f"model.layers.{layer}."
        for part, rows in (("q", q), ("k", kv), ("v", kv)):
            yield f"{name}self_attn.{part}_proj.weight", (rows, hidden)
            if shape["bias"]:
                yield f"{name}self_attn.{part}_proj.bias", (rows,)
        yield f"{name}self_attn.o_proj.weight", (hidden, q)
        yield f"{name}mlp.gate_proj.weight", (inner, hidden)
        yield f"{name}mlp.up_proj.weight", (inner, hidden)
        yield f"{name}mlp.down_proj.weight", (hidden, inner)
        yield f"{name}input_layernorm.weight", (hidden,)
        yield f"{name}post_attention_layernorm.weight", (hidden,)


@functools.cache
def random_bytes(count, scale):
    """So many bf16 numbers around zero; the same ones for matrices of one shape, which take their time as others would."""
    try:
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        values = torch.randn(count, device=device, dtype=torch.float32).mul_(scale).to(torch.bfloat16)
        return values.view(torch.int16).cpu().numpy()
    except ImportError:
        import numpy

        values = numpy.random.default_rng(count).standard_normal(count, dtype=numpy.float32) * scale
        return (values.view(numpy.uint32) >> 16).astype(numpy.uint16)


def write_checkpoint(folder, shape, tokenizer):
    """One file of safetensors, written as it is made."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(shape)))
    if tokenizer:
        (folder / "tokenizer.json").write_bytes(pathlib.Path(tokenizer).read_bytes())
    header, at = {}, 0
    for name, dims in tensors(shape):
        size = 2 * dims[0] * (dims[1] if len(dims) == 2 else 1)
        header[name] = {"dtype": "BF16", "shape": list(dims), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    part = folder / "model.part"
    with open(part, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name, dims in tensors(shape):
            count = dims[0] * (dims[1] if len(dims) == 2 else 1)
            if name.endswith("norm.weight"):
                out.write(struct.pack("<H", 0x3F80) * count)
            elif len(dims) == 1:
                out.write(bytes(2 * count))
            else:
                random_bytes(count, dims[1] ** -0.5).tofile(out)
    random_bytes.cache_clear()
    part.rename(folder / "model.safetensors")


class Process:
    """A server, ended at the end."""

    def __init__(self, command):
        self.started = time.monotonic()
        # A file: nobody reads a pipe while the server is measured, and a full one would stop it.
        self.log = tempfile.NamedTemporaryFile(mode="w", suffix=".log")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT)

    def said(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")

    def check_alive(self):
        if self.process.poll() is not None:
            raise SystemExit(f"{' '.join(self.process.args)} ended with {self.process.returncode}:\n{self.said()[-4000:]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Vllm(Process):
    """vLLM on a free port, without its prefix cache: no prompt of the load is like another."""

    def __init__(self, command, model, context, memory):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        options = ["--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16", "--max-model-len", str(context)]
        options += ["--gpu-memory-utilization", str(memory), "--no-enable-prefix-caching", "--no-enable-log-requests"]
        super().__init__([*shlex.split(command), str(model), *options])
        self.url = f"http://127.0.0.1:{port}"

    def first_token(self):
        """Seconds from the start until it answers."""
        while time.monotonic() < self.started + LONGEST_START:
            self.check_alive()
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=10):
                    return time.monotonic() - self.started
            except OSError:
                time.sleep(0.5)
        raise SystemExit(f"vLLM did not answer within {LONGEST_START} s:\n{self.said()[-4000:]}")


class Server(Process):
    """Ropeway on a free port."""

    def __init__(self, binary, model, device, *options):
        command = [binary, "serve", "--model", str(model), "--device", device, "--port", "0", "--no-embeddings"]
        super().__init__([*command, *options])
        self.url = self.address()

    def address(self):
        while True:
            words = [word.strip(".,;()") for word in self.said().split() if "http://127.0.0.1:" in word]
            if words:
                return words[0].split("/v1")[0].rstrip("/")
            self.check_alive()
            time.sleep(0.005)

    def ask(self, tokens, new):
        body = {"model": "", "prompt": tokens, "max_tokens": new, "temperature": 0, "ignore_eos": True}
        with urllib.request.urlopen(self.url + "/v1/models", timeout=60) as models:
            body["model"] = json.load(models)["data"][0]["id"]
        request = urllib.request.Request(
            self.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def first_token(self):
        """Seconds from the start to the first token."""
        while True:
            try:
                self.ask([1, 2, 3, 4], 1)
                return time.monotonic() - self.started
            except OSError:
                time.sleep(0.02)

    def __exit__(self, *end):
        super().__exit__(*end)
        if self.process.returncode:
            raise SystemExit(f"the server ended with {self.process.returncode}:\n{self.said()[-2000:]}")


def measure_start(task, name, model):
    for number in range(3):
        with Server(task.binary, model, task.device) as server:
            print(f"RES {name} start {number}: first token after {server.first_token():.2f} s", flush=True)


def bench(task, *arguments):
    """What a benchmark found, as JSON."""
    command = [task.binary, "bench", *arguments]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {ran.returncode}")
    return json.loads(ran.stdout)


def measure_engine(task, name, model):
    common = [str(model), "--device", task.device, "--json", "--repeat", "3"]
    sizes = ["--requests", task.streams, "--prompt", "128", "--new", "256"]
    found = bench(task, "engine", *common, "--scenario", "throughput", *sizes)
    for point in found["scenarios"]["throughput"]["points"]:
        print(f"RES {name} engine: {json.dumps(point)}", flush=True)


def measure_trio(task, name, model):
    common = [str(model), "--device", task.device, "--json", "--repeat", "3"]
    found = bench(task, "engine", *common, "--scenario", "trio", "--long", str(task.long))
    print(f"RES {name} trio: {json.dumps(found['scenarios']['trio'])}", flush=True)


def load(task, url, label, rounds):
    """What `bench serve` finds: a point for each number of open requests."""
    out = task.folder / "load.json"
    command = [task.binary, "bench", "serve", "--url", url, "--label", label, "--json", str(out), "--repeat", str(rounds)]
    command += ["--concurrency", task.streams, "--prompt", "128", "--output", "256"]
    subprocess.run(command, check=True)
    return json.loads(out.read_text())["points"]


def measure_serve(task, name, model):
    with Server(task.binary, model, task.device) as server:
        server.first_token()
        points = load(task, server.url, "ropeway", 3)
    for point in points:
        first, each = point["first_token_ms"]["p50"], [round(speed) for speed in point["output_tok_s_each"]]
        print(f"RES {name} serve: {point['load']}: {point['output_tok_s']:.0f} tok/s of {each}, first token {first:.1f} ms", flush=True)


def measure_beside(task, name, model):
    """Rounds of both servers in turn, so that a hot or a slow minute of the GPU hits both."""
    if not task.vllm:
        raise SystemExit("--parts beside needs --vllm, the command that starts vLLM: --vllm 'vllm serve'")
    rounds = []
    with Server(task.binary, model, task.device, "--kv-memory", task.kv_memory) as ours:
        # vLLM looks at how much memory is free when it starts.
        print(f"RES {name} beside: Ropeway answers after {ours.first_token():.1f} s", flush=True)
        with Vllm(task.vllm, model, task.context, task.vllm_memory) as vllm:
            print(f"RES {name} beside: vLLM answers after {vllm.first_token():.1f} s", flush=True)
            for _ in range(task.rounds):
                rounds.append([load(task, server.url, label, 1) for server, label in ((ours, "ropeway"), (vllm, "vllm"))])
    for at, point in enumerate(rounds[0][0]):
        ours, vllm = ([side[at] for side in sides] for sides in zip(*rounds))
        ratio = middle(ours, output_speed) / middle(vllm, output_speed)
        print(f"RES {name} beside: {point['load']}: Ropeway {summary(ours)}; vLLM {summary(vllm)}; ratio {ratio:.2f}", flush=True)


def output_speed(point):
    return point["output_tok_s"]


def middle(points, of):
    return statistics.median(of(point) for point in points)


def summary(points):
    first = middle(points, lambda point: point["first_token_ms"]["p50"])
    each = [round(output_speed(point)) for point in points]
    return f"{middle(points, output_speed):.0f} tok/s of {each}, first token {first:.1f} ms"


PARTS = {"start": measure_start, "engine": measure_engine, "trio": measure_trio, "serve": measure_serve, "beside": measure_beside}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--shapes", default="1.5b,8b")
    parser.add_argument("--parts", default="start,engine,trio,serve")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/tmp/ropeway-gpu"))
    parser.add_argument("--tokenizer", help="tokenizer.json of any model; needed to serve")
    parser.add_argument("--streams", default="1,64,256")
    parser.add_argument("--long", type=int, default=LONG)
    parser.add_argument("--vllm", help="command that starts vLLM, for `beside`: 'vllm serve'")
    parser.add_argument("--rounds", type=int, default=3, help="of `beside`")
    parser.add_argument("--kv-memory", default="40GiB", help="Ropeway's keys and values in `beside`")
    parser.add_argument("--vllm-memory", type=float, default=0.45, help="vLLM's share of the GPU's memory in `beside`")
    parser.add_argument("--context", type=int, default=20_000, help="vLLM's longest context in `beside`")
    task = parser.parse_args()
    task.binary = os.path.abspath(task.binary)
    for name in task.shapes.split(","):
        model = task.folder / name
        if not (model / "model.safetensors").exists():
            start = time.monotonic()
            write_checkpoint(model, SHAPES[name], task.tokenizer)
            print(f"{name}: {model} written in {time.monotonic() - start:.1f} s", flush=True)
        for part in task.parts.split(","):
            PARTS[part](task, name, model)


if __name__ == "__main__":
    main()
