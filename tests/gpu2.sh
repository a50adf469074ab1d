#!/bin/sh
# gpu2.sh [BUILD] - several GPUs of one machine: the same logits on one GPU and on all ranks, exchanges and what they do
# when a rank goes wrong, and the exchange table.
#
#   tests/gpu2.sh                 builds the preset `cuda` first
#   tests/gpu2.sh BUILD           a folder that was built before
#   tests/gpu2.sh BUILD 0,0       which GPU each rank has; the same twice tests the code on one GPU (times mean nothing)
#
# Every step is a line; its output is in BUILD/gpu2-logs.  Without two GPUs and without a list: exit code 77.
set -u
cd "$(dirname "$0")/.." || exit 1
build=${1:-} list=${2:-}
n_gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | wc -l)
if [ -z "$list" ]; then
    [ "$n_gpu" -ge 2 ] || { echo "no two GPUs: nvidia-smi shows $n_gpu" && exit 77; }
    list=0,1
    [ "$n_gpu" -lt 4 ] || list=0,1,2,3
    [ "$n_gpu" -lt 8 ] || list=0,1,2,3,4,5,6,7
fi
if [ -z "$build" ]; then
    build=build/cuda
    sh tools/build.sh cuda nibble nibble-unit nibble-cuda bench_comm || exit 1
fi
library=$(cd "$build" && pwd)/${NB_GPU2_LIBRARY:-libnibble-cuda.so} logs=$build/gpu2-logs
for f in "$build/nibble" "$build/nibble-unit" "$build/bench/bench_comm" "$library"; do
    [ -e "$f" ] || { echo "gpu2.sh: $f is missing" >&2 && exit 2; }
done
rm -rf "$logs"
mkdir -p "$logs" || exit 1
failed=0
# A kernel that is loaded when it is first used waits for those that run, which may wait for this rank.
[ "$(printf '%s' "$list" | tr ',' '\n' | sort -u | wc -w)" = "$(printf '%s' "$list" | tr , "\n" | wc -w)" ] ||
    export CUDA_MODULE_LOADING=EAGER
python3 -c 'print([1 + i * 37 % 900 for i in range(300)])' >"$logs/ids.json"
python3 -c 'print([1 + i * 37 % 90 for i in range(150)])' >"$logs/few.json"

# verdict NAME RC LINE
verdict() {
    if [ "$2" -eq 0 ]; then printf 'ok    %-44s %s\n' "$1" "$3"; else
        failed=$((failed + 1))
        printf 'FAIL  %-44s %s\n' "$1" "$3"
    fi
}

# hash MODEL IDS DEVICE RANKS OPTION...
hash() {
    hash_model=$1 hash_ids=$2 device=$3 ranks=$4
    shift 4
    "$build/nibble" logits "$hash_model" --tokens "$hash_ids" --rows all --output "$logs/rows.f32" --device "$device" \
        --cuda-library "$library" --tensor-parallel-size "$ranks" "$@" >"$logs/last.log" 2>&1 || return 1
    sha256sum <"$logs/rows.f32" | cut -c 1-16
}

# same NAME MODEL IDS OPTION...: one GPU and 2, 4, 8 ranks, as many as the list has
same() {
    name=$1 model=$2 ids=$3
    shift 3
    one=$(hash "$model" "$ids" "cuda:${list%%,*}" 1 "$@") || {
        grep -q 'supported on the CPU only\|not support' "$logs/last.log" && return
        verdict "$name" 1 "one GPU: $(tail -n 1 "$logs/last.log")"
        return
    }
    for n in 2 4 8; do
        gpus=$(printf '%s' "$list" | cut -d , -f 1-$n)
        [ "$(printf '%s' "$gpus" | tr ',' '\n' | wc -w)" -eq $n ] || break
        got=$(hash "$model" "$ids" "cuda:$gpus" $n "$@")
        rc=$?
        if [ $rc -ne 0 ] && grep -q 'fewer than\|cannot be divided\|one scale\|by one GPU' "$logs/last.log"; then
            printf 'skip  %-44s %s\n' "$name, $n ranks" "$(tail -n 1 "$logs/last.log" | cut -c 1-120)"
            continue
        fi
        [ $rc -eq 0 ] && [ "$got" = "$one" ]
        verdict "$name, $n ranks" $? "$one $got $([ $rc -eq 0 ] || tail -n 1 "$logs/last.log" | cut -c 1-120)"
    done
}

unit() { # NAME TEST
    NB_SOURCE_DIR=$PWD NB_TEST_CUDA=$library timeout 300 "$build/nibble-unit" "$2" >"$logs/$2.log" 2>&1
    verdict "$1" $? "$(tail -n 1 "$logs/$2.log")"
}

unit "exchanges; lost, late and other ranks" test_comm_cuda
unit "data-parallel ranks, on two GPUs" test_data_ranks
for model in tests/parity/*/config.json; do
    for mla in auto absorbed; do
        same "$(basename "$(dirname "$model")") $mla" "$(dirname "$model")" "$logs/few.json" --kv-cache-dtype nvfp4 --mla $mla \
            --max-model-len 384 --skip-tokenizer-init
    done
done
for dtype in bf16 nvfp4; do
    same "nibble-tiny $dtype" models/nibble-tiny "$logs/ids.json" --kv-cache-dtype $dtype
    same "V2-Lite's shape $dtype" bench/gpu/v2lite.json "$logs/ids.json" --load-format dummy --kv-cache-dtype $dtype --max-model-len 2048
done
same "V2-Lite's shape, FP8" bench/gpu/v2lite_fp8.json "$logs/ids.json" --load-format dummy --kv-cache-dtype nvfp4 --max-model-len 2048
"$build/bench/bench_comm" --cuda "$library" --gpus "$list" >"$logs/exchange.log" 2>&1
verdict "exchange table" $? ""
cat "$logs/exchange.log"
for n in 1 "$(printf '%s' "$list" | tr ',' '\n' | wc -w)"; do
    gpus=$(printf '%s' "$list" | cut -d , -f "1-$n")
    for way in "--tensor-parallel-size $n" "--data-parallel-size $n --enable-expert-parallel"; do
        echo "V2-Lite's shape, $way:"
        # shellcheck disable=SC2086
        "$build/nibble" bench throughput bench/gpu/v2lite.json --load-format dummy --device "cuda:$gpus" $way \
            --cuda-library "$library" --kv-cache-dtype nvfp4 --depth 4k,32k --depth-batch 1,32 --depth-prefill 8192 2>&1 | tail -n 8
    done
done
[ "$failed" -eq 0 ]
