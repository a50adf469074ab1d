/* units_short.h - units of types with planes of scales, and of blocks of 32 and 64 columns; included once,
 * after units_panel.h. */

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
    planes(r, n_unit, o);
    if (!r->w->group.zero) set_zero(o, n_unit * NB_PK_UNIT / r->span, 8);
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
    planes(r, n_unit, o);
    if (!r->w->group.zero) set_zero(o, n_unit * NB_PK_UNIT / r->span, 12);
}

/* 32 bytes. */
INLINE void put_bytes(const rows *r, size_t at, const size_t parts, vi flip, uint8_t (*code)[LANES * 4])
{
    UNROLL
    for (size_t h = 0; h < 2; h++) {
        vi v[4];
        quad_of(r, at + 16 * h, at / 32 * 2 + h, parts, v);
        UNROLL
        for (size_t k = 0; k < 4; k++) put(code, 4 * h + k, vi_xor(v[k], flip));
    }
}

static void unpack_byte(const rows *r, size_t n_unit, panel *o)
{
    const vi flip = vi_set8((char)r->w->group.flip);
    for (size_t u = 0; u < n_unit; u++) put_bytes(r, 32 * u, 4, flip, o->code[u]);
    planes(r, n_unit, o);
    if (!r->w->group.zero) set_zero(o, n_unit * NB_PK_UNIT / r->span, 128);
}

static void unpack_q8_0(const rows *r, size_t n_unit, panel *o)
{
    for (size_t u = 0; u < n_unit; u++) {
        vi h[4];
        head(r, 34 * u, h);
        put_scale(o, u, first_half(h[0]));
        put_bytes(r, 34 * u + 2, 2, vi_set8((char)0x80), o->code[u]);
    }
    set_zero(o, n_unit, 128);
}

/* 16 bytes of nibbles: columns 0..15 low, 16..31 high. */
INLINE void put_nibbles(const rows *r, size_t at, size_t u, uint8_t (*code)[LANES * 4])
{
    vi v[4];
    quad_of(r, at, u, 2, v);
    UNROLL
    for (size_t k = 0; k < 4; k++) {
        put(code, k, low4(v[k]));
        put(code, k + 4, high4(v[k]));
    }
}
/* The same with 32 fifth bits: byte k / 2 of them beside each other, a bit for each byte, cut down to 16. */
INLINE void put_fives(const rows *r, size_t at, size_t u, vi h, uint8_t (*code)[LANES * 4])
{
    const vi order = vi_bytes16(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12), one = vi_set8(1);
    const vi each = vi_set1((int)0x80402010), most = vi_set8(16);
    vi v[4], byte = order;
    quad_of(r, at, u, 2, v);
    UNROLL
    for (size_t k = 0; k < 8; k += 2) {
        const vi odd = vi_shuffle8(h, byte), even = vi_sll(odd, 4);
        const vi a = vi_min8(vi_and(even, each), most), b = vi_min8(vi_and(odd, each), most);
        byte = vi_add8(byte, one);
        put(code, k, vi_or(a, k < 4 ? low4(v[k]) : high4(v[k - 4])));
        put(code, k + 1, vi_or(b, k < 4 ? low4(v[k + 1]) : high4(v[k - 3])));
    }
}
INLINE void put_looked_up(const rows *r, size_t at, size_t u, vi table, uint8_t (*code)[LANES * 4])
{
    vi v[4];
    quad_of(r, at, u, 2, v);
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
        put_nibbles(r, 18 * u + 2, u, o->code[u]);
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
        put_nibbles(r, 20 * u + 4, u, o->code[u]);
    }
}
static void unpack_q5_0(const rows *r, size_t n_unit, panel *o)
{
    for (size_t u = 0; u < n_unit; u++) {
        vi h[4];
        head(r, 22 * u, h);
        put_scale(o, u, first_half(h[0]));
        put_fives(r, 22 * u + 6, u, vi_or(vi_srl(h[0], 16), vi_sll(h[1], 16)), o->code[u]);
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
        put_fives(r, 24 * u + 8, u, h[1], o->code[u]);
    }
}
static void unpack_iq4_nl(const rows *r, size_t n_unit, panel *o)
{
    const vi table = IQ4_TABLE;
    for (size_t u = 0; u < n_unit; u++) {
        vi h[4];
        head(r, 18 * u, h);
        put_scale(o, u, first_half(h[0]));
        put_looked_up(r, 18 * u + 2, u, table, o->code[u]);
    }
    set_zero(o, n_unit, 128);
}
/* 2^(e - 128) of byte 0, for twice the values: 2^(e - 1 - 127), subnormal for e of 0 and 1. */
INLINE vf half_e8m0(vi v)
{
    const vi e = vi_and(v, vi_set1(255));
    const vi f = vi_select_eq(e, vi_set1(0), vi_set1(0x00200000), vi_sll(vi_sub(e, vi_set1(1)), 23));
    return vi_as_float(vi_select_eq(e, vi_set1(1), vi_set1(0x00400000), f));
}
static void unpack_mxfp4(const rows *r, size_t n_unit, panel *o)
{
    const vi table = FP4_TABLE;
    for (size_t u = 0; u < n_unit; u++) {
        vi h[4];
        head(r, 17 * u, h);
        put_looked_up(r, 17 * u + 1, u, table, o->code[u]);
        put_scale(o, u, half_e8m0(h[0]));
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
        quad_of(r, at + 4 + 16 * k, u, 2, v);
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
