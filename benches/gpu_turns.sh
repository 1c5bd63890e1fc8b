#!/usr/bin/env bash
# Compares builds of `cuda-check` on one GPU: each is run in turn, several rounds, because cards differ by 4 % and lower their clocks under load.
#
#     benches/gpu_turns.sh ROUNDS MODELS COMMAND...
#     benches/gpu_turns.sh 3 8b old/cuda-check new/cuda-check 'new/cuda-check --tma'
#
# A COMMAND is a program with its options; ` speed --models MODELS` is appended. Findings go to standard output, whole logs to $OUT or the
# current folder. Builds share tuned products where they remember them in the same format; tuning is in nobody's figures.
set -euo pipefail
if [ $# -lt 4 ]; then
  sed -n '2,8p' "$0" | cut -c3-
  exit 2
fi
rounds=$1 models=$2
shift 2
logs=${OUT:-.}
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT

# shellcheck disable=SC2086  # a command's options are words of their own
speed() { timeout 120 $1 speed --models "$models" --cache "$cache"; }

nvidia-smi --query-gpu=name,temperature.gpu,power.draw,clocks.sm,driver_version --format=csv,noheader || true
speed "$1" > "$logs/tuning.txt" || { tail -3 "$logs/tuning.txt"; exit 1; }
for round in $(seq "$rounds"); do
  number=0
  for command in "$@"; do
    number=$((number + 1))
    log=$logs/$number-$round.txt
    speed "$command" > "$log" || echo "failed: $command"
    sed -n "s|^RES|$number ($command) round $round:|p" "$log"
  done
done
