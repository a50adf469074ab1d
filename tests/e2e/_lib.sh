# _lib.sh - sourced by the end-to-end tests: . "$2/tests/e2e/_lib.sh"
# After it: $nibble, $src, $tmp (removed at the end), $model (the bundled model's folder).
set -u
nibble=${1:?usage: $0 NIBBLE SOURCE_DIR}
src=${2:?usage: $0 NIBBLE SOURCE_DIR}
case $nibble in /*) ;; *) nibble=$PWD/$nibble ;; esac
model=$src/models/nibble-tiny
test_name=$(basename "$0" .sh)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

die() {
    printf '%s: %s\n' "$test_name" "$*"
    if [ -s "$tmp/err" ]; then
        printf -- '--- stderr\n'
        tail -n 20 "$tmp/err"
    fi
    exit 1
}
skip() {
    printf '%s: skipped: %s\n' "$test_name" "$*"
    exit 77
}

# need FILE WHY: without it the test is skipped.
need() { [ -e "$1" ] || skip "$2 ($1 is missing)"; }

# ok ARGUMENTS...: nibble must succeed; stdout is in $tmp/out, stderr in $tmp/err.
ok() {
    "$nibble" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null || die "exit code $? of: nibble $*"
}

# fails CODE WORDS ARGUMENTS...: nibble must exit with CODE, print nothing on stdout, and say in its
# error, which is one line, all of WORDS.
fails() {
    local code=$1 words=$2 rc=0 word
    shift 2
    "$nibble" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null || rc=$?
    [ "$rc" = "$code" ] || die "exit code $rc, expected $code, of: nibble $*"
    [ -s "$tmp/out" ] && die "an error printed on stdout: nibble $*"
    for word in $words; do
        grep -qF -- "$word" "$tmp/err" || die "the error does not name $word: nibble $*"
    done
    if [ "$code" = 1 ] && [ "$(grep -c . "$tmp/err")" != 1 ]; then
        die "the error is not one line: nibble $*"
    fi
}

# small_memory: from here on 2 GB of addresses, more than a small model needs.  AddressSanitizer reserves terabytes.
small_memory() { grep -qa __asan_init "$nibble" || ulimit -v 2000000 || die "no limit of memory"; }

# same CASE: $tmp/out equals tests/e2e/<name>.<case>.exact byte for byte.
same() {
    local exact=$src/tests/e2e/$test_name.$1.exact
    if [ -n "${NB_SET_EXACT:-}" ]; then
        cp "$tmp/out" "$exact"
        return
    fi
    [ -e "$exact" ] || die "$exact is missing (NB_SET_EXACT=1 writes it)"
    diff -u "$exact" "$tmp/out" || die "output of case $1 differs"
}

# json FILE EXPRESSION: prints the value of a Python expression over the parsed file, named j.
json() {
    python3 -c 'import json, sys
j = json.load(open(sys.argv[1], encoding="utf-8"))
print(eval(sys.argv[2]))' "$1" "$2"
}
