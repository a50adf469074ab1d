# serve_nodes.sh - `nibble serve` as two processes (--nnodes 2) on loopback: the bits of one, and what happens when they do
# not fit, or one of them ends.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
PYTHONDONTWRITEBYTECODE=1 python3 "$src/tests/e2e/_serve_nodes.py" "$nibble" "$model" "$tmp" 2>"$tmp/err" || die "see above"
exit 0
