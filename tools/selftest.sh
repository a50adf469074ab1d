#!/bin/sh
# selftest.sh - proves that the checks can fail: plants one violation at a time in a small tree of its
# own and expects the check to name it; a tree without violations has to pass.
set -u
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
cc=${CC:-cc}
n=0 bad=0

# A clean tree.
fresh() {
    rm -rf "$tmp/t"
    mkdir -p "$tmp/t/src/base" "$tmp/t/src/os" "$tmp/t/src/num" "$tmp/t/src/text" "$tmp/t/src/model" \
        "$tmp/t/src/kv" "$tmp/t/src/kernel/x86" "$tmp/t/include/nibble" "$tmp/t/apps/nibble" \
        "$tmp/t/tools" "$tmp/t/docs" "$tmp/t/models"
    printf '/* status.h - s. */\n#ifndef S_H\n#define S_H\nint nb_s(void);\n#endif\n' \
        >"$tmp/t/include/nibble/status.h"
    printf '/* a.h - a. */\n#ifndef A_H\n#define A_H\n#include "nibble/status.h"\n#endif\n' \
        >"$tmp/t/src/base/a.h"
    printf '/* kv_pool.h - p. */\n' >"$tmp/t/src/kv/kv_pool.h"
    printf '/* kv_cache.h - c. */\n#ifdef __cplusplus\nextern "C" {\n#endif\n%s\n#ifdef __cplusplus\n}\n#endif\n' \
        'typedef struct nb_kv nb_kv; int nb_kv_n(void);' \
        >"$tmp/t/src/kv/kv_cache.h"
    printf '/* m.c - m. */\n#include "base/a.h"\n#include "kv/kv_pool.h"\n' >"$tmp/t/src/model/m.c"
    printf '/* f.c - f. */\n#include <unistd.h>\n#include "base/a.h"\n' >"$tmp/t/src/os/f.c"
    printf '/* main.c - m. */\n#include <unistd.h>\n#include "nibble/status.h"\n' \
        >"$tmp/t/apps/nibble/main.c"
    printf '# row\n' >"$tmp/t/tools/size_exceptions.txt"
}

verdict() { # WHAT OK
    n=$((n + 1))
    if [ "$2" != 1 ]; then
        bad=$((bad + 1))
        printf 'selftest: %s\n%s\n' "$1" "$out"
    fi
}

# expect CHECK TEXT [ARGUMENT]: the check fails and says TEXT.
expect() {
    out=$(python3 "$here/check_$1.py" --root "$tmp/t" ${3:+"$3"} 2>&1)
    rc=$?
    ok=0
    [ $rc -eq 1 ] && case $out in *"$2"*) ok=1 ;; esac
    verdict "check_$1 did not report: $2" $ok
}

clean() { # CHECK [ARGUMENT]
    out=$(python3 "$here/check_$1.py" --root "$tmp/t" ${2:+"$2"} 2>&1)
    rc=$?
    verdict "check_$1 complains about a clean tree" $([ $rc -eq 0 ] && echo 1 || echo 0)
}

# plant PATH TEXT CHECK MESSAGE: TEXT (for printf) becomes the file PATH of a clean tree.
plant() {
    fresh
    mkdir -p "$(dirname "$tmp/t/$1")"
    # shellcheck disable=SC2059 # a format on purpose
    printf "$2" >"$tmp/t/$1"
    expect "$3" "$4"
}

fresh
for check in includes sizes text headers scripts; do clean $check; done

# Who may include whom.
c='/* x. */\n'
plant src/base/x.c "$c#include \"os/f.h\"\n" includes 'does not exist'
plant src/num/x.c "$c#include \"kv/kv_pool.h\"\n" includes 'num must not include'
plant src/model/x.c "$c#include \"kv/kv_cache.h\"\n" includes 'model must not include'
plant src/text/x.c "$c#include <unistd.h>\n" includes 'not standard C'
plant src/kv/x.c "$c#include <jansson.h>\n" includes 'may be included in'
plant src/model/x.c "$c#include <pcre2.h>\n" includes 'may be included in load, text only'
plant src/model/x.c "$c#  include  <immintrin.h>\n" includes 'kernel/x86 only'
plant src/num/x.c "${c}int nb_f(void) { return !malloc (1); }\n" includes 'allocates nothing'
plant src/text/x.c "${c}void nb_f(void) { abort(); }\n" includes 'errors are values'
plant src/model/x.c "${c}int nb_f(const nb_row *r) { return !strcmp(r->name, \"mma\"); }\n" includes 'its name is for people'
plant src/text/x.c "${c}char *nb_f(void) { return getenv(\"A\"); }\n" includes 'nb_os_env reads'
plant apps/nibble/x.c "$c#include \"base/a.h\"\n" includes 'apps must not include'
plant src/model/x.c "$c#define H \"kv/kv_cache.h\"\n#include H\n" includes 'an #include names its header'
plant src/model/x.c "$c#include_next <stdio.h>\n" includes 'an #include names its header'
plant src/model/x.c "${c}int nb_f(void);\nint nb_kv_n(void);\n" includes 'declared here: int nb_kv_n(void)'
plant src/model/x.c "${c}int nb_f(void)\n{\n    extern int nb_a;\n    return nb_a;\n}\n" includes 'declared here: extern'
plant src/model/x.cpp "${c}extern \"C\" int nb_f(void);\n" includes 'declared here: extern'
plant src/model/x.c "$c#include \"num/a.h\"\nint nb_f(void) { return nb_kv_n(); }\n" includes 'must not use nb_kv_n of src/kv/kv_cache.h'
plant src/num/x.c "${c}int nb_f(nb_kv *k) { return !k; }\n" includes 'must not use nb_kv of'
plant ARCHITECTURE.md '<!-- includes: tools/check_includes.py --write -->\n<!-- end -->\n' includes 'not the table of'
plant ARCHITECTURE.md '# Architecture\n' includes 'are missing'
plant src/dev/cuda/x.cu "$c#include <jansson.h>\n" includes 'may be included in'
plant src/kernel/cuda/sm80/x.cu "$c#include <unistd.h>\n" includes 'not standard C'
plant src/model/x.c "$c#include <cuda_runtime.h>\n" includes 'may be included in dev/cuda, kernel/cuda'
plant src/new/x.c "$c" includes 'no row in the table'
fresh
printf '/* x. */\n/* #include <unistd.h> abort(); nb_kv_n(); */\n// malloc(1)\n' >"$tmp/t/src/num/x.c"
printf '/* x. */\nstatic int nb_f(int a);\nint nb_g(int a) { return nb_f(a); }\n' >"$tmp/t/src/text/x.c"
clean includes
printf '<!-- includes: tools/check_includes.py --write -->\n<!-- end -->\n' >"$tmp/t/ARCHITECTURE.md"
clean includes --write
clean includes

# Sizes.
lines() { i=0; while [ $i -lt "$1" ]; do echo "    a++;"; i=$((i + 1)); done; }
fresh
{ printf '/* x. */\n'; lines 1500; } >"$tmp/t/src/text/x.c"
expect sizes '1501 lines, at most 1500'
fresh
{ printf '/* x. */\n'; lines 250; } >"$tmp/t/src/text/x.h"
expect sizes '251 lines, at most 250'
fresh
{ printf '/* x. */\nint nb_long(int a)\n{\n'; lines 119; printf '}\nint nb_b(void)\n{\n}\n'; } \
    >"$tmp/t/src/text/x.c"
expect sizes 'nb_long: 121 lines, at most 120'
# nested OPENING: the same function inside something that only looks like a block.
nested() {
    fresh
    { printf '/* x. */\n%s {\nint nb_long(int a)\n{\n' "$1"; lines 119; printf '}\n}\n'; } >"$tmp/t/src/text/x.cpp"
    expect sizes 'nb_long: 121 lines, at most 120'
}
nested 'namespace'
nested 'namespace a {namespace b::c'
nested 'extern "C"'
nested 'struct s'
fresh
{ printf '/* x. */\n#define LONG(a) \\\n'; lines 129 | sed 's/$/ \\/'; printf '\n'; } >"$tmp/t/src/text/x.c"
expect sizes 'LONG: 131 lines, at most 120'
fresh
{ printf '/* x. */\nint nb_long(int a)\n{\n'; lines 119; printf '}\n'; } >"$tmp/t/src/text/x.c"
printf 'src/text/x.c:nb_long it is one table\n' >"$tmp/t/tools/size_exceptions.txt"
clean sizes
printf 'src/text/x.c:nb_long\n' >"$tmp/t/tools/size_exceptions.txt"
expect sizes 'a reason in words is missing'
printf 'src/text/x.c:nb_gone it is one table\n' >"$tmp/t/tools/size_exceptions.txt"
expect sizes 'needs no exception'
fresh
{ printf '/* x. */\nint nb_long(int a)\n{\n'; lines 300; printf '}\n'; } >"$tmp/t/src/text/x.c"
printf 'src/text/x.c:nb_long it is one table\n' >"$tmp/t/tools/size_exceptions.txt"
expect sizes 'there is no exception'
fresh
dd if=/dev/zero of="$tmp/t/models/a.bin" bs=1024 count=0 seek=16385 2>/dev/null
expect sizes 'at most 16777216'
fresh
for i in 1 2 3 4 5; do
    dd if=/dev/zero of="$tmp/t/models/$i.bin" bs=1024 count=0 seek=12000 2>/dev/null
done
expect sizes 'bytes in all'

# Text.
plant src/text/x.c "${c}int a; \n" text 'blank at the end'
plant src/text/x.c "${c}\tint a;\n" text 'tab'
plant src/text/x.c "${c}int a;\r\n" text 'CRLF'
plant src/text/x.c "${c}int a;" text 'no newline at the end'
plant src/text/x.c 'int a;\n' text 'starts with a comment'
plant src/text/x.c "${c}/* \342\200\213 */\n" text 'invisible character U+200B'
plant src/text/x.c "${c}/* \342\200\256 */\n" text 'invisible character U+202E'
plant src/text/x.c "${c}/* \377 */\n" text 'not UTF-8'
plant src/text/x.c "${c}/* TO""DO later */\n" text 'without an issue number'
plant src/text/x.c "${c}/* FIX""ME: later */\n" text 'without an issue number'
plant src/text/x.c "${c}#if""def NB_HAVE_CUDA\n#endif\n" text 'use #if'
plant tools/x.py 'p = "/ho''me/me/data"\n' text 'path of one machine'
plant models/x.json '{"name": "/wo''rk/model"}\n' text 'path of one machine'
plant docs/x.md 'see [it](gone.md)\n' text 'does not exist'
plant docs/x.md '# Here\n\nsee [it](#there)\n' text 'no such heading'
plant docs/x.md "$(printf 'word %.0s' $(seq 50)).\\n" text 'one sentence per line'
plant docs/x.md 'One idea. Another one.\n' text 'two sentences on a line'
plant README.md "$(seq 151)\n" text '151 lines, at most 150'
plant docs/x.md 'see `nb_gone()`\n' text 'nb_gone is in no source'
plant docs/x.md '# Here\n\nsee [it](x.md#nowhere)\n' text 'no such heading'
fresh
printf '/* x. */\n/* TO''DO(#12): known */\n' >"$tmp/t/src/text/x.c"
clean text

# Headers and scripts.
plant src/text/x.h "${c}size_t nb_f(void);\n" headers 'does not compile alone'
plant src/text/x.h "${c}typedef struct nb_x { int a; } nb_x;\n" headers 'does not compile alone'
fresh
printf '/* x.h - t; included once per type. */\nstatic T nb_f(T a);\n' >"$tmp/t/src/text/x.h"
clean headers
plant tools/x.sh '#!/bin/sh\nif true; then\n' scripts 'sh -n'
plant tools/x.py 'def f(:\n' scripts 'Python'
plant models/x.json '{"a": }\n' scripts 'JSON'
plant test.sh '#!/bin/sh\n' scripts 'not executable'

# Objects.
object() { # FILE TEXT FLAGS...: FILE.o in a build folder of its own
    rm -rf "$tmp/t/build"
    dir=$tmp/t/build/CMakeFiles/nb_x.dir
    mkdir -p "$dir"
    printf '%s\n' "$2" >"$tmp/x.c"
    object_file=$dir/$1.o
    shift 2
    "$cc" -O2 "$@" -c "$tmp/x.c" -o "$object_file"
}
fresh
object x.c 'int nb_x(void) { return 0; }'
clean symbols "$object_file"
object x.c 'int helper(void) { return 0; }'
expect symbols 'global symbol helper' "$object_file"
# libraries TEXT: a build folder whose libraries show the functions of TEXT.
libraries() {
    object x.c "$1" -fPIC
    "$cc" -shared -o "$tmp/t/build/libnibble.so" "$object_file"
    for a in libnibble libnibble_core; do ar rcs "$tmp/t/build/$a.a" "$object_file"; done
}
fresh
sed 's/^int nb_s/NB_API int nb_s/' "$tmp/t/include/nibble/status.h" >"$tmp/x.h"
cp "$tmp/x.h" "$tmp/t/include/nibble/status.h"
libraries 'int nb_s(void) { return 0; }'
clean symbols "$tmp/t/build"
libraries 'int nb_s(void) { return 0; } int nb_inside(void) { return 0; }'
expect symbols 'shows nb_inside, which include/nibble does not declare' "$tmp/t/build"
libraries 'int nb_t(void) { return 0; }'
expect symbols 'does not show nb_s' "$tmp/t/build"
fresh
libraries 'int nb_s(void) { return 0; }'
expect symbols 'nb_s without NB_API' "$tmp/t/build"
case $(uname -m) in
x86_64 | amd64)
    sum='void nb_x(float *a, const float *b) { for (int i = 0; i < 64; i++) a[i] += b[i]; }'
    z='#include <immintrin.h>
void nb_x(float *a) { _mm512_storeu_ps(a, _mm512_set1_ps(1.5f)); }'
    t='#include <immintrin.h>
void nb_x(void) { _tile_zero(0); }'
    object x.c "$sum"
    clean isa "$tmp/t/build"
    object x.c "$sum" -mavx
    expect isa 'AVX or newer' "$tmp/t/build"
    object x_avx2.c "$sum" -O3 -mavx2
    clean isa "$tmp/t/build"
    object x_avx2.c "$z" -mavx512f
    expect isa 'AVX-512' "$tmp/t/build"
    object x_avx512.c "$z" -mavx512f
    clean isa "$tmp/t/build"
    object x_avx512.c "$t" -mamx-tile
    expect isa 'AMX' "$tmp/t/build"
    dot='#include <immintrin.h>
void nb_x(float *a, void *b) {
    _mm512_storeu_ps(a, _mm512_dpbf16_ps(_mm512_loadu_ps(a), *(__m512bh *)b, *(__m512bh *)b)); }'
    object x_avx512.c "$dot" -mavx512f -mavx512bf16
    expect isa 'BF16' "$tmp/t/build"
    object x_avx512bf16.c "$dot" -mavx512f -mavx512bf16
    clean isa "$tmp/t/build"
    object x_avx512bf16.c "$t" -mamx-tile
    expect isa 'AMX' "$tmp/t/build"
    object x_amx.c "$dot" -mavx512f -mavx512bf16
    clean isa "$tmp/t/build"
    vnni='#include <immintrin.h>
void nb_x(__m256i *a) { a[0] = _mm256_dpbusd_epi32(a[0], a[1], a[2]); }'
    object x_avx2.c "$vnni" -mavx512vnni -mavx512vl
    expect isa 'VNNI' "$tmp/t/build"
    vex='#include <immintrin.h>
void nb_x(__m256i *a) { a[0] = _mm256_dpbusd_avx_epi32(a[0], a[1], a[2]); }'
    object x_avx2.c "$vex" -mavxvnni
    expect isa 'VNNI' "$tmp/t/build"
    object x_avxvnni.c "$vnni" -mavx512vnni -mavx512vl
    expect isa 'VNNI' "$tmp/t/build"
    object x_avxvnni.c "$vex" -mavxvnni
    clean isa "$tmp/t/build"
    count='void nb_x(int *a) { for (int i = 0; i < 64; i++) a[i] = __builtin_popcount((unsigned)a[i]); }'
    object x_amx.c "$count" -O3 -mavx512f -mavx512vpopcntdq
    expect isa 'in no level' "$tmp/t/build"
    object x_avx512.c "$z" -mavx512f
    mkdir -p "$tmp/t/build/gen" && echo '#define NB_EMULATED 1' >"$tmp/t/build/gen/nb_config.h"
    expect isa 'AVX-512' "$tmp/t/build"
    object x.c 'unsigned nb_x(unsigned a, unsigned b) { return a << b; }' -mbmi2
    expect isa 'BMI2' "$tmp/t/build"
    ;;
esac

printf 'selftest: %d probes, %d wrong\n' $n $bad
[ $bad -eq 0 ]
