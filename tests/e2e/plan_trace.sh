# plan_trace.sh - `nibble plan --trace`: hits against a replay in Python, to the token; the scheduler's
# figures; the page; what is refused.
. "$2/tests/e2e/_lib.sh"

# The tables of the documents are those of bench/results/replay.json.
export PYTHONDONTWRITEBYTECODE=1
python3 "$src/tools/replays.py" check 2>"$tmp/err" || die "tables of replays"
mkdir -p "$tmp/root/tools" "$tmp/root/bench/results" "$tmp/root/docs"
cp "$src/tools/replays.py" "$tmp/root/tools/"
cp "$src/bench/results/replay.json" "$tmp/root/bench/results/"
cp "$src/docs/trace-replay.md" "$tmp/root/docs/"
sed '/in a queue, nvfp4/s/0\.4 s |$/0.5 s |/' "$src/docs/capacity.md" >"$tmp/root/docs/capacity.md"
python3 "$tmp/root/tools/replays.py" check 2>"$tmp/err" && die "another time in docs/capacity.md is not seen"
grep -qF "docs/capacity.md: | 16 agent sessions" "$tmp/err" || die "the table is not named"

check="python3 $src/tests/e2e/_replay_check.py"
v3="plan deepseek-v3"

# A stream and a folder of sessions, made up.
python3 - "$tmp" <<'END' || die "no traces"
import json, os, random, sys
rng = random.Random(3)
def names(n):
    return [100 * i + rng.randrange(2 if i < 3 else 5) for i in range(n)]
with open(sys.argv[1] + "/stream.jsonl", "w") as f:
    for k in range(400):
        n = rng.randrange(1, 14)
        f.write(json.dumps({"timestamp": 500 * k, "input_length": 512 * n - rng.randrange(500),
                            "output_length": rng.randrange(40), "hash_ids": names(n)}) + "\n")
os.mkdir(sys.argv[1] + "/sessions")
for s in range(12):
    requests, ids, t, new = [], [], 0, 0
    for k in range(rng.randrange(1, 30)):
        if rng.random() < 0.1: # the beginning of the text is kept
            ids = ids[:rng.randrange(len(ids) + 1)]
        for _ in range(rng.randrange(1, 30)):
            new += 1
            ids = ids + [new]
        r = {"t": t, "in": 64 * len(ids) + rng.randrange(64), "out": 5, "hash_ids": ids, "api_time": 1.5}
        if rng.random() < 0.2: # some outlast the parent's next requests
            more, long = {**r, "t": rng.choice([3, 30])}, rng.choice([None, 1000 * rng.randrange(40)])
            requests.append({"type": "subagent", "t": t, "duration_ms": long, "requests": [{**r, "t": 0}, more]})
        else:
            requests.append(r)
        t += rng.choice([1, 5, 20, 900])
    with open(f"{sys.argv[1]}/sessions/s{s:02}.json", "w") as f:
        json.dump({"id": str(s), "block_size": 64, "hash_id_scope": "local", "requests": requests}, f)
END

# same_hits TRACE BLOCKS(64 tokens of 1 byte each) OPTIONS...: plain LRU, to the token.
same_hits() {
    local trace=$1 blocks=$2 sizes=
    shift 2
    for b in ${blocks//,/ }; do sizes=$sizes,$((b * 64)); done
    $check "$trace" --capacity "$blocks" "$@" >"$tmp/want" || die "the check failed"
    ok plan x --trace "$trace" --kv-cache-memory-bytes "${sizes#,}" --bytes-per-token 1 --policies lru --json "$@"
    local got want
    got=$(json "$tmp/out" '[j["points"][0]["input_tokens"]] + [round(p["input_tokens"] - p["uncached_tokens"]) for p in j["points"]]')
    want=$(json "$tmp/want" '[j["input_tokens"]] + j["hit_tokens"]')
    [ "$got" = "$want" ] || die "hits $got, expected $want: $trace $*"
}
same_hits "$tmp/stream.jsonl" 50,200,700,3000
same_hits "$tmp/stream.jsonl" 100,300 --max-prompt 3000 --requests 150
same_hits "$tmp/sessions" 100,400,1500 --sessions 3
same_hits "$tmp/sessions" 300,900 --sessions 5 --max-gap 10 --requests 500
same_hits "$tmp/sessions/s03.json" 300 --sessions 1

# An endless cache finds the ceiling, with any policy; a larger one never less with LRU.
ok $v3 --trace "$tmp/stream.jsonl" --cache 1,200 --policies all --records nvfp4 --json
[ "$(json "$tmp/out" 'len(j["points"]), all(p["hit_rate"] == p["hit_rate_ceiling"] and p["evicted_blocks"] == 0 for p in j["points"][7:]), all(p["hit_rate"] < p["hit_rate_ceiling"] for p in j["points"][:7]), len({p["hit_rate"] for p in j["points"][:7]}) > 4')" = "(14, True, True, True)" ] ||
    die "policies: $(cat "$tmp/out")"
[ "$(json "$tmp/out" 'j["points"][0]["bytes_per_token"], j["points"][0]["blocks"], j["points"][0]["cache_tokens"]')" = "(21594.0, 723, 46272)" ] ||
    die "a token of nvfp4 is 21594 bytes"

# The scheduler: all requests are answered; a record of fewer bytes hits more and starts sooner.
ok $v3 --trace "$tmp/stream.jsonl" --cache 3 --replay serve --prefill-rate 8000 --decode-rate 50 --json --html "$tmp/page.html"
[ "$(json "$tmp/out" '[p["requests"] for p in j["points"]], [a["hit_rate"] < b["hit_rate"] and a["ttft_s"]["mean"] > b["ttft_s"]["mean"] for a, b in zip(j["points"], j["points"][1:])], all(p["ttft_s"]["p50"] <= p["ttft_s"]["p90"] <= p["ttft_s"]["p99"] for p in j["points"])')" = "([400, 400, 400], [True, True], True)" ] ||
    die "serve: $(cat "$tmp/out")"
grep -q '<svg' "$tmp/page.html" && ! grep -qi '<script\|src=\|href=' "$tmp/page.html" || die "the page"
cp "$tmp/out" "$tmp/first"
ok $v3 --trace "$tmp/stream.jsonl" --cache 3 --replay serve --prefill-rate 8000 --decode-rate 50 --json
cmp -s "$tmp/out" "$tmp/first" || die "another run, other figures"
ok $v3 --trace "$tmp/sessions" --cache 1,2 --replay serve --seeds 2
grep -qF "16 always open" "$tmp/out" && grep -qF "TTFT mean" "$tmp/out" || die "table: $(cat "$tmp/out")"

# A machine: its times, the sizes that it leaves, as `plan` says them; the same bytes hold more of a smaller record.
on="--gpu h200 --gpus 8"
ok $v3 $on --json
cp "$tmp/out" "$tmp/plan"
ok $v3 $on --trace "$tmp/stream.jsonl" --json --html "$tmp/machine.html"
cp "$tmp/out" "$tmp/alone"
python3 - "$tmp/plan" "$tmp/alone" 2>"$tmp/err" <<'END' || die "a machine: $(cat "$tmp/out")"
import json, sys
plan, got = (json.load(open(f)) for f in sys.argv[1:])
machine, points, layout = got["trace"]["machine"], got["points"], plan["layout"]
assert machine["cache_bytes"] == layout["per_gpu"]["cache_bytes"] * layout["data_parallel"]
assert (machine["gpus"], machine["tensor_parallel"], machine["data_parallel"]) == (8, layout["tensor_parallel"], layout["data_parallel"])
assert got["trace"]["clock"]["prefill"] == "modelled" and got["trace"]["prefill_tokens_per_s"] is None
assert [p["cache_bytes"] for p in points[::3]] == [int(machine["cache_bytes"] * x) for x in (0.125, 0.25, 0.5, 1)]
tokens = {c["dtype"]: c["tokens"] for c in plan["capacity"]}
assert all(p["cache_tokens"] == tokens[p["record"]] for p in points[-3:])
assert all(p["fits"] is True and "ttft_s" not in p for p in points)
# The reference: a prompt of 8,192; less when 7,680 of it are found.
whole, rest = machine["prefill"]
assert (whole["tokens"], whole["cached"], rest["tokens"], rest["cached"]) == (8192, 0, 512, 7680) and whole["s"] > 2 * rest["s"]
assert [d["record"] for d in machine["decode"]] == ["bf16", "fp8", "nvfp4"] and all(0 < d["s"] < 1 for d in machine["decode"])
END
ok $v3 $on --prompt 8k --json
[ "$(json "$tmp/out" 'round(j["prefill"][0]["ttft_ms_model"] / 1e3, 6)')" = "$(json "$tmp/alone" 'round(j["trace"]["machine"]["prefill"][0]["s"], 6)')" ] ||
    die "a prompt of 8,192 takes what plan says"
grep -q 'time to the first token, no queue' "$tmp/machine.html" && grep -qF 'are left for the cache' "$tmp/machine.html" || die "the page"
[ "$(grep -o '<svg' "$tmp/machine.html" | wc -l)" = 3 ] || die "three plots"
ok $v3 $on --trace "$tmp/stream.jsonl"
grep -q "^TTFT .*alone.*no queue" "$tmp/out" && grep -q "^machine .*8 x NVIDIA H200" "$tmp/out" && grep -qF "sooner" "$tmp/out" || die "table: $(cat "$tmp/out")"

# LRU: more cache, never later; where all is found, all records take the same.
ok $v3 --gpu h200 --tp 8 --trace "$tmp/stream.jsonl" --policies lru --cache 0.5,1,2,4,8,60 --json
[ "$(json "$tmp/out" '[all(a["ttft_alone_s"]["mean"] >= b["ttft_alone_s"]["mean"] for a, b in zip(j["points"][r::3], j["points"][r + 3::3])) for r in range(3)], len({p["ttft_alone_s"]["mean"] for p in j["points"][-3:]}), j["points"][0]["ttft_alone_s"]["mean"] > 1.2 * j["points"][-1]["ttft_alone_s"]["mean"], [p["fits"] for p in j["points"][-4:]]')" = "([True, True, True], 1, True, [True, False, False, False])" ] ||
    die "more cache: $(cat "$tmp/out")"

# Rates that are given win, one or both; else the scheduler's clock is the machine's.
ok $v3 $on --trace "$tmp/stream.jsonl" --cache 3 --records nvfp4 --prefill-rate 1000 --json
[ "$(json "$tmp/out" 'j["trace"]["clock"]["prefill"], j["trace"]["prefill_tokens_per_s"], [abs(p["ttft_alone_s"]["mean"] - p["uncached_tokens"] / p["requests"] / 1000) < 1e-6 for p in j["points"]]')" = "('given', 1000.0, [True])" ] ||
    die "a rate that is given: $(cat "$tmp/out")"
ok $v3 $on --trace "$tmp/stream.jsonl" --cache 3,20 --replay serve --speed 0.2 --json
[ "$(json "$tmp/out" 'j["trace"]["clock"], j["trace"]["decode_steps_per_s"], all(p["ttft_s"]["mean"] > 0.05 for p in j["points"]), [a["ttft_s"]["mean"] > b["ttft_s"]["mean"] for a, b in zip(j["points"], j["points"][1:3])]')" = "({'prefill': 'modelled', 'decode': 'modelled'}, None, True, [True, True])" ] ||
    die "a machine's clock: $(cat "$tmp/out")"
ok $v3 $on --trace "$tmp/stream.jsonl" --cache 3 --replay serve --decode-rate 50
grep -qF "50 decode steps/s (given)" "$tmp/out" && grep -qF "prompts as modelled" "$tmp/out" || die "a rate of two: $(cat "$tmp/out")"
ok $v3 --trace "$tmp/stream.jsonl" --cache 3 --replay serve
grep -qF "20000 prompt tokens/s (assumed" "$tmp/out" && grep -qF "30 decode steps/s (assumed" "$tmp/out" || die "rates: $(cat "$tmp/out")"
ok plan llama-3.1-8b --memory 64GiB --trace "$tmp/stream.jsonl" --records bf16
grep -qF "they need --bandwidth and --flops" "$tmp/out" && ! grep -q "^TTFT" "$tmp/out" || die "no times: $(cat "$tmp/out")"
ok plan llama-3.1-8b --gpu h100 --tp 2 --trace "$tmp/stream.jsonl" --bytes-per-token 2048x32 --json
[ "$(json "$tmp/out" '[p["fits"] for p in j["points"]], j["points"][-1]["blocks"] == j["trace"]["machine"]["cache_bytes"] // (65536 * 64), j["points"][0]["ttft_alone_s"]["mean"] > 0')" = "([True, True, True, True], True, True)" ] ||
    die "bytes of a token: $(cat "$tmp/out")"

# Refused.
fails 2 "--gpu h2000 unknown" $v3 --trace "$tmp/stream.jsonl" --gpu h2000
fails 2 "--gpu NAME" $v3 --trace "$tmp/stream.jsonl" --cache 3 --gpus 8
fails 2 "--efficiency" $v3 --trace "$tmp/stream.jsonl" --cache 3 --efficiency 2
fails 2 "--trace does not fit --gpus" $v3 --trace "$tmp/stream.jsonl" --cache 3 --gpu h100 --gpus 4
fails 2 "tensor-parallel-size 3" $v3 --trace "$tmp/stream.jsonl" --gpu h200 --tp 3
fails 2 "--max-num-seqs 8192 replicas" plan llama-3.1-8b --trace "$tmp/stream.jsonl" --gpu h200 --dp 256 --replay serve --max-num-seqs 8192
fails 2 "--prefill-rate 0 1" $v3 --trace "$tmp/stream.jsonl" $on --prefill-rate 0
fails 2 "--prefill-rate 1e-300" $v3 --trace "$tmp/stream.jsonl" $on --prefill-rate 1e-300
fails 2 "--decode-rate 1e-300 0.01" $v3 --trace "$tmp/stream.jsonl" $on --replay serve --decode-rate 1e-300
fails 2 "--speed" $v3 --trace "$tmp/stream.jsonl" --cache 3 --speed 1e-300
fails 2 "--max-prompt 1.5k 4k (4096)" $v3 --trace "$tmp/stream.jsonl" --cache 3 --max-prompt 1.5k
fails 2 "--max-prompt 17M 16777216" $v3 --trace "$tmp/stream.jsonl" --cache 3 --max-prompt 17M
# not_read WORDS OPTIONS...: no option without effect.
not_read() {
    local words=$1
    shift
    fails 2 "$words" $v3 --trace "$tmp/stream.jsonl" --cache 3 "$@"
}
for o in "--decode-rate 5" "--max-num-seqs 5" "--prefill-rate 5" "--max-num-batched-tokens 500"; do
    not_read "${o%% *} --replay serve" $o
done
for o in "--sessions 5" "--max-gap 5"; do
    not_read "${o%% *} sessions stream" $o
done
for o in "--context 4k" "--concurrency 5" "--prompt 5" "--price 5" "--tokens-per-second 5" "--kv-rope-dtype bf16"; do
    not_read "${o%% *} --trace" $o
    not_read "${o%% *} --trace" $on $o
done
for o in "--kv-cache-dtype fp8" "--weight-dtype fp8" "--gpu-file none.json" "--gpu-memory-utilization 0.5"; do
    not_read "${o%% *} machine" $o
done
not_read "--decode-rate --replay serve" $on --decode-rate 5
not_read "--records --bytes-per-token" --records nvfp4 --bytes-per-token 5
not_read "--protected-share classes" --policies lru --protected-share 0.5
ok $v3 --trace "$tmp/stream.jsonl" --max-prompt 1k --cache 3 --json
[ "$(json "$tmp/out" 'j["trace"]["max_prompt"], [isinstance(p[k], int) for p in j["points"][:1] for k in ("requests", "skipped", "sessions", "input_tokens", "uncached_tokens", "evicted_blocks")]')" = "(1024, [True, True, True, True, True, True])" ] ||
    die "k is 1,024, counts are integers: $(cat "$tmp/out")"

# Nothing is left to play.
fails 1 "--max-prompt 1 all 400 prompts stream.jsonl are longer" $v3 --trace "$tmp/stream.jsonl" --cache 3 --max-prompt 1 --html "$tmp/none.html"
[ ! -e "$tmp/none.html" ] || die "a page of nothing"
printf 'TIMESTAMP,ContextTokens,GeneratedTokens\n' >"$tmp/head.csv"
fails 1 "head.csv no requests" $v3 --trace "$tmp/head.csv" --cache 3
printf 'TIMESTAMP,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00,9000,3\n' >"$tmp/long.csv"
fails 1 "long.csv no request is left 1 are too long 256 tokens bf16" $v3 --trace "$tmp/long.csv" --cache 3,0.02 --replay serve
printf '{"timestamp":1,"input_length":2,"output_length":3,"hash_ids":[]}\n{"timestamp":1,"input_length":-2}\n' >"$tmp/bad.jsonl"
fails 1 "bad.jsonl:2: expected input_length" $v3 --trace "$tmp/bad.jsonl" --cache 10
fails 1 "none.jsonl" $v3 --trace "$tmp/none.jsonl" --cache 10
mkdir "$tmp/empty"
fails 1 "no .json files" $v3 --trace "$tmp/empty" --cache 10
fails 2 "--cache" $v3 --trace "$tmp/stream.jsonl"
fails 2 "--cache 0 expected" $v3 --trace "$tmp/stream.jsonl" --cache 0
fails 2 "--cache 1x expected" $v3 --trace "$tmp/stream.jsonl" --cache 1x
fails 2 "--cache commas" $v3 --trace "$tmp/stream.jsonl" --cache 1,
fails 2 "0 blocks of nvfp4" $v3 --trace "$tmp/stream.jsonl" --cache 1kB --records nvfp4
fails 2 "--records nvfp5" $v3 --trace "$tmp/stream.jsonl" --cache 1 --records nvfp4,nvfp5
fails 2 "--policies mru" $v3 --trace "$tmp/stream.jsonl" --cache 1 --policies lru,mru
fails 2 "--bytes-per-token 5y" $v3 --trace "$tmp/stream.jsonl" --cache 1 --bytes-per-token 5y
fails 2 "--seeds 3" $v3 --trace "$tmp/stream.jsonl" --cache 1 --seeds 3
