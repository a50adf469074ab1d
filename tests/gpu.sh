#!/bin/sh
# gpu.sh [BUILD] - everything that needs a GPU, on a machine that has one: checks, then times.
#
#   tests/gpu.sh              builds the preset `cuda` first
#   tests/gpu.sh BUILD        a folder that was built before: nibble, nibble-check, nibble-parity and
#                             libnibble-cuda.so are in it; nothing is compiled
#
# One line per step with its seconds, all output in BUILD/gpu-logs; at the end times and a verdict.  Takes
# less than 8 minutes, since every step has a limit.  Without a GPU: the reason, and exit code 77.
set -u
cd "$(dirname "$0")/.." || exit 1

no_gpu() {
    printf '%s\n' "no GPU: $*"
    exit 77
}
command -v nvidia-smi >/dev/null 2>&1 || no_gpu "nvidia-smi is not there (no driver)"
gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -n 1)
[ -n "$gpu" ] || no_gpu "the driver shows none: $(nvidia-smi -L 2>&1 | head -n 1)"

build=${1:-}
t0=$(date +%s)
if [ -z "$build" ]; then
    build=build/cuda
    sh tools/build.sh cuda nibble nibble-check nibble-parity nibble-cuda || exit 1
fi
library=$build/libnibble-cuda.so
for f in nibble nibble-check nibble-parity libnibble-cuda.so; do
    if ! [ -e "$build/$f" ]; then
        printf '%s\n' "gpu.sh: $build/$f is missing" >&2
        exit 2
    fi
done
logs=$build/gpu-logs
rm -rf "$logs"
mkdir -p "$logs" || exit 1
printf '%s\n' "GPU: $gpu; built in $(($(date +%s) - t0)) s"
passed=0 failed=0 skipped=0

# limited COMMAND...: a program that must end within the step's limit.
limited() { timeout -k 5 "$limit" "$@"; }

# step NAME SECONDS FUNCTION...: exit code 77 means skipped, the last line being the reason.
step() {
    name=$1 limit=$2 log=$logs/$(printf '%s' "$1" | tr -c 'a-zA-Z0-9' '-').log
    shift 2
    from=$(date +%s)
    "$@" >"$log" 2>&1 </dev/null
    rc=$?
    took=$(($(date +%s) - from))
    case $rc in
    0)
        passed=$((passed + 1))
        printf 'ok    %-34s %3s s  %s\n' "$name" "$took" "$(tail -n 1 "$log" | cut -c 1-100)"
        ;;
    77)
        skipped=$((skipped + 1))
        printf 'skip  %-34s %s\n' "$name" "$(tail -n 1 "$log" | cut -c 1-120)"
        ;;
    *)
        failed=$((failed + 1))
        [ $rc -eq 124 ] && echo "took more than $limit s" >>"$log"
        printf 'FAIL  %-34s %3s s  exit code %s\n' "$name" "$took" "$rc"
        grep -E '^FAIL|=========|error|expected|differ' "$log" | head -n 12 | cut -c 1-180 | sed 's/^/        /'
        tail -n 3 "$log" | cut -c 1-180 | sed 's/^/        /'
        ;;
    esac
}

sanitize() { # TOOL EVERY
    if ! command -v compute-sanitizer >/dev/null 2>&1; then
        echo "compute-sanitizer is not in PATH"
        return 77
    fi
    limited compute-sanitizer --tool "$1" --error-exitcode 9 --print-limit 5 \
        "$build/nibble-check" --cuda "$library" --guard --every "$2"
    code=$?
    [ $code -eq 124 ] || return $code
    echo "nothing found in $limit s; it was not through"
    return 77
}

tokens_of() { # DEVICE MODEL TOKENS-FILE N
    limited "$build/nibble" run "$2" --skip-tokenizer-init --tokens "$3" -n "$4" --temperature 0 --json \
        --kv-cache-dtype "$dtype" --device "$1" --cuda-library "$library"
}

# The same greedy tokens on both, from every checkpoint of the parity tests and the bundled model.
same_tokens() {
    n=0 bad=0
    printf '[1,5,9,33,17,60,2,8,44,12,7,31,3,99,21,40,11,6,25,90]' >"$logs/ids.json"
    for config in tests/parity/*/config.json models/nibble-tiny/config.json; do
        model=$(dirname "$config")
        for dtype in auto nvfp4; do
            want=$(tokens_of cpu "$model" "$logs/ids.json" 24 2>"$logs/cpu.err") || {
                grep -q 'not support' "$logs/cpu.err" && continue
                cat "$logs/cpu.err"
                bad=$((bad + 1))
                continue
            }
            got=$(tokens_of cuda "$model" "$logs/ids.json" 24 2>&1)
            n=$((n + 1))
            if [ "$got" != "$want" ]; then
                bad=$((bad + 1))
                printf '%s\n' "differ: $model $dtype" "  cpu  $want" "  cuda $got"
            fi
        done
    done
    echo "$n pairs of runs, $bad differ"
    [ $bad -eq 0 ] && [ $n -gt 0 ]
}

parity() {
    n=0 bad=0
    for f in tests/parity/*/expected.safetensors; do
        n=$((n + 1))
        NB_TEST_CUDA=$library limited "$build/nibble-parity" "$(dirname "$f")" || {
            bad=$((bad + 1))
            echo "FAIL $f"
        }
    done
    echo "$n checkpoints, $bad failed"
    [ $bad -eq 0 ] && [ $n -gt 0 ]
}

# Every 8th case of the checker: the references in double, on one core, are what takes long.
step "checker, every 8th case" 120 limited "$build/nibble-check" --cuda "$library" --every 8
step "checker finds planted bugs" 60 limited "$build/nibble-check" --cuda "$library" --self-test
step "parity checkpoints on the GPU" 20 parity
step "tokens of GPU and CPU" 20 same_tokens
step "memcheck" 40 sanitize memcheck 60
step "racecheck" 30 sanitize racecheck 120
step "times beside the roofline" 100 limited "$build/nibble" bench kernel --device cuda --cuda-library "$library" \
    --kv-cache-dtype bf16,fp8,nvfp4,if4
if [ -x "$build/flashmla" ]; then # bench/peer/flashmla.sh --build-only makes it
    step "beside FlashMLA" 60 limited "$build/flashmla" --cuda-library "$library" --rounds 1
fi

for log in "$logs/times-beside-the-roofline.log" "$logs/beside-FlashMLA.log"; do
    [ -s "$log" ] && cat "$log"
done
printf '%s\n' "$passed passed, $failed failed, $skipped skipped in $(($(date +%s) - t0)) s; logs: $logs"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
