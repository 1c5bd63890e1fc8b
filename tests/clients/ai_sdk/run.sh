#!/usr/bin/env bash
# The AI SDK against a running server: tests/clients/ai_sdk/run.sh URL [KEY]. Needs node and npm; the packages are installed once,
# by name, into the user's cache.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
cache="${XDG_CACHE_HOME:-$HOME/.cache}/ropeway/ai-sdk"
mkdir -p "$cache"
cp "$here/package.json" "$here/responses.mjs" "$cache"
if [ ! -d "$cache/node_modules/@ai-sdk/openai" ]; then
  npm install --silent --no-fund --no-audit --prefix "$cache"
fi
cd "$cache"
exec node responses.mjs "$@"
