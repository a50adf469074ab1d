#!/bin/sh
# check_levels.sh BUILD - runs the kernel checker on processors that have no more than a level: qemu-user
# as a Nehalem for `c`, as a Haswell for `avx2`.  An instruction of a newer level that leaked dies there.
#
# Each operation gets a few seconds: cases repeat the same code.  On the Nehalem every case has to
# pass.  On the Haswell only illegal instructions count: masked loads beside a guard page fault in
# some versions of qemu, not on hardware.  Exit code 77: no qemu-user here.
set -u

build=${1:?usage: tools/check_levels.sh BUILD}
seconds=4
case $(uname -m) in
x86_64 | amd64) ;;
*)
    echo "check_levels: skipped: no levels for $(uname -m)"
    exit 77
    ;;
esac
qemu=$(command -v qemu-x86_64 || command -v qemu-x86_64-static) || {
    echo "check_levels: skipped: qemu-user is not installed"
    exit 77
}
check=$build/nibble-check
[ -x "$check" ] || {
    echo "check_levels: $check does not exist: build first"
    exit 1
}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

ops=$("$check" --list-tests) || exit 1
for pair in c:Nehalem avx2:Haswell; do
    for op in $ops; do echo "${pair%%:*} ${pair##*:} $op"; done
done >"$tmp/jobs"
# shellcheck disable=SC2016 # expanded by the inner shell
xargs -P "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)" -n 3 sh -c '
    timeout '"$seconds"' "$0" -cpu "$5" "$1" --test "$6" --caps "$4" >"$2/$4-$6.log" 2>"$2/$4-$6.err"
    echo "exit code $?" >>"$2/$4-$6.log"' "$qemu" "$check" "$tmp" - <"$tmp/jobs"

bad=0 n=0
for log in "$tmp"/*.log; do
    n=$((n + 1))
    name=$(basename "$log" .log)
    wrong=$(grep -h 'signal 4 \|Illegal instruction\|uncaught target signal' "$log" "${log%.log}.err")
    case $name in
    c-*) wrong=$wrong$(grep '^FAIL' "$log") ;;
    esac
    # Cut short (124) is fine; an early end without a verdict is not.
    grep -q '^exit code \(0\|1\|124\)$' "$log" || wrong="$wrong $(tail -n 1 "$log")"
    grep -q '^machine: ' "$log" || wrong="$wrong did not start"
    if [ -n "$wrong" ]; then
        bad=$((bad + 1))
        echo "check_levels: $name: $wrong" | head -n 5
    fi
done
echo "check_levels: $n operations at a level, $bad with an instruction beyond it"
[ "$bad" -eq 0 ] && [ "$n" -gt 0 ]
