# bench_serve.sh - `nibble bench serve` and `nibble bench throughput`: the same requests through the
# server and through the engine have the same texts, and nothing is left in the server.
. "$2/tests/e2e/_lib.sh"
need "$model/config.json" "the bundled model"
"$nibble" serve "$model" --port 0 --kv-cache-memory-bytes 16M --kv-cache-dtype nvfp4 --max-num-seqs 8 \
    --no-log-requests 2>"$tmp/log" >/dev/null </dev/null &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null; rm -rf "$tmp"' EXIT
port=
for _ in $(seq 600); do
    port=$(sed -n 's|.*listening on http://127\.0\.0\.1:\([0-9]*\).*|\1|p' "$tmp/log")
    [ -n "$port" ] && break
    kill -0 $server 2>/dev/null || die "the server ended: $(cat "$tmp/log")"
    sleep 0.1
done
[ -n "$port" ] || die "the server does not listen"

common="--num-prompts 10 --random-input-len 20 --random-output-len 12 --random-range-ratio 0.5 --temperature 0 --seed 3
    --save-result --save-detailed --quiet"
engine="--kv-cache-memory-bytes 16M --kv-cache-dtype nvfp4 --max-num-seqs 8"
# shellcheck disable=SC2086
ok bench serve --port "$port" --tokenizer "$model" $common --result-filename "$tmp/a.json"
# shellcheck disable=SC2086
ok bench throughput "$model" $engine $common --result-filename "$tmp/b.json"
python3 - "$tmp/a.json" "$tmp/b.json" <<'END' || die "server and engine differ"
import json, sys
a, b = (json.load(open(p)) for p in sys.argv[1:])
assert a["completed"] == b["completed"] == 10 and a["failed"] == b["failed"] == 0, (a, b)
for key in ("generated_texts", "input_lens", "output_lens", "total_input_tokens", "total_output_tokens"):
    assert a[key] == b[key], (key, a[key], b[key])
assert all(len(i) == n - 1 for i, n in zip(a["itls"], a["output_lens"])), "a chunk is not a token"
assert any(a["generated_texts"]) and b["steps"] >= 12, b["steps"]
END

# Several runs: other prompts each, so that no run finds those of another in the cache; what all bench commands have.
more="--num-prompts 2 --random-input-len 70 --random-output-len 3 --repeat 2 --quiet --save-result --metadata commit=abc x=y"
# shellcheck disable=SC2086
ok bench serve --port "$port" $more --result-filename "$tmp/f.json"
grep -q "^Of the runs, output (tokens/s): .* to " "$tmp/out" || die "no spread in the table: $(cat "$tmp/out")"
grep -q "^client's machine: " "$tmp/out" || die "no machine in the table"
# shellcheck disable=SC2086
ok bench serve --port "$port" --backend openai-chat $more --result-filename "$tmp/h.json" --seed 50
# shellcheck disable=SC2086
ok bench throughput "$model" $engine $more --result-filename "$tmp/g.json" --dataset-name prefix_repetition \
    --prefix-repetition-prefix-len 128 --prefix-repetition-num-prefixes 1 --prefix-repetition-suffix-len 4 \
    --prefix-repetition-output-len 4 --max-concurrency 1
# Times per token have no row where they are 0: tokens of a fast model arrive together.
for f in f g h; do
    [ "$(json "$tmp/$f.json" '(set("schema command version commit date machine results noise repeats".split()) <= set(j) and
        j["commit"] == "abc" and j["x"] == "y" and j["completed"] == 2 and len(j["results"]) >= 5 and
        all(r["n"] == 2 and r["lo"] <= r["median"] <= r["hi"] for r in j["results"]))')" = True ] || die "runs: $(cat "$tmp/$f.json")"
    [ "$(json "$tmp/$f.json" 'any(r["name"].endswith(" output") and abs(r["lo"] / j["output_throughput"] - 1) < 1e-6
        for r in j["results"])')" = True ] || die "the figures are not those of the middle run, of two the slower: $(cat "$tmp/$f.json")"
    python3 "$src/bench/compare" "$tmp/$f.json" "$tmp/$f.json" >"$tmp/out" || die "bench/compare: $(cat "$tmp/out")"
done
[ "$(json "$tmp/f.json" 'j["total_cached_tokens"]')" = 0 ] || die "a run found the prompts of another in the cache"
[ "$(json "$tmp/g.json" 'j["total_cached_tokens"]')" = 128 ] || die "the cache was not empty when a run began"

# A cache that is shared, the other forms of requests, clients that hang up.
ok bench serve --port "$port" --dataset-name prefix_repetition --prefix-repetition-prefix-len 128 --num-prompts 8 \
    --prefix-repetition-suffix-len 4 --prefix-repetition-num-prefixes 2 --prefix-repetition-output-len 2 --quiet \
    --max-concurrency 1 --save-result --result-filename "$tmp/c.json"
[ "$(json "$tmp/c.json" 'j["completed"] == 8 and j["total_cached_tokens"] >= 6 * 128')" = True ] ||
    die "no prefix was shared: $(cat "$tmp/c.json")"
ok bench serve --port "$port" --backend openai-chat --num-prompts 4 --random-input-len 10 --random-output-len 5 --quiet \
    --save-result --result-filename "$tmp/d.json"
[ "$(json "$tmp/d.json" 'j["completed"]')" = 4 ] || die "chat: $(cat "$tmp/d.json")"
"$nibble" bench serve --port "$port" --num-prompts 30 --random-input-len 50 --random-output-len 40 --disconnect-rate 0.7 \
    --ignore-eos --quiet --save-result --result-filename "$tmp/e.json" >"$tmp/out" 2>"$tmp/err" || die "exit code $?"
[ "$(json "$tmp/e.json" 'j["completed"] + j["outcomes"]["disconnected"] == 30 and j["failed"] == 0')" = True ] ||
    die "hanging up: $(cat "$tmp/e.json")"
[ "$(json "$tmp/e.json" 'j["outcomes"]["disconnected"] > 5')" = True ] || die "nobody hung up: $(cat "$tmp/e.json")"
python3 - "$port" <<'END' || die "something is left in the server"
import sys, time, urllib.request
for _ in range(600):
    text = urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/metrics").read().decode()
    left = [line for line in text.split("\n") if line.startswith(("vllm:num_requests_running{",
            "vllm:num_requests_waiting{")) or 'use="held"' in line]
    if len(left) == 3 and all(line.endswith(" 0") for line in left):
        sys.exit(0)
    time.sleep(0.1)
sys.exit(str(left))
END
exit 0
