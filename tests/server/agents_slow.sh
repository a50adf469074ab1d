# agents_slow.sh - Claude Code, Codex, opencode, Qwen Code and Cline against `nibble serve` with the model's output forced:
# each runs one tool call from end to end, without a network.  Their npm packages go to the build folder, once.
. "$2/tests/e2e/_lib.sh"
need "$model/config.json" "no bundled model"
forced=$(dirname "$nibble")/nibble-forced
[ -x "$forced" ] || skip "nibble-forced is not in this build"
for tool in npm node python3 unshare ip; do
    command -v "$tool" >/dev/null || skip "$tool is missing"
done
packages=$(dirname "$nibble")/agents
case $nibble in "$src"/build/*) packages=$src/build/agents ;; esac
mkdir -p "$packages"
PYTHONDONTWRITEBYTECODE=1 python3 "$src/tests/server/_agents.py" "$forced" "$model" "$tmp" "$packages"
code=$?
[ $code = 0 ] || [ $code = 77 ] || tail -n 20 "$tmp/server.log"
exit $code
