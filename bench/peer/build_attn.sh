#!/bin/sh
# build_attn.sh PEER [OUT] - compiles attn_peer.c against a build of ik_llama.cpp: PEER is its source
# tree, with the library in PEER/build (`cmake --build PEER/build --target ggml`).
set -eu
here=$(dirname "$0")
peer=${1:?usage: build_attn.sh PEER [OUT]}
out=${2:-$peer/build/attn_peer}
cc -O2 -I"$peer/ggml/include" -c "$here/attn_peer.c" -o "$out.o"
c++ "$out.o" "$peer/build/ggml/src/libggml.a" -fopenmp -lpthread -ldl -lm -o "$out"
rm -f "$out.o"
