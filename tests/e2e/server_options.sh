# server_options.sh - no option of vLLM's or SGLang's server is unknown to `nibble serve`: each is obeyed,
# ignored with a warning, or refused with the reason, and takes as many words as there.
. "$2/tests/e2e/_lib.sh"

python3 "$src/tests/e2e/_server_options.py" "$nibble" "$src/tests/data/server_options" || die "see above"
exit 0
