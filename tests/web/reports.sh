#!/bin/bash
# The pages that commands write (`nibble plan --html`, `nibble eval compare`) in a browser: reports.sh
# NIBBLE SOURCE_DIR.  Needs what page.sh needs.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
. "$2/tests/web/_browser.sh"

ok plan deepseek-v3 --gpu h200 --gpus 8 --kv-cache-dtype nvfp4 --kv-rope-dtype fp8 --tokens-per-second 900 --html "$tmp/plan.html"
ok plan llama-3.1-8b --gpu h100 --price 2 --context 100,8k,1M --html "$tmp/one_device.html"
ok plan deepseek-v3 --gpu h100 --gpus 4 --html "$tmp/does_not_fit.html"

python3 - "$tmp/stream.jsonl" <<'DATA' || die "no trace"
import json, random, sys
rng = random.Random(3)
with open(sys.argv[1], "w") as f:
    for k in range(200):
        n = rng.randrange(1, 14)
        ids = [100 * i + rng.randrange(2 if i < 3 else 5) for i in range(n)]
        f.write(json.dumps({"timestamp": 500 * k, "input_length": 512 * n - rng.randrange(500), "output_length": rng.randrange(40), "hash_ids": ids}) + "\n")
DATA
ok plan deepseek-v3 --trace "$tmp/stream.jsonl" --cache 1,2,3,5 --html "$tmp/replay.html"
ok plan deepseek-v3 --trace "$tmp/stream.jsonl" --cache 1,3 --replay serve --policies all --html "$tmp/replay_serve.html"

printf 'The old house stood at the end of the lane, and nobody had lived in it since the captain went to sea. %.0s' 1 2 3 4 5 6 7 8 >"$tmp/text"
ok eval compare "$model" --text "$tmp/text" --n-tokens 100 --context 100 --tasks niah_single --lengths 256 --samples 1 \
    --bootstrap 100 --threads 1 --formats nvfp4,fp8 -o "$tmp/compare"
cp "$tmp/compare/index.html" "$tmp/compare.html"

cd "$work" || die "no folder $work"
node reports_test.mjs "$browser" "${NB_SCREENSHOTS:-}" "$tmp"/*.html
