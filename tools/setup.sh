#!/bin/sh
# setup.sh build|test - installs what building (or building and testing) needs and the system lacks.
#
# Asks the system itself (commands, pkg-config) rather than the package manager, so nothing is
# installed, and no network or root is needed, when everything is there: that takes a fraction of a
# second.  Exit code 0: all there; 1: something is missing and could not be installed.
set -u

mode=${1:-build}
root=$(cd "$(dirname "$0")/.." && pwd)

say() { printf '%s\n' "setup: $*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }
lib() { have pkg-config && pkg-config --exists "$1" 2>/dev/null; }

compiler_works() {
    cc=${CC:-}
    if [ -z "$cc" ]; then
        for c in cc gcc clang; do have "$c" && cc=$c && break; done
    fi
    [ -n "$cc" ] || return 1
    out=$(mktemp) || return 1
    printf '#include <math.h>\n#include <stdio.h>\nint main(void) { return puts("") < 0; }\n' |
        $cc -x c - -o "$out" >/dev/null 2>&1
    rc=$?
    rm -f "$out"
    return $rc
}

# What is missing, by our own names.
missing() {
    compiler_works || echo compiler
    have cmake || echo cmake
    have ninja || have ninja-build || have samu || echo ninja
    have pkg-config || echo pkgconfig
    lib "jansson >= 2.13" || echo jansson
    lib libpcre2-8 || echo pcre2
    lib libutf8proc || echo utf8proc
    lib libedit || echo libedit
    if grep -rqs '^#include <openssl/' "$root/src"; then
        lib libcrypto || echo crypto
    fi
    if [ "$mode" = test ]; then
        lib cmocka || echo cmocka
        have python3 || echo python
        have objdump || echo binutils
        have bash || echo bash
    fi
    return 0
}

# package MANAGER NAME: the package that holds NAME.  dnf and zypper resolve pkgconfig(...) themselves.
package() {
    case $1:$2 in
    apt:compiler) echo gcc libc6-dev ;;
    apt:ninja) echo ninja-build ;;
    apt:pkgconfig) echo pkg-config ;;
    apt:jansson) echo libjansson-dev ;;
    apt:pcre2) echo libpcre2-dev ;;
    apt:utf8proc) echo libutf8proc-dev ;;
    apt:libedit) echo libedit-dev ;;
    apt:crypto) echo libssl-dev ;;
    apt:cmocka) echo libcmocka-dev ;;
    apt:python) echo python3 ;;
    dnf:compiler | zypper:compiler) echo gcc glibc-devel ;;
    dnf:ninja) echo ninja-build ;;
    dnf:pkgconfig) echo pkgconf-pkg-config ;;
    zypper:pkgconfig) echo pkg-config ;;
    dnf:jansson | zypper:jansson) echo 'pkgconfig(jansson)' ;;
    dnf:pcre2 | zypper:pcre2) echo 'pkgconfig(libpcre2-8)' ;;
    dnf:utf8proc | zypper:utf8proc) echo 'pkgconfig(libutf8proc)' ;;
    dnf:libedit | zypper:libedit) echo 'pkgconfig(libedit)' ;;
    dnf:crypto | zypper:crypto) echo 'pkgconfig(libcrypto)' ;;
    dnf:cmocka | zypper:cmocka) echo 'pkgconfig(cmocka)' ;;
    dnf:python | zypper:python) echo python3 ;;
    pacman:compiler) echo gcc ;;
    pacman:pkgconfig) echo pkgconf ;;
    pacman:utf8proc) echo libutf8proc ;;
    pacman:crypto) echo openssl ;;
    apk:compiler) echo gcc musl-dev ;;
    apk:ninja) echo samurai ;;
    apk:pkgconfig) echo pkgconf ;;
    apk:jansson) echo jansson-dev ;;
    apk:pcre2) echo pcre2-dev ;;
    apk:utf8proc) echo utf8proc-dev ;;
    apk:libedit) echo libedit-dev ;;
    apk:crypto) echo openssl-dev ;;
    apk:cmocka) echo cmocka-dev ;;
    apk:python) echo python3 ;;
    *) echo "$2" ;;
    esac
}

# Runs a command as root.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    else
        sudo "$@"
    fi
}

install_packages() { # MANAGER PACKAGE...
    manager=$1
    shift
    case $manager in
    apt)
        # An old list names packages that are gone; a failed update may still find a cached one.
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 update ||
            say "apt-get update failed, trying with the lists that are there"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
            -o Acquire::Retries=3 install --no-install-recommends "$@"
        ;;
    dnf) as_root dnf -y install "$@" ;;
    zypper) as_root zypper --non-interactive install "$@" ;;
    pacman) as_root pacman -Sy --noconfirm --needed "$@" ;;
    apk) as_root apk add "$@" ;;
    esac
}

find_manager() {
    for pair in apt-get:apt dnf:dnf zypper:zypper pacman:pacman apk:apk; do
        have "${pair%%:*}" && echo "${pair##*:}" && return
    done
}

check_cmake() {
    version=$(cmake --version | sed -n '1s/^[^0-9]*\([0-9]*\.[0-9]*\).*/\1/p')
    major=${version%%.*}
    minor=${version##*.}
    if [ "$major" -lt 3 ] || { [ "$major" -eq 3 ] && [ "$minor" -lt 22 ]; }; then
        say "CMake 3.22 or newer is needed, this system has $version" \
            "(Debian 12, Ubuntu 22.04 and newer have it)"
        exit 1
    fi
}

case $mode in
build | test) ;;
*)
    say "usage: tools/setup.sh build|test"
    exit 2
    ;;
esac

need=$(missing)
if [ -n "$need" ]; then
    manager=$(find_manager)
    if [ -z "$manager" ]; then
        say "no package manager known to this script (apt-get dnf zypper pacman apk);" \
            "please install:" $need
        exit 1
    fi
    packages=
    for n in $need; do packages="$packages $(package "$manager" "$n")"; done
    if [ "$(id -u)" != 0 ] && ! have sudo; then
        say "these packages are missing and installing them needs root (there is no sudo):$packages"
        exit 1
    fi
    say "installing with $manager:$packages"
    # shellcheck disable=SC2086 # a list of words
    install_packages "$manager" $packages >&2 || say "the package manager reported an error"
    need=$(missing)
    if [ -n "$need" ]; then
        say "still missing after the installation:" $need
        exit 1
    fi
fi
check_cmake
