#!/usr/bin/env bash
# Builds every fuzz target and puts it with its seeds and run.sh into a folder that runs on any x86-64 Linux machine, without Rust.
#     fuzz/pack.sh FOLDER
set -euo pipefail
folder=$(realpath -m "${1:?usage: fuzz/pack.sh FOLDER}")
cd "$(dirname "$0")"

# No sanitizer: the code under test is safe Rust but for two crates, and binaries with one are ten times as large and half as fast.
# Debug assertions and overflow checks stay on.
export CARGO_PROFILE_RELEASE_DEBUG=0
cargo +nightly fuzz build --sanitizer none --strip-dead-code

built=${CARGO_TARGET_DIR:-target}/x86_64-unknown-linux-gnu/release
stripped=$(mktemp -d)
trap 'rm -rf "$stripped"' EXIT
rm -rf "$folder/seeds"
mkdir -p "$folder/seeds"
for target in targets/*.rs; do
    name=$(basename "$target" .rs)
    strip -o "$stripped/$name" "$built/$name"
    cp -r "seeds/$name" "$folder/seeds/$name"
done
# A third of their size; run.sh unpacks them.
tar -C "$stripped" -czf "$folder/bin.tar.gz" .
cp run.sh "$folder/run.sh"
du -sh "$folder"
