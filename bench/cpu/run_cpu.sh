#!/bin/bash
# run_cpu.sh [--nibble PATH] [--peer DIR] [--quick] - measures the tables of docs/performance.md; use an idle machine.
#
# Writes bench/results/cpu_<level>.json (level: the best of this machine) and, with --peer (a source tree of
# ik_llama.cpp with a build in DIR/build), rows of bench/results/peer_cpu.json; then renders the tables of
# docs/performance.md.  Takes about ten minutes on two cores; --quick takes one and only tries the scripts.
set -u
cd "$(dirname "$0")/../.." || exit 1
nibble=build/release/nibble
peer=
quick=
while [ $# -gt 0 ]; do
    case $1 in
    --nibble) nibble=$2 && shift ;;
    --peer) peer=$2 && shift ;;
    --quick) quick=1 ;;
    *) echo "usage: $0 [--nibble PATH] [--peer DIR] [--quick]" >&2 && exit 2 ;;
    esac
    shift
done
[ -x "$nibble" ] || { echo "$nibble: cannot be run (--nibble PATH)" >&2 && exit 1; }
tmp=$(mktemp -d) && trap 'rm -rf "$tmp"' EXIT
mkdir -p "$tmp/k" "$tmp/t"
limit=540
[ -n "$quick" ] && limit=240
deadline=$((SECONDS + limit))

# kernel NAME OPTIONS...: runs `nibble bench kernel`, writes $tmp/k/NAME.json.
kernel() {
    local name=$1
    shift
    echo "kernel $name" >&2
    "$nibble" bench kernel --json "$@" >"$tmp/k/$name.json" || rm -f "$tmp/k/$name.json"
}
# points NAME OPTIONS...: runs `nibble bench throughput`, writes $tmp/t/NAME.json; skipped after the deadline.
points() {
    local name=$1
    shift
    [ $SECONDS -lt $deadline ] || { echo "throughput $name: skipped: the time limit is reached" >&2 && return; }
    echo "throughput $name" >&2
    timeout $((deadline - SECONDS + 60)) "$nibble" bench throughput "$@" --json >"$tmp/t/$name.json" || rm -f "$tmp/t/$name.json"
}

samples="--repeat 9 --sample-ms 20"
contexts=512,4k,32k
depths=512,4k,16k,32k
deep=512,16k,32k
chunk=2048
crowd=16k
if [ -n "$quick" ]; then
    samples="--repeat 2 --sample-ms 1"
    contexts=512,2k
    depths=512,1k
    deep=512,1k
    chunk=64
    crowd=1k
fi
# shellcheck disable=SC2086
{
    # Slopes of decode attention: every cache format, every level except plain C, on all cores and on one.
    levels=$("$nibble" bench kernel --op rope --cache warm --repeat 1 --sample-ms 0 --set 1 --json --cpu-caps all |
        python3 -c 'import json, sys; print(",".join(p["level"] for p in json.load(sys.stdin)["peaks"][1:]) or "c")')
    kernel slope --op attn_pages --record all --cpu-caps "$levels" --context $contexts --cache cold $samples
    kernel slope_1 --op attn_pages --record nvfp4,fp8,bf16 --cpu-caps "$levels" --context $contexts --cache cold -t 1 $samples
    kernel heads128 --op attn_pages --record nvfp4,fp8,bf16 --heads 128 --context 512,4k --cache cold $samples
    kernel prefill --op attn_prefill --cpu-caps "$levels" --queries 512 $samples
    kernel decode --op linear --weight-dtype all --cpu-caps "$levels" --rows 4096 --cols 2048 --tokens 1 --cache cold $samples
    kernel gemm --op linear --weight-dtype all --cpu-caps "$levels" --rows 2048 --cols 2048 --tokens 512 --cache cold $samples
    kernel absorb --op linear_t --weight-dtype bf16,int8 --rows 128 --cols 512 --tokens 1 --cache cold $samples
    kernel codec --op kv_codec,kv_residual --record all --cpu-caps "$levels" --context 4k --cache cold $samples
    kernel small --op rmsnorm,rope,swiglu,route,embed --cpu-caps all --tokens 512 --rows 64 --cols 2048 --cache both $samples

    # Whole steps: V2-Lite's shape with 4 layers, random weights, 8 bits where the build has them.
    model=bench/cpu/ds4l.json
    w=
    "$nibble" bench throughput --help | grep -q -- --weight-dtype && w="--weight-dtype int8"
    common="$model --load-format dummy $w"
    batched="--max-num-batched-tokens 2048"
    for r in nvfp4 bf16 fp8 if4; do
        points decode_$r $common --kv-cache-dtype $r --mla absorbed --depth $depths --depth-tokens 24
    done
    points prefill_nvfp4 $common --kv-cache-dtype nvfp4 $batched --depth $deep --depth-tokens 0 --depth-prefill $chunk --depth-repeat 1
    points batch_nvfp4 $common --kv-cache-dtype nvfp4 --mla absorbed --depth $crowd --depth-batch 1,8 --depth-tokens 12
}
best=$("$nibble" --version | sed -n 's/^this machine: //p' | sed 's/.*+//')
python3 bench/cpu/report.py collect "$tmp" "bench/results/cpu_${best:-c}.json" || exit 1
if [ -n "$peer" ]; then
    python3 bench/peer/compare.py --nibble "$nibble" --ik "$peer" ${quick:+--quick} --out bench/results/peer_cpu.json
fi
[ -n "$quick" ] || python3 bench/cpu/report.py render docs/performance.md
