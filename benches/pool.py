"""What a Ropeway in front of others costs and promises: overhead, speed, memory, fairness and kills, on this machine.

    cargo build --release && python3 benches/pool.py target/release/ropeway [overhead speed memory fairness kills] [--model FILE]

The model is a tiny one of random weights, so that what is measured is the front, unless another one is given.

Everything runs on the loopback: upstreams are real `ropeway serve` processes, the front is another one. Each figure is compared with the same
request sent to an upstream directly, in turn. Only the standard library is needed.
"""

import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TINY = ROOT / "tests/fixtures/models/llama"
MODEL = Path(sys.argv[sys.argv.index("--model") + 1]).resolve() if "--model" in sys.argv else TINY
NAME = MODEL.stem if MODEL.suffix == ".gguf" else MODEL.name
KEYS = {"a": "key-of-the-many-0123456789", "b": "key-of-the-one-0123456789"}


class Server:
    """A `ropeway serve` that ends with the bench."""

    def __init__(self, binary, folder, *arguments, port=0):
        self.command = [binary, "serve", "--listen", f"127.0.0.1:{port}", *arguments]
        self.folder = folder
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, cwd=self.folder, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if line.startswith("ropeway serves"):
                self.port = int(line.split(" on http://")[1].split(",")[0].rsplit(":", 1)[1])
                break
        else:
            raise SystemExit(f"{self.command} ended")
        threading.Thread(target=lambda: [None for _ in self.process.stderr], daemon=True).start()

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        self.process.wait()

    def cpu(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self):
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096 / 1e6


def prompt(number, tokens=12):
    return [10 + (number * 31 + token * 7) % 300 for token in range(tokens)]


async def stream(port, body, key=None):
    """Times of the pieces of a streamed answer, and its text."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps({**body, "stream": True}).encode()
    authorization = f"authorization: Bearer {key}\r\n" if key else ""
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{authorization}content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    writer.write(head.replace("host: x", f"host: 127.0.0.1:{port}").encode() + data)
    times, text, finish = [], "", None
    async for line in reader:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            if b'"error"' in line:
                raise RuntimeError(line)
            continue
        chunk = json.loads(line[6:])
        if "error" in chunk:
            raise RuntimeError(chunk)
        times.append(time.perf_counter() - began)
        for choice in chunk["choices"]:
            text += choice["text"]
            finish = choice["finish_reason"] or finish
    writer.close()
    return times, text, finish


def body(number, tokens, **more):
    return {"model": NAME, "prompt": prompt(number), "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}


class Stage:
    """So many upstreams and a front."""

    def __init__(self, binary, upstreams=2, front=()):
        self.folder = tempfile.mkdtemp()
        fixed = ["--model", str(MODEL), "--kv-memory", "1GiB", "--no-embeddings", "--fixed-models"]
        self.behind = [Server(binary, self.folder, *fixed) for _ in range(upstreams)]
        tables = [
            f'[[upstream]]\nname = "u{i}"\nurl = "http://127.0.0.1:{one.port}"\ntokenizer = "{MODEL}"\n'
            for i, one in enumerate(self.behind)
        ]
        place = Path(self.folder) / "front"
        place.mkdir()
        (place / "ropeway.toml").write_text("".join(tables))
        self.front = Server(binary, place, *front)

    def end(self):
        for server in [self.front, *self.behind]:
            server.kill(signal.SIGTERM)


async def overhead(binary):
    stage = Stage(binary, upstreams=1)
    direct, through = [], []
    for number in range(300):
        for port, firsts in [(stage.behind[0].port, direct), (stage.front.port, through)]:
            times, _, _ = await stream(port, body(number, 2))
            firsts.append(times[0] * 1e3)
    stage.end()
    p50 = [statistics.median(firsts[50:]) for firsts in (direct, through)]
    p99 = [statistics.quantiles(firsts[50:], n=100)[98] for firsts in (direct, through)]
    print(f"overhead: first token p50 {p50[0]:.2f} ms direct, {p50[1]:.2f} ms through the front: +{p50[1] - p50[0]:.2f} ms (p99 {p99[0]:.2f}, {p99[1]:.2f})")


async def speed(binary):
    stage = Stage(binary, upstreams=1)
    tokens, began, cpu = 0, time.perf_counter(), stage.front.cpu()
    for wave in range(6):
        streams = [stream(stage.front.port, body(wave * 32 + number, 100)) for number in range(32)]
        tokens += 100 * len(await asyncio.gather(*streams))
    seconds, cpu = time.perf_counter() - began, stage.front.cpu() - cpu
    stage.end()
    print(f"speed: {tokens} tokens forwarded in {seconds:.1f} s with {cpu:.2f} s of the front's CPU: {tokens / cpu:.0f} tokens a second per core")


async def memory(binary):
    stage = Stage(binary, upstreams=1)
    sizes = []
    for wave in range(40):
        await asyncio.gather(*[stream(stage.front.port, body(wave * 50 + number, 20)) for number in range(50)])
        sizes.append(stage.front.resident())
    stage.end()
    marks = [sizes[index] for index in (3, 9, 19, 39)]
    print("memory: " + ", ".join(f"{size:.1f} MB after {n} requests" for size, n in zip(marks, (200, 500, 1000, 2000))))


async def fairness(binary, tokens=100):
    keys = Path(tempfile.mkdtemp()) / "keys"
    keys.write_text("".join(f"{key} name={name} metrics\n" for name, key in KEYS.items()))
    stage = Stage(binary, front=["--api-keys-file", str(keys)])

    async def of_the_one(rounds):
        firsts = []
        for number in range(rounds):
            times, _, _ = await stream(stage.front.port, body(5000 + number, 20), KEYS["b"])
            firsts.append(times[0] * 1e3)
        return statistics.median(firsts)

    async def beside(at_once):
        # In a process of its own, so that what is measured is the servers and not this program.
        load = subprocess.Popen([sys.executable, __file__, "load", str(stage.front.port), NAME, str(at_once), str(tokens)])
        await asyncio.sleep(3)
        first = await of_the_one(20)
        load.kill()
        load.wait()
        await asyncio.sleep(0.5)
        return first

    alone = await of_the_one(40)
    # The windows find their size first; half of it is what two clients of equal rights would leave each other.
    await beside(200)
    places = sum(upstream["models"][0]["limit"] for upstream in told(stage, KEYS["b"])["upstreams"])
    half = max(1, min(places, 200) // 2)
    shares, floods = [], []
    for _ in range(3):
        shares.append(await beside(half))
        floods.append(await beside(200))
    stage.end()
    ratios = [flood / share for flood, share in zip(floods, shares)]
    print(f"fairness: first token of one client p50 {alone:.1f} ms alone, {statistics.median(shares):.1f} ms beside another that has half of the {places} places, "
          f"{statistics.median(floods):.1f} ms beside one with 200 requests open: {statistics.median(ratios):.2f}x of its share")


def told(stage, key):
    """What the front says about its upstreams."""
    request = urllib.request.Request(f"http://127.0.0.1:{stage.front.port}/upstreams", headers={"authorization": f"Bearer {key}"})
    return json.load(urllib.request.urlopen(request))


async def kills(binary):
    stage = Stage(binary, upstreams=2)
    expected = [(await stream(stage.behind[0].port, body(number, 100)))[1] for number in range(50)]
    undisturbed, gaps, lost = [], [], 0
    for kill in range(10):
        for killing in (False, True):
            tasks = [asyncio.create_task(stream(stage.front.port, body(number, 100))) for number in range(50)]
            victim = stage.behind[kill % 2]
            if killing:
                await asyncio.sleep(0.15)
                victim.kill()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            for number, result in enumerate(results):
                if isinstance(result, Exception) or result[1] != expected[number] or result[2] != "length":
                    lost += 1
                    print(f"  client {number}: {result!r:.300}")
                    continue
                times = result[0]
                # From the first token on: before it a stream may have waited for its turn.
                longest = max(b - a for a, b in zip(times, times[1:]))
                (gaps if killing else undisturbed).append(longest)
        victim.command[3] = f"127.0.0.1:{victim.port}"
        victim.start()
        await asyncio.sleep(1.5)
    page = urllib.request.urlopen(f"http://127.0.0.1:{stage.front.port}/metrics").read().decode()
    moved = sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith("ropeway_upstream_moved_total"))
    retried = sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith("ropeway_upstream_retries_total"))
    stage.end()
    print(f"kills: 10 of kill -9 under 50 streams: {lost} of 1000 answers lost or wrong, {moved:.0f} streams moved, {retried:.0f} tried again; "
          f"longest pause of a stream {max(gaps) * 1e3:.0f} ms (undisturbed {max(undisturbed) * 1e3:.0f} ms)")


async def load(port, name, at_once, tokens):
    """A client with so many requests open at any time, which reads answers and looks at nothing."""

    async def one(number):
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            data = json.dumps({"model": name, "prompt": prompt(number), "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}).encode()
            head = f"POST /v1/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\nauthorization: Bearer {KEYS['a']}\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
            writer.write(head.encode() + data)
            while await reader.read(1 << 16):
                pass
            writer.close()

    await asyncio.gather(*[one(number) for number in range(at_once)])


def main():
    if sys.argv[1] == "load":
        port, name, at_once, tokens = sys.argv[2:6]
        return asyncio.run(load(int(port), name, int(at_once), int(tokens)))
    binary = str(Path(sys.argv[1]).resolve())
    known = ["overhead", "speed", "memory", "fairness", "kills"]
    chosen = [name for name in sys.argv[2:] if name in known] or known
    for name in chosen:
        asyncio.run(globals()[name](binary))


main()
