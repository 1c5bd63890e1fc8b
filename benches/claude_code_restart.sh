#!/usr/bin/env bash
# The Claude Code CLI with its own prompt (about 28,600 tokens of the default model): its first turn on a cold server, and after a
# restart with keys and values on disk. Prints what the server logs about each turn. Needs node and npm; some minutes of computing.
#
#     cargo build --release && benches/claude_code_restart.sh      # or ROPEWAY=path/to/ropeway
set -euo pipefail
cd "$(dirname "$0")/.."
ropeway="$(realpath "${ROPEWAY:-target/release/ropeway}")"

cache="${XDG_CACHE_HOME:-$HOME/.cache}/ropeway/claude-code"
claude="$cache/node_modules/.bin/claude"
if [ ! -x "$claude" ] || ! "$claude" --version > /dev/null 2>&1; then
  npm install --silent --no-fund --no-audit --prefix "$cache" @anthropic-ai/claude-code
  (cd "$cache/node_modules/@anthropic-ai/claude-code" && if [ -f install.cjs ]; then node install.cjs; fi)
fi

work="$(mktemp -d)"
server=""
end() { [ -z "$server" ] || { kill "$server" 2> /dev/null || true; wait "$server" 2> /dev/null || true; }; server=""; }
trap 'end; rm -rf "$work"' EXIT
mkdir "$work/home"

turn() {
  "$ropeway" serve --any-model --no-embeddings --listen 127.0.0.1:0 --context 40960 --rope-scaling yarn --kv-memory 2GiB \
    --kv-disk 4GiB --kv-disk-dir "$work/kv" > "$work/log" 2>&1 &
  server=$!
  until url="$(grep -o -m 1 'http://127.0.0.1:[0-9]*' "$work/log")"; do sleep 0.1; done
  # What so small a model says to such a prompt is of no interest; how long it takes to begin is.
  (cd "$work/home" && HOME="$work/home" ANTHROPIC_BASE_URL="$url" ANTHROPIC_API_KEY=none CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 \
    DISABLE_TELEMETRY=1 CLAUDE_CODE_MAX_OUTPUT_TOKENS=16 API_TIMEOUT_MS=900000 timeout "${LIMIT:-540}" "$claude" -p "Hello" \
    --model claude-sonnet-4-5 < /dev/null > /dev/null 2>&1) || true
  echo "$1:"
  grep -o 'prompt_tokens=[0-9]* .*ttft_ms=[0-9.]*' "$work/log" | head -2
  end
}
turn "cold"
turn "after a restart"
