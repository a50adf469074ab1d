#!/bin/bash
# The page in a browser: page.sh NIBBLE SOURCE_DIR.  Needs Chromium, Node.js 18 and npm (for
# playwright-core and axe-core, kept in build/web-tests); without them it is skipped.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
command -v node >/dev/null && command -v npm >/dev/null || skip "node or npm is not installed"
node -e 'process.exit(parseInt(process.versions.node) >= 18 ? 0 : 1)' || skip "node is older than 18"
browser=
for b in chromium chromium-browser google-chrome; do
    if command -v "$b" >/dev/null; then browser=$(command -v "$b") && break; fi
done
[ -n "$browser" ] || skip "no Chromium"
# A build without the page says so as plain text; only npm or node missing can be the reason.
strings_of_page() { grep -q -a 'Chat with the served model' "$nibble"; }
strings_of_page || skip "this build has no page"

work=$src/build/web-tests
mkdir -p "$work" || die "no folder $work"
exec 9>"$work/lock"
if command -v flock >/dev/null; then flock 9; fi
cp "$src"/tests/web/*.mjs "$src"/tests/web/package*.json "$src"/tests/web/.npmrc "$work"/ || die "copying"
if ! cmp -s "$work/package-lock.json" "$work/installed"; then
    (cd "$work" && npm ci --prefer-offline --no-audit --no-fund --fetch-retries=1 >"$tmp/npm" 2>&1) ||
        skip "npm could not get playwright-core: $(grep -m 1 'npm error' "$tmp/npm")"
    cp "$work/package-lock.json" "$work/installed"
fi
# Types are checked here and not in every build; web/ is built in a folder of the build.
for dir in "$src/build/web/page" "$(dirname "$nibble")/web/page"; do
    if [ -f "$dir/node_modules/typescript/bin/tsc" ]; then
        (cd "$dir" && node node_modules/typescript/bin/tsc --noEmit) >"$tmp/err" 2>&1 || die "types: $(head -n 20 "$tmp/err")"
        break
    fi
done
cd "$work" || die "no folder $work"
node page_test.mjs "$nibble" "$model" "$browser" ${NB_SCREENSHOTS:+"$NB_SCREENSHOTS"}
