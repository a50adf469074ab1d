#!/bin/sh
# check_arm.sh [nibble-check options] - the kernel checker for AArch64, cross-compiled and run under
# emulation: the rows of the level neon.
#
# Builds what the checker needs (src/base, os, num, kernel and tests/check), with the flags of cmake/,
# into build/arm; the libraries of the rest of nibble need not exist for AArch64.  Exit code 77:
# there is no cross-compiler or no emulator here.
#   ARM_CC, ARM_RUN   the compiler and what runs its programs
set -u
cd "$(dirname "$0")/.." || exit 1
out=build/arm
cc=${ARM_CC:-aarch64-linux-gnu-gcc}
run=${ARM_RUN:-$(command -v qemu-aarch64-static || command -v qemu-aarch64 || echo qemu-aarch64-static)}
jobs=$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)

for tool in "$cc" "$run"; do
    command -v "$tool" >/dev/null 2>&1 && continue
    echo "$tool is not installed (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static)"
    exit 77
done

# list FILE NAME: the words of `set(NAME ...)` in a file of cmake/.
list() {
    sed -n "/^set($2 /,/)/p" "cmake/$1" | tr -d '\n' | sed "s/^set($2 *//; s/).*//"
}
flags="-std=c17 -O2 -ffp-contract=off -fno-common -Werror $(list NbOptions.cmake nb_warnings)"
neon=$(list NbIsa.cmake nb_flags_neon)
posix=-D_POSIX_C_SOURCE=200809L

mkdir -p $out/gen || exit 1
sed -e 's/@NB_HAVE_NEON@/1/; s/@NB_HAVE_[A-Z0-9]*@/0/; s/@NB_EMULATED@/0/; s/@CMAKE_BUILD_TYPE@/cross/' \
    -e 's/@[A-Z_]*@//g' cmake/nb_config.h.in >$out/gen/new.h
cmp -s $out/gen/new.h $out/gen/nb_config.h || cp $out/gen/new.h $out/gen/nb_config.h

# A makefile, so that a second run compiles what has changed.
{
    printf 'CC := %s\nFLAGS := %s -Iinclude -Isrc -Itests -I%s/gen -MMD -MP\n' "$cc" "$flags" $out
    printf 'all: %s/nibble-check\n' $out
    objects=
    for f in src/base/*.c src/os/*.c src/num/*.c src/kernel/*/*.c src/sample/*.c src/dev/gpu.c tests/check/*.c; do
        extra=
        case $f in
        src/kernel/x86/* | src/kernel/cuda/*) continue ;;
        src/kernel/arm/*_neon.c) extra=$neon ;;
        src/kernel/arm/*) continue ;;
        src/os/* | tests/*) extra=$posix ;;
        esac
        o=$out/$(printf '%s' "${f%.c}" | tr / -).o
        objects="$objects $o"
        printf '%s: %s %s/Makefile\n\t$(CC) $(FLAGS) %s -c -o $@ %s\n' "$o" "$f" $out "$extra" "$f"
    done
    printf '%s/nibble-check:%s\n\t$(CC) -static -o $@ $^ -lpthread -lm\n' $out "$objects"
    printf -- '-include %s/*.d\n' $out
} >$out/new.mk
cmp -s $out/new.mk $out/Makefile || cp $out/new.mk $out/Makefile
make -f $out/Makefile -j "$jobs" -k --no-print-directory -s all || exit 1

check=$out/nibble-check
[ $# -eq 0 ] || exec "$run" $check "$@"

# The rows of this level, a few at a time.  One record type stands for attn_pages, in floats and in integers: kv_codec
# reads all.
rows=$("$run" $check --list | sed -n 's/^\([a-z0-9_]*_neon\) .*/\1/p' | grep -v '^attn_pages_')
pages="attn_pages_nvfp4_odd_neon attn_pages_nvfp4_neonint8"
[ -n "$rows" ] || { echo "no rows of the level neon"; exit 1; }
# shellcheck disable=SC2086 # lists of rows
printf '%s\n' $pages $rows |
    xargs -P "$jobs" -I ROW sh -c '"$1" "$2" --function ROW >"$2-ROW.log" 2>&1 || echo ROW' sh "$run" $check >$out/bad
for row in $pages $rows; do
    grep -E '^(ok|FAIL|skip)|usage' "$check-$row.log"
done
[ ! -s $out/bad ] || { echo "failed: $(tr '\n' ' ' <$out/bad)"; exit 1; }
