#!/usr/bin/env python3
"""Every client that people run, as it comes, against a server of this build: one line per client.

    tests/clients/run.py                    # all of them
    tests/clients/run.py langchain litellm  # these
    tests/clients/run.py --list             # what there is

Builds `ropeway` unless ROPEWAY says where it is. Clients are installed once, by name, into the user's cache: pip for those of
Python, npm for those of JavaScript. What a client prints goes into a file that is named when it fails.
"""
import argparse
import dataclasses
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "ropeway" / "client-envs"
RANKER = ROOT / "tests/fixtures/encoders/cross-bert"

# The second and third key of the official libraries' checks.
KEYS = "sk-everything name=all admin\nsk-one-at-a-time name=one concurrency=1\n"


@dataclasses.dataclass
class Client:
    """A client: what pip installs, which script speaks to a server, and how that is started."""

    packages: list[str]
    script: str
    serve: list[str] = dataclasses.field(default_factory=list)
    keys: bool = False
    # Scripts that start a server of their own get none.
    starts_server: bool = False


CLIENTS = {
    "sdks": Client(["openai", "anthropic", "ollama"], "conformance.py", keys=True),
    "openai-agents": Client(["openai-agents"], "openai_agents.py"),
    "langchain": Client(["langchain-openai", "langchain-ollama"], "langchain_client.py"),
    "litellm": Client(["litellm[proxy]"], "litellm_client.py", ["--embed-model", "all-minilm", "--embed-model", str(RANKER)]),
    "llama-index": Client(
        ["llama-index-llms-openai-like", "llama-index-llms-ollama", "llama-index-embeddings-openai-like",
         "llama-index-embeddings-ollama"], "llama_index_client.py"),
    "aider": Client(["aider-chat"], "aider_client.py"),
    "open-webui": Client(["open-webui"], "open_webui_client.py"),
    "ai-sdk": Client([], "ai_sdk/run.sh"),
    "ollama-js": Client([], "ollama_js/run.sh", starts_server=True),
    "codex": Client([], "codex.sh", starts_server=True),
    "claude-code": Client([], "claude_code.sh", starts_server=True),
}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("names", nargs="*", metavar="CLIENT", help="which; all of them if none is named")
    arguments.add_argument("--list", action="store_true", help="say what there is, and end")
    given = arguments.parse_args()
    if given.list:
        return print("\n".join(CLIENTS))
    unknown = set(given.names) - set(CLIENTS)
    if unknown:
        sys.exit(f"no such client: {', '.join(sorted(unknown))}; there are {', '.join(CLIENTS)}")
    ropeway = os.environ.get("ROPEWAY") or build()
    failed = [name for name in given.names or CLIENTS if not attempt(name, CLIENTS[name], ropeway)]
    sys.exit(1 if failed else 0)


def build():
    subprocess.run(["cargo", "build", "--quiet", "--release", "-p", "ropeway-cli"], cwd=ROOT, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return str(target / "release" / "ropeway")


def attempt(name, client, ropeway):
    """Whether a client is content; tells so in a line."""
    began = time.monotonic()
    log = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-")) / "log"
    try:
        with log.open("w") as output:
            python, versions = environment(name, client, output)
            code = run(client, python, ropeway, output)
    except (OSError, subprocess.SubprocessError) as error:
        code, versions = error, ""
    word, more = ("ok", versions) if code == 0 else ("FAILED", f"see {log}")
    print(f"{word:<7} {name:<14} {more}  ({time.monotonic() - began:.0f} s)", flush=True)
    return code == 0


def environment(name, client, output):
    """The Python that has a client's packages, and their versions."""
    if not client.packages:
        return sys.executable, ""
    place = CACHE / name
    python = place / "bin" / "python"
    plain = [re.sub(r"\[.*", "", package) for package in client.packages]
    show = [python, "-m", "pip", "show", "--quiet", *plain]
    if not python.exists() or subprocess.run(show, stdout=output, stderr=output).returncode != 0:
        subprocess.run([sys.executable, "-m", "venv", place], check=True, stdout=output, stderr=output)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *client.packages]
        subprocess.run(install, check=True, stdout=output, stderr=output)
    code = f"import importlib.metadata as m\nprint(', '.join(f'{{p}} {{m.version(p)}}' for p in {plain!r}))"
    return str(python), subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def run(client, python, ropeway, output):
    """The exit code of a client's script."""
    script = HERE / client.script
    command = [python, script] if script.suffix == ".py" else [script]
    around = os.environ | {"ROPEWAY": ropeway, "PYTHONUNBUFFERED": "1"}
    if client.starts_server:
        return within(1800, command, output, around)
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--alias", "claude-*=smollm2:135m", *client.serve]
        if client.keys:
            keys = pathlib.Path(folder) / "keys"
            keys.write_text(KEYS)
            flags += ["--api-keys-file", str(keys)]
        server = subprocess.Popen(
            [ropeway, "serve", "--listen", "127.0.0.1:0", *flags], stdout=output, stderr=subprocess.PIPE, text=True)
        try:
            url = address(server, output)
            return within(900, [*command, url], output, around)
        finally:
            server.send_signal(signal.SIGTERM)
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()


def within(seconds, command, output, around):
    """The exit code of a command; if it takes longer, all that it started ends with it."""
    running = subprocess.Popen(command, stdout=output, stderr=output, env=around, start_new_session=True)
    try:
        return running.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGKILL)
        raise


def address(server, output):
    """Where a server listens, once it is ready."""
    for line in server.stderr:
        output.write(line)
        found = re.search(r" on (http://127\.0\.0\.1:\d+)", line)
        if found:
            # Whatever it says later must not block it.
            subprocess.Popen(["cat"], stdin=server.stderr, stdout=output)
            return found.group(1)
    raise OSError("the server ended")


if __name__ == "__main__":
    main()
