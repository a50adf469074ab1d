# dummy.sh - dummy weights: a published shape without its files.  DeepSeek-V2-Lite (15.7 G
# parameters) loads and generates in less memory than its weights would take.
. "$2/tests/e2e/_lib.sh"
config=$src/models/configs

# A model of our own shape first, which costs nothing: same seed same text, another seed another.
cat >"$tmp/config.json" <<'END'
{"model_type":"deepseek_v3","vocab_size":512,"hidden_size":128,"intermediate_size":160,"moe_intermediate_size":64,
"num_hidden_layers":3,"num_attention_heads":2,"kv_lora_rank":512,"q_lora_rank":96,"qk_nope_head_dim":32,"qk_rope_head_dim":64,
"v_head_dim":32,"n_routed_experts":8,"num_experts_per_tok":2,"n_group":1,"topk_group":1,"n_shared_experts":1,
"first_k_dense_replace":1,"max_position_embeddings":4096,"eos_token_id":1,"initializer_range":0.2}
END
printf '[5,6,7,8]' >"$tmp/t.json"
dummy() { ok run "$1" --load-format dummy --tokens "$tmp/t.json" --ignore-eos --temperature 0 --json "${@:2}"; }
dummy "$tmp/config.json" -n 20
cp "$tmp/out" "$tmp/a"
[ "$(json "$tmp/out" 'len(j["tokens"])')" = 20 ] || die "not 20 tokens: $(cat "$tmp/out")"
dummy "$tmp" -n 20 # the folder instead of the file
cmp -s "$tmp/out" "$tmp/a" || die "a folder and its config.json differ"
dummy "$tmp/config.json" -n 20 --threads 1 --prefill-chunk 1
cmp -s "$tmp/out" "$tmp/a" || die "dummy weights depend on threads or chunks"
dummy "$tmp/config.json" -n 20 --dummy-seed 7
cmp -s "$tmp/out" "$tmp/a" && die "another seed, the same text"
fails 1 "dummy" run "$tmp/config.json" --tokens "$tmp/t.json"
ok info "$config/deepseek-v3.json" --json # no weights needed at all
[ "$(json "$tmp/out" 'j["n_param"]')" = 671026419200 ] || die "info: $(cat "$tmp/out")"

# The large shape is about memory, of which a sanitizer takes a multiple.
[ -z "${NB_SANITIZE:-}" ] || exit 0
available=$(awk '/^MemAvailable:/ { print int($2 / 1024) }' /proc/meminfo 2>/dev/null || echo 0)
[ "${available:-0}" -ge 8192 ] || skip "${available:-0} MiB of memory are available, 8192 are needed"
limit=6144 # MiB
printf '[100000,5,6,7]' >"$tmp/t.json"
python3 - "$nibble" run "$config/deepseek-v2-lite.json" --load-format dummy --tokens "$tmp/t.json" -n 2 \
    --ignore-eos --json --kv-cache-dtype nvfp4 --max-model-len 4096 >"$tmp/out" 2>"$tmp/err" <<'END' || die "V2-Lite"
import resource
import subprocess
import sys
rc = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, file=sys.stderr)
sys.exit(rc)
END
[ "$(json "$tmp/out" 'len(j["tokens"])')" = 2 ] || die "V2-Lite: $(cat "$tmp/out")"
used=$(tail -n 1 "$tmp/err")
echo "V2-Lite's shape: $used MiB"
[ "$used" -le $limit ] || die "V2-Lite's shape took $used MiB, at most $limit"
exit 0
