# serve_weights.sh - weight files that are truncated, overwritten or replaced under a server.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
PYTHONDONTWRITEBYTECODE=1 python3 "$src/tests/e2e/_serve_weights.py" "$nibble" "$model" "$tmp" 2>"$tmp/err" || die "see above"
exit 0
