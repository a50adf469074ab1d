# example_agent.sh - examples/agent.mjs against a scripted server: calls are run and their results sent
# back with ids and reasoning; unknown tools, code and broken arguments become results, not crashes.
. "$2/tests/e2e/_lib.sh"
command -v node >"$tmp/node" || skip "no node"
agent=$src/examples/agent.mjs

node "$src/tests/e2e/_agent_mock.mjs" "$tmp/port" &
mock=$!
trap 'kill $mock; rm -rf "$tmp"' EXIT
i=0
while [ ! -s "$tmp/port" ]; do
    i=$((i + 1))
    [ $i -lt 300 ] || die "the scripted server does not start"
    sleep 0.1
done
url=http://127.0.0.1:$(cat "$tmp/port")/v1

node "$agent" --url "$url" --quiet "Weather and sum?" >"$tmp/out" 2>"$tmp/err" || die "exit code $?: $(cat "$tmp/err")"
cat >"$tmp/want" <<'EOF'
{"temperature":23,"sky":"cloudy"}
{"result":-0.25}
error: no tool is called rm
error: not an expression: process.exit(3)
EOF
head -n 4 "$tmp/out" >"$tmp/first"
cmp -s "$tmp/first" "$tmp/want" || die "the results are: $(cat "$tmp/out")"
[ "$(sed -n 5p "$tmp/out" | cut -c 1-6)" = "error:" ] || die "broken arguments: $(cat "$tmp/out")"
[ ! -s "$tmp/err" ] || die "--quiet prints: $(cat "$tmp/err")"

rc=0
node "$agent" --url "$url/none" x >"$tmp/out" 2>"$tmp/err" || rc=$?
[ $rc = 1 ] && [ "$(wc -l <"$tmp/err")" = 1 ] || die "exit code $rc: $(cat "$tmp/err")"
rc=0
node "$agent" --wrong >"$tmp/out" 2>"$tmp/err" || rc=$?
[ $rc = 1 ] || die "an unknown option gives exit code $rc"
