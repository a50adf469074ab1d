#!/bin/bash
# run_gpu.sh [--nibble PATH] [--cuda-library FILE] [--out FOLDER] PART... - measures the tables of docs/gpu.md on a GPU.
#
# A part is a run of `nibble bench`; its JSON goes to FOLDER/PART.json (default build/cuda/gpu-runs), and
# `bench/gpu/report.py collect FOLDER FILE COMMIT` adds these files to one of bench/results.  Without a part, it lists
# all parts with their commands.  A part takes 10 to 40 s, mostly to draw and upload 15 to 31 GB of random weights.
set -u
nibble=build/cuda/nibble library=build/cuda/libnibble-cuda.so out=build/cuda/gpu-runs
configs=$(dirname "$0") models=$(dirname "$0")/../../models/configs
parts=()
while [ $# -gt 0 ]; do
    case $1 in
    --nibble) nibble=$2 && shift ;;
    --cuda-library) library=$2 && shift ;;
    --out) out=$2 && shift ;;
    --models) models=$2 && shift ;;
    -*) sed -n '2s/^# //p' "$0" >&2 && exit 2 ;;
    *) parts+=("$1") ;;
    esac
    shift
done

# Packed weights beside BF16: one step of a layer's products, and whole steps.
packed="--load-format dummy --depth-tokens 32 --kv-cache-dtype nvfp4 --depth 512 --depth-batch 1,8,64 --depth-prefill 8192 --depth-repeat 2"
types="bench kernel --op linear,experts --weight-dtype bf16,fp8,int8,int4,fp4"

lite=$configs/v2lite.json long=$configs/v2lite_1m.json fp8=$configs/v2lite_fp8.json gqa=$models/qwen3-8b.json
points="--load-format dummy --depth-tokens 32"
cells="bench matrix $lite --load-format dummy --prefill 2048 --repeat 2"
# A user's 131,072 tokens are 130,816 cached ones and those generated; the memory is what `nibble plan` uses.
users="bench matrix $lite --load-format dummy --prefill 0 --context 130816 --memory 75021M"

# Contexts that are whole units of uploaded prompts (docs/decisions/039), then 2,048 tokens.
host="bench throughput --load-format dummy --kv-cache-dtype nvfp4 --depth-batch 1,8 --depth-tokens 24 --depth-prefill 2048 --depth-repeat 2"

deep="bench throughput --load-format dummy --depth 2k,32k,128k --depth-batch 1,8,32 --depth-tokens 32"

# V2-Lite's shape with positions up to 1,048,576; 1,040,000 tokens are 16,250 pages.
million="bench matrix $long --load-format dummy --prefill 0 --context 1040000 --concurrency 1,4 --repeat 2 --memory 75021M"

# command_of PART: the words of its command.
command_of() {
    case $1 in
    kernel) echo "bench kernel --kv-cache-dtype bf16,fp8,nvfp4,if4" ;;
    products) echo "bench kernel --op linear,experts --weight-dtype bf16,fp8 --tokens 64" ;;
    products_prompt) echo "bench kernel --op linear,experts --weight-dtype bf16,fp8 --tokens 8192" ;;
    steps_nvfp4) echo "bench throughput $lite $points --kv-cache-dtype nvfp4 --depth 512,4k,32k --depth-batch 1,8,32,64 --depth-prefill 8192 --depth-repeat 2" ;;
    steps_bf16) echo "bench throughput $lite $points --kv-cache-dtype bf16 --depth 4k,32k --depth-batch 1,8,32" ;;
    fp8) echo "bench throughput $fp8 $points --kv-cache-dtype nvfp4 --depth 512,4k,32k --depth-batch 1,8,64 --depth-prefill 8192 --depth-repeat 2" ;;
    packed_kernels) echo "$types --tokens 1" ;;
    packed_kernels_prompt) echo "$types --tokens 8192" ;;
    packed_bf16) echo "bench throughput $lite $packed" ;;
    packed_int4) echo "bench throughput $configs/v2lite_int4.json $packed" ;;
    packed_nvfp4) echo "bench throughput $configs/v2lite_nvfp4.json $packed" ;;
    packed_int8) echo "bench throughput $lite $packed --weight-dtype int8" ;;
    packed_fp8) echo "bench throughput $lite $packed --weight-dtype fp8" ;;
    packed_int4_int8) echo "bench throughput $configs/v2lite_int4.json $packed --weight-dtype int8" ;;
    packed_int4_fp8) echo "bench throughput $configs/v2lite_int4.json $packed --weight-dtype fp8" ;;
    matrix_*) echo "$cells --kv-cache-dtype ${1#matrix_} --context 4k,32k,128k --concurrency 1,8,64" ;;
    users_nvfp4) echo "$users --kv-cache-dtype nvfp4 --concurrency 34,35" ;;
    users_fp8) echo "$users --kv-cache-dtype fp8 --concurrency 20,21" ;;
    users_bf16) echo "$users --kv-cache-dtype bf16 --concurrency 10,11" ;;
    million_*) echo "$million --kv-cache-dtype ${1#million_}" ;;
    gqa_*) echo "bench throughput $gqa $points --kv-cache-dtype ${1#gqa_} --depth 4k,32k --depth-batch 1,8 --depth-prefill 2048 --depth-repeat 2" ;;
    thrift_off) echo "bench throughput $lite $points --kv-cache-dtype nvfp4 --depth 4k,32k --depth-batch 1,8" ;;
    thrift_token) echo "bench throughput $lite $points --kv-cache-dtype nvfp4 --depth 4k,32k --depth-batch 1,8 --kv-thrift token" ;;
    # experts in host memory: all, none (_gpu), and the whole model on the CPU (_cpu)
    host_bf16) echo "$host --depth 768 $lite --cpu-experts all" ;;
    host_bf16_gpu) echo "$host --depth 768 $lite" ;;
    host_bf16_cpu) echo "$host --depth 768 $lite" ;;
    host_int4) echo "$host --depth 768 $configs/v2lite_int4.json --cpu-experts all" ;;
    host_int4_cpu) echo "$host --depth 768 $configs/v2lite_int4.json" ;;
    host_v3) echo "$host --depth 1024 $configs/v3_two_layers.json --cpu-experts all" ;;
    host_v3_gpu) echo "$host --depth 1024 $configs/v3_two_layers.json" ;;
    host_v3_cpu) echo "$host --depth 1024 $configs/v3_two_layers.json" ;;
    # V3.2's cut against the same shape without an indexer; 2,048 tokens are dense in both
    sparse_*) echo "$deep $configs/v32_two_layers.json --kv-cache-dtype ${1#sparse_}" ;;
    # V4 Flash's first five layers (a window alone, CSA, HCA, CSA, HCA), with and without long contexts
    v4_*) echo "bench throughput --load-format dummy $configs/v4_flash_cut.json --kv-cache-dtype ${1#v4_} --depth 4k,128k,1000000 --depth-batch 1,8 --depth-tokens 32 --depth-prefill 2048" ;;
    dense_*) echo "$deep $configs/v3_two_layers.json --kv-cache-dtype ${1#dense_}" ;;
    large_*) echo "bench throughput $lite $points --kv-cache-dtype ${1#large_} --depth 32k --depth-batch 64" ;; # H200: 141 GB
    *) return 1 ;;
    esac
}

all="kernel products products_prompt steps_nvfp4 steps_bf16 fp8 matrix_nvfp4 matrix_fp8 matrix_bf16 users_nvfp4 users_fp8 users_bf16 million_nvfp4 million_fp8 million_bf16
packed_kernels packed_kernels_prompt packed_bf16 packed_int4 packed_nvfp4 packed_int8 packed_fp8 packed_int4_int8 packed_int4_fp8
gqa_nvfp4 gqa_bf16 thrift_off thrift_token host_bf16 host_bf16_gpu host_bf16_cpu host_int4 host_int4_cpu host_v3 host_v3_gpu host_v3_cpu sparse_nvfp4 dense_nvfp4 sparse_bf16 dense_bf16 v4_nvfp4 large_nvfp4 large_fp8 large_bf16"
if [ ${#parts[@]} -eq 0 ]; then
    for p in $all; do printf '%-16s nibble %s\n' "$p" "$(command_of "$p")"; done
    exit 0
fi
mkdir -p "$out" || exit 1
bad=0
for p in "${parts[@]}"; do
    words=$(command_of "$p") || { echo "run_gpu.sh: $p: no such part" >&2 && exit 2; }
    from=$SECONDS
    # shellcheck disable=SC2086
    device=cuda
    [ "${p%_cpu}" = "$p" ] || device=cpu
    if timeout "${PART_S:-120}" "$nibble" $words --device $device --cuda-library "$library" --json >"$out/$p.json" 2>"$out/$p.err"; then
        echo "$p: $((SECONDS - from)) s"
    else
        echo "$p: failed after $((SECONDS - from)) s: $(tail -n 1 "$out/$p.err" | cut -c 1-200)"
        rm -f "$out/$p.json"
        bad=1
    fi
done
exit $bad
