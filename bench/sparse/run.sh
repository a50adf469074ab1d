#!/bin/sh
# run.sh [--nibble PATH] [--depths LIST] [--threads N] - sparse attention against dense attention of the same shape.
#
# DeepSeek-V3.2's attention (128 heads, an indexer of 64 heads, 2,048 tokens chosen) in two layers of a narrow model with
# random weights, and the same without the indexer.  A token's time at a depth less that at 512, where both are dense, is
# what the context costs: dense attention, or choosing and gathering.  Prints milliseconds per token and layer.
set -eu
cd "$(dirname "$0")/../.."
nibble=build/release/nibble
depths=512,4k,16k,32k
threads=$(nproc)
while [ $# -gt 0 ]; do
    case $1 in
    --nibble) nibble=$2 ;;
    --depths) depths=$2 ;;
    --threads) threads=$2 ;;
    *) echo "usage: $0 [--nibble PATH] [--depths LIST] [--threads N]" >&2 && exit 2 ;;
    esac
    shift 2
done
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/sparse" "$tmp/dense"
cp bench/sparse/v32_two_layers.json "$tmp/sparse/config.json"
sed 's/"deepseek_v32"/"deepseek_v3"/; s/DeepseekV32/DeepseekV3/; /"index_/d' bench/sparse/v32_two_layers.json >"$tmp/dense/config.json"
for record in nvfp4 bf16; do
    for m in dense sparse; do
        "$nibble" bench throughput "$tmp/$m/config.json" --load-format dummy --kv-cache-dtype $record --depth "$depths" \
            --threads "$threads" --json >"$tmp/$m.json"
    done
    python3 - "$tmp" $record <<'PY'
import json
import sys

LAYERS = 2


def points(name):
    j = json.load(open(f"{sys.argv[1]}/{name}.json"))
    return {p["depth"]: 1000 / p["tokens_per_second"] / LAYERS for p in j["decode"]}


dense, sparse = points("dense"), points("sparse")
first = min(dense)
print(f"{sys.argv[2]}: ms per token and layer, of the context beyond {first} tokens")
for d in sorted(dense):
    if d != first:
        a, b = dense[d] - dense[first], sparse[d] - sparse[first]
        print(f"  {d:7d}  dense {a:7.3f}  sparse {b:7.3f}  {a / b:5.1f} times")
PY
done
