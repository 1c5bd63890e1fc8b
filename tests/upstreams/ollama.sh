#!/usr/bin/env bash
# Ollama behind a front; see README.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v ollama > /dev/null; then
  echo "skipped: there is no ollama on the PATH; https://ollama.com/download says how to install it"
  exit 0
fi
. tests/upstreams/servers.sh

model="${MODEL:-smollm2:135m}"
port=$(free_port)
start ollama env OLLAMA_HOST="127.0.0.1:$port" ollama serve
wait_for ollama "http://127.0.0.1:$port/api/version"
OLLAMA_HOST="127.0.0.1:$port" ollama pull "$model"
check ollama "http://127.0.0.1:$port" "$model"
