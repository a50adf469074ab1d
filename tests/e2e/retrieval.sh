# retrieval.sh - the bundled model finds planted facts: exact match of at least 60 % on held-out
# prompts of 512 tokens, with a BF16 and with a 4-bit cache.  A quick version; tools/score_retrieval.py
# measures longer ones.
. "$2/tests/e2e/_lib.sh"
need "$model/config.json" "no bundled model"
need "$src/train/retrieval_eval.py" "no generator of prompts"

n=18 records="bf16 nvfp4" # two of each kind
[ -n "${NB_SANITIZE:-}" ] && n=9 records=nvfp4
PYTHONDONTWRITEBYTECODE=1 python3 "$src/train/retrieval_eval.py" --length 512 --n $n --seed 1 -o "$tmp/prompts.json" \
    >"$tmp/out" 2>"$tmp/err" || die "retrieval_eval.py"
for kv in $records; do
    python3 "$src/tools/score_retrieval.py" "$nibble" "$model" "$tmp/prompts.json" --kv-cache-dtype $kv --threads 1 \
        --wrong >"$tmp/score" 2>"$tmp/err" || die "score_retrieval.py"
    cat "$tmp/score"
    [ "$(json "$tmp/score" "j['n'] == $n and j['exact_match'] >= 60")" = True ] || die "$kv: under 60 %"
done
exit 0
