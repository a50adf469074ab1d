# clients.sh - clients of others against `nibble serve`: the npm packages openai, @anthropic-ai/sdk, ai and
# compatcanary, and every answer against OpenAI's OpenAPI document where that is at hand.
# The packages go to the build folder, once; without network, npm or node the test is skipped.
. "$2/tests/e2e/_lib.sh"
. "$2/tests/server/_node.sh"

command -v npm >/dev/null || skip "npm is missing (Debian and Ubuntu: npm)"

# One folder for all presets of the tree; a lock keeps builds apart.
packages=$(dirname "$nibble")/clients
case $nibble in "$src"/build/*) packages=$src/build/clients ;; esac
mkdir -p "$packages" 2>/dev/null && [ -w "$packages" ] || packages=$tmp/packages
mkdir -p "$packages"
lock=$(sha256sum "$clients/package-lock.json" | cut -d' ' -f1)
(
    if command -v flock >/dev/null; then flock 9; fi
    [ "$(cat "$packages/lock.sha256" 2>/dev/null)" = "$lock" ] && [ -d "$packages/node_modules" ] && exit 0
    rm -f "$packages/lock.sha256"
    cp "$clients/package.json" "$clients/package-lock.json" "$clients/.npmrc" "$packages/" || exit 1
    (cd "$packages" && timeout 150 npm ci --prefer-offline --ignore-scripts --loglevel=error \
        --fetch-retries=1 --fetch-timeout=30000) >"$tmp/npm" 2>&1 || exit 1
    echo "$lock" >"$packages/lock.sha256"
) 9>"$packages/lock" || skip "npm could not get the packages: $(grep -m1 . "$tmp/npm" 2>/dev/null)"
ln -s "$packages/node_modules" "$tmp/node_modules"

if [ -z "${NB_OPENAI_OPENAPI:-}" ]; then
    data=${NB_DATA_DIR:-$src/../shared/data}
    export NB_OPENAI_OPENAPI=$data/openai-openapi/openapi.yaml
fi
node_tests openai anthropic ai compatcanary schema forced
