/* units_panel.h - units of packed weights as bytes, one row to a lane; included once by each of linear_units_avx2.c and
 * linear_units_avx512.c, which define before:
 *
 *   vi, vf, LANES                 a vector of LANES integers of 32 bits, or of floats
 *   vi_load, vi_store, vi_set1, vi_set8, vi_bytes16 (16 bytes in each quarter or half)
 *   vi_and, vi_or, vi_xor, vi_srl, vi_sll, vi_sra (32 bits), vi_shuffle8, vi_min8, vi_add8
 *   vi_float, vf_half (low 16 bits of each lane as FP16), vf_mul, vf_set1, vf_store
 *   vi_part(p, stride)            bytes [0, 16) of rows 0, 4 and so on
 *   vi_lo32, vi_hi32, vi_lo64, vi_hi64 (a, b)        interleave within quarters or halves
 *
 * A panel is LANES rows of a segment: a vector of codes has four columns of each row, a byte each.
 * The bytes of a row come 16 at a time, so that transposing costs 8 shuffles for 4 vectors; a stored byte's two
 * nibbles are two columns, separated by `and` and a shift for all rows at once.  Scales come the same way.  Scalar
 * copies were slower: a vector can not be loaded at once from where its parts were just stored. */

#include "kernel/x86/units_types.h"

/* What the unpackers read: LANES rows, from the segment's first unit on. */
typedef struct rows {
    const uint8_t *p; /* codes or blocks                     */
    size_t stride;    /* bytes from row to row               */
    const nb_weight *w;
    size_t row, n_row; /* INT4, BYTE, FP4: the planes' rows, of which n_row exist */
    size_t unit;       /* first unit of the segment           */
    size_t span;       /* columns                             */
    size_t n_group;    /* of a row of the planes              */
    size_t ahead;      /* what is prefetched: so many bytes behind what is read */
} rows;

#define INLINE static inline __attribute__((always_inline))
#ifdef __SANITIZE_ADDRESS__ /* gcc warns there of loops whose bounds it has not folded yet */
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* Bytes [0, 16) of LANES rows: out[k] has dword k of each row. */
INLINE void vi_rows16(const uint8_t *p, size_t s, vi out[4])
{
    const vi a = vi_part(p, s), b = vi_part(p + s, s), c = vi_part(p + 2 * s, s), d = vi_part(p + 3 * s, s);
    const vi ab = vi_lo32(a, b), ab2 = vi_hi32(a, b), cd = vi_lo32(c, d), cd2 = vi_hi32(c, d);
    out[0] = vi_lo64(ab, cd);
    out[1] = vi_hi64(ab, cd);
    out[2] = vi_lo64(ab2, cd2);
    out[3] = vi_hi64(ab2, cd2);
}

INLINE void put(uint8_t (*code)[LANES * 4], size_t k, vi v)
{
    vi_store(code[k], v);
}
INLINE void put_scale(panel *o, size_t k, vf scale)
{
    vf_store(o->scale[k], scale);
}
static inline void set_zero(panel *o, size_t n, int zero)
{
    const vi z = vi_set1(zero | zero << 23);
    for (size_t k = 0; k < n; k++) vi_store(o->zero[k], z);
}

/* Low and high nibbles. */
INLINE vi low4(vi v)
{
    return vi_and(v, vi_set8(15));
}
INLINE vi high4(vi v)
{
    return vi_and(vi_srl(v, 4), vi_set8(15));
}

/* 16 bytes at `at` of each row.  The rows' lines are prefetched by the quads that read them, LANES / parts rows by each:
 * all at once they would fill the queue of misses, and the core would wait.  Parts is 64 over the bytes from quad to
 * quad, or less; turn: counts quads, each `parts` of them take all rows. */
INLINE void fetch_ahead(const rows *r, size_t at, size_t turn, const size_t parts)
{
    const char *next = (const char *)r->p + at + r->ahead + turn % parts * (LANES / parts) * r->stride;
    UNROLL
    for (size_t i = 0; i < LANES / parts; i++) _mm_prefetch(next + i * r->stride, _MM_HINT_T0);
}
INLINE void quad_of(const rows *r, size_t at, size_t turn, const size_t parts, vi out[4])
{
    fetch_ahead(r, at, turn, parts);
    vi_rows16(r->p + at, r->stride, out);
}
INLINE void quad(const rows *r, size_t at, vi out[4])
{
    quad_of(r, at, at / 16, 4, out);
}

/* The same 16 bytes without: what comes before the codes. */
INLINE void head(const rows *r, size_t at, vi out[4])
{
    vi_rows16(r->p + at, r->stride, out);
}
INLINE vf first_half(vi v)
{
    return vf_half(vi_and(v, vi_set1(0xffff)));
}
INLINE vf second_half(vi v)
{
    return vf_half(vi_srl(v, 16));
}

/* ---- scales of planes ---- */

INLINE vf vf_e8m0(vi e)
{
    const vi tiny = vi_set1(0x00400000), inf = vi_set1(0x7fc00000);
    const vi f = vi_select_eq(e, vi_set1(0), tiny, vi_sll(e, 23));
    return vi_as_float(vi_select_eq(e, vi_set1(255), inf, f));
}
/* E4M3 by way of FP16; 0x7f and 0xff are NaN. */
INLINE vf vf_e4m3(vi e)
{
    const vi most = vi_and(e, vi_set1(0x7f));
    const vi half = vi_or(vi_sll(vi_and(e, vi_set1(0x80)), 8), vi_sll(most, 7));
    const vi f = vi_of_float(vf_mul(vf_half(half), vf_set1(256)));
    return vi_as_float(vi_select_eq(most, vi_set1(0x7f), vi_set1(0x7fc00000), f));
}
INLINE vf scale_of(nb_stype t, vi raw)
{
    switch (t) {
    case NB_S_F32: return vi_as_float(raw);
    case NB_S_BF16: return vi_as_float(vi_sll(raw, 16));
    case NB_S_F16: return vf_half(raw);
    case NB_S_E4M3: return vf_e4m3(raw);
    default: return vf_e8m0(raw);
    }
}

/* A plane's bytes of a panel: groups [first, first + n) of its rows. */
typedef struct plane {
    const uint8_t *p;
    size_t stride, bytes, n;
} plane;

enum { GROUPS = NB_PK_SEG * 4, PLANE_ROW = GROUPS * 4 + 16 };

/* Where 16 bytes at a time would leave the plane, or rows are missing, a copy. */
static plane plane_of(const rows *r, const void *data, size_t bytes, size_t first, size_t n,
                      uint8_t *copy)
{
    const size_t stride = r->n_group * bytes, all = r->w->n_row * stride;
    const size_t at = r->row * stride + first * bytes, whole = (n * bytes + 15) / 16 * 16;
    plane p = { (const uint8_t *)data + at, stride, bytes, n };
    for (size_t i = 0; i < LANES; i++) /* of the next panel */
        _mm_prefetch((const char *)p.p + (LANES + i) * stride, _MM_HINT_T0);
    if (r->n_row == LANES && at + (LANES - 1) * stride + whole <= all) return p;
    for (size_t i = 0; i < LANES; i++) {
        memset(copy + i * PLANE_ROW, 0, whole);
        if (i < r->n_row) memcpy(copy + i * PLANE_ROW, p.p + i * stride, n * bytes);
    }
    p.p = copy;
    p.stride = PLANE_ROW;
    return p;
}

/* Numbers of `bytes` (literal) bytes, a group to a vector; those behind the last of no meaning. */
INLINE void plane_vectors(const plane *p, const size_t bytes, vi *out)
{
    const vi mask = vi_set1(bytes == 1 ? 255 : 65535);
    for (size_t i = 0; i < p->n; i += 16 / bytes) {
        vi v[4];
        vi_rows16(p->p + i * bytes, p->stride, v);
        UNROLL
        for (size_t k = 0; k < 4; k++)
            UNROLL
            for (size_t j = 0; j < 4 / bytes; j++)
                *out++ = bytes == 4 ? v[k] : vi_and(vi_srl(v[k], 8 * bytes * j), mask);
    }
}

/* The scales of p, times outer; of type t (literal), n rounded up to what 16 bytes hold. */
INLINE void scales_of(const nb_stype t, const size_t bytes, const plane *p, vf outer, float (*out)[LANES])
{
    const vi mask = vi_set1(bytes == 1 ? 255 : 65535);
    for (size_t i = 0; i < p->n; i += 16 / bytes) {
        vi v[4];
        vi_rows16(p->p + i * bytes, p->stride, v);
        UNROLL
        for (size_t k = 0; k < 4; k++)
            UNROLL
            for (size_t j = 0; j < 4 / bytes; j++) {
                const vi raw = bytes == 4 ? v[k] : vi_and(vi_srl(v[k], 8 * bytes * j), mask);
                vf_store(*out++, vf_mul(scale_of(t, raw), outer));
            }
    }
}
static void plane_scales(nb_stype t, const plane *p, vf outer, float (*out)[LANES])
{
    switch (t) {
    case NB_S_F32: scales_of(NB_S_F32, 4, p, outer, out); break;
    case NB_S_BF16: scales_of(NB_S_BF16, 2, p, outer, out); break;
    case NB_S_F16: scales_of(NB_S_F16, 2, p, outer, out); break;
    case NB_S_E4M3: scales_of(NB_S_E4M3, 1, p, outer, out); break;
    default: scales_of(NB_S_E8M0, 1, p, outer, out); break;
    }
}

/* Scales, and zeros where the matrix has some, of n_unit units that are a segment with a group for each span. */
static bool planes_of_spans(const rows *r, size_t n_unit, vf outer, panel *o)
{
    const nb_wgroups *g = &r->w->group;
    const size_t per = r->span == 32 ? 1 : r->span == 16 ? 2 : 4; /* no division: it takes as long as three units */
    uint8_t copy[LANES * PLANE_ROW];
    if (g->size != r->span || g->zero || (r->unit + n_unit) * per > r->n_group) return false;
    const plane p = plane_of(r, g->scale, nb_stype_bytes(g->scale_type), r->unit * per, n_unit * per, copy);
    plane_scales(g->scale_type, &p, outer, o->scale);
    return true;
}

/* n_unit units' scales of spans, and their zeros if the matrix has some. */
static void planes(const rows *r, size_t n_unit, panel *o)
{
    const nb_wgroups *g = &r->w->group;
    const vf outer = vf_set1(r->w->type == NB_W_FP4 ? 0.5f * g->outer : g->outer);
    if (planes_of_spans(r, n_unit, outer, o)) return;
    const size_t c0 = r->unit * NB_PK_UNIT, c1 = c0 + n_unit * NB_PK_UNIT;
    const size_t end = c1 < r->w->n_col ? c1 : r->w->n_col;
    const size_t first = c0 / g->size, n = (end - 1) / g->size + 1 - first;
    const size_t n_span = n_unit * NB_PK_UNIT / r->span;
    uint8_t copy[LANES * PLANE_ROW];
    vi zeros[GROUPS + 16];
    _Alignas(64) float scale[GROUPS + 16][LANES];
    plane p = plane_of(r, g->scale, nb_stype_bytes(g->scale_type), first, n, copy);
    plane_scales(g->scale_type, &p, outer, scale);
    if (g->zero) {
        p = plane_of(r, g->zero, 1, first, n, copy);
        plane_vectors(&p, 1, zeros);
        for (size_t i = 0; i < n; i++) zeros[i] = vi_or(zeros[i], vi_sll(zeros[i], 23));
    }
    size_t k = 0, to = (first + 1) * g->size; /* group k ends before column `to` */
    for (size_t i = 0, c = c0; i < n_span; i++, c += r->span) {
        if (c >= to) k++, to += g->size;
        put_scale(o, i, c < end ? vf_load(scale[k]) : vf_set1(0));
        if (g->zero) vi_store(o->zero[i], c < end ? zeros[k] : vi_set1(0));
    }
}
