# serve_ranks.sh - `nibble serve` on several ranks: the same answers, and what clients get when a rank fails.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
forced=$(dirname "$nibble")/nibble-forced
[ -x "$forced" ] || skip "nibble-forced is not in this build"
PYTHONDONTWRITEBYTECODE=1 python3 "$src/tests/e2e/_serve_ranks.py" "$forced" "$model" "$tmp" 2>"$tmp/err" || die "see above"
exit 0
