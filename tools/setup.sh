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
    lib "libevent_core >= 2.1" || echo libevent
    lib "libssl >= 1.1.1" || echo openssl
    lib yaml-0.1 || echo yaml
    lib "libcurl >= 7.74" || echo libcurl
    if [ "$mode" = test ]; then
        lib cmocka || echo cmocka
        have c++ || have g++ || have clang++ || echo cxx # GPU kernels, emulated
        have python3 || echo python
        have objdump || echo binutils
        have bash || echo bash
    fi
    return 0
}

node_works() { # Vite and the clients' packages need 18
    have node && have npm && node -e 'process.exit(parseInt(process.versions.node) >= 18 ? 0 : 1)'
}

# What is nice to have: who misses it goes without (no page to rebuild, tests that skip).
missing_extras() {
    node_works || echo node
    if [ "$mode" = test ]; then
        have chromium || have chromium-browser || have google-chrome || echo chromium
        have curl || echo curl
        have wrk || echo wrk
        have openssl || echo openssl-command
        have zsh || echo zsh
        have fish || echo fish
        have python3 && { python3 -c 'import yaml' 2>/dev/null || echo pyyaml; }
        have dpkg && { have dpkg-shlibdeps || echo dpkg-dev; }
        have dpkg && { have lintian || echo lintian; }
        case $(uname -m) in x86_64 | amd64) have qemu-x86_64 || have qemu-x86_64-static || echo qemu ;; esac
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
    apt:libevent) echo libevent-dev ;;
    apt:openssl) echo libssl-dev ;;
    apt:yaml) echo libyaml-dev ;;
    apt:libcurl) echo libcurl4-openssl-dev ;;
    zypper:node) echo nodejs-default npm-default ;;
    *:node) echo nodejs npm ;;
    *:openssl-command) echo openssl ;;
    apt:pyyaml) echo python3-yaml ;;
    dnf:pyyaml) echo python3-pyyaml ;;
    zypper:pyyaml) echo python3-PyYAML ;;
    pacman:pyyaml) echo python-yaml ;;
    apk:pyyaml) echo py3-yaml ;;
    apt:qemu | dnf:qemu) echo qemu-user ;;
    zypper:qemu) echo qemu-linux-user ;;
    pacman:qemu) echo qemu-user ;;
    apk:qemu) echo qemu-x86_64 ;;
    apt:cmocka) echo libcmocka-dev ;;
    apt:cxx | apk:cxx) echo g++ ;;
    dnf:cxx | zypper:cxx) echo gcc-c++ ;;
    pacman:cxx) echo gcc ;;
    apt:python) echo python3 ;;
    dnf:compiler | zypper:compiler) echo gcc glibc-devel ;;
    dnf:ninja) echo ninja-build ;;
    dnf:pkgconfig) echo pkgconf-pkg-config ;;
    zypper:pkgconfig) echo pkg-config ;;
    dnf:jansson | zypper:jansson) echo 'pkgconfig(jansson)' ;;
    dnf:pcre2 | zypper:pcre2) echo 'pkgconfig(libpcre2-8)' ;;
    dnf:utf8proc | zypper:utf8proc) echo 'pkgconfig(libutf8proc)' ;;
    dnf:libedit | zypper:libedit) echo 'pkgconfig(libedit)' ;;
    dnf:libevent | zypper:libevent) echo 'pkgconfig(libevent_core)' ;;
    dnf:openssl | zypper:openssl) echo 'pkgconfig(libssl)' ;;
    dnf:yaml | zypper:yaml) echo 'pkgconfig(yaml-0.1)' ;;
    dnf:libcurl | zypper:libcurl) echo 'pkgconfig(libcurl)' ;;
    dnf:cmocka | zypper:cmocka) echo 'pkgconfig(cmocka)' ;;
    dnf:python | zypper:python) echo python3 ;;
    pacman:compiler) echo gcc ;;
    pacman:pkgconfig) echo pkgconf ;;
    pacman:utf8proc) echo libutf8proc ;;
    pacman:yaml) echo libyaml ;;
    pacman:libcurl) echo curl ;;
    apk:compiler) echo gcc musl-dev ;;
    apk:ninja) echo samurai ;;
    apk:pkgconfig) echo pkgconf ;;
    apk:jansson) echo jansson-dev ;;
    apk:pcre2) echo pcre2-dev ;;
    apk:utf8proc) echo utf8proc-dev ;;
    apk:libedit) echo libedit-dev ;;
    apk:libevent) echo libevent-dev ;;
    apk:openssl) echo openssl-dev ;;
    apk:yaml) echo yaml-dev ;;
    apk:libcurl) echo curl-dev ;;
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

# Tries to install what is nice to have; each by itself, so that one that the system does not offer
# does not keep the others out.  Asks no password: nobody may be there.  Tried once per build folder.
install_extras() {
    extras=$(missing_extras)
    stamp=$root/build/.setup-$mode
    [ -n "$extras" ] && ! [ -e "$stamp" ] || return 0
    mkdir -p "$root/build" && : >"$stamp"
    manager=$(find_manager)
    if [ -z "$manager" ] || ! { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }; then
        say "missing, but not needed (what uses them is skipped):" $extras
        return 0
    fi
    for n in $extras; do
        say "installing with $manager:" $(package "$manager" "$n")
        # shellcheck disable=SC2046 # a list of words
        install_packages "$manager" $(package "$manager" "$n") >/dev/null 2>&1 ||
            say "$n cannot be had here: what uses it is skipped"
    done
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
install_extras
