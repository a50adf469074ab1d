# _browser.sh - sourced after _lib.sh: $browser, and $work with the tests and their packages; without
# Chromium, Node.js or the packages the test is skipped.
command -v node >/dev/null && command -v npm >/dev/null || skip "node or npm is not installed"
node -e 'process.exit(parseInt(process.versions.node) >= 18 ? 0 : 1)' || skip "node is older than 18"
browser=
for b in chromium chromium-browser google-chrome; do
    if command -v "$b" >/dev/null; then browser=$(command -v "$b") && break; fi
done
[ -n "$browser" ] || skip "no Chromium"

work=$src/build/web-tests
mkdir -p "$work" || die "no folder $work"
exec 9>"$work/lock"
if command -v flock >/dev/null; then flock 9; fi # for the packages only: tests run beside each other
for f in "$src"/tests/web/*.mjs "$src"/tests/web/package*.json "$src"/tests/web/.npmrc; do
    cmp -s "$f" "$work/${f##*/}" || cp "$f" "$work"/ || die "copying $f" # another may be reading what is the same
done
if ! cmp -s "$work/package-lock.json" "$work/installed"; then
    (cd "$work" && npm ci --prefer-offline --no-audit --no-fund --fetch-retries=1 >"$tmp/npm" 2>&1) ||
        skip "npm could not get playwright-core: $(grep -m 1 'npm error' "$tmp/npm")"
    cp "$work/package-lock.json" "$work/installed"
fi
exec 9>&-

# A build without the page says so as plain text; only npm or node missing can be the reason.
need_page() { grep -q -a 'Chat with the served model' "$nibble" || skip "this build has no page"; }
