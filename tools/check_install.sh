#!/bin/sh
# check_install.sh [BUILD] - what `cmake --install` and the Debian package give: both are installed, used from
# another folder by the command and by programs in C and C++ (pkg-config shared and static, CMake), and removed.
#
# BUILD: a release build (default: build/release).  Nothing is downloaded.  The package is installed into a folder
# of its own; as root, and where the variable CI is set, into the system itself.
set -u
cd "$(dirname "$0")/.." || exit 1
src=$(pwd)
build=$src/build/release
[ $# -gt 0 ] && build=$(cd "$1" && pwd)
tmp=$(mktemp -d) || exit 1
trap 'clean_up' EXIT
trap 'exit 1' INT TERM
system=no # the package is in the system

clean_up() {
    [ $system = yes ] && apt_get purge nibble >/dev/null 2>&1
    rm -rf "$tmp"
}
say() { printf 'check_install: %s\n' "$*"; }
die() {
    say "$*"
    [ -s "$tmp/log" ] && tail -n 30 "$tmp/log"
    exit 1
}
quiet() { "$@" >"$tmp/log" 2>&1 || die "failed: $*"; }
have() { command -v "$1" >/dev/null 2>&1; }
apt_get() { env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"; }

# story PROGRAM ARGUMENTS...: a text of the bundled model, which each way of installing must give.
story() {
    program=$1
    shift
    "$program" run "$@" -p "Once upon a time" -n 16 --temperature 0 --no-stats
}
expected=$(cd "$tmp" && story "$build/nibble" "$src/models/nibble-tiny" 2>"$tmp/log") || die "the build does not run"
cat >"$tmp/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(use C)
find_package(nibble 0.1 REQUIRED)
foreach(kind IN ITEMS nibble static)
    add_executable(many-${kind} "${SOURCE}")
    target_compile_features(many-${kind} PRIVATE c_std_17)
    target_link_libraries(many-${kind} PRIVATE nibble::${kind})
endforeach()
message(STATUS "models: ${nibble_MODELS_DIR}")
END

# example PROGRAM MODELS SHARED: the program writes the text; whether it needs libnibble.so.0.
example() {
    (cd "$tmp" && "$1" "$2/nibble-tiny" "Once upon a time") >"$tmp/out" 2>"$tmp/log" || die "$1 does not run"
    first=$(printf '%s\n' "$expected" | head -n 1 | cut -c 1-20)
    grep -qF "$first" "$tmp/out" || die "$1 wrote: $(cat "$tmp/out")"
    needs=no
    objdump -p "$1" | grep -q 'NEEDED *libnibble.so.0' && needs=yes
    [ $needs = "$3" ] || die "$1 needs libnibble.so.0: $needs, expected: $3"
}

# find_gpu PREFIX LIBDIR: a GPU library that is installed is found from a program beside it, and from libnibble.so by
# a program elsewhere.  The library is the emulation, where the tests have built it.
find_gpu() {
    emulation=$src/build/dev/libnibble-cuda-emu.so
    [ -f "$emulation" ] && [ ! -e "$2/nibble/libnibble-cuda.so" ] || return 0
    mkdir -p "$2/nibble"
    cp "$emulation" "$2/nibble/libnibble-cuda.so"
    cat >"$tmp/gpu.c" <<'END'
#include <nibble/nibble.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    nb_error e = { 0 };
    nb_device_info d = { 0 };
    const nb_engine_options o = { .model = argv[argc - 1], .device = "cuda" };
    const nb_status st = nb_engine_find_device(&o, &d, &e);
    return puts(st == NB_OK ? d.name : e.msg) < 0 || st != NB_OK;
}
END
    # shellcheck disable=SC2046
    quiet ${CC:-cc} -std=c17 -o "$tmp/gpu" "$tmp/gpu.c" $(pkg-config --cflags --libs nibble)
    # shellcheck disable=SC2046
    quiet ${CC:-cc} -std=c17 -o "$1/bin/gpu" "$tmp/gpu.c" $(pkg-config --cflags nibble) \
        $(pkg-config --static --libs nibble | sed 's/-lnibble/-l:libnibble.a/')
    for program in "$tmp/gpu" "$1/bin/gpu"; do
        quiet "$program" nibble-tiny
    done
    rm -r "$2/nibble" "$1/bin/gpu"
    "$tmp/gpu" nibble-tiny >"$tmp/log" && die "a GPU without the library"
    grep -q "there is no libnibble-cuda.so" "$tmp/log" || die "not said that the library is missing"
}

# use PREFIX CONFIG BASE SYSCONF: an installation below PREFIX, whose configuration is in CONFIG, from other folders.
# The unit names them BASE and SYSCONF.
use() {
    prefix=$1 config=$2 work=$tmp/work
    rm -rf "$work"
    mkdir "$work" "$work/home"
    got=$(cd "$work" && story "$prefix/bin/nibble" nibble-tiny 2>"$tmp/log") || die "$prefix/bin/nibble does not run"
    [ "$got" = "$expected" ] || die "$prefix/bin/nibble wrote: $got"

    # Programs that use the library.  What the system finds by itself needs no variables.
    libdir=$(dirname "$(find "$prefix" -name libnibble.so.0)")
    cmake_prefix=
    if [ "$prefix" != /usr ]; then
        export PKG_CONFIG_PATH="$libdir/pkgconfig" LD_LIBRARY_PATH="$libdir"
        cmake_prefix=-DCMAKE_PREFIX_PATH=$prefix
    fi
    [ "$(pkg-config --modversion nibble)" = "$version" ] || die "nibble.pc: not version $version"
    models=$(pkg-config --variable=modelsdir nibble)
    for f in "$src"/examples/*.c; do
        name=$(basename "$f" .c)
        # shellcheck disable=SC2046 # lists of words
        quiet ${CC:-cc} -std=c17 -o "$work/$name-shared" "$f" $(pkg-config --cflags --libs nibble)
        # shellcheck disable=SC2046
        quiet ${CC:-cc} -std=c17 -o "$work/$name-static" "$f" $(pkg-config --cflags nibble) \
            $(pkg-config --static --libs nibble | sed 's/-lnibble/-l:libnibble.a/')
    done
    example "$work/many-shared" "$models" yes
    example "$work/many-static" "$models" no
    # shellcheck disable=SC2086
    quiet cmake -S "$tmp" -B "$work/cmake" $cmake_prefix -DSOURCE="$src/examples/many.c" -G Ninja
    quiet cmake --build "$work/cmake"
    example "$work/cmake/many-nibble" "$models" yes
    example "$work/cmake/many-static" "$models" no
    [ "$prefix" = /usr ] || find_gpu "$prefix" "$libdir"
    if have c++; then
        echo '#include <nibble/measure.h>
int main() { return nb_status_text(NB_OK) == nullptr; }' >"$work/x.cpp"
        # shellcheck disable=SC2046
        quiet c++ -Wall -Wextra -Werror -o "$work/x" "$work/x.cpp" $(pkg-config --cflags --libs nibble)
        quiet "$work/x"
    fi
    unset PKG_CONFIG_PATH LD_LIBRARY_PATH

    # Manual, completions, service, licences.
    for f in nibble.1 nibble-serve.1 nibble-eval-kl.1; do
        [ -s "$prefix/share/man/man1/$f" ] || [ -s "$prefix/share/man/man1/$f.gz" ] || die "no $f in $prefix"
    done
    have man && quiet man -M "$prefix/share/man" nibble-serve
    quiet bash -n "$prefix/share/bash-completion/completions/nibble"
    have zsh && quiet zsh -n "$prefix/share/zsh/site-functions/_nibble"
    have fish && quiet env HOME="$work/home" fish -n "$prefix/share/fish/vendor_completions.d/nibble.fish"
    for f in LICENSE THIRD-PARTY.md examples/many.c; do
        [ -s "$prefix/share/doc/nibble/$f" ] || die "no $f in $prefix/share/doc/nibble"
    done
    if ! grep -q 'generated: no page' "$build/gen/page_files.c"; then
        [ -s "$prefix/share/doc/nibble/THIRD-PARTY-page.txt" ] || die "no licences of the page's packages in $prefix"
    fi
    [ -f "$build/libnibble-cuda.so" ] && [ ! -f "$libdir/nibble/libnibble-cuda.so" ] && grep -q '^NB_CUDA:.*=ON' "$build/CMakeCache.txt" &&
        die "libnibble-cuda.so was built and is not in $libdir/nibble"
    unit=$prefix/lib/systemd/system/nibble.service
    grep -q "^ExecStart=$3/bin/nibble serve --config $4/nibble/nibble.yaml$" "$unit" || die "$unit: ExecStart is wrong"
    quiet python3 "$src/tools/serve_config.py" "$prefix/bin/nibble" "$config/nibble/nibble.yaml"
    if have systemd-analyze && [ "$prefix" = /usr ]; then
        # Without a system manager other units are missing, which is none of ours.
        systemd-analyze verify --man=no "$unit" >"$tmp/log" 2>&1
        grep "nibble.service:" "$tmp/log" | grep -v -e 'sysinit.target not found' -e 'Failed to create' && die "$unit"
    fi
}

version=$("$build/nibble" --version | sed -n '1s/^nibble \([0-9.]*\) .*/\1/p')
[ -n "$version" ] || die "nibble --version has no version"

# cmake --install, then moved: no file of it knows where it is but the unit.
quiet env DESTDIR="$tmp/dest" cmake --install "$build" --prefix /opt/nibble
[ "$(ls "$tmp/dest")" = opt ] || die "with --prefix, files elsewhere: $(ls "$tmp/dest")"
mv "$tmp/dest/opt/nibble" "$tmp/moved"
real=$(readlink "$tmp/moved"/lib*/libnibble.so "$tmp/moved"/lib/*/libnibble.so 2>/dev/null)
[ "$real" = libnibble.so.0 ] || die "libnibble.so is a link to $real"
use "$tmp/moved" "$tmp/moved/etc" /opt/nibble /opt/nibble/etc
echo 'port: 1' >"$tmp/moved/etc/nibble/nibble.yaml"
quiet cmake --install "$build" --prefix "$tmp/moved"
[ "$(cat "$tmp/moved/etc/nibble/nibble.yaml")" = 'port: 1' ] || die "installing again overwrote nibble.yaml"
grep -q "^ExecStart=$tmp/moved/bin/nibble " "$tmp/moved/lib/systemd/system/nibble.service" || die "--prefix is not in the unit"
say "cmake --install: good"

# The package.
have dpkg || {
    say "no dpkg: no Debian package"
    exit 0
}
(cd "$build" && rm -f nibble_*.deb && quiet cpack -G DEB -B "$tmp/package") || exit 1
deb=$(ls "$tmp"/package/nibble_"$version"-1_*.deb) || die "cpack made no package"
quiet dpkg-deb --info "$deb"
if have dpkg-shlibdeps; then
    for library in libc6 libjansson4 libpcre2-8-0 libutf8proc2 libevent-core libssl libcurl4 libyaml; do
        dpkg-deb --field "$deb" Depends | grep -q "$library" || die "the package does not depend on $library"
    done
fi
if have lintian; then
    quiet lintian --allow-root --fail-on error "$deb"
fi
if [ "$(id -u)" = 0 ] && [ -n "${CI:-}" ] && have apt-get && ! dpkg -s nibble >/dev/null 2>&1; then
    system=yes
    quiet apt_get install "$deb"
    use /usr /etc /usr /etc
    ldconfig -p | grep -q libnibble.so.0 || die "ldconfig does not know libnibble.so.0"
    mkdir -p /var/cache/nibble/hub
    quiet apt_get purge nibble
    system=no
    for f in $(dpkg-deb --contents "$deb" | awk '$1 !~ /^d/ { print substr($6, 2) }') /var/cache/nibble /etc/nibble; do
        [ -e "$f" ] && die "left behind: $f"
    done
    dpkg -s nibble >/dev/null 2>&1 && die "dpkg still knows nibble"
    say "package, in the system: good"
else
    root=$tmp/root
    mkdir -p "$root/var/lib/dpkg/info" "$root/var/lib/dpkg/updates"
    : >"$root/var/lib/dpkg/status"
    in_root() { quiet dpkg --root="$root" --force-script-chrootless --force-depends --force-not-root --log=/dev/null "$@"; }
    in_root --install "$deb"
    use "$root/usr" "$root/etc" /usr /etc
    in_root --purge nibble
    find "$root" -path "$root/var/lib/dpkg" -prune -o ! -type d -print | grep . && die "left behind"
    say "package, in a folder of its own: good (CI=1 as root: in the system)"
fi
