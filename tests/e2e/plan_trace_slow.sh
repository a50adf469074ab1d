# plan_trace_slow.sh - the public traces: the published hit rates within 0.02, and a replay in Python
# with blocks of 512 tokens within 0.01.  Without the data (../shared/data/traces) skipped.
. "$2/tests/e2e/_lib.sh"

data=$src/../shared/data/traces
need "$data/mooncake/conversation_trace.jsonl" "needs the traces"
need "$data/kv-cache-tester/agentic_traces.tar.xz" "needs the traces"

# near WORDS GOT WANT TOLERANCE, lists of numbers
near() {
    python3 -c 'import sys
got, want = eval(sys.argv[2]), eval(sys.argv[3])
bad = [(g, w) for g, w in zip(got, want) if abs(g - w) > float(sys.argv[4])]
sys.exit(f"{sys.argv[1]}: {bad}" if bad or len(got) != len(want) else 0)' "$@" 2>"$tmp/err" || die "not near"
}

ok plan x --trace "$data/mooncake/synthetic_trace.jsonl" --cache 80,320 --policies lru --bytes-per-token 1152x61,576x61,324x61 --json
cp "$tmp/out" "$tmp/synthetic"
near synthetic "$(json "$tmp/synthetic" '[p["hit_rate"] for p in j["points"]]')" "[.161,.269,.377,.405,.559,.638]" 0.02
near ceiling "$(json "$tmp/synthetic" '[j["points"][0]["hit_rate_ceiling"]]')" "[.651]" 0.001
python3 "$src/tests/e2e/_replay_check.py" "$data/mooncake/synthetic_trace.jsonl" --block 512 --capacity 2223,4446,7905,8893,17787,31621 >"$tmp/want" || die "the check failed"
near check "$(json "$tmp/synthetic" '[p["hit_rate"] for p in j["points"]]')" "$(json "$tmp/want" '[h / j["input_tokens"] for h in j["hit_tokens"]]')" 0.01

ok plan x --trace "$data/mooncake/conversation_trace.jsonl" --cache 80 --policies lru --bytes-per-token 576x61,324x61 --json
near conversation "$(json "$tmp/out" '[p["hit_rate"] for p in j["points"]] + [j["points"][0]["hit_rate_ceiling"]]')" "[.098,.180,.374]" 0.02

# 16 sessions without subagents and 8 with, to the token.
python3 - "$data/kv-cache-tester/agentic_traces.tar.xz" "$tmp" <<'END' || die "no sessions"
import os, sys, tarfile
os.mkdir(sys.argv[2] + "/s")
left = {False: 16, True: 8}
with tarfile.open(sys.argv[1], "r|xz") as tar:
    for member in tar:
        if not member.name.endswith(".json") or not any(left.values()):
            continue
        text = tar.extractfile(member).read()
        kind = b'"subagent"' in text
        if left[kind]:
            left[kind] -= 1
            with open(f"{sys.argv[2]}/s/{os.path.basename(member.name)}", "wb") as f:
                f.write(text)
sys.exit(any(left.values()))
END
args="--sessions 6 --max-prompt 131072 --requests 1500"
python3 "$src/tests/e2e/_replay_check.py" "$tmp/s" --capacity 2000,8000 $args >"$tmp/want" || die "the check failed"
ok plan x --trace "$tmp/s" --kv-cache-memory-bytes 128000,512000 --bytes-per-token 1 --policies lru --json $args
[ "$(json "$tmp/out" '[round(p["input_tokens"] - p["uncached_tokens"]) for p in j["points"]]')" = "$(json "$tmp/want" 'j["hit_tokens"]')" ] ||
    die "sessions: $(cat "$tmp/out") $(cat "$tmp/want")"
