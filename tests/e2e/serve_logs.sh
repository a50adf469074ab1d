# serve_logs.sh - the log never stops the server: a reader that stops or goes, a full disk; the log as a file, as
# JSON, for the journal; errors of the start-up.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
PYTHONDONTWRITEBYTECODE=1 python3 "$src/tests/e2e/_serve_logs.py" "$nibble" "$model" "$tmp" 2>"$tmp/err" || die "see above"
exit 0
