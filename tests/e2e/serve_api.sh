# serve_api.sh - the API of `nibble serve`: answers, streams, refusals, clients that leave, overload.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
python3 "$src/tests/e2e/_serve_api.py" "$nibble" "$model" 2>"$tmp/err" || die "see above"
exit 0
