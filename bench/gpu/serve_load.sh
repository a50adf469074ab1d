#!/bin/sh
# serve_load.sh [--nibble PATH] [--cuda-library FILE] [--out FOLDER] - time between tokens of a server under load, with
# and without a limit of steps (docs/decisions/048): V2-Lite's shape, random weights, prompts of 1,024 tokens.
#
# Each row starts a server, warms it up, sends the load, and writes `bench serve --save-result`'s JSON to
# FOLDER/serve_USERS_LIMIT.json (default build/cuda/gpu-runs); LIMIT is --max-step-ms, 0 the derived one.
set -u
nibble=build/cuda/nibble library=build/cuda/libnibble-cuda.so out=build/cuda/gpu-runs device=cuda
model=$(dirname "$0")/v2lite.json rows='64:1e9 64:0 256:1e9 256:0' port=18200
while [ $# -gt 0 ]; do
    case $1 in
    --nibble) nibble=$2 ;;
    --cuda-library) library=$2 ;;
    --out) out=$2 ;;
    --rows) rows=$2 ;;
    --model) model=$2 ;;
    --device) device=$2 ;;
    *) sed -n '2s/^# //p' "$0" >&2 && exit 2 ;;
    esac
    shift 2
done
mkdir -p "$out" || exit 1
for row in $rows; do
    users=${row%:*} limit=${row#*:} port=$((port + 1))
    "$nibble" serve "$model" --load-format dummy --skip-tokenizer-init --device "$device" --cuda-library "$library" \
        --kv-cache-dtype nvfp4 --max-num-seqs "$users" --max-model-len 1536 --max-step-ms "$limit" --port "$port" \
        >"$out/serve_$users.log" 2>&1 &
    server=$!
    tries=0
    until grep -q "listening on" "$out/serve_$users.log"; do
        tries=$((tries + 1))
        if [ $tries -gt 300 ] || ! kill -0 $server 2>/dev/null; then
            tail -n 3 "$out/serve_$users.log" >&2
            exit 1
        fi
        sleep 0.3
    done
    echo "$users users, --max-step-ms $limit"
    "$nibble" bench serve --base-url "http://127.0.0.1:$port" --vocab-size 100000 --num-warmups "$users" \
        --num-prompts $((users * 5)) --max-concurrency "$users" --random-input-len 1024 --random-output-len 256 \
        --ignore-eos --save-result --result-dir "$out" --result-filename "serve_${users}_$limit.json" 2>&1 |
        grep -E '^(Output token|Mean TTFT|P99 TTFT|Median ITL|P99 ITL)|rror'
    kill $server
    wait $server
done
