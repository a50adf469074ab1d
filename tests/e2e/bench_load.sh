# bench_load.sh - `nibble bench load`: phases, cold and warm, its JSON, what is refused. No time is asserted.
. "$2/tests/e2e/_lib.sh"
need "$model/config.json" "the bundled model"
mkdir "$tmp/m" # a copy: others may have the bundled one mapped
cp "$model"/* "$tmp/m"
small="--kv-cache-memory-bytes 8M --max-model-len 512 --max-num-seqs 2 --threads 2"

# shellcheck disable=SC2086
ok bench load "$tmp/m" $small --repeat 2
for word in "machine:" "^cold: " "^cold, medians of 2" "^warm, medians of 2" "open, check, map" "read the weights" \
    "first token" "total" "plain read of the files .*MiB/s" "peak resident memory .*MiB"; do
    grep -q -- "$word" "$tmp/out" || die "no \"$word\" in: $(cat "$tmp/out")"
done
grep -q "quantise the" "$tmp/out" && die "weights that stay as they are were quantised"

# shellcheck disable=SC2086
ok bench load "$tmp/m" $small --repeat 3 --weight-dtype int8 --kv-cache-dtype nvfp4 --json --metadata commit=abc
is() { [ "$(json "$tmp/out" "$1")" = True ] || die "not so: $1: $(cat "$tmp/out")"; }
is 'set("schema command version commit date machine results noise".split()) <= set(j) and j["schema"] == 1'
is 'j["command"] == "bench load" and j["commit"] == "abc" and j["repeats"] == 3 and j["files"] == 2'
is '{r["name"].split(" m INT8")[0] for r in j["results"]} == {f"load {s} {f}" for s in ("cold", "warm")
    for f in ("tokenizer", "open", "convert", "pool", "first token", "total", "files", "plain read", "peak")}'
is 'all(r["n"] == 3 and 0 < r["lo"] <= r["median"] <= r["hi"] and r["mad"] >= 0 for r in j["results"])'
is 'all((r["better"] == "higher") == (r["unit"] == "MiB/s") for r in j["results"])'
is 'j["cold"]["dropped"] is (None if j["cold"]["resident"] is None else j["cold"]["resident"] <= 0.05)'
# The phases are parts of the whole.
is 'all(sum(r["lo"] for r in j["results"] if s in r["name"] and r["unit"] == "ms" and " total " not in r["name"])
    <= max(r["hi"] for r in j["results"] if s in r["name"] and " total " in r["name"]) for s in ("cold", "warm"))'
is 'j["noise"]["control_ns"]["begin"]["median"] > 0 and j["noise"]["rows"] == len(j["results"])'

# shellcheck disable=SC2086
ok bench load "$tmp/m" $small --repeat 1 --cache warm --json
is 'all(" warm " in r["name"] and r["mad"] is None for r in j["results"])'
printf '%s' '{"model_type":"deepseek_v3","vocab_size":512,"hidden_size":128,"intermediate_size":160,"moe_intermediate_size":64,
"num_hidden_layers":2,"num_attention_heads":2,"kv_lora_rank":512,"q_lora_rank":96,"qk_nope_head_dim":32,"qk_rope_head_dim":64,
"v_head_dim":32,"n_routed_experts":8,"num_experts_per_tok":2,"n_group":1,"topk_group":1,"n_shared_experts":1,
"first_k_dense_replace":1,"max_position_embeddings":4096,"eos_token_id":1,"initializer_range":0.2}' >"$tmp/config.json"
# shellcheck disable=SC2086
ok bench load "$tmp/config.json" --load-format dummy $small --repeat 1 --json
is 'j["file_bytes"] == 0 and not any(" cold " in r["name"] or " read " in r["name"] for r in j["results"])'

fails 1 "$tmp/none" bench load "$tmp/none"
fails 1 "not a directory" bench load "$tmp/config.json"
fails 1 "" bench load "$tmp" # no weights
fails 2 "--repeat" bench load "$tmp/m" --repeat 0
fails 2 "--cache" bench load "$tmp/m" --cache tepid
fails 2 "results" bench load "$tmp/m" --metadata results=1
fails 2 "KEY=VALUE" bench load "$tmp/m" --metadata x
fails 2 "MODEL" bench load
: >"$tmp/m/model-00001-of-00002.safetensors"
fails 1 "safetensors" bench load "$tmp/m"
exit 0
