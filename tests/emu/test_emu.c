/* test_emu.c - the emulated intrinsics against their definitions, and against the processor.
 *
 * Every line of emu_list.inc runs on random vectors (with the extremes, infinities, NaN and denormals
 * mixed in).  Its result is compared with its statement in plain C below, and, on a machine that
 * has AVX-512 and AMX, with the real instruction.  Faults and the edges of memory have cases of
 * their own. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the five above */
#include <cmocka.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/rng.h"
#include "emu/emu_test.h"
#include "num/fp16.h"
#include "os/cpu.h"

enum { N_ROUND = 300 };

/* The words of the statements. */
static int64_t clamp(int64_t v, int64_t lo, int64_t hi)
{
    return v < lo ? lo : v > hi ? hi : v;
}
static int32_t wrap(int64_t v)
{
    return (int32_t)(uint32_t)(uint64_t)v;
}
static uint64_t sad(const uint8_t *a, const uint8_t *b)
{
    uint64_t sum = 0;
    for (int j = 0; j < 8; j++) sum += (uint64_t)abs(a[j] - b[j]);
    return sum;
}
static uint64_t ror64(uint64_t v, int n)
{
    return n ? v >> n | v << (64 - n) : v;
}
static int64_t dot4(const uint8_t *a, const int8_t *b)
{
    int64_t sum = 0;
    for (int j = 0; j < 4; j++) sum += a[j] * b[j];
    return sum;
}
static uint32_t get32(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static int32_t to_s32(float v)
{
    return v >= -2147483648.0f && v < 2147483648.0f ? (int32_t)v : INT32_MIN;
}
static uint32_t to_u32(float v)
{
    return v >= 0 && v < 4294967296.0f ? (uint32_t)v : UINT32_MAX;
}
static float half(uint16_t bits)
{
    return nb_fp16_to_f32(bits);
}
static float flush(float v)
{
    return fabsf(v) < 1.17549435e-38f ? copysignf(0, v) : v;
}
static float from_bits(uint32_t u)
{
    float v;
    memcpy(&v, &u, 4);
    return v;
}
static uint32_t to_bits(float v)
{
    uint32_t u;
    memcpy(&u, &v, 4);
    return u;
}
/* Nearest, ties to even, by comparing the two neighbours; denormals to zero. */
static uint16_t bf16(float v)
{
    const float z = flush(v);
    const uint32_t down = to_bits(z) & 0xffff0000u;
    if (isnan(v)) return (uint16_t)(to_bits(v) >> 16 | 0x40);
    if (isinf(v) || to_bits(z) == down) return (uint16_t)(down >> 16);
    const double lo = fabs((double)from_bits(down)), at = fabs((double)z);
    const double hi = (down & 0x7fff0000u) == 0x7f7f0000u ? ldexp(1, 128)
                                                          : fabs((double)from_bits(down + 0x10000));
    const bool up = at - lo > hi - at || (at - lo == hi - at && (down & 0x10000));
    return (uint16_t)((down + (up ? 0x10000u : 0)) >> 16);
}
static float bfmul(float s, uint16_t a, uint16_t b)
{
    return flush(
        fmaf(flush(from_bits((uint32_t)a << 16)), flush(from_bits((uint32_t)b << 16)), flush(s)));
}
static float dotbf(float s, const uint16_t *a, const uint16_t *b)
{
    return bfmul(bfmul(s, a[1], b[1]), a[0], b[0]);
}

/* A statement is a loop over the lanes j of the result r; x y z are a b c, u v w f g h, s t d e. */
#define LANES(m) (int)(64 / sizeof r->m[0])
#define RN(n, m, E)                                                                                \
    for (int j = 0; j < (n); j++) r->m[j] = (__typeof__(r->m[0]))(E);
#define R(m, E) RN(LANES(m), m, E)
#define RKN(n, m, E, F)                                                                            \
    for (int j = 0; j < (n); j++) r->m[j] = (__typeof__(r->m[0]))((k >> j & 1) ? (E) : (F));
#define RK(m, E, F) RKN(LANES(m), m, E, F)
#define WITH(m, vx, vy, vz, E)                                                                     \
    for (int j = 0; j < LANES(m); j++) {                                                           \
        const __typeof__(r->m[0]) A = vx.m[j], B = vy.m[j], C = vz.m[j];                           \
        (void)A, (void)B, (void)C;                                                                 \
        r->m[j] = (__typeof__(r->m[0]))(E);                                                        \
    }
#define L(m, E) WITH(m, x, y, z, E)
#define LK(m, E, F) WITH(m, x, y, z, (k >> j & 1) ? (__typeof__(A))(E) : (__typeof__(A))(F))
#define LF(E) WITH(ps, u, v, w, E)
#define LD(E) WITH(pd, s, t, s, E)
#define MASK(n, E)                                                                                 \
    for (int j = 0; j < (n); j++) r->u64[0] |= (uint64_t)((E) != 0) << j;
#define COMPRESS(n, m)                                                                             \
    for (int j = 0, o = 0; j < (n); j++)                                                           \
        if (k >> j & 1) r->m[o++] = x.m[j];
#define EXPAND(n, m)                                                                               \
    for (int j = 0, o = 0; j < (n); j++) r->m[j] = (k >> j & 1) ? x.m[o++] : y.m[j];
#define MODE(mode, E)                                                                              \
    fesetround(mode);                                                                              \
    for (int j = 0; j < 16; j++) {                                                                 \
        const volatile float A = u.ps[j], B = v.ps[j];                                             \
        const volatile float sum = (E);                                                            \
        r->ps[j] = sum;                                                                            \
    }                                                                                              \
    fesetround(FE_TONEAREST);
#define REDUCE(m, vec, E)                                                                          \
    __typeof__(r->m[0]) sum[16];                                                                   \
    memcpy(sum, vec.m, sizeof sum);                                                                \
    for (int o = 8; o; o /= 2)                                                                     \
        for (int j = 0; j < o; j++) {                                                              \
            const __typeof__(r->m[0]) A = sum[j], B = sum[j + o];                                  \
            sum[j] = (E);                                                                          \
        }                                                                                          \
    r->m[0] = sum[0];
#define REDUCE_MAX                                                                                 \
    r->ps[0] = -INFINITY;                                                                          \
    for (int j = 0; j < 16; j++) r->ps[0] = fmaxf(r->ps[0], (float)x.s32[j]);

#define X(name, kind, expression, statement)                                                       \
    static void say_##name(const emu_in *in, emu_vec *r)                                           \
    {                                                                                              \
        const emu_vec x = in->a, y = in->b, z = in->c, u = in->f, v = in->g, w = in->h;            \
        const emu_vec s = in->d, t = in->e;                                                        \
        const uint64_t k = in->k;                                                                  \
        const uint8_t *p = in->mem;                                                                \
        (void)x, (void)y, (void)z, (void)u, (void)v, (void)w, (void)s, (void)t, (void)k, (void)p;  \
        memset(r, 0, sizeof *r);                                                                   \
        statement                                                                                  \
    }
#include "emu_list.inc"
#undef X
#define X(name, kind, expression, statement) say_##name,
static void (*const said[])(const emu_in *, emu_vec *) = {
#include "emu_list.inc"
};

/* Random inputs: integers with extremes, floats of all kinds. */
typedef struct draws {
    uint64_t seed, n;
    bool ordinary; /* floats: finite, of moderate size */
} draws;
static uint64_t draw(draws *g)
{
    return nb_rng_u64(g->seed, g->n++);
}
static float random_float(draws *g)
{
    static const float odd[] = { 0,      -0.0f,   INFINITY,        -INFINITY,     NAN,
                                 1e-40f, -3e-39f, 1.17549435e-38f, 3.4028235e38f, 0.5f,
                                 -1.5f,  2.5f,    2147483648.0f,   4294967296.0f };
    const uint64_t n = draw(g);
    if (n % 8 == 0 && !g->ordinary) return odd[(n >> 8) % (sizeof odd / sizeof odd[0])];
    const float v = (float)((double)(int64_t)draw(g) / 9223372036854775808.0);
    if (n % 8 == 2)
        return from_bits(to_bits(v) & 0xffff8000u); /* a tie of BF16, every other time */
    const bool wide = n % 8 == 1 && !g->ordinary;
    return ldexpf(v, wide ? (int)((n >> 8) % 200) - 100 : (int)((n >> 8) % 20) - 4);
}
static void fill_ints(draws *g, emu_vec *o)
{
    for (int j = 0; j < 8; j++) o->u64[j] = draw(g);
    for (int j = 0; j < 64; j++) {
        const uint64_t n = draw(g);
        if (n % 16 == 0) o->u8[j] = (n >> 8 & 1) ? 0x80 : 0x7f;
        if (n % 16 == 1) o->u8[j] = (n >> 8 & 1) ? 0xff : 0;
        if (n % 64 == 2) o->u32[j / 4] = (uint32_t)(n >> 16) % 40;
    }
}
static void fill(draws *g, emu_in *in)
{
    fill_ints(g, &in->a);
    fill_ints(g, &in->b);
    fill_ints(g, &in->c);
    emu_vec *f[] = { &in->f, &in->g, &in->h };
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 16; j++) f[i]->ps[j] = random_float(g);
    for (int j = 0; j < 8; j++) {
        in->d.pd[j] = random_float(g) * 1.0000001;
        in->e.pd[j] = j & 1 ? in->d.pd[j] : random_float(g) / 3.0;
    }
    in->k = draw(g);
    for (int j = 0; j < 256; j++) in->mem[j] = (uint8_t)draw(g);
}

/* Equal bits, or both NaN. */
static bool same(const char *kind, const emu_vec *a, const emu_vec *b)
{
    if (memcmp(a, b, sizeof *a) == 0) return true;
    if (!strchr("FDGS", *kind)) return false;
    for (int j = 0; j < 16; j++)
        if (*kind == 'D'
                ? a->u64[j / 2] != b->u64[j / 2] && !(isnan(a->pd[j / 2]) && isnan(b->pd[j / 2]))
                : a->u32[j] != b->u32[j] && !(isnan(a->ps[j]) && isnan(b->ps[j])))
            return false;
    return true;
}
static void show(const char *what, const emu_vec *a)
{
    fprintf(stderr, "%-9s", what);
    for (int j = 0; j < 16; j++) fprintf(stderr, " %08x", a->u32[j]);
    fprintf(stderr, "\n");
}

typedef void case_fn(size_t i, const emu_in *in, emu_vec *out);
static void call_said(size_t i, const emu_in *in, emu_vec *out)
{
    said[i](in, out);
}
#if EMU_WITH_HARDWARE
static void call_hardware(size_t i, const emu_in *in, emu_vec *out)
{
    emu_hw_cases[i].run(in, out);
}
#endif
/* Whether case i agrees over all rounds. */
static bool agrees(size_t i, case_fn *other, const char *what, bool ordinary)
{
    draws g = { .seed = 5 + i, .ordinary = ordinary };
    for (int round = 0; round < N_ROUND; round++) {
        emu_in in;
        emu_vec got, want;
        fill(&g, &in);
        emu_cases[i].run(&in, &got);
        other(i, &in, &want);
        if (same(emu_cases[i].kind, &got, &want)) continue;
        fprintf(stderr, "%s, round %d%s\n", emu_cases[i].name, round,
                ordinary ? "" : ", hostile floats");
        show("emulation", &got);
        show(what, &want);
        return false;
    }
    return true;
}
static void compare(case_fn *other, const char *what)
{
    size_t wrong = 0, n = 0;
    for (; emu_cases[n].name; n++) wrong += !agrees(n, other, what, false);
    printf("%zu intrinsics against %s, %zu differ\n", n, what, wrong);
    assert_int_equal(wrong, 0);
}
#if EMU_WITH_HARDWARE
/* Against the processor bits must agree where floats are ordinary; what differs at NaN, infinities
 * and denormals is told.  Products of BF16 may add in another order than the definition: told. */
static void compare_processor(void)
{
    size_t wrong = 0, told = 0, n = 0;
    for (; emu_cases[n].name; n++) {
        if (agrees(n, call_hardware, "processor", false)) continue;
        const bool fails = strncmp(emu_cases[n].name, "dpbf16", 6) != 0 &&
                           !agrees(n, call_hardware, "processor", true);
        wrong += fails;
        told += !fails;
    }
    printf("%zu intrinsics against the processor, %zu differ, %zu at hostile floats only\n", n,
           wrong, told);
    assert_int_equal(wrong, 0);
}
#endif

static void test_statements(void **state)
{
    (void)state;
    compare(call_said, "statement");
}

/* Tiles: the sums by the definition. */
static void say_tiles(int op, emu_tile_in *in)
{
    for (int m = 0; m < in->m; m++)
        for (int n = 0; n < in->n; n++) {
            float even = 0, odd = 0;
            int64_t sum = (int32_t)in->c[m][n];
            for (int k = 0; k < in->k; k++) {
                const uint8_t *a = &in->a[m][4 * k], *b = &in->b[k][4 * n];
                even = bfmul(even, (uint16_t)(a[0] | a[1] << 8), (uint16_t)(b[0] | b[1] << 8));
                odd = bfmul(odd, (uint16_t)(a[2] | a[3] << 8), (uint16_t)(b[2] | b[3] << 8));
                for (int j = 0; j < 4; j++)
                    sum += (op == 1 || op == 2 ? (int8_t)a[j] : a[j]) *
                           (op == 1 || op == 3 ? (int8_t)b[j] : b[j]);
            }
            const float total = flush(flush(from_bits(in->c[m][n])) + flush(even + odd));
            in->c[m][n] = op ? (uint32_t)wrap(sum) : to_bits(total);
        }
}
typedef void tile_fn(int op, emu_tile_in *in);
/* slack: of a BF16 sum, relative to the sizes that enter it; 0: the same bits. */
static void compare_tiles(tile_fn *other, float slack)
{
    draws g = { .seed = 6 };
    for (int round = 0; round < 500; round++) {
        emu_tile_in in, got, want;
        in.m = 1 + (int)(draw(&g) % 16);
        in.k = 1 + (int)(draw(&g) % 16);
        in.n = 1 + (int)(draw(&g) % 16);
        const int op = round % 5;
        for (int r = 0; r < 16; r++)
            for (int j = 0; j < 64; j++) {
                in.a[r][j] = (uint8_t)draw(&g);
                in.b[r][j] = (uint8_t)draw(&g);
                /* BF16: mostly of moderate size, so that not every sum is NaN */
                if (op == 0 && j % 2 && round % 10)
                    in.a[r][j] = (in.a[r][j] & 0x83) | 0x3c,
                    in.b[r][j] = (in.b[r][j] & 0x83) | 0x3c;
            }
        for (int r = 0; r < 256; r++) in.c[r / 16][r % 16] = to_bits(random_float(&g));
        got = want = in;
        emu_tiles(op, &got);
        other(op, &want);
        for (int r = 0; r < 256; r++) {
            const uint32_t p = got.c[r / 16][r % 16], q = want.c[r / 16][r % 16];
            const float x = from_bits(p), y = from_bits(q);
            if (slack > 0 && op == 0 && /* BF16 of any bits: nothing to compare */
                (round % 10 == 0 || fabsf(x - y) <= slack * (64 + fabsf(x))))
                continue;
            if (p != q && (op || !isnan(x) || !isnan(y)))
                fail_msg("op %d %dx%dx%d row %d col %d: %08x, not %08x", op, in.m, in.k, in.n,
                         r / 16, r % 16, p, q);
        }
    }
}
static void test_tiles(void **state)
{
    (void)state;
    compare_tiles(say_tiles, 0);
}

static void test_hardware(void **state)
{
    (void)state;
#if EMU_WITH_HARDWARE
    if ((nb_cpu_caps() & NB_CAP_AMX) == 0 || (nb_cpu_caps() & NB_CAP_AVXVNNI) == 0) {
        printf("no AMX or no AVX-VNNI here (avx512 %s): not compared with the processor\n",
               nb_cpu_caps() & NB_CAP_AVX512 ? "yes" : "no");
        skip();
    }
    compare_processor();
    compare_tiles(emu_hw_tiles, 2e-5f);
#else
    printf("a build that emulates: not compared with the processor\n");
    skip();
#endif
}

/* What faults on hardware raises SIGILL. */
static sigjmp_buf back;
static void on_ill(int sig)
{
    (void)sig;
    siglongjmp(back, 1);
}
static void test_faults(void **state)
{
    (void)state;
    struct sigaction sa = { .sa_handler = on_ill }, old;
    sigaction(SIGILL, &sa, &old);
    _Alignas(64) static uint8_t memory[256];
    for (volatile size_t i = 0; emu_faults[i]; i++) {
        if (sigsetjmp(back, 1) == 0) {
            emu_run_fault(i, memory);
            fail_msg("no fault: %s", emu_faults[i]);
        }
    }
    sigaction(SIGILL, &old, NULL);
}

/* Lanes that are not selected lie on a page that cannot be read. */
static void test_edges(void **state)
{
    (void)state;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *map = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(map != MAP_FAILED);
    assert_int_equal(mprotect(map + page, page, PROT_NONE), 0);
    for (int op = 0; op < 8; op++) emu_edge(map + page, op);
    munmap(map, 2 * page);
}

int main(void)
{
    if ((nb_cpu_caps() & NB_CAP_AVX2) == 0) {
        printf("the emulation needs AVX2, which this machine lacks\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statements), cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_hardware),   cmocka_unit_test(test_faults),
        cmocka_unit_test(test_edges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
