#!/bin/sh
# more_seeds.sh CORPORA WORK SECONDS "SEED..." [WORKERS]: one model per seed, each on a GPU of its
# own, trained at the same time for SECONDS; models and figures in WORK/seedN.
set -e
here=$(cd "$(dirname "$0")" && pwd)
corpora=$1 work=$2 sec=$3 seeds=$4 n=${5:-12}
mkdir -p "$work"
python3 "$here/more_seeds.py" prepare "$corpora" "$work"
gpu=0
for s in $seeds; do
    d=$work/seed$s
    rm -rf "$d"
    mkdir -p "$d"
    for f in tokenizer.json books.npy books.txt sb.npy sb_len.npy held.json info.json; do
        ln -s "../$f" "$d/$f"
    done
    i=0
    while [ $i -lt "$n" ]; do
        TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1 python3 "$here/datagen.py" worker "$d" $((s * 100 + i)) &
        i=$((i + 1))
    done
    (
        export CUDA_VISIBLE_DEVICES=$gpu TORCHINDUCTOR_CACHE_DIR=/tmp/inductor$gpu
        python3 "$here/train.py" --data "$d" --out "$d/ck" --seconds "$sec" --seed "$s" >"$d/train.out" 2>&1 || true
        touch "$d/stop"
        [ ! -e "$d/ck/final" ] || python3 "$here/more_seeds.py" eval "$d/ck/final" "$work" "$d/results.json" "$corpora" >"$d/eval.out" 2>&1 || true
        touch "$d/DONE"
    ) &
    gpu=$((gpu + 1))
done
[ -e "$work/prompts_4096.json" ] || python3 "$here/more_seeds.py" prompts "$work" &
wait
