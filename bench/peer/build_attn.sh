#!/bin/sh
# build_attn.sh PEER [OUT] [BUILD] - compiles attn_peer.c against a build of ik_llama.cpp: PEER is its source
# tree, BUILD (PEER/build) the folder of the library (`cmake --build BUILD --target ggml`).
set -eu
here=$(dirname "$0")
usage="usage: build_attn.sh PEER [OUT] [BUILD]"
peer=${1:?$usage}
build=${3:-$peer/build}
out=${2:-$build/attn_peer}
cc -O2 -I"$peer/ggml/include" -c "$here/attn_peer.c" -o "$out.o"
c++ "$out.o" "$build/ggml/src/libggml.a" -fopenmp -lpthread -ldl -lm -o "$out"
rm -f "$out.o"
