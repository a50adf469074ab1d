# bench_matrix.sh - `nibble bench matrix`: a cell for every record, context and number of users, what does not fit and
# why, costs by the printed formula. No time is asserted.
. "$2/tests/e2e/_lib.sh"
printf '%s' '{"model_type":"deepseek_v3","vocab_size":512,"hidden_size":128,"intermediate_size":160,"moe_intermediate_size":64,
"num_hidden_layers":2,"num_attention_heads":2,"kv_lora_rank":512,"q_lora_rank":96,"qk_nope_head_dim":32,"qk_rope_head_dim":64,
"v_head_dim":32,"n_routed_experts":8,"num_experts_per_tok":2,"n_group":1,"topk_group":1,"n_shared_experts":1,
"first_k_dense_replace":1,"max_position_embeddings":4096,"eos_token_id":1,"initializer_range":0.2}' >"$tmp/config.json"
is() { [ "$(json "$tmp/out" "$1")" = True ] || die "not so: $1: $(cat "$tmp/out")"; }
small="--load-format dummy --tokens 8 --threads 2"

# shellcheck disable=SC2086
ok bench matrix "$tmp/config.json" $small --context 1k,8k --concurrency 1,2 --prefill 64 --repeat 1 --kv-cache-dtype nvfp4 --price 1.77
for word in "^machine:" "price 1.77 an hour; cost per million tokens = price / (tokens/s \* 3600) \* 1,000,000" \
    "^cpu  *nvfp4  *1024  *1 .*[0-9]" "^cpu  *nvfp4  *1024  *2 .*[0-9]" "8192  *2 longer than the model's 4096 tokens"; do
    grep -q -- "$word" "$tmp/out" || die "no \"$word\" in: $(cat "$tmp/out")"
done

# shellcheck disable=SC2086
ok bench matrix "$tmp/config.json" $small --context 256,4k,8k --concurrency 3,1 --kv-cache-dtype nvfp4,bf16 --price 14.16 --prefill 128 \
    --repeat 2 --memory 30M --json
is 'set("schema command version commit date machine results noise".split()) <= set(j) and j["command"] == "bench matrix"'
is '[(c["record"], c["context"], c["concurrency"]) for c in j["cells"]] == [(r, s, n) for r in ("nvfp4", "bf16")
    for s in (256, 4096, 8192) for n in (3, 1)]'
is 'all((c["tokens_per_second"] is not None) == (c["state"] == "measured") == (c["depth"] is not None) for c in j["cells"])'
is 'all(abs(c["cost_per_million_out"] * c["tokens_per_second"] * 3600 / 1e6 / 14.16 - 1) < 1e-6 for c in j["cells"]
    if c["state"] == "measured")'
is '[c["state"] for c in j["cells"] if c["context"] == 8192] == ["longer than the model'"'"'s context"] * 4'
# The model ends at 4,096: what is generated must fit behind the context.
is 'all(c["depth"] == (256 if c["context"] == 256 else 3904) for c in j["cells"] if c["state"] == "measured")'
# Of BF16 less fits than of NVFP4; what does not says how many bytes it wants, and that is more than there are.
is 'all((c["bytes_needed"] > 30 << 20) == (c["state"] == "does not fit") for c in j["cells"] if c["bytes_needed"])'
is '{(c["record"], c["context"], c["concurrency"]) for c in j["cells"] if c["state"] == "does not fit"} == {("bf16", 4096, 3)}'
is 'len(j["results"]) == 7 + 4 and all(r["median"] > 0 and r["unit"] == "ms" for r in j["results"])'
# The same cell, the same name, as by throughput.
is '"decode '"$(basename "$tmp")"' BF16 nvfp4 depth=256 sequences=3 threads=2" in [r["name"] for r in j["results"]]'

# shellcheck disable=SC2086
ok bench matrix "$tmp/config.json" $small --context 128 --concurrency 1 --kv-cache-dtype fp8 --prefill 0 --no-fill --json
is 'len(j["results"]) == 1 and j["cells"][0]["prefill_tokens_per_second"] is None and j["cells"][0]["cost_per_million_out"] is None'
# shellcheck disable=SC2086
ok bench matrix "$tmp/config.json" $small --context 256 --concurrency 1,64 --kv-cache-dtype fp8 --memory 1 --json
is 'j["results"] == [] and all(c["state"] == "does not fit" and c["bytes_needed"] > 1 << 20 for c in j["cells"])'

for bad in "--context 0" "--context 64" "--context 4k," "--concurrency 0" "--concurrency 2000" "--kv-cache-dtype nv" "--tokens 1" \
    "--price 0" "--price x" "--prefill -1" "--repeat 0" "--memory -1" "--metadata noise=1"; do
    # shellcheck disable=SC2086
    fails 2 "${bad%% *}" bench matrix "$tmp/config.json" $small $bad
done
fails 1 "$tmp/none" bench matrix "$tmp/none"
fails 1 "not a directory" bench matrix "$tmp/config.json"
fails 2 "MODEL" bench matrix
emu="$(dirname "$1")/libnibble-cuda-emu.so"
if [ -f "$emu" ]; then
    # shellcheck disable=SC2086
    ok bench matrix "$tmp/config.json" $small --device cuda --cuda-library "$emu" --context 128 --concurrency 2 --prefill 64 --repeat 1 \
        --kv-cache-dtype nvfp4 --json
    is 'j["device"] != "cpu" and j["results"][0]["name"].endswith(" gpu") and j["cells"][0]["state"] == "measured"'
fi
exit 0
