/* units_unpack.h - units of packed weights as bytes, one row to a lane; included by linear_units_avx2.c and
 * linear_units_avx512.c, which define before:
 *
 *   vi, vf, LANES                 a vector of LANES integers of 32 bits, or of floats
 *   vi_load, vi_store, vi_set1, vi_set8, vi_bytes16 (16 bytes in each quarter or half)
 *   vi_and, vi_or, vi_xor, vi_srl, vi_sll, vi_sra (32 bits), vi_shuffle8, vi_min8, vi_add8
 *   vi_float, vf_half (low 16 bits of each lane as FP16), vf_mul, vf_set1, vf_store
 *   vi_rows16(p, stride, out)     bytes [0, 16) of LANES rows: out[k] has dword k of each row
 *
 * A panel is LANES rows of a segment: a vector of codes has four columns of each row, a byte each.
 * The bytes of a row come 16 at a time, so that transposing costs 8 shuffles for 4 vectors; a stored byte's two
 * nibbles are two columns, separated by `and` and a shift for all rows at once.  Scales come the same way.  Scalar
 * copies were slower: a vector can not be loaded at once from where its parts were just stored. */

typedef struct panel {
    _Alignas(64) uint8_t code[NB_PK_SEG][8][LANES * 4];
    float scale[NB_PK_SEG * 4][LANES]; /* of each span */
    float min[NB_PK_SEG * 2][LANES];
    uint32_t zero[NB_PK_SEG * 4][LANES]; /* zero | 128 zero << 16 */
} panel;

/* What the unpackers read: LANES rows, from the segment's first unit on. */
typedef struct rows {
    const uint8_t *p; /* codes or blocks                     */
    size_t stride;    /* bytes from row to row               */
    const nb_weight *w;
    size_t row, n_row; /* INT4, BYTE, FP4: the planes' rows, of which n_row exist */
    size_t unit;       /* first unit of the segment           */
    size_t span;       /* columns                             */
    size_t ahead;      /* what is prefetched: so many bytes behind what is read */
} rows;

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

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

/* 16 bytes at `at` of each row.  A line of a row is prefetched once, by one of the four quads that read it; all at once
 * they would fill the queue of misses, and the core would wait. */
INLINE void quad(const rows *r, size_t at, vi out[4])
{
    const uint8_t *p = r->p + at;
    const char *next = (const char *)p + r->ahead + at / 16 % 4 * (LANES / 4) * r->stride;
    UNROLL
    for (size_t i = 0; i < LANES / 4; i++) _mm_prefetch(next + i * r->stride, _MM_HINT_T0);
    vi_rows16(p, r->stride, out);
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
    const size_t stride = nb_weight_n_group(r->w) * bytes, all = r->w->n_row * stride;
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

/* The scales of p, times outer, in place. */
INLINE void scales_times(nb_stype t, size_t n, vf outer, vi *v)
{
    for (size_t i = 0; i < n; i++) v[i] = vi_of_float(vf_mul(scale_of(t, v[i]), outer));
}
static void plane_scales(nb_stype t, const plane *p, vf outer, vi *v)
{
    switch (t) {
    case NB_S_F32:
        plane_vectors(p, 4, v);
        scales_times(NB_S_F32, p->n, outer, v);
        break;
    case NB_S_BF16:
        plane_vectors(p, 2, v);
        scales_times(NB_S_BF16, p->n, outer, v);
        break;
    case NB_S_F16:
        plane_vectors(p, 2, v);
        scales_times(NB_S_F16, p->n, outer, v);
        break;
    case NB_S_E4M3:
        plane_vectors(p, 1, v);
        scales_times(NB_S_E4M3, p->n, outer, v);
        break;
    default:
        plane_vectors(p, 1, v);
        scales_times(NB_S_E8M0, p->n, outer, v);
        break;
    }
}

/* n_unit units' scales and zeros of spans. */
static void planes(const rows *r, size_t n_unit, int zero, panel *o)
{
    const nb_wgroups *g = &r->w->group;
    const size_t c0 = r->unit * NB_PK_UNIT, c1 = c0 + n_unit * NB_PK_UNIT;
    const size_t end = c1 < r->w->n_col ? c1 : r->w->n_col;
    const size_t first = c0 / g->size, n = (end - 1) / g->size + 1 - first;
    const size_t n_span = n_unit * NB_PK_UNIT / r->span;
    const vf outer = vf_set1(r->w->type == NB_W_FP4 ? 0.5f * g->outer : g->outer);
    uint8_t copy[LANES * PLANE_ROW];
    vi scale[GROUPS + 16], zeros[GROUPS + 16];
    plane p = plane_of(r, g->scale, nb_stype_bytes(g->scale_type), first, n, copy);
    plane_scales(g->scale_type, &p, outer, scale);
    if (g->zero) {
        p = plane_of(r, g->zero, 1, first, n, copy);
        plane_vectors(&p, 1, zeros);
        for (size_t i = 0; i < n; i++) zeros[i] = vi_or(zeros[i], vi_sll(zeros[i], 23));
    } else {
        set_zero(o, n_span, zero);
    }
    size_t k = 0, to = (first + 1) * g->size; /* group k ends before column `to` */
    for (size_t i = 0, c = c0; i < n_span; i++, c += r->span) {
        if (c >= to) k++, to += g->size;
        put_scale(o, i, c < end ? vi_as_float(scale[k]) : vf_set1(0));
        if (g->zero) vi_store(o->zero[i], c < end ? zeros[k] : vi_set1(0));
    }
}

/* ---- types ---- */

typedef void unpack_fn(const rows *r, size_t n_unit, panel *o);

#define FP4_TABLE vi_bytes16(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0)
#define IQ4_TABLE                                                                                  \
    vi_bytes16(1, 24, 45, 63, 79, 93, 106, (char)118, (char)129, (char)141, (char)153, (char)166,  \
               (char)181, (char)197, (char)217, (char)241)

static void unpack_int4(const rows *r, size_t n_unit, panel *o)
{
    const vi flip = vi_set8((char)r->w->group.flip);
    for (size_t u = 0; u < n_unit; u++) {
        vi v[4];
        quad(r, 16 * u, v);
        UNROLL
        for (size_t k = 0; k < 4; k++) {
            v[k] = vi_xor(v[k], flip);
            put(o->code[u], 2 * k, low4(v[k]));
            put(o->code[u], 2 * k + 1, high4(v[k]));
        }
    }
    planes(r, n_unit, 8, o);
}

static void unpack_fp4(const rows *r, size_t n_unit, panel *o)
{
    const vi flip = vi_set8((char)r->w->group.flip), table = FP4_TABLE;
    for (size_t u = 0; u < n_unit; u++) {
        vi v[4];
        quad(r, 16 * u, v);
        UNROLL
        for (size_t k = 0; k < 4; k++) {
            v[k] = vi_xor(v[k], flip);
            put(o->code[u], 2 * k, vi_shuffle8(table, low4(v[k])));
            put(o->code[u], 2 * k + 1, vi_shuffle8(table, high4(v[k])));
        }
    }
    planes(r, n_unit, 12, o);
}

/* 32 bytes. */
INLINE void put_bytes(const rows *r, size_t at, vi flip, uint8_t (*code)[LANES * 4])
{
    UNROLL
    for (size_t h = 0; h < 2; h++) {
        vi v[4];
        quad(r, at + 16 * h, v);
        UNROLL
        for (size_t k = 0; k < 4; k++) put(code, 4 * h + k, vi_xor(v[k], flip));
    }
}

static void unpack_byte(const rows *r, size_t n_unit, panel *o)
{
    const vi flip = vi_set8((char)r->w->group.flip);
    for (size_t u = 0; u < n_unit; u++) put_bytes(r, 32 * u, flip, o->code[u]);
    planes(r, n_unit, 128, o);
}

static void unpack_q8_0(const rows *r, size_t n_unit, panel *o)
{
    for (size_t u = 0; u < n_unit; u++) {
        vi h[4];
        head(r, 34 * u, h);
        put_scale(o, u, first_half(h[0]));
        put_bytes(r, 34 * u + 2, vi_set8((char)0x80), o->code[u]);
    }
    set_zero(o, n_unit, 128);
}

/* 16 bytes of nibbles: columns 0..15 low, 16..31 high. */
INLINE void put_nibbles(const rows *r, size_t at, uint8_t (*code)[LANES * 4])
{
    vi v[4];
    quad(r, at, v);
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        put(code, k, low4(v[k]));
        put(code, k + 4, high4(v[k]));
    }
}
/* The same with 32 fifth bits: byte k / 2 of them beside each other, a bit for each byte, cut down to 16. */
INLINE void put_fives(const rows *r, size_t at, vi h, uint8_t (*code)[LANES * 4])
{
    const vi order = vi_bytes16(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12), one = vi_set8(1);
    const vi each = vi_set1((int)0x80402010), most = vi_set8(16);
    vi v[4], byte = order;
    quad(r, at, v);
    UNROLL
    for (size_t k = 0; k < 8; k += 2) {
        const vi odd = vi_shuffle8(h, byte), even = vi_sll(odd, 4);
        const vi a = vi_min8(vi_and(even, each), most), b = vi_min8(vi_and(odd, each), most);
        byte = vi_add8(byte, one);
        put(code, k, vi_or(a, k < 4 ? low4(v[k]) : high4(v[k - 4])));
        put(code, k + 1, vi_or(b, k < 4 ? low4(v[k + 1]) : high4(v[k - 3])));
    }
}
INLINE void put_looked_up(const rows *r, size_t at, vi table, uint8_t (*code)[LANES * 4])
{
    vi v[4];
    quad(r, at, v);
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        put(code, k, vi_shuffle8(table, low4(v[k])));
        put(code, k + 4, vi_shuffle8(table, high4(v[k])));
    }
}

static void unpack_q4_0(const rows *r, size_t n_unit, panel *o)
{
    for (size_t u = 0; u < n_unit; u++) {
        vi h[4];
        head(r, 18 * u, h);
        put_scale(o, u, first_half(h[0]));
        put_nibbles(r, 18 * u + 2, o->code[u]);
    }
    set_zero(o, n_unit, 8);
}
static void unpack_q4_1(const rows *r, size_t n_unit, panel *o)
{
    for (size_t u = 0; u < n_unit; u++) {
        vi h[4];
        head(r, 20 * u, h);
        put_scale(o, u, first_half(h[0]));
        vf_store(o->min[u], second_half(h[0]));
        put_nibbles(r, 20 * u + 4, o->code[u]);
    }
}
static void unpack_q5_0(const rows *r, size_t n_unit, panel *o)
{
    for (size_t u = 0; u < n_unit; u++) {
        vi h[4];
        head(r, 22 * u, h);
        put_scale(o, u, first_half(h[0]));
        put_fives(r, 22 * u + 6, vi_or(vi_srl(h[0], 16), vi_sll(h[1], 16)), o->code[u]);
    }
    set_zero(o, n_unit, 16);
}
static void unpack_q5_1(const rows *r, size_t n_unit, panel *o)
{
    for (size_t u = 0; u < n_unit; u++) {
        vi h[4];
        head(r, 24 * u, h);
        put_scale(o, u, first_half(h[0]));
        vf_store(o->min[u], second_half(h[0]));
        put_fives(r, 24 * u + 8, h[1], o->code[u]);
    }
}
static void unpack_iq4_nl(const rows *r, size_t n_unit, panel *o)
{
    const vi table = IQ4_TABLE;
    for (size_t u = 0; u < n_unit; u++) {
        vi h[4];
        head(r, 18 * u, h);
        put_scale(o, u, first_half(h[0]));
        put_looked_up(r, 18 * u + 2, table, o->code[u]);
    }
    set_zero(o, n_unit, 128);
}
static void unpack_mxfp4(const rows *r, size_t n_unit, panel *o)
{
    const vi table = FP4_TABLE;
    for (size_t u = 0; u < n_unit; u++) {
        /* 2^(e - 128), for twice the values: 2^(e - 1 - 127), subnormal for e of 0 and 1 */
        vi h[4];
        head(r, 17 * u, h);
        const vi e = vi_and(h[0], vi_set1(255));
        vi f = vi_sll(vi_sub(e, vi_set1(1)), 23);
        f = vi_select_eq(e, vi_set1(0), vi_set1(0x00200000), f);
        f = vi_select_eq(e, vi_set1(1), vi_set1(0x00400000), f);
        put_looked_up(r, 17 * u + 1, table, o->code[u]);
        put_scale(o, u, vi_as_float(f));
    }
    set_zero(o, n_unit, 12);
}

static void unpack_nvfp4(const rows *r, size_t n_unit, panel *o)
{
    const vi table = FP4_TABLE, byte = vi_set1(255), most = vi_set1(0x7f);
    const vf outer = vf_set1(r->w->group.outer);
    for (size_t u = 0; u < n_unit; u++) {
        const size_t at = 36 * (u / 2), k = u & 1;
        vi v[4], s[4];
        head(r, at, s);
        quad(r, at + 4 + 16 * k, v);
        UNROLL
        for (size_t h = 0; h < 2; h++) {
            const vi e = vi_and(vi_srl(s[0], (int)(16 * k + 8 * h)), byte);
            const vf d = vf_mul(vf_half(vi_sll(vi_and(e, most), 7)), vf_set1(128)); /* half */
            const vi f = vi_select_eq(e, most, vi_set1(0), vi_of_float(d));
            put_scale(o, 2 * u + h, vf_mul(vi_as_float(f), outer));
            UNROLL
            for (size_t i = 0; i < 2; i++) {
                put(o->code[u], 4 * h + i, vi_shuffle8(table, low4(v[2 * h + i])));
                put(o->code[u], 4 * h + 2 + i, vi_shuffle8(table, high4(v[2 * h + i])));
            }
        }
    }
    set_zero(o, 2 * n_unit, 12);
}

/* Scales and minima of the eight units of Q4_K and Q5_K. */
static inline void k_scales(const rows *r, size_t at, panel *o, size_t u)
{
    vi h[4];
    quad(r, at, h);
    const vf d = first_half(h[0]), m = vf_mul(second_half(h[0]), vf_set1(-1));
    const vi six = vi_set1(63), low = vi_set1(15), top = vi_set1(48);
    UNROLL
    for (int j = 0; j < 4; j++) {
        const vi a = vi_srl(h[1], 8 * j), b = vi_srl(h[2], 8 * j), c = vi_srl(h[3], 8 * j);
        put_scale(o, u + (size_t)j, vf_mul(d, vi_float(vi_and(a, six))));
        vf_store(o->min[u + (size_t)j], vf_mul(m, vi_float(vi_and(b, six))));
        const vi s = vi_or(vi_and(c, low), vi_and(vi_srl(a, 2), top));
        const vi n = vi_or(vi_and(vi_srl(c, 4), low), vi_and(vi_srl(b, 2), top));
        put_scale(o, u + 4 + (size_t)j, vf_mul(d, vi_float(s)));
        vf_store(o->min[u + 4 + (size_t)j], vf_mul(m, vi_float(n)));
    }
}

/* Blocks of 256 columns: n_unit may end in one, whose other units are written, too. */
static void unpack_q4_k(const rows *r, size_t n_unit, panel *o)
{
    for (size_t u = 0; u < n_unit; u += 8) {
        const size_t at = 144 * (u / 8);
        k_scales(r, at, o, u);
        UNROLL
        for (size_t i = 0; i < 8; i++) {
            vi v[4];
            quad(r, at + 16 + 16 * i, v);
            UNROLL
            for (size_t k = 0; k < 4; k++) {
                put(o->code[u + i / 2 * 2], 4 * (i & 1) + k, low4(v[k]));
                put(o->code[u + i / 2 * 2 + 1], 4 * (i & 1) + k, high4(v[k]));
            }
        }
    }
}

static void unpack_q5_k(const rows *r, size_t n_unit, panel *o)
{
    const vi one = vi_set8(16);
    for (size_t u = 0; u < n_unit; u += 8) {
        const size_t at = 176 * (u / 8);
        k_scales(r, at, o, u);
        UNROLL
        for (size_t half = 0; half < 2; half++) {
            vi bits[4];
            quad(r, at + 16 + 16 * half, bits);
            UNROLL
            for (size_t j = 0; j < 4; j++) {
                vi v[4];
                quad(r, at + 48 + 32 * j + 16 * half, v);
                UNROLL
                for (size_t k = 0; k < 4; k++) { /* bits 2j and 2j + 1 become bit 4 */
                    const vi a = vi_sll(vi_srl(bits[k], (int)(2 * j)), 4);
                    const vi b = vi_sll(vi_srl(bits[k], (int)(2 * j + 1)), 4);
                    put(o->code[u + 2 * j], 4 * half + k, vi_or(low4(v[k]), vi_and(a, one)));
                    put(o->code[u + 2 * j + 1], 4 * half + k, vi_or(high4(v[k]), vi_and(b, one)));
                }
            }
        }
    }
}

/* Byte j of each lane, with its sign. */
INLINE vi signed_byte(vi v, int j)
{
    return vi_sra(vi_sll(v, 24 - 8 * j), 24);
}

static void unpack_q6_k(const rows *r, size_t n_unit, panel *o)
{
    const vi top = vi_set8(48);
    for (size_t u = 0; u < n_unit; u += 8) {
        const size_t at = 210 * (u / 8);
        vi s[4], e[4];
        head(r, at + 194, e);
        const vf d = second_half(e[3]);
        quad(r, at + 192, s);
        UNROLL
        for (int i = 0; i < 16; i++)
            put_scale(o, 2 * u + (size_t)i, vf_mul(d, vi_float(signed_byte(s[i / 4], i % 4))));
        UNROLL
        for (size_t i = 0; i < 4; i++) { /* half of 128 columns, half of 32 bytes */
            const size_t p = i / 2, h = i & 1;
            vi a[4], b[4], t[4];
            quad(r, at + 64 * p + 16 * h, a);
            quad(r, at + 64 * p + 32 + 16 * h, b);
            quad(r, at + 128 + 32 * p + 16 * h, t);
            UNROLL
            for (size_t k = 0; k < 4; k++) {
                uint8_t(*c)[8][LANES * 4] = &o->code[u + 4 * p];
                put(c[0], 4 * h + k, vi_or(low4(a[k]), vi_and(vi_sll(t[k], 4), top)));
                put(c[1], 4 * h + k, vi_or(low4(b[k]), vi_and(vi_sll(t[k], 2), top)));
                put(c[2], 4 * h + k, vi_or(high4(a[k]), vi_and(t[k], top)));
                put(c[3], 4 * h + k, vi_or(high4(b[k]), vi_and(vi_srl(t[k], 2), top)));
            }
        }
    }
    set_zero(o, 2 * n_unit, 32);
}

static void unpack_q2_k(const rows *r, size_t n_unit, panel *o)
{
    const vi two = vi_set8(3), low = vi_set1(15);
    for (size_t u = 0; u < n_unit; u += 8) {
        const size_t at = 84 * (u / 8);
        vi s[4], e[4];
        head(r, at + 68, e);
        const vf d = first_half(e[3]), m = vf_mul(second_half(e[3]), vf_set1(-1));
        quad(r, at, s);
        UNROLL
        for (int i = 0; i < 16; i++) {
            const vi b = vi_srl(s[i / 4], 8 * (i % 4));
            put_scale(o, 2 * u + (size_t)i, vf_mul(d, vi_float(vi_and(b, low))));
            vf_store(o->min[2 * u + (size_t)i], vf_mul(m, vi_float(vi_and(vi_srl(b, 4), low))));
        }
        UNROLL
        for (size_t i = 0; i < 4; i++) {
            vi v[4];
            quad(r, at + 16 + 16 * i, v);
            UNROLL
            for (int t = 0; t < 4; t++)
                UNROLL
                for (size_t k = 0; k < 4; k++)
                    put(o->code[u + 4 * (i / 2) + (size_t)t], 4 * (i & 1) + k,
                        vi_and(vi_srl(v[k], 2 * t), two));
        }
    }
}

static void unpack_q3_k(const rows *r, size_t n_unit, panel *o)
{
    const vi two = vi_set8(3), bit = vi_set8(4), low = vi_set1(15), top = vi_set1(48);
    for (size_t u = 0; u < n_unit; u += 8) {
        const size_t at = 110 * (u / 8);
        vi s[4], e[4];
        head(r, at + 94, e);
        const vf d = second_half(e[3]);
        quad(r, at + 92, s);
        UNROLL
        for (int i = 0; i < 16; i++) {
            const vi lo = vi_srl(s[1 + i % 8 / 4], 8 * (i % 4) + 4 * (i / 8));
            const vi hi = vi_sll(vi_srl(s[3], 8 * (i % 4) + 2 * (i / 4)), 4);
            const vi sc = vi_sub(vi_or(vi_and(lo, low), vi_and(hi, top)), vi_set1(32));
            put_scale(o, 2 * u + (size_t)i, vf_mul(d, vi_float(sc)));
        }
        UNROLL
        for (size_t i = 0; i < 4; i++) {
            const int p = (int)(i / 2);
            vi v[4], h[4];
            quad(r, at + 32 + 16 * i, v);
            quad(r, at + 16 * (i & 1), h);
            UNROLL
            for (int t = 0; t < 4; t++)
                UNROLL
                for (size_t k = 0; k < 4; k++) {
                    const vi high = vi_sll(vi_srl(h[k], 4 * p + t), 2);
                    put(o->code[u + 4 * (i / 2) + (size_t)t], 4 * (i & 1) + k,
                        vi_or(vi_and(vi_srl(v[k], 2 * t), two), vi_and(high, bit)));
                }
        }
    }
    set_zero(o, 2 * n_unit, 4);
}

static void unpack_iq4_xs(const rows *r, size_t n_unit, panel *o)
{
    const vi table = IQ4_TABLE, low = vi_set1(15), top = vi_set1(48);
    for (size_t u = 0; u < n_unit; u += 8) {
        const size_t at = 136 * (u / 8);
        vi e[4];
        head(r, at, e);
        const vi l = e[1], h = vi_srl(e[0], 16);
        const vf d = first_half(e[0]);
        UNROLL
        for (size_t i = 0; i < 8; i++) {
            const vi lo = vi_and(vi_srl(l, (int)(4 * i)), low);
            const vi hi = vi_and(vi_sll(vi_srl(h, (int)(2 * i)), 4), top);
            put_scale(o, u + i, vf_mul(d, vi_float(vi_sub(vi_or(lo, hi), vi_set1(32)))));
            put_looked_up(r, at + 8 + 16 * i, table, o->code[u + i]);
        }
    }
    set_zero(o, n_unit, 128);
}

static unpack_fn *const unpacks[NB_W_TYPE_COUNT] = {
    [NB_W_INT4] = unpack_int4,     [NB_W_BYTE] = unpack_byte,     [NB_W_FP4] = unpack_fp4,
    [NB_W_Q8_0] = unpack_q8_0,     [NB_W_Q4_0] = unpack_q4_0,     [NB_W_Q4_1] = unpack_q4_1,
    [NB_W_Q5_0] = unpack_q5_0,     [NB_W_Q5_1] = unpack_q5_1,     [NB_W_Q2_K] = unpack_q2_k,
    [NB_W_Q3_K] = unpack_q3_k,     [NB_W_Q4_K] = unpack_q4_k,     [NB_W_Q5_K] = unpack_q5_k,
    [NB_W_Q6_K] = unpack_q6_k,     [NB_W_IQ4_NL] = unpack_iq4_nl, [NB_W_IQ4_XS] = unpack_iq4_xs,
    [NB_W_MXFP4] = unpack_mxfp4,   [NB_W_GGUF_NVFP4] = unpack_nvfp4,
};
