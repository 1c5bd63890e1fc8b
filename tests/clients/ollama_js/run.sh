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

. tests/clients/server.sh
start_server

# Modules are looked for beside the script.
cp "$here/conformance.mjs" "$cache/conformance.mjs"
node "$cache/conformance.mjs" "$url" smollm2:135m all-minilm:l6-v2
