#!/bin/sh
# tools_run.sh WORK OUT [SECONDS]: generate, train and measure nibble-tools; needs PyTorch and a GPU.
# OUT gets nibble-tools.tar (a Hugging Face folder), results.json, samples.txt, run.json and log.jsonl.
set -e
here=$(cd "$(dirname "$0")" && pwd)
work=$1 out=$2 sec=${3:-360}
mkdir -p "$work/ck" "$out"
rm -f "$work/stop" "$work"/sh_*
python3 "$here/tools.py" tokenizer "$here/../models/nibble-tiny/tokenizer.json" "$work/tokenizer.json"
for i in 1 2 3 4 5 6; do
    python3 "$here/tools.py" worker "$work" $i &
done
trap 'touch "$work/stop"; wait' EXIT
began=$(date +%s)
python3 "$here/tools_train.py" --data "$work" --out "$work/ck" --seconds "$sec" || {
    left=$((sec - $(date +%s) + began)) # cuDNN's attention is not everywhere
    [ $left -gt 120 ]
    python3 "$here/tools_train.py" --data "$work" --out "$work/ck" --seconds "$left" --attn flash_pad
}
touch "$work/stop"
tar -C "$work/ck" -cf "$out/nibble-tools.tar" nibble-tools
cp "$work/ck/run.json" "$work/ck/log.jsonl" "$out"
python3 "$here/tools_eval.py" --model "$work/ck/nibble-tools" --out "$out"
