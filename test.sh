#!/bin/sh
# test.sh - sets up a fresh machine, builds, and runs every test that can run on it.
#
#   ./test.sh          what every commit must pass (.ci/run calls this)
#   ./test.sh --all    the rest too: what takes long, or needs another compiler, chip or a browser with sanitizers
#   ./test.sh --fast   the inner loop: checks, dev build, tests with the label `fast`
#
# docs/testing.md lists what runs where.
# Every stage prints one line with its seconds, on the clock and of processors; its whole output is in
# build/test-logs/, with the seconds of each test in *.xml.  The last line says
# `N passed, N failed, N skipped`: checks and single tests counted alike.  Each skip has its reason.
set -u

tier=commit
case ${1:-} in
--fast) tier=fast ;;
--all) tier=all ;;
'') ;;
*)
    printf '%s\n' "usage: ./test.sh [--fast | --all]" >&2
    exit 2
    ;;
esac

cd "$(dirname "$0")" || exit 1
logs=build/test-logs
passed=0 failed=0 skipped=0

first=$(date +%s)
finish() {
    processor_seconds
    printf '%s\n' "$(($(date +%s) - first)) seconds, $cpu of processors"
    printf '%s\n' "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
    exit
}
# Seconds that processes started here have taken of processors so far; called without a subshell, which has none.
processor_seconds() {
    times >"$logs/times"
    cpu=$(awk 'NR == 2 { gsub(/[ms]/, " "); printf "%d", $1 * 60 + $2 + $3 * 60 + $4 }' "$logs/times")
}
begin() {
    started=$(date +%s)
    processor_seconds
    cpu_before=$cpu
}
result() {
    processor_seconds
    printf '%-5s %s (%s s, %s of processors)\n' "$1" "$2" $(($(date +%s) - started)) $((cpu - cpu_before))
}
skip() {
    skipped=$((skipped + 1))
    printf '%-5s %s: %s\n' skip "$1" "$2"
}

# stage NAME COMMAND...: one check; exit code 77 means skipped, the last line being the reason.
stage() {
    name=$1
    log=$logs/$(printf '%s' "$name" | tr -c 'a-zA-Z0-9' '-').log
    shift
    begin
    "$@" >"$log" 2>&1 </dev/null
    rc=$?
    if [ $rc -eq 0 ]; then
        passed=$((passed + 1))
        result ok "$name"
    elif [ $rc -eq 77 ]; then
        skip "$name" "$(tail -n 1 "$log")"
    else
        failed=$((failed + 1))
        result FAIL "$name"
        # Of a build the errors; of anything else the end.
        if ! grep -E -A 4 '^FAILED:|: (fatal )?error:|undefined reference' "$log" | grep -v '^/.*/cc ' |
            cut -c 1-200 | head -n 60 | sed 's/^/      /' | grep .; then
            tail -n 40 "$log" | sed 's/^/      /'
        fi
        printf '      (all of it: %s)\n' "$log"
    fi
    return $rc
}

# tests NAME PRESET [ctest arguments]: runs them and counts each.
tests() {
    name=$1 preset=$2
    shift 2
    log=$logs/$(printf '%s' "$name" | tr -c 'a-zA-Z0-9' '-').log
    junit=${log%.log}.xml
    begin
    rm -f "$junit"
    ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure --no-tests=ignore \
        --output-junit "$PWD/$junit" "$@" >"$log" 2>&1 </dev/null
    counts=$(python3 tools/count_tests.py "$junit" "$name" 2>>"$log" 3>"$logs/notes")
    rc=$?
    cat "$logs/notes"
    if [ $rc -ne 0 ]; then
        failed=$((failed + 1))
        result FAIL "$name: ctest did not finish"
        tail -n 20 "$log" | sed 's/^/      /'
        return
    fi
    # shellcheck disable=SC2086 # three numbers
    set -- $counts
    passed=$((passed + $1)) failed=$((failed + $2)) skipped=$((skipped + $3))
    if [ "$2" -gt 0 ]; then
        result FAIL "$name: $1 passed, $2 failed, $3 skipped"
        sed -n '/^The following tests FAILED/,$!p' "$log" | grep -v -E 'Passed|Start ' |
            tail -n 120 | sed 's/^/      /'
        printf '      (all of it: %s)\n' "$log"
    else
        result ok "$name: $1 passed, $3 skipped"
    fi
}

mkdir -p $logs || exit 1
begin
if ! sh tools/setup.sh test; then
    failed=1
    finish
fi
result ok "set-up"
jobs=$(($(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) + 1)) # some tests wait most of their time

stage "include table" python3 tools/check_includes.py
stage "size caps" python3 tools/check_sizes.py
stage "text" python3 tools/check_text.py
stage "scripts" python3 tools/check_scripts.py
stage "headers compile alone" python3 tools/check_headers.py
stage "checks can fail" sh tools/selftest.sh

if stage "build dev" sh tools/build.sh dev; then
    stage "global symbols" python3 tools/check_symbols.py build/dev
    if [ $tier = fast ]; then
        tests "dev tests (fast)" dev -L fast
        finish
    fi
    stage "instruction sets, dev" python3 tools/check_isa.py build/dev
    tests "dev tests" dev -LE 'slow|all'
    if [ $tier = all ]; then
        tests "dev tests, the rest" dev -L 'slow|all'
        stage "levels, each as its processor" sh tools/check_levels.sh build/dev
    fi
fi
[ $tier = fast ] && finish

# The sanitizers have to work here at all: some kernels and containers refuse their memory layout.
probe() {
    printf 'int main(void) { return 0; }\n' >"$logs/probe.c"
    ${CC:-cc} "-fsanitize=$1" -o "$logs/probe" "$logs/probe.c" >"$logs/probe.log" 2>&1 &&
        "$logs/probe" >>"$logs/probe.log" 2>&1
}

if probe address,undefined; then
    stage "build asan" sh tools/build.sh asan test-programs && tests "asan tests" asan -LE 'slow|all'
    if [ $tier = all ]; then
        # With the emulated GPU: the code of the host around it.
        stage "build asan, all" sh tools/build.sh asan -DNB_CUDA_EMU=ON &&
            tests "asan tests, the rest" asan -L 'all|cuda' -LE slow
    fi
else
    skip "asan" "AddressSanitizer does not work here: $(tail -n 1 "$logs/probe.log")"
fi

if probe thread; then
    if stage "build tsan" sh tools/build.sh tsan nibble-unit; then
        tests "tsan tests" tsan -L unit -L threads -LE all -E '^test_promises_engine$'
        [ $tier = all ] && tests "tsan tests, the rest" tsan -R '^test_promises_engine$'
    fi
else
    skip "tsan" "ThreadSanitizer does not work here: $(tail -n 1 "$logs/probe.log")"
fi

# AVX-512 and AMX kernels on any machine with AVX2 (tests/emu).
case $(uname -m) in
x86_64 | amd64)
    if stage "build emu" sh tools/build.sh emu nibble-check test_emu nibble-unit; then
        stage "instruction sets, emu" python3 tools/check_isa.py build/emu
        tests "emu tests" emu -R '^(check_emulated|check_self_test|test_emu|test_invariance)$'
        [ $tier = all ] && tests "emu tests, the rest" emu -R '^check_emulated_rest'
    fi
    ;;
*) skip "emu" "AVX-512 and AMX are emulated on AVX2, which $(uname -m) does not have" ;;
esac

if [ $tier = all ]; then
    if command -v clang >/dev/null 2>&1; then
        stage "build clang" sh tools/build.sh clang
    else
        skip "build clang" "clang is not installed"
    fi
    # The variants for AArch64, cross-compiled and emulated.
    stage "kernels for AArch64" sh tools/check_arm.sh
    # What every variant computes on the parity checkpoints runs through; compared with --against COMMIT only.
    stage "hashes of results" sh -c 'sh tests/hashes.sh --quick >build/test-logs/hashes.txt &&
        ! grep "failed:" build/test-logs/hashes.txt && wc -l <build/test-logs/hashes.txt'
    # The GPU library with the real compiler, and what needs a GPU.
    stage "GPU library" sh tools/check_cuda.sh
    stage "tests on a GPU" sh tests/gpu.sh
fi

# The other command of the README, last, so that it finds everything installed.
if stage "start.sh --build-only" ./start.sh --build-only; then
    stage "instruction sets, release" python3 tools/check_isa.py build/release
    if [ -f models/nibble-tiny/config.json ] && [ -x build/release/nibble ]; then
        stage "start.sh serves" sh tools/try_start.sh
        stage "start.sh writes a story" ./start.sh --story -n 16
        stage "install and package" sh tools/check_install.sh
    else
        skip "start.sh serves" "no bundled model or no command in this tree"
        skip "start.sh writes a story" "no bundled model or no command in this tree"
        skip "install and package" "no bundled model or no command in this tree"
    fi
fi
finish
