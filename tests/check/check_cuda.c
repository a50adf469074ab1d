/* check_cuda.c - buffers on a device, with canaries; timing by its clock.
 *
 * A buffer is [256 bytes of canary][bytes][canary to a multiple of 256, and 256 more].  On a GPU buffers
 * are cut from one large block, since allocating is slow there; with --guard, which is for
 * compute-sanitizer, and in the emulation each is allocated alone, without the last 256 bytes, so
 * that reads beyond it are found too. */
#include "check/check_cuda.h"

#include "num/bf16.h"
#include "num/e4m3.h"

#include <stdlib.h>

#include "base/hash.h"
#include "dev/gpu.h"
#include "kernel/linear/packed.h"
#include "kernel/linear/tiled.h"

enum { MAX_BUF = 2048, EDGE = 256, SAMPLES = 15, INNER = 20 };
static const size_t arena_bytes = (size_t)1 << 29, flush_bytes = (size_t)192 << 20;
static const uint32_t canary = 0x7fa5a5a5;

typedef struct gpu_buf {
    unsigned char *dev, *base; /* base: what was allocated alone, or NULL */
    size_t n_bytes, body_bytes;
    bool input;
    uint64_t hash;
} gpu_buf;

static struct {
    const char *library;
    nb_gpu *gpu;
    const nb_cuda_api *api;
    nb_cuda *g;
    nb_cuda_info info;
    bool guard, dead, broken; /* broken: by this case; opened anew for the next */
    unsigned char *arena, *flush;
    size_t arena_used;
    gpu_buf buf[MAX_BUF];
    size_t n_buf;
    unsigned char *image;
    size_t image_bytes;
} d;

static void die(const char *what)
{
    fprintf(stderr, "nibble-check: %s\n", what);
    exit(2);
}

static bool open_device(void)
{
    nb_error err = { 0 };
    if (nb_gpu_open(d.library, 0, &d.gpu, &err) != NB_OK) {
        fprintf(stderr, "nibble-check: %s\n", err.msg);
        return false;
    }
    d.api = nb_gpu_api(d.gpu);
    d.g = nb_gpu_handle(d.gpu);
    d.api->get_info(d.g, &d.info);
    d.arena = NULL;
    if (!d.guard && !d.info.emulated) d.arena = d.api->alloc(d.g, arena_bytes);
    return true;
}

bool chk_gpu_open(const char *library, bool guard)
{
    d.library = library;
    d.guard = guard;
    if (!open_device()) return false;
    printf("device: %s (%s), compute capability %d.%d, %zu multiprocessors, %.1f GB\n", d.info.name,
           d.info.what, d.info.cc / 10, d.info.cc % 10, d.info.n_sm,
           (double)d.info.memory_bytes * 1e-9);
    return true;
}

nb_caps chk_gpu_caps(void)
{
    return NB_CAP_SM80 | (d.info.cc == 90 ? NB_CAP_SM90 : 0);
}

static void close_device(void)
{
    if (d.g && d.arena) d.api->free(d.g, d.arena);
    if (d.g && d.flush) d.api->free(d.g, d.flush);
    nb_gpu_close(d.gpu);
    d.gpu = NULL;
    d.g = NULL;
    d.arena = d.flush = NULL;
}

void chk_gpu_free_all(void)
{
    for (size_t i = 0; i < d.n_buf; i++)
        if (d.buf[i].base) d.api->free(d.g, d.buf[i].base);
    d.n_buf = d.arena_used = 0;
    if (!d.broken) return;
    d.broken = false;
    close_device();
    d.dead = !open_device();
}

void chk_gpu_close(void)
{
    d.broken = false;
    chk_gpu_free_all();
    close_device();
    free(d.image);
    memset(&d, 0, sizeof d);
}

const nb_cuda_api *chk_gpu_api(chk *t)
{
    static nb_cuda_api planted;
    if (!t || t->op->rows != chk_gpu_row || strcmp(t->row->variant, "broken") != 0) return d.api;
    planted = *d.api;
    ((const chk_gpu_bug *)t->row->row)->plant(&planted);
    return &planted;
}
nb_cuda *chk_gpu(chk *t)
{
    (void)t;
    return d.g;
}
const nb_cuda_info *chk_gpu_info(chk *t)
{
    (void)t;
    return &d.info;
}

size_t chk_gpu_row(chk_row *out, size_t max)
{
    static const char here[] = "";
    if (max) *out = (chk_row){ "gpu", "", NB_SPACE_CUDA, 0, here };
    return max != 0;
}

/* ---- buffers ---- */

static unsigned char *image(size_t n_bytes)
{
    if (n_bytes > d.image_bytes) {
        free(d.image);
        d.image = malloc(n_bytes);
        if (!d.image) die("out of memory");
        d.image_bytes = n_bytes;
    }
    return d.image;
}

static void fill_canary(unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) p[i] = (unsigned char)(canary >> 8 * (i % 4));
}
static bool is_canary(const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] != (unsigned char)(canary >> 8 * (i % 4))) return false;
    return true;
}

/* body: with both canaries. */
static gpu_buf *new_buf(size_t n_bytes)
{
    if (d.n_buf == MAX_BUF) die("too many device buffers in one case");
    gpu_buf *b = &d.buf[d.n_buf];
    const size_t most = (n_bytes + EDGE - 1) / EDGE * EDGE + EDGE;
    *b = (gpu_buf){ .n_bytes = n_bytes, .body_bytes = most };
    if (d.arena && arena_bytes - d.arena_used >= most + EDGE) {
        b->body_bytes += EDGE;
        b->dev = d.arena + d.arena_used + EDGE;
        d.arena_used += most + EDGE;
    } else {
        b->base = d.api->alloc(d.g, most);
        if (!b->base && !d.dead && !d.broken) die("out of device memory");
        b->dev = b->base + EDGE;
    }
    d.n_buf++;
    return b;
}

static void *make(const void *host, size_t n_bytes, bool input)
{
    gpu_buf *b = new_buf(n_bytes);
    unsigned char *m = image(b->body_bytes);
    fill_canary(m, EDGE);
    fill_canary(m + EDGE, b->body_bytes - EDGE);
    if (host && n_bytes) memcpy(m + EDGE, host, n_bytes);
    fill_canary(m + EDGE + n_bytes, b->body_bytes - EDGE - n_bytes);
    b->input = input;
    b->hash = nb_hash_bytes(m + EDGE, n_bytes, 1);
    if (!d.dead) {
        d.api->upload(d.g, b->dev - EDGE, m, b->body_bytes);
        d.api->sync(d.g, NULL);
    }
    return b->dev;
}

void *chk_gpu_in(chk *t, const void *host, size_t n_bytes)
{
    (void)t;
    return make(host, n_bytes, true);
}
void *chk_gpu_inout(chk *t, const void *host, size_t n_bytes)
{
    (void)t;
    return make(host, n_bytes, false);
}
void *chk_gpu_out(chk *t, size_t n_bytes)
{
    (void)t;
    return make(NULL, n_bytes, false);
}

/* The error of the device as the case's failure. */
static bool failed(chk *t)
{
    nb_error err = { 0 };
    if (d.dead) {
        chk_fail(t, "the device is lost");
        return true;
    }
    if (d.api->sync(d.g, &err) == NB_OK) return false;
    chk_fail(t, "%.250s", err.msg);
    d.broken = true;
    return true;
}

void chk_gpu_get(chk *t, void *host, const void *dev, size_t n_bytes)
{
    if (!d.dead) d.api->download(d.g, host, dev, n_bytes);
    (void)failed(t);
}

void chk_gpu_arm(chk *t)
{
    (void)t;
    chk_armed = 1;
}

void chk_gpu_done(chk *t)
{
    const bool lost = failed(t);
    chk_armed = 0;
    if (lost) return;
    for (size_t i = 0; i < d.n_buf; i++) {
        const gpu_buf *b = &d.buf[i];
        unsigned char *m = image(b->body_bytes);
        d.api->download(d.g, m, b->dev - EDGE, b->body_bytes);
        if (failed(t)) return;
        if (b->input && nb_hash_bytes(m + EDGE, b->n_bytes, 1) != b->hash)
            chk_fail(t, "changed an input (device buffer %zu of the case, %zu bytes)", i,
                     b->n_bytes);
        if (!is_canary(m, EDGE))
            chk_fail(t, "wrote before device buffer %zu of the case (%zu bytes)", i, b->n_bytes);
        if (!is_canary(m + EDGE + b->n_bytes, b->body_bytes - EDGE - b->n_bytes))
            chk_fail(t, "wrote behind device buffer %zu of the case (%zu bytes)", i, b->n_bytes);
    }
}

/* ---- rows ---- */

static uint16_t bf16_bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static float bf16_float(uint16_t h)
{
    const uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

nb_cuda_rows chk_gpu_in_rows(chk *t, float *x, size_t n_row, size_t n_col, size_t stride, int parts)
{
    const size_t n = n_row * stride;
    nb_cuda_rows y = { .stride = stride };
    float *f = chk_raw(t, n * sizeof *f);
    uint16_t *hi = chk_raw(t, n * sizeof *hi), *lo = chk_raw(t, n * sizeof *lo);
    fill_canary((unsigned char *)f, n * sizeof *f);
    fill_canary((unsigned char *)hi, n * sizeof *hi);
    fill_canary((unsigned char *)lo, n * sizeof *lo);
    for (size_t r = 0; r < n_row; r++) {
        for (size_t c = 0; c < n_col; c++) {
            float *v = &x[r * n_col + c];
            const size_t at = r * stride + c;
            hi[at] = bf16_bits(*v);
            if (parts == 1) *v = bf16_float(hi[at]);
            lo[at] = bf16_bits(*v - bf16_float(hi[at]));
            f[at] = *v;
        }
    }
    y.f = chk_gpu_in(t, f, n * sizeof *f);
    if (parts > 0) y.hi = chk_gpu_in(t, hi, n * sizeof *hi);
    if (parts > 1) y.lo = chk_gpu_in(t, lo, n * sizeof *lo);
    return y;
}

nb_cuda_rows chk_gpu_out_rows(chk *t, size_t n_row, size_t stride, int parts)
{
    const size_t n = n_row * stride;
    nb_cuda_rows y = { .stride = stride };
    y.f = chk_gpu_out(t, n * sizeof *y.f);
    if (parts > 0) y.hi = chk_gpu_out(t, n * sizeof *y.hi);
    if (parts > 1) y.lo = chk_gpu_out(t, n * sizeof *y.lo);
    return y;
}

static void *got(chk *t, const void *dev, size_t n_bytes)
{
    if (!dev) return NULL;
    void *p = chk_raw(t, n_bytes);
    chk_gpu_get(t, p, dev, n_bytes);
    return p;
}

nb_cuda_rows chk_gpu_get_rows(chk *t, const nb_cuda_rows *y, size_t n_row)
{
    const size_t n = n_row * y->stride;
    return (nb_cuda_rows){ got(t, y->f, n * sizeof *y->f), got(t, y->hi, n * sizeof *y->hi),
                           got(t, y->lo, n * sizeof *y->lo), y->stride };
}

void chk_gpu_parts(chk *t, const nb_cuda_rows *y, size_t n_row, size_t n_col)
{
    for (size_t r = 0; r < n_row && y->hi; r++) {
        for (size_t c = 0; c < n_col; c++) {
            const size_t at = r * y->stride + c;
            const float v = y->f[at], low = v - bf16_float(bf16_bits(v));
            if (isnan(v) ? !isnan(bf16_float(y->hi[at])) : y->hi[at] != bf16_bits(v))
                chk_fail(t, "[%zu][%zu] is %.9g, its BF16 part is 0x%04x", r, c, (double)v,
                         y->hi[at]);
            if (y->lo && (isnan(low) ? !isnan(bf16_float(y->lo[at])) : y->lo[at] != bf16_bits(low)))
                chk_fail(t, "[%zu][%zu] is %.9g, its low part is 0x%04x, expected 0x%04x", r, c,
                         (double)v, y->lo[at], bf16_bits(low));
        }
        for (size_t c = n_col; c < y->stride; c++)
            if (y->hi[r * y->stride + c] != (c % 2 ? canary >> 16 : (canary & 0xffff)) ||
                (y->lo && y->lo[r * y->stride + c] != (c % 2 ? canary >> 16 : (canary & 0xffff))))
                chk_fail(t, "wrote parts into the gap after row %zu, column %zu", r, c);
    }
}

nb_wtype chk_gpu_type(nb_wtype type, bool tile)
{
    nb_tiled form;
    const nb_weight w = { .type = type,
                          .n_col = 32,
                          .group = { .size = 32, .scale_type = NB_S_E8M0 } };
    if (!nb_wtype_is_packed(type) && !(tile && type == NB_W_INT8)) return type;
    if (type == NB_W_INT4 || type == NB_W_BYTE) return type;
    return nb_tiled_of(&w, &form) ? NB_W_TYPE_COUNT : form.type;
}

nb_weight chk_gpu_draw(chk *t, nb_wtype type, size_t n_row, size_t n_col, chk_pattern p)
{
    nb_tiled form;
    nb_weight w = chk_weight(t, type, n_row, n_col, p);
    while (nb_wtype_is_packed(type) && nb_tiled_of(&w, &form))
        w = chk_weight(t, type, n_row, n_col, p);
    return w;
}

static nb_weight tiled(chk *t, const nb_weight *host)
{
    nb_tiled form;
    nb_weight w = { .n_row = host->n_row, .n_col = host->n_col };
    if (nb_tiled_of(host, &form)) chk_fail(t, "cannot be tiled");
    const size_t n[4] = { nb_tiled_code_bytes(&form, w.n_col), nb_tiled_scale_bytes(&form, w.n_col),
                          nb_tiled_zero_bytes(&form, w.n_col), sizeof(float) };
    void *p[4];
    for (int i = 0; i < 4; i++) p[i] = n[i] ? chk_raw(t, w.n_row * n[i]) : NULL;
    const nb_tiled_rows out = { p[0], p[2], p[1], p[3] };
    nb_tiled_make(host, &form, 0, w.n_row, &out);
    w.type = form.type;
    w.data = chk_gpu_in(t, p[0], w.n_row * n[0]);
    w.scale = chk_gpu_in(t, p[3], w.n_row * n[3]);
    w.group.scale_type = form.scale_type;
    if (p[1]) w.group.scale = chk_gpu_in(t, p[1], w.n_row * n[1]);
    if (p[2]) w.group.zero = chk_gpu_in(t, p[2], w.n_row * n[2]);
    return w;
}

nb_weight chk_gpu_weight(chk *t, const nb_weight *host, bool tile)
{
    nb_weight w = *host;
    if (nb_wtype_is_packed(host->type) || (tile && host->type == NB_W_INT8)) return tiled(t, host);
    w.data = chk_gpu_in(t, host->data, nb_weight_data_bytes(host));
    if (nb_weight_scale_bytes(host))
        w.scale = chk_gpu_in(t, host->scale, nb_weight_scale_bytes(host));
    return w;
}

nb_weight chk_gpu_seen(chk *t, const nb_weight *w, const nb_weight *there, const char *row, nb_cuda_kind kind,
                       bool two_parts)
{
    if (two_parts || kind != NB_CUDA_PROMPT || !nb_stype_is_k(there->group.scale_type) || strcmp(row, "wgmma"))
        return *w;
    uint16_t *to = chk_raw(t, w->n_row * w->n_col * sizeof *to);
    for (size_t i = 0; i < w->n_row * w->n_col;) {
        float v[256];
        const size_t c = i % w->n_col, left = w->n_col - c, n = left < 256 ? left : 256;
        nb_packed_values(w, i / w->n_col, c, n, v);
        for (size_t k = 0; k < n; k++) to[i++] = nb_bf16_from_f32(v[k]);
    }
    return (nb_weight){ .data = to, .n_row = w->n_row, .n_col = w->n_col, .type = NB_W_BF16 };
}

/* ---- times ---- */

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static nb_cuda_graph *graph_of(chk_bench_fn *fn, void *ctx, int n)
{
    d.api->graph_begin(d.g);
    for (int i = 0; i < n; i++) fn(ctx);
    return d.api->graph_end(d.g);
}

static double time_graph(chk *t, nb_cuda_graph *x, bool flush, int n_sample)
{
    double v[SAMPLES];
    for (int i = -1; i < n_sample; i++) {
        if (flush && d.flush) d.api->fill(d.g, d.flush, i & 255, flush_bytes);
        d.api->mark(d.g, 0);
        d.api->graph_launch(d.g, x);
        d.api->mark(d.g, 1);
        if (failed(t)) return NAN;
        if (i >= 0) v[i] = d.api->elapsed_s(d.g, 0, 1);
    }
    qsort(v, (size_t)n_sample, sizeof *v, by_value);
    return v[n_sample / 2];
}

void chk_gpu_time(chk *t, const char *label, double bytes, double flops, chk_bench_fn *fn,
                  void *ctx)
{
    const int n_sample = d.info.emulated ? 1 : SAMPLES, inner = d.info.emulated ? 1 : INNER;
    if (!d.flush && !d.info.emulated) d.flush = d.api->alloc(d.g, flush_bytes);
    fn(ctx);
    if (failed(t)) return;
    nb_cuda_graph *one = graph_of(fn, ctx, 1), *many = graph_of(fn, ctx, inner);
    if (!one || !many) {
        (void)failed(t);
        return;
    }
    const double cold = time_graph(t, one, true, n_sample);
    const double warm = time_graph(t, many, false, n_sample) / inner;
    if (d.dead || t->failed) return;
    d.api->graph_destroy(d.g, one);
    d.api->graph_destroy(d.g, many);
    printf(
        "%-24s %-32s cold %9.2f us %8.1f GB/s %8.2f TFLOP/s | warm %9.2f us %8.1f GB/s %8.2f TFLOP/s\n",
        t->function, label, cold * 1e6, bytes / cold * 1e-9, flops / cold * 1e-12, warm * 1e6,
        bytes / warm * 1e-9, flops / warm * 1e-12);
}

/* ---- the list ---- */

/* clang-format off: one a line, for those who add theirs */
#define OPS(X)                                                                                     \
    X(buffers)                                                                                     \
    X(embed)                                                                                       \
    X(norm)                                                                                        \
    X(rope_table)                                                                                  \
    X(finish)                                                                                      \
    X(swiglu)                                                                                      \
    X(moe_sum)                                                                                     \
    X(zero_experts)                                                                                \
    X(route)                                                                                       \
    X(sample)                                                                                      \
    X(linear)                                                                                      \
    X(experts)                                                                                     \
    X(kv)                                                                                          \
    X(mla)                                                                                         \
    X(mla_tail)                                                                                    \
    X(thrift)                                                                                      \
    X(index_finish)                                                                                \
    X(index_score)                                                                                 \
    X(index_topk)                                                                                  \
    X(gather)                                                                                      \
    X(csa_turn)                                                                                    \
    X(csa_append)                                                                                  \
    X(csa_keep)                                                                                    \
    X(csa_attend)                                                                                  \
    X(streams)                                                                                     \
    X(prefill)                                                                                     \
    X(gqa)
/* clang-format on */
#define DECLARE(op) extern const chk_op chk_cuda_##op;
OPS(DECLARE)
#define ADDRESS(op) &chk_cuda_##op,
const chk_op *const chk_cuda_ops[] = { OPS(ADDRESS) };
const size_t chk_cuda_n_op = NB_COUNT(chk_cuda_ops);

/* ---- codes ---- */

chk_codes chk_gpu_codes(chk *t, const float *x, size_t n_row, size_t n_col, size_t x_stride,
                        nb_cuda_codes *dev)
{
    const size_t n_group = (n_col + 127) / 128;
    chk_codes y = { .stride = n_group * 128, .s_stride = n_group };
    y.q = chk_raw(t, n_row * y.stride);
    y.s = chk_raw(t, n_row * n_group * sizeof *y.s);
    memset(y.q, 0, n_row * y.stride);
    for (size_t i = 0; i < n_row * n_group; i++) {
        const size_t row = i / n_group, c0 = i % n_group * 128, n = n_col - c0 < 128 ? n_col - c0 : 128;
        const float *v = x + row * x_stride + c0;
        float a = 0;
        bool finite = true;
        for (size_t c = 0; c < n; c++) {
            finite &= isfinite(v[c]) != 0;
            a = fmaxf(a, fabsf(v[c]));
        }
        const bool zero = !finite || a < NB_CUDA_CODES_MIN;
        const float inv = zero ? 0 : 448.0f / a;
        for (size_t c = 0; c < n && !zero; c++)
            y.q[row * y.stride + c0 + c] = nb_e4m3_from_f32(v[c] * inv);
        y.s[i] = !finite ? NAN : zero ? 0 : a / 448.0f;
    }
    *dev = (nb_cuda_codes){ .q = chk_gpu_in(t, y.q, n_row * y.stride),
                            .s = chk_gpu_in(t, y.s, n_row * n_group * sizeof *y.s),
                            .stride = y.stride,
                            .s_stride = y.s_stride };
    return y;
}

static double e4m3(uint8_t c)
{
    const double v = (double)nb_e4m3_value[c & 0x7f];
    return c & 0x80 ? -v : v;
}

void chk_codes_sum(const chk_codes *x, size_t row, const nb_weight *w, size_t r, double *want,
                   double *bound)
{
    const uint8_t *code = (const uint8_t *)w->data + r * w->n_col, *q = x->q + row * x->stride;
    *want = *bound = 0;
    for (size_t b = 0; b * 128 < w->n_col; b++) {
        const size_t end = b * 128 + 128 < w->n_col ? b * 128 + 128 : w->n_col;
        const double factor = (double)x->s[row * x->s_stride + b] *
                              (double)(w->row_scales ? w->scale[r]
                                                     : w->scale[r / 128 * x->s_stride + b]);
        double sum = 0, lost = 0;
        for (size_t k = b * 128; k < end; k += 32) {
            double most = fabs(sum) + lost;
            for (size_t c = k; c < k + 32 && c < end; c++) {
                const double p = e4m3(code[c]) * e4m3(q[c]);
                most = fmax(most, fabs(p));
                sum += p;
            }
            lost += 33 * 0x1p-13 * most;
        }
        *want += factor * sum;
        *bound += fabs(factor) * (lost + 0x1p-22 * fabs(sum));
        *bound += 0x1p-23 * fabs(*want); /* the running sum */
    }
}
