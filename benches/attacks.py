#!/usr/bin/env python3
"""What honest clients feel of attacks: first tokens of small interactive chats, without and beside each kind.

    cargo build --release
    benches/attacks.py [--ropeway target/release/ropeway] [--seconds 8] [--only NAME] [--rounds 1]

Two honest clients with one key ask small questions one after another. Attackers have another key and run at the lowest priority, so that
what they cost is what they make the server do, as far as one machine can tell. Python's standard library only.
"""

import argparse
import http.client
import itertools
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent / "peers"))
from served import Served

HONEST, HOSTILE = "sk-honest-0123456789", "sk-hostile-0123456789"
WORDS = "station cable morning engine summit valley carries slowly people between winter report measured".split()
NUMBERS = itertools.count()


def text(words):
    return " ".join(random.choices(WORDS, k=words))


class Client:
    def __init__(self, url, key):
        self.address, self.key = url.removeprefix("http://"), key

    def send(self, path, body, **headers):
        """Sends a request on a connection of its own and leaves the answer unread."""
        connection = http.client.HTTPConnection(self.address, timeout=120)
        data = body if isinstance(body, bytes) else json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", path, data, {"Authorization": f"Bearer {self.key}", **named})
        return connection

    def post(self, path, body, **headers):
        """The status of the answer, or what went wrong."""
        try:
            connection = self.send(path, body, **headers)
            answer = connection.getresponse()
            answer.read()
            connection.close()
            return answer.status
        except OSError as error:
            return type(error).__name__

    def first_token(self):
        began = time.monotonic()
        body = dict(prompt=text(20), max_tokens=8, stream=True)
        connection = self.send("/v1/completions", body, x_priority="interactive")
        answer = connection.getresponse()
        answer.readline()
        took = time.monotonic() - began
        answer.read()
        connection.close()
        return took if answer.status == 200 else None


def grammar_beyond_limits(client):
    divisors = [dict(type="integer", multipleOf=9973), dict(type="integer", multipleOf=9900 - next(NUMBERS) % 50)]
    return client.post("/v1/completions", dict(prompt="x", max_tokens=4, guided_json=dict(allOf=divisors)))


def costly_grammar(client):
    number = next(NUMBERS)
    pattern = "(a|b|c){1,%d}(x{1,60}|y{1,70}){1,%d}" % (200 + number % 97, 20 + number % 13)
    return client.post("/v1/completions", dict(prompt="x", max_tokens=4, guided_regex=pattern))


def large_body(client):
    return client.post("/v1/completions", b'{"prompt":[' + b"0," * (15 << 20) + b"0]}")


def tokenize_and_leave(client):
    connection = client.send("/tokenize", dict(prompt="word " * 180_000))
    time.sleep(0.05)
    connection.close()
    return "left"


def many_answers(client):
    return client.post("/v1/completions", dict(prompt=text(10), max_tokens=100, n=128, ignore_eos=True), x_priority="bulk")


def new_session(client):
    return client.post("/v1/completions", dict(prompt=text(60), max_tokens=16), x_session_id=str(next(NUMBERS)))


ATTACKS = dict(
    grammar_beyond_limits=2, costly_grammar=4, large_body=4, tokenize_and_leave=4, many_answers=4, new_session=8
)


def attack(url, name):
    """Repeats an attack until standard input ends; prints how it was answered."""
    client, answers = Client(url, HOSTILE), {}

    def repeat():
        while True:
            told = globals()[name](client)
            answers[told] = answers.get(told, 0) + 1

    for _ in range(ATTACKS[name]):
        threading.Thread(target=repeat, daemon=True).start()
    sys.stdin.read()
    print(answers)


def chats(url, seconds):
    client, end, times = Client(url, HONEST), time.monotonic() + seconds, []

    def ask():
        while time.monotonic() < end:
            times.append(client.first_token())
            time.sleep(0.05)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    answered = sorted(took for took in times if took is not None)
    return 1e3 * statistics.median(answered), 1e3 * answered[int(0.99 * len(answered))]


def measure(server, seconds, names):
    alone = chats(server.url, seconds)
    print(f"{'nobody':24} first token p50 {alone[0]:5.0f} ms         p99 {alone[1]:5.0f} ms         {server.resident_mb():.0f} MB")
    for name in names:
        # The lowest priority, whatever this process has.
        command = ["nice", "-n", "39", sys.executable, __file__, "--attack", name, "--url", server.url]
        attackers = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        time.sleep(2.5)
        p50, p99 = chats(server.url, seconds)
        told = attackers.communicate()[0].strip()
        print(
            f"{name:24} first token p50 {p50:5.0f} ms ({p50 / alone[0]:.2f}x) p99 {p99:5.0f} ms ({p99 / alone[1]:.2f}x) "
            f"{server.resident_mb():.0f} MB  {told}",
            flush=True,
        )
        time.sleep(2)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ropeway", default="target/release/ropeway")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--only", choices=ATTACKS, metavar="NAME", help=f"one attack: {', '.join(ATTACKS)}")
    parser.add_argument("--rounds", type=int, default=1, help="how often everything is measured")
    parser.add_argument("--attack", choices=ATTACKS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        return attack(options.url, options.attack)
    with tempfile.NamedTemporaryFile("w") as keys:
        keys.write(f"{HONEST} name=honest\n{HOSTILE} name=hostile\n")
        keys.flush()
        command = [options.ropeway, "serve", "--api-keys-file", keys.name, "--no-embeddings", "--max-n", "128"]
        command += ["--context", "2048", "--kv-memory", "48MiB", "--listen"]
        with Served(lambda port: [*command, f"127.0.0.1:{port}"], "/health/ready") as server:
            for _ in range(options.rounds):
                measure(server, options.seconds, [options.only] if options.only else ATTACKS)


if __name__ == "__main__":
    main()
