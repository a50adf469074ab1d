# tools_model.sh - the bundled model that calls tools, through the server and examples/agent.mjs.
. "$2/tests/e2e/_lib.sh"
need "$src/models/nibble-tools/config.json" "no bundled model with tools"
PYTHONDONTWRITEBYTECODE=1 python3 "$src/tests/e2e/_tools_model.py" "$nibble" "$src/models/nibble-tools" "$tmp" \
    "$src/examples/agent.mjs" 2>"$tmp/err" || die "see above"
exit 0
