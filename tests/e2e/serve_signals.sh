# serve_signals.sh - signals of a server: during its start, reloading keys, certificates and log, draining, a terminal
# that goes away.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
PYTHONDONTWRITEBYTECODE=1 python3 "$src/tests/e2e/_serve_signals.py" "$nibble" "$model" "$tmp" 2>"$tmp/err" || die "see above"
exit 0
