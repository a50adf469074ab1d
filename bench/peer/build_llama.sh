#!/bin/sh
# build_llama.sh ik PEER BUILD OUT - compiles llama_peer.c against ik_llama.cpp: its source tree and the
#                                    folder of its build (targets ggml and llama, static libraries)
# build_llama.sh npm LIBRARIES SOURCE OUT - against llama.cpp's prebuilt library: the folder with
#                                    libllama.v*.so and the source tree of the same release, for headers
set -eu
here=$(dirname "$0")
usage="usage: build_llama.sh ik PEER BUILD OUT | npm LIBRARIES SOURCE OUT"
kind=${1:?$usage} a=${2:?$usage} b=${3:?$usage} out=${4:?$usage}
case $kind in
ik)
    cc -O2 -DPEER_IK -I"$a/include" -I"$a/ggml/include" -c "$here/llama_peer.c" -o "$out.o"
    c++ "$out.o" "$b/src/libllama.a" "$b/ggml/src/libggml.a" -fopenmp -lpthread -ldl -lm -o "$out"
    ;;
npm)
    lib=$(cd "$a" && pwd)
    cc -O2 -I"$b/include" -I"$b/ggml/include" -c "$here/llama_peer.c" -o "$out.o"
    cc "$out.o" "$lib"/libllama.v*.so "$lib"/libggml.v*.so "$lib/libggml-base.so" -Wl,-rpath,"$lib" -o "$out"
    ;;
*)
    echo "$usage" >&2
    exit 2
    ;;
esac
rm -f "$out.o"
