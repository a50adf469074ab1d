# deploy.sh - the files of deploy/ and the Containerfiles: they parse, name metrics, paths and options that the
# server has, and agree with each other.
. "$2/tests/e2e/_lib.sh"
need "$model/config.json" "no bundled model"
python3 -c 'import yaml' 2>/dev/null || skip "there is no yaml for Python"
PYTHONDONTWRITEBYTECODE=1 NB_SOURCE_DIR="$src" python3 "$src/tests/e2e/_deploy.py" "$nibble" "$model" "$tmp" 2>"$tmp/err" || die "see above"
exit 0
