# serve_start.sh - `nibble serve` as a process: start-up log, health, completions, metrics, SIGTERM once
# and twice, Unix socket, API keys, TLS, configuration file, memory, few file descriptors.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
PYTHONDONTWRITEBYTECODE=1 python3 "$src/tests/e2e/_serve.py" "$nibble" "$model" "$tmp" 2>"$tmp/err" || die "see above"
exit 0
