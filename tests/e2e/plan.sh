# plan.sh - `nibble plan`: figures against arithmetic in Python, layouts, prices, what is refused.
. "$2/tests/e2e/_lib.sh"

# Sizes alone: no machine is needed.
ok plan deepseek-v3 --context 128k
for word in "671.0 B parameters" "1,382,016" "354.0" "nvfp4" "as mha in BF16" "--gpu NAME"; do
    grep -qF -- "$word" "$tmp/out" || die "no $word in: $(cat "$tmp/out")"
done
ok plan deepseek-v3 --context 128k --json
[ "$(json "$tmp/out" '[r["contexts"][0]["bytes"] for r in j["cache"]["records"] if r["dtype"] == "nvfp4" and r["default_rope"]]')" = "[2830368768]" ] ||
    die "nvfp4 at 128k: 2048 blocks of 1382016 bytes"
[ "$(json "$tmp/out" 'j["machine"], j["layout"], j["capacity"], j["decode"], j["cost"]')" = "(None, None, [], [], None)" ] || die "no machine"

# The same model as `nibble info` has it.
ok info "$model" --json
bytes=$(json "$tmp/out" '[(r["dtype"], r["page_bytes"]) for r in j["records"]], j["weight_bytes"], j["n_param"]')
ok plan "$model" --json
[ "$(json "$tmp/out" '[(r["dtype"], r["page_bytes"]) for r in j["cache"]["records"] if r["default_rope"]], j["weights"]["types"][0]["bytes"], j["model"]["n_param"]')" = "$bytes" ] ||
    die "info says $bytes"

# Every figure of what fits, again from the bytes of a GPU.
cat >"$tmp/check.py" <<'END'
import json, math, sys
j = json.load(open(sys.argv[1], encoding="utf-8"))
l, g, m, c = j["layout"], j["layout"]["per_gpu"], j["machine"], j["cost"]
n, tp, dp = l["gpus"], l["tensor_parallel"], l["data_parallel"]
assert n == tp * dp
assert g["budget_bytes"] == math.floor(l["utilization"] * m["memory_bytes"])
parts = g["replicated_bytes"] + g["dense_bytes"] + g["expert_bytes"] + g["absorbed_bytes"]
assert abs(g["weight_bytes"] - parts) < 5
assert abs(g["cache_bytes"] - max(0, g["budget_bytes"] - parts - g["reserve_bytes"])) < 5
w = next(t for t in j["weights"]["types"] if t["dtype"] == j["weights"]["dtype"])
dense = w["bytes"] - w["expert_bytes"] - w["replicated_bytes"] - w["embedding_bytes"]
assert abs(g["dense_bytes"] - g["embedding_bytes"] - dense / tp) < 2
assert not w["embedding_bytes"] or g["embedding_bytes"] in (w["embedding_bytes"], w["embedding_bytes"] // tp)
experts = j["model"]["n_expert"]
uneven = math.ceil(experts / l["expert_parallel"]) * l["expert_parallel"] / experts if experts else 1
assert abs(g["expert_bytes"] - w["expert_bytes"] * uneven / n) < 2
whole = {r["dtype"]: r for r in j["cache"]["records"] if r["default_rope"] or r["marked"]}
for r in j["capacity"]:
    block = r["block_bytes_per_gpu"]
    assert block == whole[r["dtype"]]["block_bytes"] and l["cache_copies"] == tp # not divided
    assert r["blocks_per_replica"] == g["cache_bytes"] // block
    assert r["tokens"] == 64 * r["blocks_per_replica"] * dp
    for x in r["contexts"]:
        one = math.ceil(x["context"] / 64) * block + j["cache"]["open_page_bytes"]
        assert x["users_per_replica"] == g["cache_bytes"] // one, (r["dtype"], x)
        assert x["users"] == dp * x["users_per_replica"]
        if c and x["users"]:
            assert abs(x["price_per_session_hour"] * x["users"] / c["price_per_hour"] - 1) < 1e-9
for d in j["decode"]:
    a, b = d["most"], d["model"]
    assert d["concurrency"] <= next(x["users"] for r in j["capacity"] if r["dtype"] == d["dtype"]
                                    for x in r["contexts"] if x["context"] == d["context"])
    times = {"weights": d["weight_bytes"] / m["bandwidth"], "cache": d["cache_bytes"] / m["bandwidth"],
             "products": d["product_flop"] / m["bf16_flops"], "attention": d["attention_flop"] / m["bf16_flops"]}
    assert times[d["bound"]] == max(times.values())
    step = max(times["weights"], times["products"]) + max(times["cache"], times["attention"])
    assert abs(a["step_ms"] / step / 1e3 - 1) < 1e-6 and b["step_ms"] > a["step_ms"]
    assert abs(a["tokens_per_second"] * step / d["concurrency"] - 1) < 1e-6
    if c:
        for t in (a, b):
            assert abs(t["price_per_million"] * t["tokens_per_second"] * 3600 / 1e6 / c["price_per_hour"] - 1) < 1e-6
for f in j["prefill"]:
    assert 0 < f["ttft_ms_most"] < f["ttft_ms_model"] and 0 < f["attention_fraction"] < 1
assert len(j["assumptions"]) >= 2 and all(isinstance(s, str) for s in j["assumptions"] + j["notes"])
END
check() {
    ok plan "$@" --json
    python3 "$tmp/check.py" "$tmp/out" >"$tmp/err" 2>&1 || die "plan $*"
}
check deepseek-v3 --gpu h200 --gpus 8
[ "$(json "$tmp/out" '[j["layout"][k] for k in ("tensor_parallel", "data_parallel", "expert_parallel", "suggested")]')" = "[1, 8, 8, True]" ] || die "layout"
users() { json "$tmp/out" "[x['users'] for r in j['capacity'] if r['dtype'] == '$1' for x in r['contexts'] if x['context'] == 131072]"; }
[ "$(users nvfp4) $(users fp8)" = "[88] [56]" ] || die "users at 128k: $(users nvfp4) $(users fp8)"
check deepseek-v3 --gpu h200 -tp 8
[ "$(users nvfp4) $(users fp8) $(users bf16)" = "[16] [10] [5]" ] || die "users at 128k of TP 8: $(users nvfp4)"
[ "$(json "$tmp/out" 'any("8 copies" in s for s in j["notes"]), j["layout"]["cache_copies"]')" = "(True, 8)" ] || die "copies"
tokens() { json "$tmp/out" "[r['tokens'] for r in j['capacity'] if r['dtype'] == 'nvfp4'], j['layout']['cache_copies'], j['layout']['runs']"; }
ok plan deepseek-v3 --memory 8TiB --tp 4 --json
one=$(json "$tmp/out" "[r['tokens'] for r in j['capacity'] if r['dtype'] == 'nvfp4'][0] // 512 * 512 * 4")
ok plan deepseek-v3 --memory 8TiB --tp 4 -dcp 4 --json
[ "$(tokens)" = "([$one], 1, False)" ] || die "a divided context: $(tokens), expected $one tokens"
ok plan deepseek-v3 --gpu h200 --tp 8 -dcp 8 --json
[ "$(json "$tmp/out" 'j["layout"]["runs"], "GPUs do not divide" in j["layout"]["why_not"]')" = "(False, True)" ] || die "dcp on GPUs"
fails 2 "decode-context-parallel-size 2 4" plan deepseek-v3 --gpu h200 --tp 4 --decode-context-parallel-size 2
check deepseek-v3 --gpu h200 --gpus 16 --dp 8 --ep 4 --kv-cache-dtype nvfp4 --kv-rope-dtype bf16 --weight-dtype bf16 --gpu-memory-utilization 0.99
check llama-3.1-70b --gpu h100 --gpus 4 --price 2.5 --context 8k,128k --concurrency 1,2,3 --prompt 512
[ "$(json "$tmp/out" '[f["prompt"] for f in j["prefill"]], j["cost"]["source"]')" = "([512], '--price')" ] || die "prompt, price"
check llama-3.1-70b --gpu h200 --tp 16
check deepseek-v2-lite --memory 64GiB --bandwidth 50 --flops 1.5 --weight-dtype int8
[ "$(json "$tmp/out" 'j["machine"]["cpu"], j["layout"]["per_gpu"]["absorbed_bytes"], j["layout"]["per_gpu"]["reserve_bytes"]')" = "(True, 0, 0)" ] || die "a processor"
check kimi-k2 --gpu b200 --gpus 8 --efficiency 0.5 --context 1024
check deepseek-v2-lite --gpu h100 --reserve 512MiB --max-num-batched-tokens 512

# No rates without bandwidth and arithmetic; no room; too long; no price; a measured rate.
check deepseek-v2-lite --memory 80GB
[ "$(json "$tmp/out" 'len(j["decode"]), len(j["capacity"]) > 5, j["machine"]["bandwidth"]')" = "(0, True, None)" ] || die "rates of nothing"
check deepseek-v3 --gpu h100 --gpus 8
[ "$(json "$tmp/out" 'j["layout"]["fits"], j["layout"]["needed"]["gpus"], len(j["decode"]), j["cost"]')" = "(False, 16, 0, None)" ] || die "does not fit"
ok plan deepseek-v3 --gpu h100 --gpus 8
grep -q "16 of them would do" "$tmp/out" || die "how many would do"
ok plan deepseek-v2-lite --gpu rtx4090 --weight-dtype int8 --context 4k,512k
for word in "longer than the model's 163840" "No user of 524288 tokens fits" "No price"; do
    tr '\n' ' ' <"$tmp/out" | tr -s ' ' | grep -qF -- "$word" || die "no note: $word"
done
ok plan deepseek-v3 --gpu h200 --gpus 8 --tokens-per-second 9500
grep -qF '$0.414 a million tokens = 14.16 / (9500 * 3600) * 10^6' "$tmp/out" || die "cost of a measured rate"

# Whether nibble computes it so: the engine's own answer.
runs() { json "$tmp/out" 'j["layout"]["runs"], (j["layout"]["why_not"] or "-").split(":")[0]'; }
for m in deepseek-v3 deepseek-v3.2 longcat-flash; do
    check $m --gpu h200 --gpus 1
    [ "$(runs)" = "(True, '-')" ] || die "$m runs on a GPU: $(runs)"
done
check longcat-flash --gpu h200 --gpus 8
[ "$(runs)" = "(False, 'longcat_flash')" ] || die "zero experts on several GPUs: $(runs)"
check kimi-linear-48b --gpu h100
[ "$(runs)" = "(False, 'kimi_linear')" ] || die "linear attention on a GPU: $(runs)"
[ "$(json "$tmp/out" 'any(j["layout"]["why_not"] in s for s in j["notes"])')" = True ] || die "a note of why not"
ok plan kimi-linear-48b --gpu h100
grep -q "nibble does not run it so: kimi_linear: attention of kind kda" "$tmp/out" || die "why not"
# What would do, and why nibble does not run it so, in front of it.
check deepseek-v4-pro --gpu h200
[ "$(json "$tmp/out" 'j["layout"]["runs"], j["layout"]["needed"]["runs"], j["layout"]["needed"]["why_not"].split(":")[0]')" = "(True, False, 'deepseek_v4')" ] || die "needed, but not run"
ok plan deepseek-v4-pro --gpu h200
grep -A1 "nibble does not run it so: deepseek_v4: attention of kind csa" "$tmp/out" | grep -q "8 of them would do for an engine that does" || die "the reason first"
check deepseek-v4-flash --gpu h200
[ "$(json "$tmp/out" 'j["layout"]["needed"]["runs"], j["layout"]["needed"]["why_not"]')" = "(True, None)" ] || die "needed and run"
check kimi-linear-48b --memory 256GB
[ "$(runs)" = "(True, '-')" ] || die "linear attention on a CPU: $(runs)"

# Quantised weights: counted as the checkpoint says, or as --weight-dtype does.
check kimi-k2-thinking --gpu h200 --gpus 8
[ "$(json "$tmp/out" 'j["weights"]["types"][0]["bytes"], j["layout"]["fits"], any("runs these weights" in s for s in j["notes"])')" = "(594205351936, True, True)" ] ||
    die "INT4 experts"
check deepseek-v3 --gpu h100 --gpus 8 --weight-dtype int4
mkdir "$tmp/q"
python3 -c 'import json, sys
j = json.load(open(sys.argv[1], encoding="utf-8"))
j["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_4bit": True}
json.dump(j, open(sys.argv[2], "w", encoding="utf-8"))' "$src/models/configs/llama-3.1-8b.json" "$tmp/q/config.json"
ok plan "$tmp/q" --json
[ "$(json "$tmp/out" '[t["dtype"] for t in j["weights"]["types"]], j["weights"]["checkpoint_dtype"], j["cache"]["records"][0]["bytes_per_token"] > 0')" = \
    "(['bf16', 'fp8', 'int8', 'int4'], 'bitsandbytes', True)" ] || die "unknown weights"
fails 2 "bitsandbytes --weight-dtype" plan "$tmp/q" --gpu h100
check "$tmp/q" --gpu h100 --weight-dtype bf16
fails 1 'quant_method "bitsandbytes"' info "$tmp/q"
ok plan "$model"
grep -q "15.2 M parameters" "$tmp/out" || die "parameters of a small model"

# A file of devices adds and replaces.
cat >"$tmp/gpus.json" <<'END'
{"gpus": {"mine": {"memory_mib": 40960, "bandwidth_gbs": 1000, "bf16_tflops": 100, "price": 0.5, "source": "a test"},
          "h200": {"memory_mib": 1024, "bandwidth_gbs": 1, "bf16_tflops": 1, "source": "a test"}}}
END
check deepseek-v2-lite --gpu MINE --gpu-file "$tmp/gpus.json"
[ "$(json "$tmp/out" 'j["cost"]["price_per_hour"], j["machine"]["memory_bytes"]')" = "(0.5, 42949672960)" ] || die "--gpu-file"
check deepseek-v2-lite --gpu h200 --gpu-file "$tmp/gpus.json"
[ "$(json "$tmp/out" 'j["machine"]["memory_bytes"]')" = 1073741824 ] || die "--gpu-file replaces"
printf '{"gpus": {"mine": {"memory_mib": -1}}}' >"$tmp/gpus.json"
fails 1 "gpus.json mine.memory_mib" plan deepseek-v2-lite --gpu mine --gpu-file "$tmp/gpus.json"
fails 1 "nowhere.json" plan deepseek-v2-lite --gpu mine --gpu-file "$tmp/nowhere.json"

# A name that is not UTF-8 is no trouble.
mkdir "$tmp/$(printf 'a\377b')"
cp "$src/models/configs/deepseek-v2-lite.json" "$tmp/$(printf 'a\377b')/config.json"
ok plan "$tmp/$(printf 'a\377b')" --gpu h100 --context 1M --json
[ "$(json "$tmp/out" 'j["model"]["name"].endswith("a?b"), j["layout"]["fits"]')" = "(True, True)" ] || die "a name"

# What is refused, by name.
fails 1 "deepseek-v33" plan deepseek-v33
fails 1 "linear attention" plan moonshotai/Kimi-K3
printf '{"model_type":"llama","a":"\\u0000"}' >"$tmp/config.json"
fails 1 "character refused" plan "$tmp/config.json"
grep -q ALLOW "$tmp/err" && die "a constant of a library: $(cat "$tmp/err")"
printf '{"model_type":"deepseek_v3","vocab_size":512,"hidden_size":-1}' >"$tmp/config.json"
fails 1 "hidden_size" plan "$tmp/config.json"
fails 2 "h2oo h200" plan deepseek-v3 --gpu h2oo
fails 2 "128 heads" plan deepseek-v3 --gpu h200 --tp 3
fails 2 "experts" plan llama-3.1-8b --gpu h200 --gpus 8 --enable-expert-parallel
fails 2 "experts" plan llama-3.1-8b --gpu h200 --gpus 8 --ep 8
fails 2 "divisor" plan deepseek-v3 --gpu h200 --gpus 8 --ep 3
fails 2 "number of GPUs" plan deepseek-v3 --gpu h200 --gpus 6 --tp 4
fails 2 "--tensor-parallel-size 8 does not divide 4" plan deepseek-v3 --gpu h200 --gpus 4 --tp 8
fails 2 "--data-parallel-size 3 does not divide 4" plan deepseek-v3 --gpu h200 --gpus 4 --dp 3
fails 2 "4096" plan deepseek-v3 --gpu h200 --tp 4096 --dp 4096
fails 2 "machine" plan deepseek-v3 --gpus 8
fails 2 "fp8_ds_mla" plan llama-3.1-8b --kv-cache-dtype fp8_ds_mla
fails 2 "rope" plan llama-3.1-8b --kv-rope-dtype bf16
for bad in "--memory 0" "--memory 10parsec" "--memory nan" "--memory 9999999TB" "--memory -1" "--reserve x" "--gpus 0" "--tp 0" \
    "--context 0" "--context 4q" "--context 99999999999999999999" "--concurrency 0" "--prompt ," "--gpu-memory-utilization nan" \
    "--gpu-memory-utilization 1.1" "--price 0" "--price inf" "--tokens-per-second -3" "--efficiency 2" "--weight-dtype q4" \
    "--kv-cache-dtype q4" "--bandwidth 0" "--max-num-batched-tokens 0" "--bandwidth 1e-300" "--efficiency 1e-300" "--flops 1e-300" \
    "--price 1e-300" "--tokens-per-second 1e-300" "--max-num-batched-tokens 18446744073709551615" "--cache 20" "--replay serve" "--seeds 1" \
    "--html --json"; do
    # shellcheck disable=SC2086
    fails 2 "${bad%% *}" plan deepseek-v3 --gpu h200 $bad
done
# The upper limit is said, and of a long value the beginning.
fails 2 "at most 1000000" plan deepseek-v3 --gpu h200 --bandwidth 1e308
fails 2 "at most 1000000" plan deepseek-v3 --gpu h200 --price 1e308
fails 2 "up to 16 numbers" plan deepseek-v3 --context "$(seq -s, 1 1000)"
[ "$(wc -c <"$tmp/err")" -lt 200 ] || die "a long line: $(cat "$tmp/err")"
check deepseek-v3 --gpu h200 --gpus 8 --max-num-batched-tokens 8k
cp "$tmp/out" "$tmp/8k"
check deepseek-v3 --gpu h200 --gpus 8 --max-num-batched-tokens 8192
cmp -s "$tmp/8k" "$tmp/out" || die "8k is not 8192"
ok plan --help
for word in --gpu --gpus --memory --context --concurrency --tensor-parallel-size --data-parallel-size --enable-expert-parallel \
    --kv-cache-dtype --weight-dtype --gpu-memory-utilization --price --tokens-per-second --json; do
    grep -q -- "$word" "$tmp/out" || die "--help lacks $word"
done
