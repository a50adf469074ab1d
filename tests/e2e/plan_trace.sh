# plan_trace.sh - `nibble plan --trace`: hits against a replay in Python, to the token; the scheduler's
# figures; the page; what is refused.
. "$2/tests/e2e/_lib.sh"

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
        requests.append({"type": "subagent", "t": t, "requests": [r]} if rng.random() < 0.1 else r)
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
    want=$(json "$tmp/want" '[float(j["input_tokens"])] + j["hit_tokens"]')
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
[ "$(json "$tmp/out" '[p["requests"] for p in j["points"]], [a["hit_rate"] < b["hit_rate"] and a["ttft_s"]["mean"] > b["ttft_s"]["mean"] for a, b in zip(j["points"], j["points"][1:])], all(p["ttft_s"]["p50"] <= p["ttft_s"]["p90"] <= p["ttft_s"]["p99"] for p in j["points"])')" = "([400.0, 400.0, 400.0], [True, True], True)" ] ||
    die "serve: $(cat "$tmp/out")"
grep -q '<svg' "$tmp/page.html" && ! grep -qi '<script\|src=\|href=' "$tmp/page.html" || die "the page"
cp "$tmp/out" "$tmp/first"
ok $v3 --trace "$tmp/stream.jsonl" --cache 3 --replay serve --prefill-rate 8000 --decode-rate 50 --json
cmp -s "$tmp/out" "$tmp/first" || die "another run, other figures"
ok $v3 --trace "$tmp/sessions" --cache 1,2 --replay serve --seeds 2
grep -qF "16 always open" "$tmp/out" && grep -qF "TTFT mean" "$tmp/out" || die "table: $(cat "$tmp/out")"

# Refused.
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
