#!/bin/sh
# try_start.sh - does what the README says: ./start.sh serves, a completion comes, SIGTERM ends it with
# exit code 0.  The port is one that is free.
set -u

cd "$(dirname "$0")/.." || exit 1
log=$(mktemp) || exit 1
./start.sh --port 0 >"$log" 2>&1 </dev/null &
pid=$!
trap 'kill "$pid" 2>/dev/null; rm -f "$log"' EXIT

fail() {
    printf '%s\n' "try_start: $*"
    cat "$log"
    exit 1
}

# The build was made before and the model is small: minutes are a hang.
url= tries=3000
while [ -z "$url" ]; do
    url=$(sed -n 's|.*listening on \(http://[^ /"]*\)/.*|\1|p' "$log")
    kill -0 "$pid" 2>/dev/null || fail "it ended"
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || fail "it does not listen"
    sleep 0.1
done

python3 - "$url" <<'END' || fail "no answer as expected from $url"
import json
import sys
import urllib.request

opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(path, body=None):
    request = urllib.request.Request(sys.argv[1] + path, body, {"Content-Type": "application/json"})
    with opener.open(request, timeout=120) as answer:
        return answer.read()


assert get("/health") == b""
question = {"prompt": "Once upon a time", "max_tokens": 16, "temperature": 0}
answer = json.loads(get("/v1/completions", json.dumps(question).encode()))
print(answer["choices"][0]["text"])
assert len(answer["choices"][0]["text"]) > 16, answer
assert answer["usage"]["completion_tokens"] == 16, answer
END

kill -TERM "$pid"
wait "$pid"
rc=$?
[ "$rc" = 0 ] || fail "exit code $rc after SIGTERM"
cat "$log"
