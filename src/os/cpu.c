/* cpu.c - CPUID, XGETBV and the permission for AMX tiles.
 *
 * A level counts only if every feature in its definition (base/caps.h) is there
 * and the operating system has enabled the registers: XCR0 bits 1-2 for YMM, 5-7
 * for ZMM and mask registers, 17-18 for tiles.  Sources: Intel SDM volume 1,
 * 13.3 and 14.3; Linux Documentation/arch/x86/xstate.rst. */
#define _GNU_SOURCE /* syscall() */
#include "os/cpu.h"
#include "nb_config.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#define WITH_BF16 (NB_CAP_AVX2 | NB_CAP_AVX512 | NB_CAP_AVX512BF16)
#define CPU_BITS ((nb_caps)(WITH_BF16 | NB_CAP_AMX | NB_CAP_NEON | NB_CAP_AVXVNNI))

const nb_cpu_level nb_cpu_level_table[] = {
    { "c", 0, 0 },
    { "avx2", NB_CAP_AVX2, NB_CAP_AVX2 },
    { "avxvnni", NB_CAP_AVXVNNI, NB_CAP_AVX2 | NB_CAP_AVXVNNI }, /* AVX-512 does not imply it */
    { "avx512", NB_CAP_AVX512, NB_CAP_AVX2 | NB_CAP_AVX512 },
    { "avx512bf16", NB_CAP_AVX512BF16, WITH_BF16 },
    { "amx", NB_CAP_AMX, WITH_BF16 | NB_CAP_AMX },
    { "neon", NB_CAP_NEON, NB_CAP_NEON },
    { 0 },
};

#if defined(__x86_64__)
typedef struct regs {
    unsigned a, b, c, d;
} regs;

static regs cpuid(unsigned leaf, unsigned sub)
{
    regs r = { 0, 0, 0, 0 };
    __get_cpuid_count(leaf, sub, &r.a, &r.b, &r.c, &r.d);
    return r;
}

static bool has(unsigned word, unsigned bits)
{
    return (word & bits) == bits;
}

static unsigned xcr0(void)
{
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return lo;
}

#if !NB_EMULATED
/* Linux hands out tile registers on request only (ARCH_REQ_XCOMP_PERM, state 18). */
static bool amx_allowed(void)
{
#if defined(__linux__)
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
    return false;
#endif
}
#endif

static nb_caps detect(void)
{
    enum { OSXSAVE = 1 << 27, AVX = 1 << 28, FMA = 1 << 12, F16C = 1 << 29 };
    const regs f1 = cpuid(1, 0), f7 = cpuid(7, 0);
    if (!has(f1.c, OSXSAVE)) return 0;
    const unsigned os = xcr0();
    const unsigned bmi1 = 1u << 3, avx2 = 1u << 5, bmi2 = 1u << 8;
    if (!has(os, 6) || !has(f1.c, AVX | FMA | F16C) || !has(f7.b, bmi1 | avx2 | bmi2)) return 0;
#if NB_EMULATED
    return WITH_BF16 | NB_CAP_AMX | NB_CAP_AVXVNNI; /* tests/emu: on top of AVX2 */
#else
    const nb_caps low = NB_CAP_AVX2 | (has(cpuid(7, 1).a, 1u << 4) ? NB_CAP_AVXVNNI : 0);
    const unsigned f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31, vnni = 1u << 11;
    if (!has(os, 0xe6) || !has(f7.b, f_dq_bw_vl) || !has(f7.c, vnni)) return low;
    const unsigned bf16_tile_int8 = 1u << 22 | 1u << 24 | 1u << 25, vbmi_vbmi2 = 1u << 1 | 1u << 6;
    if (!has(f7.c, vbmi_vbmi2) || !has(cpuid(7, 1).a, 1u << 5)) return low | NB_CAP_AVX512;
    if (!has(os, 0x600e6) || !has(f7.d, bf16_tile_int8) || !amx_allowed()) return low | WITH_BF16;
    return low | WITH_BF16 | NB_CAP_AMX;
#endif
}
#elif defined(__aarch64__) && defined(__linux__)
static nb_caps detect(void)
{
    const unsigned long asimd = 1ul << 1, asimddp = 1ul << 20; /* asm/hwcap.h */
    const unsigned long want = asimd | asimddp;
    return (getauxval(AT_HWCAP) & want) == want ? NB_CAP_NEON : 0;
}
#else
static nb_caps detect(void)
{
    return 0;
}
#endif

nb_caps nb_cpu_caps(void)
{
    static _Atomic uint64_t known; /* bit 63: detected; relaxed, the word is all there is */
    uint64_t v = atomic_load_explicit(&known, memory_order_relaxed);
    if (v == 0) {
        v = detect() | UINT64_C(1) << 63;
        atomic_store_explicit(&known, v, memory_order_relaxed);
    }
    return (nb_caps)v;
}

nb_status nb_cpu_caps_name(nb_caps caps, nb_buf *out)
{
    if ((caps & CPU_BITS) == 0) return nb_buf_add_c(out, "c");
    const char *sep = "";
    for (const nb_cpu_level *v = nb_cpu_level_table; v->name; v++) {
        if ((caps & v->bit) == 0) continue;
        const bool emulated = NB_EMULATED && (v->bit & ~(nb_caps)NB_CAP_AVX2);
        NB_TRY(nb_buf_printf(out, "%s%s%s", sep, v->name, emulated ? " (emulated)" : ""));
        sep = "+";
    }
    return NB_OK;
}

nb_status nb_cpu_caps_parse(const char *s, nb_caps *mask, nb_error *err)
{
    const nb_caps device = NB_CAPS_ALL & ~CPU_BITS;
    if (strcmp(s, "all") == 0) {
        *mask = NB_CAPS_ALL;
        return NB_OK;
    }
    for (const nb_cpu_level *v = nb_cpu_level_table; v->name; v++) {
        if (strcmp(s, v->name) != 0) continue;
        *mask = device | v->mask;
        return NB_OK;
    }
    return nb_fail(
        err, NB_ERR_ARG,
        "unknown instruction-set level `%.32s`, expected c, avx2, avxvnni, avx512, avx512bf16, amx, neon or all",
        s);
}

void nb_cpu_model(char *name, size_t n_bytes)
{
    char text[49] = { 0 };
#if defined(__x86_64__)
    if (cpuid(0x80000000u, 0).a >= 0x80000004u) {
        for (unsigned i = 0; i < 3; i++) {
            const regs r = cpuid(0x80000002u + i, 0);
            const unsigned w[4] = { r.a, r.b, r.c, r.d };
            memcpy(text + 16 * i, w, 16);
        }
    }
#endif
    size_t from = 0, to = strlen(text);
    while (text[from] == ' ') from++;
    while (to > from && text[to - 1] == ' ') to--;
    text[to] = 0;
    snprintf(name, n_bytes, "%s", text[from] ? text + from : "unknown");
}
