#!/usr/bin/env bash
# The `ollama` library for JavaScript against a server of this build. Needs node and npm; the library is installed once, by
# name, into the user's cache. The default models must be there: `ropeway pull smollm2`, `ropeway pull all-minilm`.
#
#     tests/clients/ollama_js/run.sh           # builds, or ROPEWAY=path/to/ropeway
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
cd "$here/../../.."

cache="${XDG_CACHE_HOME:-$HOME/.cache}/ropeway/ollama-js"
if [ ! -d "$cache/node_modules/ollama" ]; then
  npm install --silent --no-fund --no-audit --prefix "$cache" ollama
fi

if [ -z "${ROPEWAY:-}" ]; then
  cargo build --quiet --release -p ropeway-cli
  ROPEWAY="${CARGO_TARGET_DIR:-target}/release/ropeway"
fi

work="$(mktemp -d)"
"$ROPEWAY" serve --listen 127.0.0.1:0 > "$work/log" 2>&1 &
server=$!
trap 'kill "$server" 2> /dev/null || true; wait "$server" 2> /dev/null || true; rm -rf "$work"' EXIT
url=""
until url="$(grep -o -m 1 'http://127.0.0.1:[0-9]*' "$work/log" 2> /dev/null)"; do
  if ! kill -0 "$server" 2> /dev/null; then cat "$work/log"; exit 1; fi
  sleep 0.1
done

# Modules are looked for beside the script.
cp "$here/conformance.mjs" "$cache/conformance.mjs"
node "$cache/conformance.mjs" "$url" smollm2:135m all-minilm:l6-v2
