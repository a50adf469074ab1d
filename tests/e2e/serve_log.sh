# serve_log.sh - what `nibble serve` logs until it listens: the plan before the memory is allocated, the
# phases of loading, warnings that name options as they were written, refusals before weights are read.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
python3 "$src/tests/e2e/_serve_log.py" "$nibble" "$model" "$tmp" 2>"$tmp/err" || die "see above"
exit 0
