#!/bin/bash
# The chat in a browser: chat.sh NIBBLE SOURCE_DIR.  Needs what page.sh needs.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
. "$2/tests/web/_browser.sh"
need_page
cd "$work" || die "no folder $work"
node chat_test.mjs "$nibble" "$model" "$browser" ${NB_SCREENSHOTS:+"$NB_SCREENSHOTS"}
