# bench_client.sh - `nibble bench serve` against a server that misbehaves in every way: each request
# must be counted, and as what it was.
. "$2/tests/e2e/_lib.sh"
python3 "$src/tests/e2e/_bench_mock.py" "$tmp" &
mock=$!
trap 'kill $mock 2>/dev/null; rm -rf "$tmp"' EXIT
for _ in $(seq 1200); do
    [ -e "$tmp/port" ] && break
    sleep 0.05
done
[ -e "$tmp/port" ] || die "the mock did not start"
port=$(cat "$tmp/port")

# bench PLAN ARGUMENTS...: the result is in $tmp/r.json.
bench() {
    : >"$tmp/bodies"
    : >"$tmp/heads"
    printf '%s\n' "$1" >"$tmp/plan.new"
    mv "$tmp/plan.new" "$tmp/plan"
    while [ -e "$tmp/plan" ]; do sleep 0.02; done
    shift
    rm -f "$tmp/r.json"
    "$nibble" bench serve --port "$port" --save-result --result-dir "$tmp" --result-filename r.json --quiet \
        --random-input-len 5 --random-output-len 3 "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
}
# is EXPRESSION: a Python expression over the result j holds.
is() { [ "$(json "$tmp/r.json" "$1")" = True ] || die "not so: $1: $(cat "$tmp/r.json")"; }

# One after the other, so that the plan says which request gets what.
bench "ok 503 400 cut nodone error junk json pieces close drop" --num-prompts 12 --max-concurrency 1 ||
    die "exit code $?"
is 'j["outcomes"] == dict(lost=0, completed=4, refused_503=1, other_status=1, connection_errors=1, cut_streams=2,
    stream_errors=1, malformed=2, timeouts=0, disconnected=0)'
is 'j["completed"] == 4 and j["failed"] == 8 and j["total_input_tokens"] == 44 and j["total_output_tokens"] == 12'
is 'j["total_cached_tokens"] == 20 and j["http_statuses"]["503"] == 1 and j["num_prompts"] == 12'
is 'set("duration request_throughput request_goodput output_throughput mean_ttft_ms median_tpot_ms std_itl_ms \
    p99_e2el_ms max_output_tokens_per_s max_concurrent_requests".split()) <= set(j)'
for words in 'Successful requests:  *4' 'Failed requests:  *8' 'Mean TTFT (ms):' 'P99 ITL (ms):' 'refused_503:  *1'; do
    grep -q "$words" "$tmp/out" || die "the table has no \"$words\""
done
grep -q 'request 2: other_status' "$tmp/err" || die "failures are not named"
[ "$(wc -l <"$tmp/bodies")" = 12 ] || die "$(wc -l <"$tmp/bodies") requests came"
python3 - "$tmp/bodies" <<'END' || die "a body is not as it should be"
import json, sys
for line in open(sys.argv[1]):
    b = json.loads(line)
    assert b["model"] == "mock" and b["max_tokens"] == 3 and b["stream"] is True, b
    assert b["stream_options"] == {"include_usage": True} and "temperature" not in b, b
    assert len(b["prompt"]) == 5 and all(7 <= i < 47 for i in b["prompt"]), b
END

# A connection that the server closed between requests: sent again, not counted as a failure.
bench "ok drop ok" --num-prompts 2 --max-concurrency 1 || die "exit code $?"
is 'j["completed"] == 2 and j["sent_again"] == 1'

# Timeouts, hanging up, and everything at once.
bench "slow slow ok" --num-prompts 3 --timeout 5 || die "exit code $?"
is 'j["outcomes"]["timeouts"] == 2 and j["completed"] == 1'
bench "slow slow slow" --num-prompts 3 --disconnect-rate 1 --timeout 20 || die "exit code $?"
is 'j["outcomes"]["disconnected"] == 3 and j["failed"] == 0'
bench "" --num-prompts 300 --no-keep-alive || die "exit code $?"
is 'j["completed"] == 300 and j["connections"] == 300'
bench "" --num-prompts 300 --max-concurrency 7 --request-rate 2000 --burstiness 0.5 || die "exit code $?"
is 'j["completed"] == 300 and j["connections"] <= 9 and j["max_concurrency"] == 7 and j["request_rate"] == 2000'

# Other bodies: chat, texts, extra fields, keys.
bench "" --num-prompts 3 --backend openai-chat --temperature 0.5 --extra-body '{"user": "me", "x": [1]}' --ignore-eos \
    --api-key one --header X-A=b Y=c --request-id-prefix r- || die "exit code $?"
python3 - "$tmp/bodies" <<'END' || die "a chat body is not as it should be"
import json, sys
for line in open(sys.argv[1]):
    b = json.loads(line)
    assert b["messages"][0]["content"].startswith("w") and b["max_completion_tokens"] == 3, b
    assert b["temperature"] == 0.5 and b["user"] == "me" and b["x"] == [1] and b["ignore_eos"] is True, b
END
for words in 'Authorization: Bearer one' 'X-A: b' 'Y: c' 'X-Request-Id: r-2' 'POST /v1/chat/completions'; do
    grep -q "$words" "$tmp/heads" || die "no \"$words\" was sent"
done
printf '{"prompt": "a \\"b\\"", "output_tokens": 2}\n' >"$tmp/set.jsonl"
bench "" --num-prompts 2 --dataset-name custom --dataset-path "$tmp/set.jsonl" --custom-output-len -1 --save-detailed ||
    die "exit code $?"
is 'j["generated_texts"] == ["t0 t1 t2 "] * 2 and len(j["itls"][0]) == 2 and j["errors"] == ["", ""]'
grep -q '"prompt":"a \\u0022b\\u0022","max_tokens":2' "$tmp/bodies" || die "custom: $(cat "$tmp/bodies")"

# Nothing completed, nobody there, wrong options.
bench "503 503" --num-prompts 2 --max-concurrency 1 && die "no failure when nothing was completed"
is 'j["outcomes"]["refused_503"] == 2'
kill $mock
trap 'rm -rf "$tmp"' EXIT
wait $mock 2>/dev/null
fails 1 "/v1/models" bench serve --port "$port" --num-prompts 2
fails 1 "ready" bench serve --port "$port" --ready-check-timeout-sec 0.3
"$nibble" bench serve --port "$port" --num-prompts 2 --model m --vocab-size 50 --quiet >"$tmp/out" 2>"$tmp/err" &&
    die "no failure when nobody is there"
grep -q 'connection_errors:  *2' "$tmp/out" || die "connections that were refused are not counted"
grep -q 'no request was completed: cannot connect to the server' "$tmp/err" || die "no reason is given"
fails 2 "request-rate" bench serve --request-rate 0
fails 2 "TLS" bench serve --base-url https://localhost
fails 2 "goodput" bench serve --goodput ttft
fails 2 "metric-percentiles" bench serve --metric-percentiles 50,101
fails 2 "dataset-path" bench serve --dataset-name custom --model m
fails 2 "bench serve" bench
fails 2 "unexpected" bench serve MODEL
fails 2 "self-timed" bench serve --self-timed
exit 0
