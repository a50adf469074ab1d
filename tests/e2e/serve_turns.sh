# serve_turns.sh - a chat of four turns: the next turn finds the whole history in the cache, and every answer is
# that of a server without a prefix cache; some cache formats, a CPU and an emulated GPU.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
emu="$(dirname "$1")/libnibble-cuda-emu.so"
[ -f "$emu" ] || emu=
PYTHONDONTWRITEBYTECODE=1 NB_EMU="$emu" python3 "$src/tests/e2e/_serve_turns.py" "$nibble" "$model" "$tmp" 2>"$tmp/err" || die "see above"
exit 0
