/* record_data.h - pages of test data, made from integers so that they are the
 * same on every machine, and the shapes that the record tests walk through. */
#ifndef NB_TESTS_RECORD_DATA_H
#define NB_TESTS_RECORD_DATA_H
#include <stdlib.h>

#include "base/attr.h"
#include "base/rng.h"
#include "num/bf16.h"
#include "num/record.h"

/* Roughly normal with deviation about 1: the sum of 8 uniform 16-bit integers. */
static inline float rd_bell(uint64_t seed, uint64_t i)
{
    int64_t sum = 0;
    for (uint64_t k = 0; k < 2; k++) {
        uint64_t r = nb_rng_u64(seed, 2 * i + k);
        for (int j = 0; j < 4; j++, r >>= 16) sum += (int64_t)(r & 0xffff) - 0x8000;
    }
    return (float)sum * 0x1.4p-16f;
}

/* Kinds of vectors; RD_KINDS of them, from tame to hostile. */
enum { RD_KINDS = 12 };

/* Value i of a vector of the given kind; always finite. */
static inline uint16_t rd_value(unsigned kind, uint64_t seed, uint64_t i)
{
    const uint64_t r = nb_rng_u64(seed ^ 0x5eed, i);
    const uint16_t sign = (uint16_t)(r >> 48 & 0x8000);
    switch (kind) {
    case 0: return nb_bf16_from_f32(rd_bell(seed, i));
    case 1: return nb_bf16_from_f32(rd_bell(seed, i) * ((r & 0xff) == 0 ? 1000.0f : 1.0f));
    case 2:
        return (uint16_t)(r & 0xffff) < 0x400 ? 0 : nb_bf16_from_f32(rd_bell(seed, i) * 0x1p-120f);
    case 3:
        return (uint16_t)(sign |
                          (0x3f80 + r % 3 * 0x40 + (r >> 8) % 2 * 0x80));      /* ties: few bits */
    case 4: return (r & 7) ? 0 : nb_bf16_from_f32(rd_bell(seed, i) * 0x1p40f); /* sparse */
    case 5: {                                                                  /* any finite bits */
        const uint16_t b = (uint16_t)(r & 0xffff);
        return (b & 0x7f80) == 0x7f80 ? (uint16_t)(b & 0x807f) : b;
    }
    case 6: return (uint16_t)(sign | (r & 0x7f));            /* zeros and subnormals */
    case 7: return (uint16_t)(sign | (0x7f7f - (r & 0x1f))); /* up to the largest */
    case 8: return (uint16_t)(0x4120 | (seed & 0x8000));     /* constant */
    case 9: return (uint16_t)(sign | (0x3f80 + (r % 40 << 7) + (r >> 8 & 0x7f))); /* 40 octaves */
    case 10: return (uint16_t)(r & 0x8000);                             /* signed zeros only */
    default: return nb_bf16_from_f32(50.0f + rd_bell(seed, i) * 0.25f); /* far from 0 */
    }
}

typedef struct rd_page {
    uint16_t *x; /* [64][stride], values of a token segment by segment */
    size_t stride;
} rd_page;

/* The values of segment s of token t. */
static inline uint16_t *rd_row(const nb_record *r, const rd_page *p, size_t s, size_t t)
{
    return p->x + t * p->stride + r->seg[s].first;
}

/* 64 tokens; kind < RD_KINDS for all, or RD_KINDS: each vector its own kind, with
 * the kind changing inside a vector at multiples of 16 now and then. */
static inline rd_page rd_make(const nb_record *r, unsigned kind, uint64_t seed)
{
    rd_page p = { .stride = r->n_values + 3 };
    p.x = calloc(p.stride * NB_PAGE_TOK, sizeof *p.x);
    if (!p.x) abort();
    for (size_t s = 0; s < r->n_seg; s++) {
        const nb_record_seg *g = &r->seg[s];
        for (size_t t = 0; t < NB_PAGE_TOK; t++)
            for (size_t i = 0; i < g->n_vec * g->dim; i++) {
                const uint64_t at = (s * NB_PAGE_TOK + t) * 131072 + i;
                const uint64_t vec = nb_rng_u64(seed, at / 131072 * 977 + i / g->dim);
                const uint64_t part = (vec >> 32) & 1 ? nb_rng_u64(vec, i % g->dim / 16) : vec;
                const unsigned k = kind < RD_KINDS ? kind : (unsigned)(part % RD_KINDS);
                rd_row(r, &p, s, t)[i] = rd_value(k, seed, at);
            }
    }
    return p;
}

static inline void rd_free(rd_page *p)
{
    free(p->x);
}

static inline nb_status rd_encode(const nb_record *r, void *page, const rd_page *p)
{
    return nb_record_encode_page(r, page, p->x, p->stride);
}

/* FNV-1a, byte by byte: independent of the host's byte order. */
static inline uint64_t rd_hash(const void *p, size_t n_bytes)
{
    const uint8_t *b = p;
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < n_bytes; i++) h = (h ^ b[i]) * 0x100000001b3u;
    return h;
}

#define RD_CASE(t, m, mla, rope_fmt, d0, d1, v0, v1, ...)                                          \
    {                                                                                              \
        .type = t, .mode = m, .rope = rope_fmt, .n_seg = 2,                                        \
        .seg[0].role = mla ? NB_ROLE_LATENT : NB_ROLE_K, .seg[0].dim = d0, .seg[0].n_vec = v0,     \
        .seg[1].role = mla ? NB_ROLE_ROPE : NB_ROLE_V, .seg[1].dim = d1, .seg[1].n_vec = v1,       \
        __VA_ARGS__                                                                                \
    }
#define RD_OUT(s, list) .seg[s].outlier = list, .seg[s].n_outlier = NB_COUNT(list)
#define RD_FIXED(a, b) .seg[0].fixed_scale = a, .seg[1].fixed_scale = b

static const uint16_t rd_latent8[] = { 0, 15, 16, 100, 101, 255, 510, 511 };
static const uint16_t rd_pairs[] = { 0, 1, 8, 9, 30, 31, 62, 63 };
static const uint16_t rd_ends[] = { 0, 16, 31, 32 };
static const uint16_t rd_first4[] = { 0, 1, 2, 3 };
static const uint16_t rd_vectors[] = { 1, 36, 37, 70, 110 };

/* Every record the engine can be asked for, with ordinary and awkward shapes. */
static const nb_record_opts rd_cases[] = {
    RD_CASE(NB_KV_BF16, NB_KV_BASIC, true, NB_ROPE_FP8, 512, 64, 1, 1),
    RD_CASE(NB_KV_FP8, NB_KV_BASIC, true, NB_ROPE_FP8, 512, 64, 1, 1),
    RD_CASE(NB_KV_FP8, NB_KV_BASIC, true, NB_ROPE_BF16, 33, 7, 1, 1),
    RD_CASE(NB_KV_NVFP4, NB_KV_BASIC, true, NB_ROPE_FP8, 512, 64, 1, 1),
    RD_CASE(NB_KV_NVFP4, NB_KV_4OVER6, true, NB_ROPE_FP8, 512, 64, 1, 1),
    RD_CASE(NB_KV_NVFP4, NB_KV_SEARCH, true, NB_ROPE_FP8, 256, 32, 1, 1),
    RD_CASE(NB_KV_NVFP4, NB_KV_4OVER6, true, NB_ROPE_BF16, 17, 5, 1, 1),
    RD_CASE(NB_KV_IF4, NB_KV_BASIC, true, NB_ROPE_FP8, 128, 16, 1, 1),
    RD_CASE(NB_KV_IF4, NB_KV_4OVER6, true, NB_ROPE_FP8, 128, 16, 1, 1),
    RD_CASE(NB_KV_IF4, NB_KV_SEARCH, true, NB_ROPE_FP8, 512, 64, 1, 1),
    RD_CASE(NB_KV_MXFP4, NB_KV_BASIC, true, NB_ROPE_FP8, 512, 64, 1, 1),
    RD_CASE(NB_KV_MXFP4, NB_KV_BASIC, true, NB_ROPE_FP8, 47, 1, 1, 1),
    RD_CASE(NB_KV_INT4, NB_KV_BASIC, true, NB_ROPE_FP8, 512, 64, 1, 1),
    RD_CASE(NB_KV_INT4, NB_KV_BASIC, true, NB_ROPE_BF16, 31, 3, 1, 1),
    RD_CASE(NB_KV_FP8_DS_MLA, NB_KV_BASIC, true, NB_ROPE_FP8, 512, 64, 1, 1),
    RD_CASE(NB_KV_FP8_DS_MLA, NB_KV_BASIC, true, NB_ROPE_FP8, 128, 9, 1, 1),
    RD_CASE(NB_KV_BF16, NB_KV_BASIC, false, NB_ROPE_FP8, 64, 64, 2, 2),
    RD_CASE(NB_KV_FP8, NB_KV_BASIC, false, NB_ROPE_FP8, 64, 48, 4, 4),
    RD_CASE(NB_KV_NVFP4, NB_KV_4OVER6, false, NB_ROPE_FP8, 80, 80, 3, 3),
    RD_CASE(NB_KV_NVFP4, NB_KV_SEARCH, false, NB_ROPE_FP8, 15, 1, 2, 5),
    RD_CASE(NB_KV_IF4, NB_KV_SEARCH, false, NB_ROPE_FP8, 19, 35, 2, 3),
    RD_CASE(NB_KV_MXFP4, NB_KV_BASIC, false, NB_ROPE_FP8, 33, 64, 3, 2),
    RD_CASE(NB_KV_INT4, NB_KV_BASIC, false, NB_ROPE_FP8, 64, 64, 2, 2),
    RD_CASE(NB_KV_INT4, NB_KV_BASIC, false, NB_ROPE_FP8, 37, 37, 3, 3),
    RD_CASE(NB_KV_F32, NB_KV_BASIC, true, NB_ROPE_FP8, 512, 64, 1, 1),
    /* outlier channels */
    RD_CASE(NB_KV_NVFP4, NB_KV_4OVER6, true, NB_ROPE_FP8, 512, 64, 1, 1, RD_OUT(0, rd_latent8),
            RD_OUT(1, rd_pairs)),
    RD_CASE(NB_KV_IF4, NB_KV_SEARCH, true, NB_ROPE_FP8, 33, 6, 1, 1, RD_OUT(0, rd_ends)),
    RD_CASE(NB_KV_FP8, NB_KV_BASIC, true, NB_ROPE_BF16, 48, 4, 1, 1, RD_OUT(0, rd_ends),
            RD_OUT(1, rd_first4)),
    RD_CASE(NB_KV_MXFP4, NB_KV_BASIC, true, NB_ROPE_FP8, 47, 4, 1, 1, RD_OUT(0, rd_ends),
            RD_OUT(1, rd_first4)),
    RD_CASE(NB_KV_INT4, NB_KV_BASIC, false, NB_ROPE_FP8, 37, 37, 3, 3, RD_OUT(0, rd_vectors),
            RD_OUT(1, rd_vectors)),
    RD_CASE(NB_KV_NVFP4, NB_KV_SEARCH, false, NB_ROPE_FP8, 40, 40, 3, 3, RD_OUT(0, rd_vectors),
            RD_OUT(1, rd_vectors)),
    RD_CASE(NB_KV_FP8_DS_MLA, NB_KV_BASIC, true, NB_ROPE_FP8, 128, 9, 1, 1, RD_OUT(0, rd_ends)),
    /* fixed scales: neither a power of two nor a short number */
    RD_CASE(NB_KV_NVFP4, NB_KV_BASIC, true, NB_ROPE_FP8, 64, 16, 1, 1, RD_FIXED(.00137f, .3f)),
    RD_CASE(NB_KV_NVFP4, NB_KV_4OVER6, true, NB_ROPE_FP8, 512, 64, 1, 1, RD_FIXED(.0011f, .01f)),
    RD_CASE(NB_KV_NVFP4, NB_KV_SEARCH, true, NB_ROPE_BF16, 49, 6, 1, 1, RD_FIXED(0x1.8p-11f, 0),
            RD_OUT(0, rd_ends)),
    RD_CASE(NB_KV_FP8, NB_KV_BASIC, false, NB_ROPE_FP8, 40, 40, 3, 3, RD_FIXED(1, .0071f),
            RD_OUT(1, rd_vectors)),
    RD_CASE(NB_KV_NVFP4, NB_KV_4OVER6, true, NB_ROPE_FP8, 32, 4, 1, 1,
            RD_FIXED(0x1p-100f, 0x1p100f)),
    /* rope keys of 8-bit integers */
    RD_CASE(NB_KV_NVFP4, NB_KV_4OVER6, true, NB_ROPE_INT8, 512, 64, 1, 1),
    RD_CASE(NB_KV_IF4, NB_KV_SEARCH, true, NB_ROPE_INT8, 33, 19, 1, 1),
    RD_CASE(NB_KV_FP8, NB_KV_BASIC, true, NB_ROPE_INT8, 48, 301, 1, 1, RD_FIXED(.02f, 0)),
    RD_CASE(NB_KV_MXFP4, NB_KV_BASIC, true, NB_ROPE_INT8, 32, 64, 1, 1, RD_OUT(0, rd_first4),
            RD_OUT(1, rd_pairs)),
};
enum { RD_CASES = NB_COUNT(rd_cases) };

#endif
