#!/bin/sh
# gpu.sh [BUILD] - everything that needs one GPU (several: gpu2.sh), on a machine that has one: checks, then times.
#
#   tests/gpu.sh              builds the preset `cuda` first
#   tests/gpu.sh BUILD        a folder that was built before: nibble, nibble-check, nibble-parity and
#                             libnibble-cuda.so are in it; nothing is compiled
#
# Checks run as many at a time as there are processors, since their references on the CPU take the time;
# what is timed runs alone.  One line per step with its seconds, all output in BUILD/gpu-logs; at the end times
# and a verdict.  Takes less than 8 minutes: every step has a limit, and all of them a common one.  Without
# a GPU: the reason, and exit code 77.
set -u
cd "$(dirname "$0")/.." || exit 1

# ---- one of the things that run side by side: gpu.sh --one WHAT BUILD SECONDS END THING ----------------
# END, in seconds since 1970: nothing runs longer, so that nothing is left beside what comes next.
# Leaves its output in gpu-logs/WHAT and one line of outcome on standard output: ok, FAIL, late (its time
# was over), tie (other tokens, as likely) or none (not supported).

ids='[1,5,9,33,17,60,2,8,44,12,7,31,3,99,21,40,11,6,25,90]'

tokens_of() { # DEVICE OPTION...: greedy tokens of $model in $dtype
    device=$1
    shift
    timeout -k 5 "$limit" "$build/nibble" run "$model" --skip-tokenizer-init --tokens "$logs/ids.json" -n 24 --temperature 0 \
        --json --kv-cache-dtype "$dtype" --activation-dtype float --device "$device" --cuda-library "$library" "$@"
}

# Other tokens are a fault unless two were as likely, to what both may differ by (parity.c: 0.05 with BF16
# pages; 4 bits can round a value to the next code).
tie() {
    bound=0.05
    [ "$dtype" = auto ] || bound=0.2
    tokens_of cpu --logprobs 20 >"$log.cpu" 2>&1 && tokens_of cuda --logprobs 20 >"$log.cuda" 2>&1 &&
        python3 tests/near_tie.py $bound "$log.cpu" "$log.cuda" >>"$log" 2>&1
}

# The case of a row that a sanitizer looks at: 512 + 64 values, 16 or 128 heads; else the first ones.
every_of() {
    case $1:$2 in
    memcheck:*wgmma_few) echo 40 ;; # eight cases take more than 85 s
    memcheck:*) echo 13 ;;
    *:*wgmma_many) echo 44 ;;
    *:cuda_mla_*) echo 40 ;;
    *) echo 60 ;;
    esac
}

one() {
    what=$1 build=$2 limit=$3 left=$(($4 - $(date +%s))) thing=$5
    [ "$left" -ge 2 ] || return 0
    [ "$limit" -le "$left" ] || limit=$left
    library=$build/libnibble-cuda.so logs=$build/gpu-logs
    log=$logs/$what/$(printf '%s' "$thing" | tr -c 'a-zA-Z0-9_' '-').log
    case $what in
    check) timeout -k 5 "$limit" "$build/nibble-check" --cuda "$library" --function "$thing" >"$log" 2>&1 ;;
    memcheck | racecheck)
        guard=
        [ "$what" = memcheck ] && guard=--guard
        timeout -k 5 "$limit" compute-sanitizer --tool "$what" --error-exitcode 9 --print-limit 5 \
            "$build/nibble-check" --cuda "$library" --function "$thing" --every "$(every_of "$what" "$thing")" $guard >"$log" 2>&1
        ;;
    parity)
        NB_TEST_CUDA=$library timeout -k 5 "$limit" "$build/nibble-parity" "$thing" >"$log" 2>&1
        rc=$?
        [ $rc -ne 0 ] && grep -q 'supported on the CPU only' "$log" && echo "none $thing" && return
        (exit $rc)
        ;;
    tokens)
        model=${thing%:*} dtype=${thing##*:}
        want=$(tokens_of cpu 2>"$log") || {
            grep -q 'not support' "$log" && echo "none $thing" && return
            echo "FAIL $thing" && return
        }
        got=$(tokens_of cuda 2>&1)
        case $got in *'supported on the CPU only'*) echo "none $thing" && return ;; esac
        if [ "$got" != "$want" ]; then
            printf '%s\n' "differ: $thing" "  cpu  $want" "  cuda $got" >"$log"
            tie && echo "tie $thing" && return
            false
        fi
        ;;
    esac
    case $? in
    0) echo "ok $thing" ;;
    124 | 137) echo "late $thing" ;;
    *) echo "FAIL $thing" ;;
    esac
}
if [ "${1:-}" = --one ]; then
    shift
    one "$@"
    exit
fi

# ---- a GPU, a build --------------------------------------------------------------------------------

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
printf '%s' "$ids" >"$logs/ids.json"
jobs=$(nproc 2>/dev/null || echo 4)
[ "$jobs" -le 16 ] || jobs=16 # each has a context on the GPU
printf '%s\n' "GPU: $gpu; built in $(($(date +%s) - t0)) s; $jobs processes"
end=$((t0 + 470))
passed=0 failed=0 skipped=0

# ---- steps -------------------------------------------------------------------------------------------

# step NAME SECONDS FUNCTION...: exit code 77 means skipped, the last line being the reason.
step() {
    name=$1 limit=$2 log=$logs/$(printf '%s' "$1" | tr -c 'a-zA-Z0-9' '-').log
    shift 2
    from=$(date +%s)
    [ "$limit" -le $((end - from)) ] || limit=$((end - from))
    if [ "$limit" -lt 5 ]; then
        echo "no time is left for it" >"$log"
        rc=77
    else
        "$@" >"$log" 2>&1 </dev/null
        rc=$?
    fi
    took=$(($(date +%s) - from))
    case $rc in
    0)
        passed=$((passed + 1))
        printf 'ok    %-34s %3s s  %s\n' "$name" "$took" "$(tail -n 1 "$log" | cut -c 1-100)"
        ;;
    77)
        skipped=$((skipped + 1))
        printf 'skip  %-34s %3s s  %s\n' "$name" "$took" "$(tail -n 1 "$log" | cut -c 1-120)"
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

# side_by_side WHAT SECONDS: lines of standard input, each a call of `one`; what is wrong with each, and a count.
# Whatever is not through after $limit seconds is late; nothing runs longer than SECONDS.
side_by_side() {
    mkdir -p "$logs/$1"
    cat >"$logs/$1/all"
    xargs -P "$jobs" -n 1 sh tests/gpu.sh --one "$1" "$build" "$2" $((from + limit)) <"$logs/$1/all" >"$logs/$1/outcomes"
    n=$(grep -c . "$logs/$1/all") good=$(grep -c '^ok ' "$logs/$1/outcomes")
    none=$(grep -c '^none ' "$logs/$1/outcomes") bad=$(grep -c '^FAIL ' "$logs/$1/outcomes")
    tied=$(grep -c '^tie ' "$logs/$1/outcomes")
    for thing in $(sed -n 's/^FAIL //p' "$logs/$1/outcomes"); do
        echo "FAIL $thing"
        f=$logs/$1/$(printf '%s' "$thing" | tr -c 'a-zA-Z0-9_' '-').log
        grep -E '^FAIL|=========|differ|cpu|cuda' "$f" | head -n 4
    done
    late=$((n - good - none - bad - tied))
    [ $late -eq 0 ] || echo "not through: $(sed -n 's/^late //p' "$logs/$1/outcomes" | tr '\n' ' ')"
    [ "$tied" -eq 0 ] || echo "tied: $(sed -n 's/^tie //p' "$logs/$1/outcomes" | tr '\n' ' ')"
    echo "$good of $((n - none)) without a fault, $bad with, $late not through in their time$([ "$tied" -eq 0 ] || echo ", $tied tied")"
    [ "$bad" -eq 0 ] || return 1
    [ "$good" -gt 0 ] || return 1
    # a sanitizer may be too slow for a case; anything else must come to its end
    case $1 in memcheck | racecheck) return 0 ;; esac
    [ $late -eq 0 ]
}

rows() { "$build/nibble-check" --cuda "$library" --list | sed -n 's/^\(cuda_[a-z0-9_]*\) .*/\1/p'; }

# Products and attention first: they take longest.
check() { rows | sort -r | side_by_side check 140; }

sanitize() { # TOOL SECONDS
    if ! command -v compute-sanitizer >/dev/null 2>&1; then
        echo "compute-sanitizer is not in PATH"
        return 77
    fi
    # racecheck reports hazards where there are none (lab/hopper/racecheck_probe.cu): where halves of a block pass
    # barriers of their own three times more often than each other, as in Thrift's attention, and in kernels
    # with wgmma and copies by TMA, cuBLASLt's own (nvjet) among them.  Such rows are not asked.
    if [ "$1" = racecheck ]; then
        rows | grep -v '_wgmma_few$\|_wgmma_many$\|_cublaslt$\|^cuda_thrift' | sort -r | side_by_side "$1" "$2"
    else
        rows | sort -r | side_by_side "$1" "$2"
    fi
}

self_test() { timeout -k 5 "$limit" "$build/nibble-check" --cuda "$library" --self-test; }

parity() { for f in tests/parity/*/expected.safetensors; do dirname "$f"; done | side_by_side parity 20; }

# The same greedy tokens on both, from every checkpoint of the parity tests and the bundled model.
same_tokens() {
    for config in tests/parity/*/config.json models/nibble-tiny/config.json; do
        dtypes="auto nvfp4"
        grep -q '"index_topk"' "$config" && dtypes=f32 # what a cache rounds changes choices of tokens, and these whole tokens
        for dtype in $dtypes; do echo "$(dirname "$config"):$dtype"; done
    done | side_by_side tokens 20
}

# Every published form of quantised weights.
packed_weights() {
    NB_TEST_CUDA=$(cd "$(dirname "$library")" && pwd)/$(basename "$library") timeout -k 5 "$limit" \
        bash tests/e2e/weight_forms.sh "$build/nibble" "$PWD"
}

kernel_times() {
    timeout -k 5 "$limit" "$build/nibble" bench kernel --device cuda --cuda-library "$library" --kv-cache-dtype bf16,fp8,nvfp4,if4
}

# DeepSeek-V2-Lite's shape: a user alone, 64 users, a prompt.
whole_steps() {
    timeout -k 5 "$limit" "$build/nibble" bench throughput bench/gpu/v2lite.json --load-format dummy --device cuda \
        --cuda-library "$library" --kv-cache-dtype nvfp4 --depth 4k,32k --depth-batch 1,64 --depth-prefill 8192
}

step "checker, every case" 150 check
step "checker finds planted bugs" 60 self_test
step "parity checkpoints on the GPU" 40 parity
step "tokens of GPU and CPU" 40 same_tokens
step "packed weights" 100 packed_weights
step "memcheck" 100 sanitize memcheck 95
step "times beside the roofline" 100 kernel_times
step "whole steps" 60 whole_steps
if [ -x "$build/flashmla" ]; then # bench/peer/flashmla.sh --build-only makes it
    step "beside FlashMLA" 60 timeout -k 5 60 "$build/flashmla" --cuda-library "$library" --rounds 1
fi

# Last: what is cut short goes on for some seconds, beside whatever would be timed.
step "racecheck" 100 sanitize racecheck 95

for log in "$logs/times-beside-the-roofline.log" "$logs/whole-steps.log" "$logs/beside-FlashMLA.log"; do
    [ -s "$log" ] && cat "$log"
done
printf '%s\n' "$passed passed, $failed failed, $skipped skipped in $(($(date +%s) - t0)) s; logs: $logs"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
