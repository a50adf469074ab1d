#!/bin/sh
# start.sh - sets up a fresh machine, builds nibble, and serves the bundled model.
#
#   ./start.sh [options]           the server with its page at http://127.0.0.1:8000/; options are
#                                  handed to `nibble serve`, such as --port 0; Ctrl-C ends it
#   ./start.sh --chat [options]    a conversation in the terminal: `nibble chat`
#   ./start.sh --story [options]   one story: `nibble run`
#   ./start.sh --build-only        stops after the build: build/release/nibble, and all that
#                                  `cmake --install build/release` installs
#   ./start.sh --with-cuda ...     also compiles the GPU part where there is nvcc but no GPU (minutes)
#
# Works from any folder and as often as you like; when nothing is to do it takes a second.
set -u

self=$0
if [ -L "$self" ]; then self=$(readlink -f "$self"); fi
root=$(cd "$(dirname "$self")" && pwd) || exit 1

build_only=no
set_cuda=
if [ "${1:-}" = --with-cuda ]; then
    set_cuda=-DNB_CUDA=ON
    shift
fi
what=serve
case ${1:-} in
--chat | --story)
    what=${1#--}
    shift
    ;;
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
# shellcheck disable=SC2086 # none or one
if ! sh "$root/tools/build.sh" release $set_cuda; then
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
case $what in
chat) exec "$nibble" chat "$model" --kv-cache-dtype nvfp4 "$@" ;;
story) exec "$nibble" run "$model" -p "Once upon a time" --echo -n 120 --kv-cache-dtype nvfp4 "$@" ;;
esac
printf '%s\n' "start.sh: serving the bundled model; the log says where, Ctrl-C ends it" >&2
exec "$nibble" serve "$model" --kv-cache-dtype nvfp4 "$@"
