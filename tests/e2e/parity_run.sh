# parity_run.sh - greedy continuations of the checkpoints of tests/parity are those of
# transformers, for any number of threads and any prefill chunk.
. "$2/tests/e2e/_lib.sh"
need "$src/tests/parity/v3/expected.safetensors" "no parity vectors"
expected=$src/tests/e2e/_expected.py

greedy() { # CASE OPTIONS...: the continuation of the case's tokens is in $tmp/out
    local case=$1
    shift
    ok run "$src/tests/parity/$case" --tokens "$tmp/$case.json" --temperature 0 --ignore-eos -n 40 --json "$@"
}

for f in "$src"/tests/parity/*/expected.safetensors; do
    case=$(basename "$(dirname "$f")")
    python3 "$expected" "$f" list tokens >"$tmp/$case.json" || die "$case: its tokens cannot be read"
    want=$(python3 "$expected" "$f" list greedy)
    # Rounding may change which tokens an indexer chooses, and with them everything that follows.
    dtype=bf16
    grep -q '"index_topk"' "$src/tests/parity/$case/config.json" && dtype=f32
    greedy "$case" --kv-cache-dtype $dtype
    [ "$(wc -l <"$tmp/out")" = 1 ] || die "$case: the JSON is not one line"
    got=$(json "$tmp/out" 'json.dumps(j["tokens"], separators=(",", ":"))')
    [ "$got" = "$want" ] || die "$case: $got, expected $want"
    [ "$(json "$tmp/out" 'j["finish_reason"]')" = length ] || die "$case: finish_reason"
    [ "$(json "$tmp/out" 'json.dumps(j["prompt_tokens"])')" = "$(json "$tmp/$case.json" 'json.dumps(j)')" ] ||
        die "$case: prompt_tokens are not those of the file"
done

# The same bytes for any number of threads and any chunk: latent and GQA, BF16 and 4 bits, greedy
# and drawn, with log-probabilities (which would show the smallest difference).
for case in v3_geom v3_halfrope llama3; do
    for how in "bf16 --temperature 0" "nvfp4 --temperature 0.9 --top-k 50 --top-p 0.9 --seed 7" \
        "fp8 --temperature 1.5 --min-p 0.01 --repetition-penalty 1.1 --presence-penalty 0.2"; do
        [ $case = llama3 ] && how=${how/nvfp4/int4}
        # shellcheck disable=SC2086
        same_as() {
            ok run "$src/tests/parity/$case" --tokens "$tmp/$case.json" --ignore-eos -n 24 --json \
                --logprobs 2 --kv-cache-dtype $how "$@"
            [ -e "$tmp/first" ] || cp "$tmp/out" "$tmp/first"
            cmp -s "$tmp/first" "$tmp/out" || die "$case $how: $* changes the output"
        }
        rm -f "$tmp/first"
        for n in 1 2 3; do same_as --threads $n; done
        for n in 1 7 64 512; do same_as --prefill-chunk $n; done
    done
done
exit 0
