# serve_values.sh - extreme numbers in every numeric field: an answer or a 400, never a 500, and a healthy server.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
PYTHONDONTWRITEBYTECODE=1 python3 "$src/tests/e2e/_serve_values.py" "$nibble" "$model" "$tmp" 2>"$tmp/err" || die "see above"
exit 0
