#!/bin/sh
# build.sh PRESET [-DNAME=VALUE] [TARGET...] - configures and builds build/PRESET; output on stderr.
#
# A build folder that was made elsewhere (a moved or copied tree) or by a failed configuration is
# made anew.  Two at a time wait for each other where flock exists.
set -u

preset=${1:?usage: tools/build.sh PRESET [-DNAME=VALUE] [TARGET...]}
shift
set_option=
case ${1:-} in
-D*)
    set_option=$1
    shift
    ;;
esac
cd "$(dirname "$0")/.." || exit 1
dir=build/$preset
mkdir -p "$dir" || exit 1
if command -v flock >/dev/null 2>&1; then
    exec 9>"build/.$preset.lock"
    flock 9
fi

home=$(sed -n 's/^CMAKE_HOME_DIRECTORY:INTERNAL=//p' "$dir/CMakeCache.txt" 2>/dev/null)
if [ -n "$home" ] && [ "$home" != "$(pwd -P)" ] && [ "$home" != "$(pwd)" ]; then
    rm -rf "$dir"
fi
fresh=no
[ -f "$dir/build.ninja" ] || fresh=yes
if ! log=$(cmake --preset "$preset" ${set_option:+"$set_option"} 2>&1); then
    rm -rf "$dir"
    if ! log=$(cmake --preset "$preset" ${set_option:+"$set_option"} 2>&1); then
        printf '%s\n' "$log" >&2
        exit 1
    fi
fi
[ $fresh = yes ] && printf '%s\n' "$log" | sed -n '/-- nibble /,/--   command/s/^-- //p' >&2

if [ $# -gt 0 ]; then
    cmake --build "$dir" --target "$@" -- -k 0 1>&2 # every error, not the first
else
    cmake --build "$dir" -- -k 0 1>&2
fi
