# bench_compare.sh - `bench/compare`: a planted regression is told, noise is not, files of others are refused in
# one line, and every recorded result can be read.
. "$2/tests/e2e/_lib.sh"
command -v python3 >/dev/null || skip "there is no python3"
quick="--repeat 5 --sample-ms 0 --set 1 --threads 2 --json"
# shellcheck disable=SC2086
ok bench kernel --op all --context 64 --rows 64 --cols 64 --tokens 2 --heads 2 $quick
cp "$tmp/out" "$tmp/k.json"
printf '%s' '{"model_type":"deepseek_v3","vocab_size":512,"hidden_size":128,"intermediate_size":160,"moe_intermediate_size":64,
"num_hidden_layers":2,"num_attention_heads":2,"kv_lora_rank":512,"q_lora_rank":96,"qk_nope_head_dim":32,"qk_rope_head_dim":64,
"v_head_dim":32,"n_routed_experts":8,"num_experts_per_tok":2,"n_group":1,"topk_group":1,"n_shared_experts":1,
"first_k_dense_replace":1,"max_position_embeddings":4096,"eos_token_id":1,"initializer_range":0.2}' >"$tmp/config.json"
ok bench throughput "$tmp/config.json" --load-format dummy --kv-cache-dtype nvfp4 --depth 128,256 --depth-tokens 8 --depth-batch 1,2 \
    --depth-prefill 64 --json
cp "$tmp/out" "$tmp/t.json"
python3 "$src/tests/e2e/_bench_compare.py" "$src" "$tmp" 2>"$tmp/err" || die "see below"
python3 "$src/bench/compare" "$tmp/k.json" "$tmp/k.json" >"$tmp/out" || die "bench/compare does not run"
exit 0
