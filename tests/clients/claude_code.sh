#!/usr/bin/env bash
# A turn of the Claude Code CLI against a server of this build. Needs node and npm; the CLI is installed once, by name, into the
# user's cache. Not part of ./check: the CLI is large and comes from another registry.
#
#     tests/clients/claude_code.sh             # builds, or ROPEWAY=path/to/ropeway
#
# Its own prompt has about 28,600 tokens of the default model, more than that model's window; --system-prompt and --tools leave
# the protocol as it is and make it short. The question and the system prompt are of the kind that the model answers briefly.
set -euo pipefail
cd "$(dirname "$0")/../.."

cache="${XDG_CACHE_HOME:-$HOME/.cache}/ropeway/claude-code"
claude="$cache/node_modules/.bin/claude"
if [ ! -x "$claude" ] || ! "$claude" --version > /dev/null 2>&1; then
  npm install --silent --no-fund --no-audit --prefix "$cache" @anthropic-ai/claude-code
  # The binary is put in its place by a script that npm may be told not to run.
  (cd "$cache/node_modules/@anthropic-ai/claude-code" && if [ -f install.cjs ]; then node install.cjs; fi)
fi

. tests/clients/server.sh
start_server --any-model --model "${MODEL:-smollm2:135m}"

mkdir "$work/home"
cd "$work/home"
# The CLI samples at temperature 1 and takes an answer without an end for an error; so small a model sometimes finds none.
for try in 1 2 3 4 5 6; do
  if HOME="$work/home" ANTHROPIC_BASE_URL="$url" ANTHROPIC_API_KEY=none \
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_TELEMETRY=1 CLAUDE_CODE_MAX_OUTPUT_TOKENS=1024 \
    timeout 120 "$claude" -p "What is the capital of France?" --model claude-sonnet-4-5 --output-format json --tools "" \
    --system-prompt "You are a helpful AI assistant named SmolLM, trained by Hugging Face" < /dev/null > "$work/turn.json"; then
    break
  fi
  echo "again   claude_code: try $try had no end"
done

python3 - "$work/turn.json" << 'CHECK' || { cat "$work/turn.json" "$work/log"; exit 1; }
import json, sys

turn = json.load(open(sys.argv[1]))
assert turn["subtype"] == "success" and not turn["is_error"], turn
assert turn["usage"]["output_tokens"] > 0, turn
print(f"ok      claude_code ({turn['duration_ms'] / 1000:.1f} s): {turn['result'][:60]!r}")
CHECK
