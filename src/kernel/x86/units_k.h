/* units_k.h - units of blocks of 256 columns, and the table of all types; included once, after units_short.h. */

/* Scales and minima of the eight units of Q4_K and Q5_K. */
INLINE void k_scales(const rows *r, size_t at, panel *o, size_t u)
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

INLINE void q6_k_scales(const rows *r, size_t at, panel *o, size_t u)
{
    vi s[4], e[4];
    head(r, at + 194, e);
    const vf d = second_half(e[3]);
    quad(r, at + 192, s);
    UNROLL
    for (int i = 0; i < 16; i++) put_scale(o, 2 * u + (size_t)i, vf_mul(d, vi_float(signed_byte(s[i / 4], i % 4))));
}

static void unpack_q6_k(const rows *r, size_t n_unit, panel *o)
{
    const vi top = vi_set8(48);
    for (size_t u = 0; u < n_unit; u += 8) {
        const size_t at = 210 * (u / 8);
        q6_k_scales(r, at, o, u);
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

INLINE void iq4_xs_scales(const rows *r, size_t at, panel *o, size_t u)
{
    const vi low = vi_set1(15), top = vi_set1(48);
    vi e[4];
    head(r, at, e);
    const vi l = e[1], h = vi_srl(e[0], 16);
    const vf d = first_half(e[0]);
    UNROLL
    for (size_t i = 0; i < 8; i++) {
        const vi lo = vi_and(vi_srl(l, (int)(4 * i)), low);
        const vi hi = vi_and(vi_sll(vi_srl(h, (int)(2 * i)), 4), top);
        put_scale(o, u + i, vf_mul(d, vi_float(vi_sub(vi_or(lo, hi), vi_set1(32)))));
    }
}

static void unpack_iq4_xs(const rows *r, size_t n_unit, panel *o)
{
    const vi table = IQ4_TABLE;
    for (size_t u = 0; u < n_unit; u += 8) {
        const size_t at = 136 * (u / 8);
        iq4_xs_scales(r, at, o, u);
        UNROLL
        for (size_t i = 0; i < 8; i++) put_looked_up(r, at + 8 + 16 * i, i, table, o->code[u + i]);
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
