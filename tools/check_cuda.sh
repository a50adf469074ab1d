#!/bin/sh
# check_cuda.sh [BUILD] - compiles and links libnibble-cuda.so where there is an nvcc, and checks the file:
# it exports one function, needs no library of CUDA to be loaded, and on a machine without a GPU says so
# in a line.  BUILD: a folder in which it was built (default: builds build/release where there is
# a GPU, else build/nvcc).
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-}
if [ -z "$build" ]; then
    nvcc=${CUDACXX:-}
    for f in nvcc /usr/local/cuda/bin/nvcc /opt/cuda/bin/nvcc; do
        [ -z "$nvcc" ] && command -v $f >/dev/null 2>&1 && nvcc=$f
    done
    if [ -z "$nvcc" ]; then
        echo "no nvcc in PATH or /usr/local/cuda: the GPU library is not compiled"
        exit 77
    fi
    # Without a GPU nobody runs it: sm80/ for the chip of that name only, whose instructions the newer ones have,
    # which is half the time (preset nvcc); what is for one newer chip is in sm90/, and compiled for that.
    preset=nvcc
    if [ -e /dev/nvidiactl ] || [ -e /dev/nvhost-gpu ] || [ -e /dev/dxg ]; then preset=release; fi
    build=build/$preset
    sh tools/build.sh $preset nibble-cuda || exit 1
fi
library=$build/libnibble-cuda.so
[ -f "$library" ] || {
    echo "$library was not built"
    exit 1
}

exported=$(nm -D --defined-only "$library" | awk '{ print $3 }')
if [ "$exported" != nb_cuda_get_api ]; then
    printf '%s\n' "$library exports more than nb_cuda_get_api:" "$exported"
    exit 1
fi
needed=$(objdump -p "$library" | awk '$1 == "NEEDED" { print $2 }')
if printf '%s\n' "$needed" | grep -E 'cuda|cublas|nvidia'; then
    echo "$library must load on machines without CUDA"
    exit 1
fi
if nm -C "$library" 2>/dev/null | grep -E '_GLOBAL__sub_I_(nb_|.*\.cu)'; then
    echo "$library has global constructors of its own"
    exit 1
fi
printf '%s\n' "$library: $(wc -c <"$library") bytes, needs:" $needed
