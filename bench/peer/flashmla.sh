#!/bin/sh
# flashmla.sh - builds FlashMLA's decode kernels with flashmla.cu, and runs them beside nibble's.
#
#   bench/peer/flashmla.sh BUILD [OPTION...]      builds what is missing, then runs (flashmla --help)
#   bench/peer/flashmla.sh --build-only BUILD
#
# BUILD: a build folder with libnibble_core.a and libnibble-cuda.so (`tools/build.sh cuda`); the program becomes
# BUILD/flashmla.  $FLASHMLA_DIR and $CUTLASS_DIR are the sources of FlashMLA and CUTLASS; how to get
# them: flashmla.md.  $NVCC is the compiler (default nvcc), CUDA 12.8 or newer.  Without sources or a GPU it prints
# the reason and exits with 77.
set -eu
cd "$(dirname "$0")/../.."
usage() {
    sed -n '4,5s/^# *//p' "$0" >&2
    exit 2
}

only=
if [ "${1:-}" = --build-only ]; then
    only=1
    shift
fi
build=${1:-}
[ -n "$build" ] || usage
shift
for f in libnibble_core.a libnibble-cuda.so; do
    if ! [ -e "$build/$f" ]; then
        printf '%s\n' "flashmla.sh: $build/$f is missing" >&2
        exit 2
    fi
done

# compile NAME SOURCE HEADER OPTION...: compiles the object NAME unless it is newer than both files.
compile() {
    object=$objects/$1.o source=$2 header=$3
    shift 3
    [ "$object" -nt "$source" ] && [ "$object" -nt "$header" ] && return
    echo "compiling $source"
    "$nvcc" -std=c++20 -O3 --expt-relaxed-constexpr $arch -I"$csrc" -I"$csrc/kerutils/include" -I"$csrc/sm90" \
        -I"$CUTLASS_DIR/include" "$@" -c "$source" -o "$object.new"
    mv "$object.new" "$object"
}

program=$build/flashmla
newest=$(ls -t "$build/libnibble_core.a" bench/peer/flashmla*.cu* "$program" 2>/dev/null | head -n 1)
if [ "$newest" != "$program" ]; then
    if [ -z "${FLASHMLA_DIR:-}" ] || [ -z "${CUTLASS_DIR:-}" ]; then
        echo "FLASHMLA_DIR and CUTLASS_DIR are not set: see bench/peer/flashmla.md"
        exit 77
    fi
    for f in "$FLASHMLA_DIR/csrc/params.h" "$CUTLASS_DIR/include/cutlass/version.h"; do
        if ! [ -e "$f" ]; then
            printf '%s\n' "flashmla.sh: $f is missing: see bench/peer/flashmla.md" >&2
            exit 2
        fi
    done
    nvcc=${NVCC:-nvcc} objects=$build/flashmla-objects csrc=$FLASHMLA_DIR/csrc
    arch=-gencode=arch=compute_90a,code=sm_90a
    mkdir -p "$objects"
    for f in smxx/decode/get_decoding_sched_meta/get_decoding_sched_meta smxx/decode/combine/combine \
        sm90/decode/dense/instantiations/bf16 sm90/decode/sparse_fp8/instantiations/v32_persistent_h64 \
        sm90/decode/sparse_fp8/instantiations/v32_persistent_h128; do
        compile "$(basename $f)" "$csrc/$f.cu" "$csrc/params.h" -DNDEBUG -D_USE_MATH_DEFINES -DFLASH_MLA_DISABLE_FP16 \
            --expt-extended-lambda --use_fast_math -Wno-deprecated-declarations -Xptxas --register-usage-level=10
    done
    for f in flashmla flashmla_case flashmla_check; do
        rm -f "$objects/$f.o" # it includes nibble's headers, so always compile it again
        compile $f bench/peer/$f.cu bench/peer/flashmla.cuh -Isrc -Iinclude
    done
    "$nvcc" $arch -cudart static -o "$program" "$objects"/*.o "$build/libnibble_core.a" -lpthread -ldl -lm
fi
[ -z "$only" ] || exit 0

command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1 || {
    echo "no GPU"
    exit 77
}
commit=$(git rev-parse --short HEAD 2>/dev/null || true)
exec "$program" --cuda-library "$build/libnibble-cuda.so" --commit "$commit" "$@"
