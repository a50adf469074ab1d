# bench_kernel.sh - `nibble bench kernel` and `nibble bench throughput --depth`, with tiny sizes: what
# is printed, its JSON, what is refused.  No time is asserted.
. "$2/tests/e2e/_lib.sh"
quick="--repeat 2 --sample-ms 0 --set 1 --threads 2"

# shellcheck disable=SC2086
ok bench kernel --op attn_pages,linear --context 64,128 --rows 64 --cols 64 $quick
for word in machine: floors, attn_pages linear slope: nvfp4 bf16 warm cold; do
    grep -q -- "$word" "$tmp/out" || die "no $word in: $(cat "$tmp/out")"
done

# shellcheck disable=SC2086
ok bench kernel --op all --kv-cache-dtype all --weight-dtype f32,bf16,f16,fp8 --cpu-caps all --json --context 64,192 \
    --rows 64 --cols 64 --tokens 3 --heads 4 --queries 2 --cache cold $quick
[ "$(json "$tmp/out" 'len(set(r["op"] for r in j["results"]))')" = 16 ] || die "not 16 operations"
[ "$(json "$tmp/out" 'all(r["median_ns"] >= r["best_ns"] > 0 for r in j["results"])')" = True ] || die "times"
[ "$(json "$tmp/out" 'sorted(set(r["record"] for r in j["results"] if r["op"] == "attn_pages"))')" = \
    "['bf16', 'f32', 'fp8', 'fp8_ds_mla', 'if4', 'int4', 'mxfp4', 'nvfp4']" ] || die "records"
[ "$(json "$tmp/out" 'sorted(set(r["record"] for r in j["results"] if r["op"] == "kv_residual"))')" = \
    "['if4', 'nvfp4']" ] || die "records without a plane were measured"
[ "$(json "$tmp/out" 'all(s["from"] == 64 and s["to"] == 192 for s in j["slopes"]) and len(j["slopes"]) > 8')" = True ] ||
    die "slopes"
[ "$(json "$tmp/out" '[p["level"] for p in j["peaks"]][0]')" = c ] || die "levels"
# A variant that several levels have is measured once.
[ "$(json "$tmp/out" 'len([r for r in j["results"] if r["op"] == "embed" and r["weight"] == "f32" and r["variant"] == "c"])')" = 1 ] ||
    die "a variant twice"

# shellcheck disable=SC2086
fails 1 "residual" bench kernel --op kv_residual --kv-cache-dtype bf16 $quick
for bad in "--op attn_x" "--op attn," "--context 100" "--context 0" "--context 4q" "--cpu-caps sse" "--kv-cache-dtype nv" \
    "--weight-dtype q4" "--heads 0" "--cache lukewarm" "--device gpu" "--repeat 0" "--sample-ms -1" "--set 0"; do
    # shellcheck disable=SC2086
    fails 2 "${bad%% *}" bench kernel $bad
done
ok bench kernel --help
for word in --op --context --cpu-caps --weight-dtype --kv-cache-dtype --heads --queries --cache --repeat --json; do
    grep -q -- "$word" "$tmp/out" || die "--help lacks $word"
done

# Points at depths: copies of pages, and pages that are all computed.
cat >"$tmp/config.json" <<'END'
{"model_type":"deepseek_v3","vocab_size":512,"hidden_size":128,"intermediate_size":160,"moe_intermediate_size":64,
"num_hidden_layers":2,"num_attention_heads":2,"kv_lora_rank":512,"q_lora_rank":96,"qk_nope_head_dim":32,"qk_rope_head_dim":64,
"v_head_dim":32,"n_routed_experts":8,"num_experts_per_tok":2,"n_group":1,"topk_group":1,"n_shared_experts":1,
"first_k_dense_replace":1,"max_position_embeddings":4096,"eos_token_id":1,"initializer_range":0.2}
END
points() {
    ok bench throughput "$tmp" --load-format dummy --kv-cache-dtype nvfp4 --depth 128,1k --depth-tokens 3 --depth-batch 1,2 \
        --depth-prefill 64,128 --depth-repeat 2 "$@"
}
points --json
[ "$(json "$tmp/out" '[(d["depth"], d["sequences"]) for d in j["decode"]]')" = "[(128, 1), (128, 2), (1024, 1), (1024, 2)]" ] ||
    die "decode: $(cat "$tmp/out")"
[ "$(json "$tmp/out" '[(d["depth"], d["tokens"]) for d in j["prefill"]]')" = "[(128, 64), (128, 128), (1024, 64), (1024, 128)]" ] ||
    die "prefill: $(cat "$tmp/out")"
[ "$(json "$tmp/out" 'all(d["tokens_per_second"] > 0 for d in j["decode"] + j["prefill"]) and j["peak_bytes"] > 0')" = True ] ||
    die "rates: $(cat "$tmp/out")"
points --no-depth-fill --mla absorbed
grep -q "^decode .*1024" "$tmp/out" || die "no table: $(cat "$tmp/out")"
for bad in "--depth 63" "--depth 1k, " "--depth 128 --depth-batch 0" "--depth 128 --depth-prefill 1" "--depth 128 --depth-tokens 1" "--json"; do
    # shellcheck disable=SC2086
    fails 2 "--" bench throughput "$tmp" --load-format dummy $bad
done

# On a GPU: here its emulation, where it was built beside the program.
fails 2 "cuda or cuda:N" bench kernel --device gpu $quick
fails 2 "attn_pages, linear, experts" bench kernel --device cuda --op rope $quick
fails 1 "" bench kernel --device cuda --cuda-library "$tmp/none.so" $quick
emu="$(dirname "$1")/libnibble-cuda-emu.so"
if [ -f "$emu" ]; then
    gpu="--device cuda --cuda-library $emu --set 1 --repeat 2 --sample-ms 0"
    # shellcheck disable=SC2086
    ok bench kernel $gpu --batch 2 --heads 2 --context 64,128 --kv-cache-dtype bf16,nvfp4 --queries 2
    for word in device: roofline: "nvfp4 h=2 q=2 b=2 s=64 " "bf16 h=2 q=2 b=2 s=128 "; do
        grep -q -- "$word" "$tmp/out" || die "no $word in: $(cat "$tmp/out")"
    done
    # shellcheck disable=SC2086
    ok bench kernel $gpu --op linear,experts --rows 64 --cols 64 --tokens 2 --weight-dtype bf16,f32 --json
    [ "$(json "$tmp/out" 'sorted((r["op"], r["weight"]) for r in j["results"])')" = \
        "[('experts', 'bf16'), ('experts', 'f32'), ('linear', 'bf16'), ('linear', 'f32')]" ] || die "results"
    [ "$(json "$tmp/out" 'all(r["median_ns"] >= r["best_ns"] > 0 and r["floor_ns"] > 0 for r in j["results"])')" = \
        True ] || die "times on a GPU"
fi
