# serve_memory.sh - what large bodies take of a server's memory, and that it comes back.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
[ -z "${NB_SANITIZE:-}" ] || skip "a sanitizer keeps what was freed"
[ -r /proc/self/status ] || skip "there is no /proc"
PYTHONDONTWRITEBYTECODE=1 python3 "$src/tests/e2e/_serve_memory.py" "$nibble" "$model" "$tmp" 2>"$tmp/err" || die "see above"
exit 0
