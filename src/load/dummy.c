/* dummy.c - seeded random weights for any shape, without the memory of that shape.
 *
 * Problem: a model with 671 G parameters is to be run for its speed on a machine that
 * cannot hold it.  So each element type has one pool: 4 GiB of address space in which
 * only what is used gets pages, and every matrix is a view into it, at an offset that
 * is a hash of its name.  The content of a pool depends on (seed, type, position)
 * alone and is filled in pieces of 64 Ki elements when a view first covers them, so
 * neither the order of asking nor what else is asked for changes any value.  4 GiB
 * because it is more than any cache and less than the memory of most machines.
 *
 * The values are normal by table: 16 random bits choose one of 65,536 equally likely
 * quantiles, (i + 1/2) / 65,536, so one 64-bit random number makes four elements; the
 * largest is 4.3 deviations.  The quantiles are computed with +, -, * and / only, which
 * IEEE 754 fixes, and not with libm's exp or erf, which differ between systems.  A sum
 * of uniforms was not taken: it needs as many random bits and has thinner tails.
 *
 * FP8 weights: codes have deviation 64, so that the largest (275) stays under 448, and
 * the block scales, F32 tensors named "..._scale_inv", are all stddev / 64: the
 * products have the wanted deviation.  Constant values (these scales) are views into
 * one page range of that constant.  Ones and zeros are allocations of their own. */
#include <stdlib.h>

#include "base/hash.h"
#include "base/rng.h"
#include "load/load_internal.h"
#include "num/bf16.h"
#include "num/e4m3.h"
#include "num/fp16.h"
#include "os/file.h"

#define POOL_BYTES ((size_t)4 << 30)
enum { CHUNK_ELEMS = 65536, VIEW_ALIGN = 64, N_QUANTILE = 65536 };
static const double fp8_deviation = 64;

/* Page ranges handed out, freed with the source. */
typedef struct range {
    struct range *next;
    void *p;
    size_t n_bytes;
} range;

typedef struct pool {
    unsigned char *p;     /* [POOL_BYTES], or NULL before the first use */
    unsigned char *ready; /* [n_chunk], 1 when filled */
    void *quantile;       /* [N_QUANTILE] elements of the pool's type */
    uint64_t key;
} pool;

struct nb_dummy {
    uint64_t seed;
    double stddev;
    pool pools[NB_DT_F8_E4M3 + 1]; /* F32, BF16, F16, F8_E4M3 */
    float *scales;                 /* constant stddev / 64 */
    size_t n_scale;
    range *ranges;
};

nb_status nb_dummy_create(uint64_t seed, double stddev, nb_dummy **out, nb_error *err)
{
    if (!(stddev >= 0 && stddev <= 1e4))
        return nb_fail(err, NB_ERR_ARG, "dummy weights: deviation %g, expected 0 to 10000", stddev);
    nb_dummy *d = calloc(1, sizeof *d);
    if (!d) return nb_fail(err, NB_ERR_NOMEM, "dummy weights: out of memory");
    d->seed = seed;
    d->stddev = stddev;
    *out = d;
    return NB_OK;
}

void nb_dummy_destroy(nb_dummy *d)
{
    if (!d) return;
    for (size_t i = 0; i < NB_COUNT(d->pools); i++) {
        nb_pages_free(d->pools[i].p, POOL_BYTES);
        free(d->pools[i].ready);
        free(d->pools[i].quantile);
    }
    while (d->ranges) {
        range *next = d->ranges->next;
        nb_pages_free(d->ranges->p, d->ranges->n_bytes);
        free(d->ranges);
        d->ranges = next;
    }
    free(d);
}

/* Zeroed pages that live as long as d, or NULL. */
static void *own_pages(nb_dummy *d, size_t n_bytes)
{
    range *r = malloc(sizeof *r);
    if (!r) return NULL;
    *r = (range){ .next = d->ranges,
                  .p = nb_pages_alloc(n_bytes ? n_bytes : 1),
                  .n_bytes = n_bytes ? n_bytes : 1 };
    if (!r->p) {
        free(r);
        return NULL;
    }
    nb_pages_prefer_huge(r->p, r->n_bytes);
    d->ranges = r;
    return r->p;
}

/* ---------------------------------------------------------------- quantiles */

/* exp(-x) for 0 <= x <= 16: a Taylor series at x / 4096, squared 12 times. */
static double exp_minus(double x)
{
    const double t = x / 4096;
    double e = 1 - t * (1 - t / 2 * (1 - t / 3 * (1 - t / 4 * (1 - t / 5))));
    for (int i = 0; i < 12; i++) e *= e;
    return e;
}

/* q[i] = the z >= 0 with P(Z < z) = 1/2 + (i + 1/2) / 65536, i < 32768.
 * P(0 < Z < z) = phi(z) * sum of z^(2k+1) / (1 * 3 * ... * (2k+1)); Newton's method from
 * the neighbour's value takes two to four steps. */
static void make_quantiles(double *q)
{
    const double inv_sqrt_2pi = 0.39894228040143267794;
    double z = 0;
    for (int i = 0; i < N_QUANTILE / 2; i++) {
        const double want = (i + 0.5) / N_QUANTILE;
        for (int step = 0; step < 30; step++) {
            const double phi = inv_sqrt_2pi * exp_minus(z * z / 2);
            double term = z, sum = z;
            for (int k = 3; term > sum * 1e-17; k += 2) {
                term *= z * z / k;
                sum += term;
            }
            const double change = (want - phi * sum) / phi;
            z += change;
            if (change < 1e-11 && change > -1e-11) break;
        }
        q[i] = z;
    }
}

static void put_elem(void *table, size_t i, nb_dtype t, double v)
{
    const float f = (float)v;
    switch (t) {
    case NB_DT_F32: ((float *)table)[i] = f; break;
    case NB_DT_BF16: ((uint16_t *)table)[i] = nb_bf16_from_f32(f); break;
    case NB_DT_F16: ((uint16_t *)table)[i] = nb_fp16_from_f32_sat(f); break;
    default: /* NB_DT_F8_E4M3: the only other type with a pool */
        ((uint8_t *)table)[i] = nb_e4m3_from_f32(f);
        break;
    }
}

static bool pool_open(nb_dummy *d, nb_dtype t)
{
    pool *p = &d->pools[t];
    if (p->p) return true;
    double *q = malloc(N_QUANTILE / 2 * sizeof *q);
    p->quantile = malloc(N_QUANTILE * nb_dtype_bytes(t));
    p->ready = calloc(POOL_BYTES / nb_dtype_bytes(t) / CHUNK_ELEMS, 1);
    if (q && p->quantile && p->ready) p->p = nb_pages_alloc(POOL_BYTES);
    if (!p->p) {
        free(q);
        free(p->quantile);
        free(p->ready);
        *p = (pool){ 0 };
        return false;
    }
    make_quantiles(q);
    const double scale = t == NB_DT_F8_E4M3 ? fp8_deviation : d->stddev;
    for (size_t i = 0; i < N_QUANTILE / 2; i++) {
        put_elem(p->quantile, i, t, -scale * q[i]);
        put_elem(p->quantile, N_QUANTILE / 2 + i, t, scale * q[i]);
    }
    free(q);
    p->key = nb_mix64(nb_mix64(d->seed) + t);
    return true;
}

/* ------------------------------------------------------------------ filling */

/* n elements (a multiple of 4) from position 4 * group on, one function per width.
 * nb_rng_u64 with its inner mix taken out of the loop (it is in key). */
#define FILL(name, type)                                                                           \
    static void name(type *out, const type *q, uint64_t key, uint64_t group, size_t n)             \
    {                                                                                              \
        for (size_t i = 0; i < n; i += 4, group++) {                                               \
            const uint64_t r = nb_mix64(key ^ (group * 0xda942042e4dd58b5u));                      \
            out[i] = q[r & 0xffff];                                                                \
            out[i + 1] = q[r >> 16 & 0xffff];                                                      \
            out[i + 2] = q[r >> 32 & 0xffff];                                                      \
            out[i + 3] = q[r >> 48];                                                               \
        }                                                                                          \
    }
FILL(fill32, float)
FILL(fill16, uint16_t)
FILL(fill8, uint8_t)
#undef FILL

static void fill(const pool *p, nb_dtype t, void *out, uint64_t group, size_t n)
{
    if (nb_dtype_bytes(t) == 4)
        fill32(out, p->quantile, p->key, group, n);
    else if (nb_dtype_bytes(t) == 2)
        fill16(out, p->quantile, p->key, group, n);
    else
        fill8(out, p->quantile, p->key, group, n);
}

/* A view of n_bytes at the offset that belongs to the name, filled. */
static const void *pool_view(nb_dummy *d, nb_dtype t, uint64_t name_hash, size_t n_bytes)
{
    if (!pool_open(d, t)) return NULL;
    pool *p = &d->pools[t];
    const size_t elem = nb_dtype_bytes(t);
    if (n_bytes > POOL_BYTES) { /* larger than the pool: pages of its own */
        const size_t n_group = (n_bytes / elem + 3) / 4;
        void *own = own_pages(d, n_group * 4 * elem);
        if (own) fill(p, t, own, name_hash >> 16, n_group * 4);
        return own;
    }
    const size_t n_place = (POOL_BYTES - n_bytes) / VIEW_ALIGN + 1;
    const size_t at = (size_t)(name_hash % n_place) * VIEW_ALIGN;
    const size_t chunk_bytes = CHUNK_ELEMS * elem;
    nb_pages_prefer_huge(p->p + at, n_bytes); /* nothing for small views, which stay sparse */
    const size_t first = at / chunk_bytes, end = (at + n_bytes + chunk_bytes - 1) / chunk_bytes;
    for (size_t c = first; c < end; c++) {
        if (p->ready[c]) continue;
        fill(p, t, p->p + c * chunk_bytes, (uint64_t)c * (CHUNK_ELEMS / 4), CHUNK_ELEMS);
        p->ready[c] = 1;
    }
    return p->p + at;
}

/* n constant scales: one growing page range, of which a larger one replaces a smaller
 * for later tensors while earlier views keep the old. */
static const void *scale_view(nb_dummy *d, size_t n)
{
    if (n > d->n_scale) {
        const size_t cap = n < 16384 ? 16384 : n;
        float *s = own_pages(d, cap * sizeof *s);
        if (!s) return NULL;
        for (size_t i = 0; i < cap; i++) s[i] = (float)(d->stddev / fp8_deviation);
        d->scales = s;
        d->n_scale = cap;
    }
    return d->scales;
}

static void fill_ones(void *out, nb_dtype t, size_t n)
{
    static const int64_t one = 1;
    const size_t elem = nb_dtype_bytes(t);
    for (size_t i = 0; i < n; i++) {
        if (t <= NB_DT_F8_E4M3)
            put_elem(out, i, t, 1);
        else if (t == NB_DT_F64)
            ((double *)out)[i] = 1;
        else if (t == NB_DT_F8_E5M2)
            ((uint8_t *)out)[i] = 0x3c; /* exponent 15, the bias */
        else
            memcpy((char *)out + i * elem, &one, elem); /* little endian, as the files */
    }
}

static bool ends_with(const char *s, const char *suffix)
{
    const size_t n = strlen(s), m = strlen(suffix);
    return n >= m && strcmp(s + n - m, suffix) == 0;
}

static nb_status check_want(const nb_tensor_want *w, size_t *n_elem, nb_error *err)
{
    const size_t elem = nb_dtype_bytes(w->dummy_dtype);
    const nb_shown name = nb_show_c(w->name);
    if (elem == 0 || w->n_dim > NB_TENSOR_MAX_DIM)
        return nb_fail(err, NB_ERR_ARG, "dummy weights: tensor '%s': no usable type or shape",
                       name.s);
    if (w->dummy_fill == NB_FILL_NORMAL && w->dummy_dtype > NB_DT_F8_E4M3)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "dummy weights: tensor '%s': no normal values of type %s, expected F32, "
                       "BF16, F16 or F8_E4M3",
                       name.s, nb_dtype_name(w->dummy_dtype));
    size_t n = 1;
    for (size_t i = 0; i < w->n_dim; i++) {
        if (w->dim[i] == 0)
            return nb_fail(err, NB_ERR_ARG,
                           "dummy weights: tensor '%s': dimension %zu is open, "
                           "expected its size",
                           name.s, i);
        if (n > SIZE_MAX / 16 / elem / w->dim[i])
            return nb_fail(err, NB_ERR_LIMIT, "dummy weights: tensor '%s': %s is too large", name.s,
                           nb_shape_show(w->dim, w->n_dim).s);
        n *= w->dim[i];
    }
    *n_elem = n;
    return NB_OK;
}

nb_status nb_dummy_make(nb_dummy *d, const nb_tensor_want *want, nb_tensor *out, nb_error *err)
{
    size_t n = 0;
    NB_TRY(check_want(want, &n, err));
    const nb_dtype t = want->dummy_dtype;
    const size_t n_bytes = n * nb_dtype_bytes(t);
    const void *data;
    const uint64_t at = nb_hash_bytes(want->name, strlen(want->name), nb_mix64(d->seed));
    if (want->dummy_fill == NB_FILL_CODES) {
        data = pool_view(d, NB_DT_F8_E4M3, at, n_bytes);
    } else if (want->dummy_fill != NB_FILL_NORMAL) {
        void *own = own_pages(d, n_bytes);
        if (own && want->dummy_fill == NB_FILL_ONES) fill_ones(own, t, n);
        data = own;
    } else if (t == NB_DT_F32 && ends_with(want->name, "_scale_inv")) {
        data = scale_view(d, n);
    } else {
        data = pool_view(d, t, at, n_bytes);
    }
    if (!data)
        return nb_fail(err, NB_ERR_NOMEM, "dummy weights: tensor '%s': out of memory for %zu bytes",
                       nb_show_c(want->name).s, n_bytes);
    *out = (nb_tensor){ .data = data, .dtype = t, .n_dim = want->n_dim, .n_bytes = n_bytes };
    memcpy(out->dim, want->dim, sizeof out->dim);
    return NB_OK;
}
