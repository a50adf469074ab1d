#!/bin/sh
# start.sh - sets up a fresh machine, builds nibble, and lets the bundled model speak.
#
#   ./start.sh                a conversation on a terminal; elsewhere one story is written
#   ./start.sh [options]      options are handed to `nibble chat` or `nibble run`
#   ./start.sh --build-only   stops after the build: build/release/nibble
#
# Works from any folder and as often as you like; when nothing is to do it takes a second.
set -u

self=$0
if [ -L "$self" ]; then self=$(readlink -f "$self"); fi
root=$(cd "$(dirname "$self")" && pwd) || exit 1

build_only=no
case ${1:-} in
--build-only)
    build_only=yes
    shift
    if [ $# -gt 0 ]; then
        printf '%s\n' "start.sh: --build-only takes no further arguments" >&2
        exit 2
    fi
    ;;
-h | --help)
    sed -n '2,/^set -u/s/^# \{0,1\}//p' "$root/start.sh"
    exit 0
    ;;
esac

sh "$root/tools/setup.sh" build || exit 1
if ! sh "$root/tools/build.sh" release; then
    printf '%s\n' "start.sh: the build failed, see above" >&2
    exit 1
fi
nibble=$root/build/release/nibble
if [ ! -x "$nibble" ]; then
    printf '%s\n' "start.sh: the build made no $nibble (is apps/nibble/main.c there?)" >&2
    exit 1
fi

if [ "$build_only" = yes ]; then
    printf '%s\n' "start.sh: built $nibble" >&2
    exit 0
fi

model=$root/models/nibble-tiny
if [ ! -f "$model/config.json" ]; then
    printf '%s\n' "start.sh: the bundled model is not there: $model/config.json is missing" \
        "(an incomplete clone? try: git checkout -- models)" >&2
    exit 1
fi
if [ -t 0 ] && [ -t 1 ]; then
    exec "$nibble" chat "$model" --kv-cache-dtype nvfp4 "$@"
fi
exec "$nibble" run "$model" -p "Once upon a time" --echo -n 120 --kv-cache-dtype nvfp4 "$@"
