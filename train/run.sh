#!/bin/sh
# run.sh CORPORA WORK SECONDS|@UNIXTIME [WORKERS] [train.py options]: prepare, generate, train.
set -e
here=$(cd "$(dirname "$0")" && pwd)
corpora=$1 work=$2 sec=$3 n=${4:-9}
[ $# -gt 4 ] && shift 4 || shift $#
mkdir -p "$work"
rm -f "$work/stop"
case $sec in @*) when="--seconds 0 --end ${sec#@}" ;; *) when="--seconds $sec" ;; esac
python3 "$here/datagen.py" prepare "$corpora" "$work"
i=0
while [ $i -lt "$n" ]; do
    TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1 python3 "$here/datagen.py" worker "$work" $i &
    i=$((i + 1))
done
python3 "$here/train.py" --data "$work" --out "$work/ck" $when "$@" || true
touch "$work/stop"
wait
