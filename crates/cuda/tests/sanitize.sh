#!/usr/bin/env bash
# Runs the emulator's tests with kernels under AddressSanitizer: reads and writes beyond a device allocation, and beyond a block's shared memory, end
# them. What NVIDIA's compute-sanitizer memcheck finds on a GPU, without one; needs GCC.
#
#     crates/cuda/tests/sanitize.sh [TEST]...     for example `emulate company`; all of them take three to four minutes on two cores
set -euo pipefail
cd "$(dirname "$0")/.."

tests=("$@")
[ $# -gt 0 ] || tests=(emulate company decodes prompts prepare_qkv residual small packed experts sampling encoder engine)
binaries=$(cargo test -p ropeway-cuda --no-run --message-format json "${tests[@]/#/--test=}" |
    python3 -c 'import json, sys; print("\n".join(m["executable"] for m in map(json.loads, sys.stdin) if m.get("executable")))')

# Threads of a block are fibers with stacks of their own, which only this leaves alone.
export ROPEWAY_EMULATOR_FLAGS='-fsanitize=address --param asan-stack=0 -g1'
export ASAN_OPTIONS=detect_leaks=0:detect_stack_use_after_return=0
for binary in $binaries; do
    echo "== $(basename "$binary")"
    LD_PRELOAD=$(c++ -print-file-name=libasan.so) CARGO_MANIFEST_DIR=$PWD "$binary"
done
