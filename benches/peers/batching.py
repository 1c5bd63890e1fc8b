#!/usr/bin/env python3
"""Many requests at once, Ropeway beside its peers: output tokens a second over concurrency.

    benches/peers/setup.sh
    cargo build --release
    benches/peers/batching.py --model FILE.gguf [--requests 1,5,10,18,32,64] [--rounds 3] [--json OUT.json]

Every request has a prompt of its own (100 tokens unless told) and 64 new tokens; time runs from the arrival of all to the
last token. Interleaved rounds and medians as in compare.py. llama.cpp is measured by llama-batched-bench, which reads
all prompts first and then decodes in lockstep: the best its kernels can do, without a server's scheduling.
"""

import json

import compare
from compare import HERE, ROPEWAY, LlamaCpp, SideFailed, installed, json_lines, output_of, requantised


class Load:
    """What is asked of every side."""

    def __init__(self, given):
        self.counts = [int(count) for count in given.requests.split(",")]
        self.requests, self.prompt, self.new, self.threads = given.requests, given.prompt, given.new, given.threads


class Ropeway:
    """This project, through its own `bench engine --json`."""

    label = ROPEWAY

    def __init__(self, model, binary, load):
        self.model, self.needs, self.load = model, binary, load
        self.machine = None

    def measure(self):
        load = self.load
        sizes = ["--requests", load.requests, "--prompt", str(load.prompt), "--new", str(load.new), "--repeat", "1"]
        run = ["--scenario", "throughput", "--threads", str(load.threads), "--device", "cpu", "--json"]
        report = json.loads(output_of([self.needs, "bench", "engine", self.model, *run, *sizes]))
        self.machine = dict(isa=report["isa"], itl_target_ms=report["itl_target_ms"], policy=report["policy"])
        return {f"requests_{at['requests']}": at["tok_s"] for at in report["scenarios"]["throughput"]["points"]}


class LlamaCppBatched(LlamaCpp):
    """llama.cpp on a file, through llama-batched-bench."""

    def __init__(self, label, model, folder, load):
        super().__init__(label, model, folder, load.threads)
        self.needs, self.load = folder / "llama-batched-bench", load

    def measure(self):
        load = self.load
        threads = ["-t", str(self.threads), "-tb", str(self.threads)]
        sizes = ["-npp", str(load.prompt), "-ntg", str(load.new), "-npl", load.requests]
        room = ["-c", str(max(load.counts) * (load.prompt + load.new)), "--output-format", "jsonl"]
        lines = json_lines(output_of([self.needs, "-m", self.model, *threads, *sizes, *room]))
        if len(lines) != len(load.counts):
            raise SideFailed(f"llama-batched-bench measured {len(lines)} of {len(load.counts)} loads")
        return {f"requests_{line['pl']}": line["pl"] * line["tg"] / line["t"] for line in lines}


class OpenVino:
    """OpenVINO GenAI's continuous batching, through openvino_peer.py in its own environment."""

    label = "OpenVINO GenAI"

    def __init__(self, model, python, load):
        self.model, self.needs, self.load = model, python, load

    def measure(self):
        load = self.load
        sizes = ["--requests", load.requests, "--prompt", str(load.prompt), "--new", str(load.new)]
        command = [self.needs, HERE / "openvino_peer.py", "--model", self.model, "--threads", str(load.threads)]
        return json_lines(output_of([*command, *sizes]))[-1]


def sides(given, load):
    llama = given.peers / "llama.cpp/build/bin"
    best = requantised(given.model, given.peers)
    return installed([
        Ropeway(given.model, given.ropeway, load),
        LlamaCppBatched("llama.cpp, this file", given.model, llama, load),
        LlamaCppBatched("llama.cpp, Q4_0", best, llama, load),
        OpenVino(given.model, given.peers / "openvino/bin/python", load),
    ])


def main():
    parser = compare.arguments(__doc__)
    parser.add_argument("--requests", default="1,5,10,18,32,64", help="requests at once")
    parser.add_argument("--prompt", type=int, default=100, help="tokens of each prompt")
    parser.add_argument("--new", type=int, default=64, help="new tokens of each request")
    given = compare.parse(parser)
    load = Load(given)
    points = {f"requests_{count}": f"{count} at once" for count in load.counts}
    compare.report(given, sides(given, load), points)


if __name__ == "__main__":
    main()
