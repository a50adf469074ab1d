# serve_keys.sh - which requests need a key, and which origins and hosts are refused: every route, with and
# without keys.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
PYTHONDONTWRITEBYTECODE=1 python3 "$src/tests/e2e/_serve_keys.py" "$nibble" "$model" "$tmp" 2>"$tmp/err" || die "see above"
exit 0
