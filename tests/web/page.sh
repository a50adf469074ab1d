#!/bin/bash
# The page in a browser: page.sh NIBBLE SOURCE_DIR.  Needs Chromium, Node.js 18 and npm (for
# playwright-core and axe-core, kept in build/web-tests); without them it is skipped.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
. "$2/tests/web/_browser.sh"
need_page

# Types are checked here and not in every build; web/ is built in a folder of the build.
for dir in "$src/build/web/page" "$(dirname "$nibble")/web/page"; do
    if [ -f "$dir/node_modules/typescript/bin/tsc" ]; then
        (cd "$dir" && node node_modules/typescript/bin/tsc --noEmit) >"$tmp/err" 2>&1 || die "types: $(head -n 20 "$tmp/err")"
        break
    fi
done
cd "$work" || die "no folder $work"
node page_test.mjs "$nibble" "$model" "$browser" ${NB_SCREENSHOTS:+"$NB_SCREENSHOTS"}
