# bench_peer.sh - bench/peer/compare.py with peers that are scripts: rows and ratios of what ran, a reason for what did not.
. "$2/tests/e2e/_lib.sh"
command -v python3 >/dev/null || skip "there is no python3"
export PYTHONDONTWRITEBYTECODE=1

# The weights are there by name only: no peer of this test reads them.
mkdir -p "$tmp/ik/build" "$tmp/models"
for w in q8_0 q4_k_m; do : >"$tmp/models/ds4l-joint-$w.gguf"; done
peer() { # NAME TEXT: IK/build/NAME prints TEXT
    printf '#!/bin/sh\ncat <<END\n%s\nEND\n' "$2" >"$tmp/ik/build/$1"
    chmod +x "$tmp/ik/build/$1"
}
compare() { # OPTIONS...
    python3 "$src/bench/peer/compare.py" --nibble "$nibble" --model "$tmp/models" --out "$tmp/r.json" --rounds 2 --threads 1 \
        --depth 512,1024 "$@" >"$tmp/out" 2>"$tmp/err"
}
rows() { python3 -c "import json, sys; d = json.load(open('$tmp/r.json')); sys.exit(0 if $1 else 1)" || die "not so: $1: $(cat "$tmp/r.json")"; }

compare --only ik --part steps --weights q8_0 && die "nothing was measured, and the exit code is 0"
grep -q 'missing: ik steps q8_0 q8_0: no --ik' "$tmp/out" || die "no reason: $(cat "$tmp/out")"
rows "len(d['missing']) == 2 and not d['rows']"

peer llama_peer ''
compare --ik "$tmp/ik" --only ik --part steps --weights q8_0 && die "the peer printed nothing, and the exit code is 0"
grep -q 'llama_peer of ik printed no result' "$tmp/out" || die "no reason: $(cat "$tmp/out")"

# A peer that stops on its way: the reason names what is not there.
short() { # OUTPUT REASON
    peer llama_peer "$1"
    compare --ik "$tmp/ik" --only ik --part steps --weights q8_0 && die "a row is not there, and the exit code is 0: $1"
    grep -q "missing: ik steps q8_0 q8_0: llama_peer of ik printed $2" "$tmp/out" || die "not '$2': $(cat "$tmp/out" "$tmp/err")"
}
short '{"depth": 512, "prompt": 100, "decode": 10, "peak_mib": 1}' 'no prompt at depth 1024'
short '{"depth": 512, "prompt": 100, "peak_mib": 1}
{"depth": 1024, "prompt": 80, "decode": 8, "peak_mib": 1}' 'no decode at depth 512'
short '{"depth": 512, "prompt":' 'a result that is no JSON'

peer llama_peer '{"depth": 512, "prompt": 100, "decode": 10, "peak_mib": 1}
{"depth": 1024, "prompt": 80, "decode": 8, "peak_mib": 1}'
peer attn_peer '{"context": 512, "median_ns": 512000}
{"context": 1024, "median_ns": 1024000}'
compare --ik "$tmp/ik" --only ik --part steps --weights q8_0 || die "exit code $?: $(cat "$tmp/err")"
rows "len(d['rows']) == 4 and d['rows'][0]['decode'] == 10 and d['rows'][0]['rounds'] == 2 and len(d['rates']) >= 2"
# Another call adds to the file; attention of nibble itself is compared with the peer's best.
compare --ik "$tmp/ik" --only ik,nibble --part attention --cache '{"ik": ["q8_0"], "nibble": ["nvfp4"]}' || die "exit code $?: $(cat "$tmp/err")"
rows "len(d['rows']) == 6 and d['ratios'][0]['of'] == 'attention' and d['ratios'][0]['peer_cache'] == 'q8_0'"
grep -q '^attention at *1024, 1 threads, best nvfp4: [0-9.]* of ik q8_0' "$tmp/out" || die "no ratio: $(cat "$tmp/out")"
python3 "$src/bench/compare" "$tmp/r.json" "$tmp/r.json" >"$tmp/out" 2>&1 || die "bench/compare: $(cat "$tmp/out")"
grep -q 'figures: 0 worse' "$tmp/out" || die "bench/compare: $(cat "$tmp/out")"
