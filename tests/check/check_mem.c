/* check_mem.c - guarded buffers, canaries, comparison and CPU state.
 *
 * A buffer lies between two inaccessible pages.  In even cases it ends exactly at
 * the second (catches over-reads), in odd ones it starts at the first; the rest
 * of its pages is filled with canary bytes that are checked after every call. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/hash.h"
#include "check/check.h"
#include "check/check_cuda.h"

enum { PAGE = 4096 };
static const uint32_t canary = 0x7fa5a5a5; /* a NaN as float; bytes a5 a5 a5 7f */

static void die(const char *what)
{
    fprintf(stderr, "nibble-check: %s\n", what);
    exit(2);
}

static void fill_canary(unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) p[i] = (unsigned char)(canary >> 8 * (i % 4));
}

static size_t body_bytes(const chk_buf *b)
{
    return b->map_bytes - 2 * PAGE;
}

static chk_buf *new_buf(chk *t, size_t n_bytes)
{
    if (t->n_buf == CHK_MAX_BUF) die("too many buffers in one case");
    chk_buf *b = &t->buf[t->n_buf];
    const size_t body = n_bytes ? (n_bytes + PAGE - 1) / PAGE * PAGE : PAGE;
    b->map_bytes = body + 2 * PAGE;
    b->n_bytes = n_bytes;
    b->input = false;
    b->map = mmap(NULL, b->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (b->map == MAP_FAILED) die("out of memory");
    fill_canary(b->map + PAGE, body);
    if (mprotect(b->map, PAGE, PROT_NONE) != 0 ||
        mprotect(b->map + PAGE + body, PAGE, PROT_NONE) != 0)
        die("mprotect refused");
    b->p = t->front ? b->map + PAGE : b->map + PAGE + body - n_bytes;
    t->n_buf++;
    return b;
}

void chk_free_all(chk *t)
{
    for (size_t i = 0; i < t->n_buf; i++) munmap(t->buf[i].map, t->buf[i].map_bytes);
    t->n_buf = 0;
    chk_gpu_free_all();
}

void *chk_raw(chk *t, size_t n_bytes)
{
    return new_buf(t, n_bytes)->p;
}

void *chk_in(chk *t, size_t n_bytes)
{
    chk_buf *b = new_buf(t, n_bytes);
    b->input = true;
    return b->p;
}

void *chk_out(chk *t, size_t n_bytes)
{
    unsigned char *p = new_buf(t, n_bytes)->p;
    fill_canary(p, n_bytes); /* the phase of a canary starts with the buffer */
    return p;
}

double *chk_f64(chk *t, size_t n)
{
    const bool front = t->front;
    t->front = true; /* aligned */
    double *p = chk_raw(t, n * sizeof *p);
    t->front = front;
    return p;
}

size_t chk_rows_bytes(size_t n_row, size_t n_col, size_t stride, size_t item_bytes)
{
    return n_row ? ((n_row - 1) * stride + n_col) * item_bytes : 0;
}

float *chk_in_rows(chk *t, size_t n_row, size_t n_col, size_t stride, chk_pattern p)
{
    const size_t n_bytes = chk_rows_bytes(n_row, n_col, stride, sizeof(float));
    float *x = chk_in(t, n_bytes);
    fill_canary((unsigned char *)x, n_bytes);
    for (size_t r = 0; r < n_row; r++) chk_fill(t, x + r * stride, n_col, p);
    return x;
}

float *chk_out_rows(chk *t, size_t n_row, size_t n_col, size_t stride)
{
    return chk_out(t, chk_rows_bytes(n_row, n_col, stride, sizeof(float)));
}

void *chk_copy(chk *t, const void *p, size_t n_bytes, bool input)
{
    void *q = input ? chk_in(t, n_bytes) : chk_out(t, n_bytes);
    if (n_bytes) memcpy(q, p, n_bytes);
    return q;
}

/* CPU state: MXCSR and the extended states in use. */
#if defined(__x86_64__)
static uint32_t get_mxcsr(void)
{
    uint32_t v;
    __asm__ volatile("stmxcsr %0" : "=m"(v));
    return v & ~0x3fu; /* without the sticky exception flags */
}

static void set_mxcsr(uint32_t v)
{
    __asm__ volatile("ldmxcsr %0" : : "m"(v));
}

static uint64_t get_xinuse(void)
{
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(1));
    return lo | (uint64_t)hi << 32;
}

static void clean_upper(void)
{
    __asm__ volatile("vzeroupper" ::: "memory");
}

#include <cpuid.h>
bool chk_state_usable(nb_caps have)
{
    unsigned a = 0, b, c, d;
    if ((have & NB_CAP_AVX2) == 0 || !__get_cpuid_count(13, 1, &a, &b, &c, &d) || (a & 4) == 0)
        return false;
    clean_upper();
    const uint64_t clean = get_xinuse();
    __asm__ volatile("vpcmpeqd %%ymm7, %%ymm7, %%ymm7" ::: "xmm7", "memory");
    const uint64_t dirty = get_xinuse();
    clean_upper();
    return (clean & 4) == 0 && (dirty & 4) != 0;
}
#else
static uint32_t get_mxcsr(void)
{
    return 0;
}
static void set_mxcsr(uint32_t v)
{
    (void)v;
}
static uint64_t get_xinuse(void)
{
    return 0;
}
static void clean_upper(void)
{
}
bool chk_state_usable(nb_caps have)
{
    (void)have;
    return false;
}
#endif

/* Components of XCR0 that a kernel has to leave as it found them: AVX and ZMM_Hi256, which vzeroupper
 * cleans, and the two of AMX.  Not Hi16_ZMM and the opmasks: no instruction cleans them, and processors
 * differ in whether they count as in use once they hold zeros. */
enum { CLEANED = 1 << 2 | 1 << 6 | 1 << 17 | 1 << 18 };

void chk_arm(chk *t)
{
    for (size_t i = 0; i < t->n_buf; i++)
        if (t->buf[i].input) t->buf[i].hash = nb_hash_bytes(t->buf[i].p, t->buf[i].n_bytes, 1);
    t->mxcsr = get_mxcsr();
    if (t->state_ok) {
        clean_upper();
        t->xinuse = get_xinuse();
    }
#if NB_EMULATED
    if (t->have & NB_CAP_AMX) nb_emu_tile_release(); /* of a case that ended with a signal */
#endif
    chk_armed = 1;
}

/* The bytes of a buffer's pages outside the buffer. */
static bool slack_intact(const chk_buf *b)
{
    const unsigned char *lo = b->map + PAGE, *hi = lo + body_bytes(b);
    for (const unsigned char *p = lo; p < b->p; p++)
        if (*p != (unsigned char)(canary >> 8 * ((size_t)(p - lo) % 4))) return false;
    for (const unsigned char *p = b->p + b->n_bytes; p < hi; p++)
        if (*p != (unsigned char)(canary >> 8 * ((size_t)(p - lo) % 4))) return false;
    return true;
}

void chk_disarm(chk *t)
{
    const uint64_t state = t->state_ok ? get_xinuse() & ~t->xinuse & CLEANED : 0;
    chk_armed = 0;
    if (state) {
        chk_fail(t, "left extended state in use: 0x%llx (missing vzeroupper or tilerelease)",
                 (unsigned long long)state);
        clean_upper();
    }
#if NB_EMULATED
    if ((t->have & NB_CAP_AMX) && nb_emu_tile_in_use())
        chk_fail(t, "left tiles in use (missing _tile_release)");
#endif
    if (get_mxcsr() != t->mxcsr) {
        chk_fail(t, "changed MXCSR from 0x%x to 0x%x", t->mxcsr, get_mxcsr());
        set_mxcsr(t->mxcsr);
    }
    for (size_t i = 0; i < t->n_buf; i++) {
        const chk_buf *b = &t->buf[i];
        if (b->input && nb_hash_bytes(b->p, b->n_bytes, 1) != b->hash)
            chk_fail(t, "changed an input (buffer %zu of the case)", i);
        if (!slack_intact(b)) chk_fail(t, "wrote outside buffer %zu of the case", i);
    }
}

/* Comparison. */
static uint32_t bits_of(const float *p)
{
    uint32_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

void chk_worst(chk *t, double of_bound)
{
    if (!(of_bound > t->worst)) return;
    t->worst = of_bound;
    snprintf(t->worst_at, sizeof t->worst_at, "%s", t->name);
}

static bool element_close(chk *t, double got, double want, double bound, size_t r, size_t c)
{
    if (!isfinite(want)) {
        if (isnan(want) ? isnan(got) : got == want) return true;
        chk_fail(t, "[%zu][%zu] is %.9g, expected %.9g", r, c, got, want);
        return false;
    }
    const double e = fabs(got - want);
    if (!(e <= bound)) {
        chk_fail(t, "[%zu][%zu] is %.9g, expected %.9g: error %.3g over the bound %.3g", r, c, got,
                 want, e, bound);
        return false;
    }
    if (bound > 0) chk_worst(t, e / bound);
    return true;
}

void chk_close(chk *t, const float *got, size_t n_row, size_t n_col, size_t stride,
               const double *want, const double *bound)
{
    for (size_t r = 0; r < n_row; r++) {
        for (size_t c = 0; c < n_col; c++)
            if (!element_close(t, (double)got[r * stride + c], want[r * n_col + c],
                               bound[r * n_col + c], r, c))
                return;
        for (size_t c = n_col; c < stride && r + 1 < n_row; c++) {
            if (bits_of(got + r * stride + c) == canary) continue;
            chk_fail(t, "wrote into the gap after row %zu, column %zu", r, c);
            return;
        }
    }
}

void chk_same(chk *t, const char *why, const float *a, size_t a_stride, const float *b,
              size_t b_stride, size_t n_row, size_t n_col)
{
    for (size_t r = 0; r < n_row; r++) {
        for (size_t c = 0; c < n_col; c++) {
            const uint32_t u = bits_of(a + r * a_stride + c), v = bits_of(b + r * b_stride + c);
            if (u == v) continue;
            chk_fail(t, "other bits %s: [%zu][%zu] 0x%08x and 0x%08x", why, r, c, u, v);
            return;
        }
    }
}

void chk_same_bytes(chk *t, const char *why, const void *a, const void *b, size_t n_bytes)
{
    const unsigned char *p = a, *q = b;
    for (size_t i = 0; i < n_bytes; i++) {
        if (p[i] == q[i]) continue;
        chk_fail(t, "%s: byte %zu of %zu is 0x%02x and 0x%02x", why, i, n_bytes, p[i], q[i]);
        return;
    }
}

void chk_fail(chk *t, const char *fmt, ...)
{
    char what[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (t->failed) return; /* one report per case */
    t->failed = true;
    if (t->n_fail++ == 0) snprintf(t->first_fail, sizeof t->first_fail, "%s: %s", t->name, what);
    if (!t->quiet && t->n_fail <= 8)
        printf("FAIL %s %s: %s (--seed %llu)\n", t->function, t->name, what,
               (unsigned long long)t->seed);
}
