# _node.sh - sourced by the tests that are written in JavaScript, after _lib.sh.
clients=$src/tests/server/clients
need "$model/config.json" "no bundled model"
command -v node >/dev/null || skip "node is missing (Debian and Ubuntu: nodejs)"
node_major=$(node -p 'process.versions.node.split(".")[0]')
[ "$node_major" -ge 20 ] || skip "node $node_major is older than 20"

# node_tests NAME...: runs clients/NAME.test.mjs from a copy, four at a time.
node_tests() {
    cp "$clients"/*.mjs "$clients"/*.lua "$clients"/*.jinja "$tmp/"
    mkdir -p "$tmp/files"
    export NB_NIBBLE=$nibble NB_MODEL=$model NB_TMP=$tmp/files
    (cd "$tmp" && node --test --test-concurrency=4 --test-reporter=spec "${@/%/.test.mjs}") || exit 1
    exit 0
}
