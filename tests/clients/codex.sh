#!/usr/bin/env bash
# A turn of the Codex CLI, as it comes, against a server of this build. Needs node and npm; the CLI is installed once, by name, into
# the user's cache. Not part of ./check: the CLI is large and comes from another registry.
#
#     tests/clients/codex.sh             # builds, or ROPEWAY=path/to/ropeway
#
# Its prompt and tools have about 8,700 tokens of the default model, more than that model's window: hence the scaled context. It is
# not much larger than that, so that an answer without an end is soon cut.
set -euo pipefail
cd "$(dirname "$0")/../.."

cache="${XDG_CACHE_HOME:-$HOME/.cache}/ropeway/codex"
codex="$cache/node_modules/.bin/codex"
if [ ! -x "$codex" ] || ! "$codex" --version > /dev/null 2>&1; then
  npm install --silent --no-fund --no-audit --prefix "$cache" @openai/codex
fi

. tests/clients/server.sh
start_server --model "${MODEL:-smollm2:135m}" --context "${CONTEXT:-10240}" --rope-scaling yarn

mkdir -p "$work/home/.codex" "$work/project"
cat > "$work/home/.codex/config.toml" << CONFIG
model = "${MODEL:-smollm2:135m}"
model_provider = "ropeway"

[model_providers.ropeway]
name = "Ropeway"
base_url = "$url/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
CONFIG

cd "$work/project"
# A turn with these flags. The CLI takes an answer without an end for an error; so small a model sometimes finds none.
turn() {
  for try in 1 2 3 4 5 6 7 8; do
    if HOME="$work/home" CODEX_HOME="$work/home/.codex" CODEX_OSS_BASE_URL="$url/v1" timeout 120 "$codex" exec --json \
      --skip-git-repo-check "$@" "What is the capital of France?" < /dev/null > "$work/turn.jsonl" 2> "$work/errors"; then
      return
    fi
    echo "again   codex $*: try $try had no end"
  done
}

check() {
  python3 - "$work/turn.jsonl" "$*" << 'CHECK' || { cat "$work/turn.jsonl" "$work/errors" "$work/log"; exit 1; }
import json, sys

events = [json.loads(line) for line in open(sys.argv[1]) if line.startswith("{")]
done = [event for event in events if event["type"] == "turn.completed"]
assert done and done[0]["usage"]["output_tokens"] > 0, events
items = [event["item"] for event in events if event["type"] == "item.completed" and event["item"]["type"] != "error"]
said = [item.get("text", item["type"]) for item in items]
print(f"ok      codex {sys.argv[2]} ({done[0]['usage']['input_tokens']} tokens of prompt): {str(said)[:80]}")
CHECK
}

turn && check
# It looks at Ollama's version and models first. Without the setting, `exec` of 0.166 contradicts its own flag.
oss=(--oss --local-provider ollama -c model_provider=ollama -m "${MODEL:-smollm2:135m}")
turn "${oss[@]}" && check "${oss[@]:0:3}"
