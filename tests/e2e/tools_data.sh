# tools_data.sh - the generator of nibble-tools' training text: see _tools_data.py.
. "$2/tests/e2e/_lib.sh"
need "$model/config.json" "no bundled model"
mkdir "$tmp/m"
python3 "$src/tests/e2e/_tools_data.py" "$nibble" "$src" "$tmp/m" >"$tmp/out" 2>&1 || die "$(tail -n 5 "$tmp/out")"
