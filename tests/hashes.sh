#!/bin/sh
# hashes.sh [--quick] [--against COMMIT] - what the parity checkpoints and the bundled model compute, as hashes.
#
# Logits of a prompt, logits of generated tokens and bytes of the cache, for each cache format, form of attention and
# instruction set level that runs here (avx512 and amx also emulated, on any machine with AVX2); on a machine with a
# GPU and a build in build/cuda also on the GPU.  Prints the lines; with --against, builds that commit beside this
# tree and prints the lines that differ instead: exit code 1 when there are any.  For a change that must
# not change a result.
set -u
cd "$(dirname "$0")/.." || exit 1
quick= against=
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=--quick ;;
    --against) against=${2:?--against needs a commit} && shift ;;
    *) sed -n '2s/^# //p' "$0" >&2 && exit 2 ;;
    esac
    shift
done

# hashes_of TREE: builds it and prints its lines.
hashes_of() (
    cd "$1" || exit 1
    sh tools/build.sh dev nibble-hashes >&2 || exit 1
    models=
    for f in tests/parity/*/expected.safetensors; do models="$models $(dirname "$f")"; done
    # shellcheck disable=SC2086 # lists of words
    {
        build/dev/nibble-hashes $quick $models || echo "nibble-hashes failed: $?"
        build/dev/nibble-hashes --quick models/nibble-tiny || echo "nibble-hashes failed: $?"
    } 2>/dev/null
    case $(uname -m) in
    x86_64 | amd64)
        sh tools/build.sh emu nibble-hashes >&2 || exit 1
        # shellcheck disable=SC2086
        build/emu/nibble-hashes $quick --caps avx512,amx $models 2>/dev/null | sed 's/^/emulated /'
        ;;
    esac
    if [ -x build/cuda/nibble-hashes ]; then
        # shellcheck disable=SC2086
        build/cuda/nibble-hashes $quick --cuda build/cuda/libnibble-cuda.so $models 2>/dev/null
    fi
)

if [ -z "$against" ]; then
    hashes_of .
    exit
fi
other=build/hashes-tree
rm -rf "$other"
git worktree prune
git worktree add -q --detach "$other" "$against" || exit 1
hashes_of "$other" >build/hashes.before
hashes_of . >build/hashes.after
git worktree remove --force "$other"
n=$(wc -l <build/hashes.after)
if [ "$n" -gt 0 ] && diff build/hashes.before build/hashes.after; then
    echo "$n lines, all the same as at $against"
else
    echo "hashes.sh: results differ from those at $against, see above" >&2
    exit 1
fi
