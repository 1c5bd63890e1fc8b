#!/usr/bin/env bash
# SGLang behind a front; see README.md. Needs a GPU.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ! command -v nvidia-smi > /dev/null || ! nvidia-smi -L > /dev/null 2>&1; then
  echo "skipped: SGLang needs a GPU, and there is none here"
  exit 0
fi
. tests/upstreams/servers.sh

[ -x "$upstreams/sglang/bin/sglang" ] || install sglang 'sglang[all]'
: "${MODEL:?names the model: a folder, or a name of the hub}"
model="$MODEL"
for flags in "" "--incremental-streaming-output"; do
  port=$(free_port)
  # shellcheck disable=SC2086
  start sglang "$upstreams/sglang/bin/python" -m sglang.launch_server --model-path "$model" --served-model-name tiny --host 127.0.0.1 \
    --port "$port" --enable-metrics --mem-fraction-static 0.3 $flags
  wait_for sglang "http://127.0.0.1:$port/health"
  check sglang "http://127.0.0.1:$port" tiny
done
