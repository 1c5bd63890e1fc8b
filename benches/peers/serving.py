#!/usr/bin/env python3
"""Many clients at once over HTTP, Ropeway beside its peers: output tokens a second over concurrency.

    benches/peers/setup.sh
    cargo build --release
    benches/peers/serving.py --model FILE.gguf [--clients 1,10,50,64] [--rounds 3] [--json OUT.json]

Every server is driven by the same `ropeway bench serve`: as many clients as said, each with its own 100-token prompt and 64
new tokens. OpenVINO GenAI has no server of its own: it runs the same requests in its own process, without HTTP. Ropeway also
runs them in its own process, which tells what its server costs. Interleaved rounds and medians as in compare.py.
"""

import json
import pathlib
import sys
import tempfile

import batching
import compare
from compare import ROPEWAY, installed, output_of, requantised
from served import Served

# Fewer requests than this are no measurement.
FEWEST_REQUESTS = 8


class Server:
    """One server for all measurements of a round."""

    machine = None

    def __init__(self, label, needs, command, path, given, load):
        self.label, self.needs, self.command, self.path = label, needs, command, path
        self.ropeway, self.load = given.ropeway, load

    def measure(self):
        with Served(self.command, self.path) as server:
            speeds = {f"requests_{count}": self.at(server.url, count) for count in self.load.counts}
            print(f"  {self.label}: {server.resident_mb():.0f} MB resident afterwards", file=sys.stderr)
        return speeds

    def at(self, url, count):
        requests = max(count, FEWEST_REQUESTS)
        sizes = ["--prompt", self.load.prompt, "--output", self.load.new, "--requests", requests, "--repeat", 1]
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "run.json"
            given = [self.ropeway, "bench", "serve", "--url", url, "--concurrency", count, "--json", out, *sizes]
            output_of([str(part) for part in given])
            point = json.loads(out.read_text())["points"][0]
        first = point["first_token_ms"]
        print(f"  {self.label}, {count} clients: first token {first['p50']:.0f} ms (p99 {first['p99']:.0f}), "
              f"load generator {point['own_cpu']:.1%} of a core", file=sys.stderr)
        if point["completed"] < requests:
            raise compare.SideFailed(f"{self.label} answered {point['completed']} of {requests}")
        return point["output_tok_s"]


def sides(given, load):
    llama = given.peers / "llama.cpp/build/bin/llama-server"
    best = requantised(given.model, given.peers)
    slots = max(load.counts)
    room = slots * (load.prompt + load.new + 64)

    def ropeway(port):
        return [given.ropeway, "serve", "--model", given.model, "--listen", f"127.0.0.1:{port}",
                "--threads", load.threads, "--log-level", "off"]

    def llama_server(model):
        return lambda port: [llama, "-m", model, "-t", load.threads, "-tb", load.threads, "-np", slots, "-c", room,
                             "-cb", "--port", port]

    inside = batching.Ropeway(given.model, given.ropeway, load)
    inside.label = "Ropeway, in process"
    return installed([
        Server(ROPEWAY, given.ropeway, ropeway, "/health/ready", given, load),
        inside,
        Server("llama-server, this file", llama, llama_server(given.model), "/health", given, load),
        Server("llama-server, Q4_0", llama, llama_server(best), "/health", given, load),
        batching.OpenVino(given.model, given.peers / "openvino/bin/python", load),
    ])


def main():
    parser = compare.arguments(__doc__)
    parser.add_argument("--clients", default="1,10,50,64", dest="requests", help="clients at once")
    parser.add_argument("--prompt", type=int, default=100, help="tokens of each prompt")
    parser.add_argument("--new", type=int, default=64, help="new tokens of each request")
    given = compare.parse(parser)
    load = batching.Load(given)
    points = {f"requests_{count}": f"{count} clients" for count in load.counts}
    compare.report(given, sides(given, load), points)


if __name__ == "__main__":
    main()
