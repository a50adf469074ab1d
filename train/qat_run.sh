#!/bin/sh
# qat_run.sh CORPORA WORK OUT SECONDS [qat.py options]: fine-tunings of nibble-tiny, SECONDS each, on one GPU.
# OUT gets a folder per run and qat_log.jsonl; `nibble convert` makes NVFP4 checkpoints of these folders.
set -e
here=$(cd "$(dirname "$0")" && pwd)
corpora=$1 work=$2 out=$3 sec=$4
shift 4
mkdir -p "$work" "$out"
rm -f "$work/stop" "$work"/sh_*
export PYTHONUNBUFFERED=1
python3 "$here/more_seeds.py" prepare "$corpora" "$work"
i=0
while [ $i -lt 12 ]; do
    TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1 python3 "$here/datagen.py" worker "$work" $((900 + i)) 1000000 4096 &
    i=$((i + 1))
done
trap 'touch "$work/stop"; wait' EXIT
python3 "$here/qat.py" --data "$work" --model "$here/../models/nibble-tiny" --out "$out" --seconds "$sec" "$@"
