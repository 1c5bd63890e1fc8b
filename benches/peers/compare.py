#!/usr/bin/env python3
"""Ropeway beside its peers on one GGUF file and one machine: interleaved rounds, medians, ratios.

    benches/peers/setup.sh
    cargo build --release
    benches/peers/compare.py --model FILE.gguf [--rounds 3] [--json OUT.json]

Every round measures every side once, in turn, so that a noisy minute hits all of them; the table shows medians over the
rounds. A side that is not installed is left out, with a line that says so. Python's standard library only.
"""

import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROPEWAY = "Ropeway"
POINTS = {
    "prefill_512": "prefill, 512 tokens",
    "prefill_4000": "prefill, 4,000 tokens",
    "decode_1": "decode, one stream",
    "decode_64": "decode, batch 64, 100-token contexts",
}
BATCH, CONTEXT, NEW_TOKENS = 64, 100, 32
# The slowest single command (llama-batched-bench) takes two to three minutes on two cores.
COMMAND_LIMIT_S = 1800
# What an idle machine with a shell and an editor shows; above it the sides no longer get the same machine.
QUIET_LOAD = 0.5


class SideFailed(Exception):
    """A side that is installed but did not produce its numbers."""


def output_of(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_LIMIT_S)
    except subprocess.TimeoutExpired as late:
        raise SideFailed(f"{command[0]} took longer than {COMMAND_LIMIT_S} s") from late
    if done.returncode != 0:
        raise SideFailed(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


class LlamaCpp:
    """llama.cpp on a file: llama-bench for one stream, llama-batched-bench for many."""

    def __init__(self, label, model, folder, threads):
        self.label, self.model, self.folder, self.threads = label, model, folder, threads
        self.needs = folder / "llama-bench"

    def measure(self):
        short = self.one_stream("-p", "512", "-n", "128")
        # Half a minute a run: long enough to need no warm-up, which would be as long again.
        long = self.one_stream("-p", "4000", "-n", "0", "--no-warmup")
        return dict(prefill_512=short[512], prefill_4000=long[4000], decode_1=short[0]) | self.batched()

    def one_stream(self, *sizes):
        """llama-bench's tokens a second by prompt length; 0 is decoding."""
        command = [self.needs, "-m", self.model, "-t", str(self.threads), "-r", "1", "-o", "jsonl", *sizes]
        return {line["n_prompt"]: line["avg_ts"] for line in json_lines(output_of(command))}

    def batched(self):
        threads = ["-t", str(self.threads), "-tb", str(self.threads)]
        sizes = ["-npp", str(CONTEXT), "-ntg", str(NEW_TOKENS), "-npl", str(BATCH)]
        room = ["-c", str(BATCH * (CONTEXT + NEW_TOKENS)), "--output-format", "jsonl"]
        lines = json_lines(output_of([self.folder / "llama-batched-bench", "-m", self.model, *threads, *sizes, *room]))
        return dict(decode_64=lines[0]["speed_tg"])


class OpenVino:
    """OpenVINO GenAI, through openvino_peer.py in its own environment."""

    label = "OpenVINO GenAI"

    def __init__(self, model, python, threads):
        self.model, self.needs, self.threads = model, python, threads

    def measure(self):
        script = HERE / "openvino_peer.py"
        text = output_of([self.needs, script, "--model", self.model, "--threads", str(self.threads)])
        return json_lines(text)[-1]


class Ropeway:
    """This project, through its own `bench model --json`."""

    label = ROPEWAY

    def __init__(self, model, binary, threads):
        self.model, self.needs, self.threads = model, binary, threads
        self.machine = None

    def measure(self):
        command = [self.needs, "bench", "model", self.model, "--threads", str(self.threads), "--repeat", "3", "--device", "cpu", "--json"]
        report = json.loads(output_of(command))
        self.machine = report["machine"] | {"isa": report["isa"]}
        prefill = {entry["tokens"]: entry["tok_s"] for entry in report["prefill"]}
        decode = {entry["batch"]: entry["tok_s"] for entry in report["decode"]}
        return dict(prefill_512=prefill[512], prefill_4000=prefill[4000], decode_1=decode[1], decode_64=decode[64])


def requantised(model, peers):
    """The file in llama.cpp's own fastest format, made once."""
    out = peers / f"{model.stem}.requantised-Q4_0.gguf"
    tool = peers / "llama.cpp/build/bin/llama-quantize"
    if not out.exists() and tool.exists():
        part = out.with_suffix(".part")
        output_of([tool, "--allow-requantize", model, part, "Q4_0"])
        part.rename(out)
    return out


def sides(given):
    """All sides in the order of the table, without those that are not installed."""
    llama = given.peers / "llama.cpp/build/bin"
    wanted = [
        Ropeway(given.model, given.ropeway, given.threads),
        LlamaCpp("llama.cpp, this file", given.model, llama, given.threads),
        LlamaCpp("llama.cpp, Q4_0", requantised(given.model, given.peers), llama, given.threads),
        OpenVino(given.model, given.peers / "openvino/bin/python", given.threads),
    ]
    return installed(wanted)


def installed(wanted):
    """The sides that can run; a line about each that can't."""
    for side in wanted:
        if not side.needs.exists():
            remedy = "cargo build --release" if side.label == ROPEWAY else "benches/peers/setup.sh"
            print(f"left out: {side.label}, there is no {side.needs}: run {remedy}", file=sys.stderr)
    return [side for side in wanted if side.needs.exists()]


def measure_rounds(present, rounds, points):
    """{label: {point: [one value a round]}}; a side that fails is dropped and the others go on."""
    values = {side.label: {point: [] for point in points} for side in present}
    for turn in range(rounds):
        for side in [side for side in present if side.label in values]:
            try:
                speeds = side.measure()
            except (SideFailed, KeyError, IndexError, ValueError) as failure:
                print(f"dropped: {side.label}: {failure}", file=sys.stderr)
                del values[side.label]
                continue
            for point in points:
                values[side.label][point].append(speeds[point])
            shown = ", ".join(f"{point} {speeds[point]:.0f}" for point in points)
            print(f"round {turn + 1} of {rounds}: {side.label}: {shown}", file=sys.stderr, flush=True)
    return values


def medians(values):
    return {label: {point: statistics.median(of) for point, of in runs.items()} for label, runs in values.items()}


def ratios(middle):
    """Ropeway's median over each peer's: {peer: {point: ratio}}."""
    ours = middle.get(ROPEWAY)
    if ours is None:
        return {}
    peers = {label: points for label, points in middle.items() if label != ROPEWAY}
    return {label: {point: ours[point] / points[point] for point in ours} for label, points in peers.items()}


def cell(label, point, middle, ratio):
    beside = f" ({ratio[label][point]:.1f}x)" if label in ratio else ""
    return f"{middle[label][point]:,.0f}{beside}"


def markdown(middle, ratio, rows):
    """One row a point; in brackets how many times faster Ropeway is."""
    lines = ["| tok/s | " + " | ".join(middle) + " |", "|---|" + "---|" * len(middle)]
    for point, words in rows.items():
        cells = [cell(label, point, middle, ratio) for label in middle]
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cpu_name():
    info = pathlib.Path("/proc/cpuinfo")
    names = [line for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    return names[0].split(":", 1)[1].strip() if names else platform.processor()


def arguments(doc):
    """What every comparison takes."""
    home = pathlib.Path(os.environ.get("ROPEWAY_PEERS", pathlib.Path.home() / ".cache/ropeway-peers"))
    binary = HERE.parents[1] / "target/release/ropeway"
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="the GGUF file all sides run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=pathlib.Path, help="write every measurement here")
    parser.add_argument("--ropeway", type=pathlib.Path, default=binary, help="the ropeway binary")
    parser.add_argument("--peers", type=pathlib.Path, default=home, help="where setup.sh put the peers")
    return parser


def parse(parser):
    given = parser.parse_args()
    if not given.model.is_file():
        parser.error(f"{given.model} is not a file: give the GGUF, for example the one `ropeway show MODEL` names")
    return given


def report(given, present, points):
    """Measures, prints the table, and writes the JSON."""
    load_before = os.getloadavg()[0]
    if load_before > QUIET_LOAD:
        print(f"the machine is busy (load {load_before:.1f}): do not quote these numbers", file=sys.stderr)
    values = measure_rounds(present, given.rounds, points)
    if not values:
        raise SystemExit("no side could be measured")
    middle = medians(values)
    ratio = ratios(middle)
    print(markdown(middle, ratio, points))
    if given.json:
        machine = dict(cpu=cpu_name(), cores=os.cpu_count(), load_before=load_before)
        machine |= next((side.machine for side in present if side.label == ROPEWAY and side.machine), {})
        record = dict(model=given.model.name, threads=given.threads, rounds=given.rounds, machine=machine)
        record |= dict(measurements=values, medians=middle, ropeway_over_peer=ratio)
        given.json.write_text(json.dumps(record, indent=2) + "\n")


def main():
    given = parse(arguments(__doc__))
    report(given, sides(given), POINTS)


if __name__ == "__main__":
    main()
