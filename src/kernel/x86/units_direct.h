/* units_direct.h - one token times packed weights with activations in 8 bits, from registers; included once, after
 * units_k.h, by each of linear_units_avx2.c and linear_units_avx512.c, which define before:
 *
 *   vi_zero, vi_add, vi_digits(p)       16 digits in each quarter or half
 *   vi_dot(most, sum, code, x)          adds products of bytes, code <= most (literal), in lanes that vi_dwords reads
 *   vi_dwords(most, sum)                sums of four neighbours (or of eight, after two of vi_dot), 32 bits
 *   vi_bias(most)                       what vi_dot has taken from codes: 128, or 0
 *   vi_dot2(sum, a, b)                  adds products of pairs of 16 bits
 *   vi_pairs(a, b), vi_even(a, b), vi_odd(a, b)       see join()
 *   VI_ROWS64, vi_rows64(p, stride, out)       if 64 bytes of rows are loaded at once: raw_64()
 *   vi_fifth(code, v, at, half)         code, plus 16 where a bit is set of 16 bits of each row from byte at + 2 half
 *
 * A panel (units_panel.h) costs 8 shuffles, 8 stores and 8 loads for 512 codes; that pays if there are many tokens.
 * Here a vector keeps 16 bytes of each of LANES / 4 rows, as they are stored; sums are joined instead of codes
 * transposed, which is less work, because a unit has 32 codes and one sum.  Integers are exact and floats are added in
 * the order of linear_units.h, so the bits are those of a panel. */

#if !defined VI_ROWS64 /* AVX2: 16 registers are too few */
#define VI_ROWS64 0
#define vi_rows64(p, stride, out) ((void)(p), (void)(stride), (void)(out))
#endif

typedef void direct_fn(const rows *r, size_t n_unit, panel *o, const nb_pk_x *x, vf *total);

INLINE void raw_head(const rows *r, size_t at, vi out[4])
{
    UNROLL
    for (size_t k = 0; k < 4; k++) out[k] = vi_part(r->p + at + k * r->stride, r->stride);
}
/* 16 bytes at `at` of rows k, k + 4 and so on in out[k]. */
INLINE void raw_of(const rows *r, size_t at, size_t turn, const size_t parts, vi out[4])
{
    fetch_ahead(r, at, turn, parts);
    raw_head(r, at, out);
}
/* The same where quads follow each other without gaps. */
INLINE void raw_next(const rows *r, size_t at, const size_t parts, vi out[4])
{
    raw_of(r, at, at / 16, parts, out);
}
/* Bytes [16 c, 16 c + 16) from `at` of rows k, k + 4 and so on in out[c][k]; only where there is VI_ROWS64. */
INLINE void raw_64(const rows *r, size_t at, vi out[4][4])
{
    UNROLL
    for (size_t c = 0; c < 4; c++) fetch_ahead(r, at + 16 * c, at / 16 + c, 4);
    vi_rows64(r->p + at, r->stride, out);
}
/* Dword 0 of each row. */
INLINE vi first_dword(const vi v[4])
{
    return vi_lo64(vi_lo32(v[0], v[1]), vi_lo32(v[2], v[3]));
}

INLINE vi last_dword(const vi v[4])
{
    return vi_hi64(vi_hi32(v[0], v[1]), vi_hi32(v[2], v[3]));
}
/* Dword k of each row in out[k]. */
INLINE void all_dwords(const vi v[4], vi out[4])
{
    const vi ab = vi_lo32(v[0], v[1]), ab2 = vi_hi32(v[0], v[1]), cd = vi_lo32(v[2], v[3]), cd2 = vi_hi32(v[2], v[3]);
    out[0] = vi_lo64(ab, cd);
    out[1] = vi_hi64(ab, cd);
    out[2] = vi_lo64(ab2, cd2);
    out[3] = vi_hi64(ab2, cd2);
}

/* Sums of neighbours: rows of a, then rows of b, in each quarter or half; |every lane| <= most. */
INLINE vi join2(const int most, vi a, vi b)
{
    return most <= 32767 ? vi_pairs(a, b) : vi_add(vi_even(a, b), vi_odd(a, b));
}
/* Four lanes of each row to one, where four codes <= code_most are a lane's first, `n` of them its last. */
INLINE vi join(const int code_most, const int n, const vi acc[4])
{
    vi a[4];
    const int most = code_most * n * 127;
    UNROLL
    for (int k = 0; k < 4; k++) a[k] = vi_dwords(code_most, acc[k]);
    return join2(2 * most, join2(most, a[0], a[1]), join2(most, a[2], a[3]));
}

INLINE vi zero_of(const int most, const int zero)
{
    const int z = zero - vi_bias(most);
    return vi_set1(z | (int)((unsigned)z << 23));
}
INLINE vi plus_zero(vi part, vi zero, const nb_pk_x *x, const int sum)
{
    int32_t minus;
    memcpy(&minus, x->minus[sum], sizeof minus);
    return vi_dot2(part, zero, vi_set1(minus));
}
INLINE vf plus_part(vi part, vf scale, const nb_pk_x *x, vf total)
{
    return vf_fma(vf_mul(vi_float(part), vf_set1(x->sx)), scale, total);
}
INLINE vi x_digits(const nb_pk_x *x, const int half)
{
    return vi_digits((const char *)x->q + 16 * half);
}
/* Of words (nb_packed_is_words): behind the digits in order, those of low nibbles, then those of high ones. */
INLINE vi x_words(const nb_pk_x *x, const int half)
{
    return vi_digits((const char *)x->q + 32 + 16 * half);
}

/* ---- blocks of 32 columns in nibbles ---- */

typedef enum nibble { PLAIN, FIVE, LOOK_UP } nibble;

/* lead: bytes before the codes, FP16 scale, min and fifth bits (MXFP4: an E8M0 scale). */
INLINE void direct_nibbles(const rows *r, size_t n_unit, const nb_pk_x *x, vf *total, const size_t lead, const nibble form,
                           const int most, const int zero, const bool has_min, const vi table)
{
    for (size_t u = 0; u < n_unit; u++, x++) {
        vi h[4], v[4], acc[4];
        const vi x0 = x_digits(x, 0), x1 = x_digits(x, 1);
        raw_head(r, (lead + 16) * u, h);
        raw_of(r, (lead + 16) * u + lead, u, 2, v);
        UNROLL
        for (int k = 0; k < 4; k++) {
            vi lo = low4(v[k]), hi = high4(v[k]);
            if (form == LOOK_UP) lo = vi_shuffle8(table, lo), hi = vi_shuffle8(table, hi);
            if (form == FIVE) lo = vi_fifth(lo, h[k], (int)lead - 4, 0), hi = vi_fifth(hi, h[k], (int)lead - 4, 1);
            acc[k] = vi_dot(most, vi_dot(most, vi_zero(), lo, x0), hi, x1);
        }
        const vi d = first_dword(h);
        vi part = join(most, 8, acc);
        if (zero != vi_bias(most)) part = plus_zero(part, zero_of(most, zero), x, 0);
        *total = plus_part(part, lead == 1 ? half_e8m0(d) : first_half(d), x, *total);
        if (has_min) *total = vf_fma(vf_set1(x->sum[0]), second_half(d), *total);
    }
}

#define NIBBLES(name, lead, form, most, zero, has_min, table)                                      \
    static void name(const rows *r, size_t n_unit, panel *o, const nb_pk_x *x, vf *total)          \
    {                                                                                              \
        (void)o;                                                                                   \
        direct_nibbles(r, n_unit, x, total, lead, form, most, zero, has_min, table);               \
    }
NIBBLES(direct_q4_0, 2, PLAIN, 15, 8, false, vi_zero())
NIBBLES(direct_q4_1, 4, PLAIN, 15, 0, true, vi_zero())
NIBBLES(direct_q5_0, 6, FIVE, 31, 16, false, vi_zero())
NIBBLES(direct_q5_1, 8, FIVE, 31, 0, true, vi_zero())
NIBBLES(direct_iq4_nl, 2, LOOK_UP, 255, 128, false, IQ4_TABLE)
NIBBLES(direct_mxfp4, 1, LOOK_UP, 24, 12, false, FP4_TABLE)

/* ---- bytes, and words of nibbles with planes of scales ---- */

INLINE vi bytes_times(const rows *r, size_t at, const size_t parts, vi flip, const nb_pk_x *x)
{
    vi v[4], acc[4] = { vi_zero(), vi_zero(), vi_zero(), vi_zero() };
    UNROLL
    for (int half = 0; half < 2; half++) {
        const vi digits = x_digits(x, half);
        raw_of(r, at + 16 * (size_t)half, (size_t)half + at / 32 * 2, parts, v);
        UNROLL
        for (int k = 0; k < 4; k++) acc[k] = vi_dot(255, acc[k], vi_xor(v[k], flip), digits);
    }
    return join(255, 8, acc);
}

static void direct_q8_0(const rows *r, size_t n_unit, panel *o, const nb_pk_x *x, vf *total)
{
    (void)o;
    for (size_t u = 0; u < n_unit; u++, x++) {
        vi h[4], part = bytes_times(r, 34 * u + 2, 2, vi_set8((char)0x80), x);
        raw_head(r, 34 * u, h);
        if (vi_bias(255) != 128) part = plus_zero(part, zero_of(255, 128), x, 0);
        *total = plus_part(part, first_half(first_dword(h)), x, *total);
    }
}

static void direct_byte(const rows *r, size_t n_unit, panel *o, const nb_pk_x *x, vf *total)
{
    const vi flip = vi_set8((char)r->w->group.flip);
    const bool zeros = r->w->group.zero;
    planes(r, n_unit, o);
    for (size_t u = 0; u < n_unit; u++, x++) {
        vi part = bytes_times(r, 32 * u, 4, flip, x);
        if (vi_bias(255) != 128)
            part = plus_zero(part, zeros ? vi_load(o->zero[u]) : vi_set1(128 | 128 << 23), x, 0);
        *total = plus_part(part, vf_load(o->scale[u]), x, *total);
    }
}

/* acc[k]: a unit of words in rows k, k + 4 and so on. */
INLINE void words_times(const rows *r, size_t at, const bool look_up, const int most, vi flip, vi table, const nb_pk_x *x,
                        vi acc[4])
{
    vi v[4];
    const vi x0 = x_words(x, 0), x1 = x_words(x, 1);
    raw_next(r, at, 4, v);
    UNROLL
    for (int k = 0; k < 4; k++) {
        const vi code = vi_xor(v[k], flip), lo = low4(code), hi = high4(code);
        acc[k] = vi_dot(most, vi_zero(), look_up ? vi_shuffle8(table, lo) : lo, x0);
        acc[k] = vi_dot(most, acc[k], look_up ? vi_shuffle8(table, hi) : hi, x1);
    }
}

static void direct_int4(const rows *r, size_t n_unit, panel *o, const nb_pk_x *x, vf *total)
{
    const vi flip = vi_set8((char)r->w->group.flip);
    const bool zeros = r->w->group.zero;
    planes(r, n_unit, o);
    for (size_t u = 0; u < n_unit; u++, x++) {
        vi acc[4];
        words_times(r, 16 * u, false, 15, flip, flip, x, acc);
        const vi part = plus_zero(join(15, 8, acc), zeros ? vi_load(o->zero[u]) : zero_of(15, 8), x, 0);
        *total = plus_part(part, vf_load(o->scale[u]), x, *total);
    }
}

/* Spans of 32, or of 16: the first two lanes of a row, and the last two. */
static void direct_fp4(const rows *r, size_t n_unit, panel *o, const nb_pk_x *x, vf *total)
{
    const vi flip = vi_set8((char)r->w->group.flip), table = FP4_TABLE, zero = zero_of(24, 12);
    planes(r, n_unit, o);
    for (size_t u = 0; u < n_unit; u++, x++) {
        vi acc[4];
        words_times(r, 16 * u, true, 24, flip, table, x, acc);
        if (r->span == NB_PK_UNIT) {
            *total = plus_part(plus_zero(join(24, 8, acc), zero, x, 0), vf_load(o->scale[u]), x, *total);
            continue;
        }
        const vi ab = join2(24 * 8 * 127, vi_dwords(24, acc[0]), vi_dwords(24, acc[1]));
        const vi cd = join2(24 * 8 * 127, vi_dwords(24, acc[2]), vi_dwords(24, acc[3]));
        const vi first = plus_zero(vi_even(ab, cd), zero, x, 1), second = plus_zero(vi_odd(ab, cd), zero, x, 2);
        *total = plus_part(first, vf_load(o->scale[2 * u]), x, *total);
        *total = plus_part(second, vf_load(o->scale[2 * u + 1]), x, *total);
    }
}

/* ---- blocks of 256 columns ---- */

/* Scales and minima of eight units as bytes: those of units 4 k + j are bytes j of dwords k. */
typedef struct k_bytes {
    vi scale[2], min[2];
    vf d, m;
} k_bytes;
INLINE k_bytes k_bytes_of(const rows *r, size_t at)
{
    vi h[4], dword[4];
    const vi six = vi_set8(63), low = vi_set8(15), top = vi_set8(48);
    raw_next(r, at, 4, h);
    all_dwords(h, dword);
    const vi a = dword[1], b = dword[2], c = dword[3];
    return (k_bytes){ .scale = { vi_and(a, six), vi_or(vi_and(c, low), vi_and(vi_srl(a, 2), top)) },
                      .min = { vi_and(b, six), vi_or(vi_and(vi_srl(c, 4), low), vi_and(vi_srl(b, 2), top)) },
                      .d = first_half(dword[0]),
                      .m = vf_mul(second_half(dword[0]), vf_set1(-1)) };
}
INLINE vf k_times(vf d, const vi v[2], const size_t u)
{
    const int shift = 8 * (int)(u % 4);
    const vi b = shift ? vi_srl(v[u / 4], shift) : v[u / 4];
    return vf_mul(d, vi_float(shift == 24 ? b : vi_and(b, vi_set1(255))));
}

INLINE void direct_k(const rows *r, size_t n_unit, const nb_pk_x *x, vf *total, const bool five)
{
    const int most = five ? 31 : 15;
    const bool at_once = VI_ROWS64 && !five; /* Q5_K: 3 % slower so */
    const vi one = vi_set8(16);
    for (size_t u = 0; u < n_unit; u += 8) {
        const size_t at = (five ? 176 : 144) * (u / 8), codes = at + (five ? 48 : 16);
        vi bits[2][4], v[4][4];
        const k_bytes s = k_bytes_of(r, at);
        if (five) raw_next(r, at + 16, 4, bits[0]), raw_next(r, at + 32, 4, bits[1]);
        UNROLL
        for (size_t j = 0; j < 4; j++, x += 2) {
            if (at_once && j % 2 == 0) raw_64(r, codes + 32 * j, v);
            vi acc[2][4] = { { vi_zero(), vi_zero(), vi_zero(), vi_zero() }, { vi_zero(), vi_zero(), vi_zero(), vi_zero() } };
            UNROLL
            for (int half = 0; half < 2; half++) {
                vi *code = v[j % 2 * 2 + (size_t)half];
                const vi x0 = x_digits(x, half), x1 = x_digits(x + 1, half);
                if (!at_once) raw_next(r, codes + 32 * j + 16 * (size_t)half, 4, code);
                UNROLL
                for (int k = 0; k < 4; k++) {
                    vi lo = low4(code[k]), hi = high4(code[k]);
                    if (five) {
                        lo = vi_or(lo, vi_and(vi_sll(vi_srl(bits[half][k], (int)(2 * j)), 4), one));
                        hi = vi_or(hi, vi_and(vi_sll(vi_srl(bits[half][k], (int)(2 * j + 1)), 4), one));
                    }
                    acc[0][k] = vi_dot(most, acc[0][k], lo, x0);
                    acc[1][k] = vi_dot(most, acc[1][k], hi, x1);
                }
            }
            UNROLL
            for (size_t i = 0; i < 2; i++) {
                *total = plus_part(join(most, 8, acc[i]), k_times(s.d, s.scale, 2 * j + i), x + i, *total);
                *total = vf_fma(vf_set1(x[i].sum[0]), k_times(s.m, s.min, 2 * j + i), *total);
            }
        }
    }
}
static void direct_q4_k(const rows *r, size_t n_unit, panel *o, const nb_pk_x *x, vf *total)
{
    (void)o;
    direct_k(r, n_unit, x, total, false);
}
static void direct_q5_k(const rows *r, size_t n_unit, panel *o, const nb_pk_x *x, vf *total)
{
    (void)o;
    direct_k(r, n_unit, x, total, true);
}

static void direct_q6_k(const rows *r, size_t n_unit, panel *o, const nb_pk_x *x, vf *total)
{
    (void)o;
    const vi top = vi_set8(48), zero = zero_of(63, 32);
    /* Blocks of 210 bytes leave out a line of 500 when a step of 16 bytes takes a quarter of the rows: so half. */
    for (size_t u = 0; u < n_unit; u += 8) {
        const size_t at = 210 * (u / 8);
        vi s[4], e[4]; /* scales: four signed bytes to a dword */
        raw_head(r, at + 194, e);
        const vf d = second_half(last_dword(e));
        raw_next(r, at + 192, 4, e);
        all_dwords(e, s);
        UNROLL
        for (size_t p = 0; p < 2; p++, x += 4) { /* 128 columns */
            vi part[4][2];
            UNROLL
            for (int h = 0; h < 2; h++) {
                vi a[4], b[4], t[4];
                raw_next(r, at + 64 * p + 16 * (size_t)h, 2, a);
                raw_next(r, at + 64 * p + 32 + 16 * (size_t)h, 2, b);
                raw_next(r, at + 128 + 32 * p + 16 * (size_t)h, 2, t);
                UNROLL
                for (int i = 0; i < 4; i++) {
                    const vi digits = x_digits(x + i, h);
                    vi acc[4];
                    UNROLL
                    for (int k = 0; k < 4; k++) {
                        const vi low = i & 1 ? b[k] : a[k], up = i == 3 ? vi_srl(t[k], 2) : vi_sll(t[k], 4 - 2 * i);
                        acc[k] = vi_dot(63, vi_zero(), vi_or(i < 2 ? low4(low) : high4(low), vi_and(up, top)), digits);
                    }
                    part[i][h] = plus_zero(join(63, 4, acc), zero, x + i, 1 + h);
                }
            }
            UNROLL
            for (size_t i = 0; i < 8; i++)
                *total = plus_part(part[i / 2][i & 1], vf_mul(d, vi_float(signed_byte(s[2 * p + i / 4], (int)(i % 4)))),
                                   x + i / 2, *total);
        }
    }
}

static void direct_iq4_xs(const rows *r, size_t n_unit, panel *o, const nb_pk_x *x, vf *total)
{
    const vi table = IQ4_TABLE;
    for (size_t u = 0; u < n_unit; u += 8) {
        const size_t at = 136 * (u / 8);
        iq4_xs_scales(r, at, o, u);
        for (size_t i = 0; i < 8; i++, x++) {
            vi v[4], acc[4];
            const vi x0 = x_digits(x, 0), x1 = x_digits(x, 1);
            raw_of(r, at + 8 + 16 * i, i, 2, v);
            UNROLL
            for (int k = 0; k < 4; k++) {
                acc[k] = vi_dot(255, vi_zero(), vi_shuffle8(table, low4(v[k])), x0);
                acc[k] = vi_dot(255, acc[k], vi_shuffle8(table, high4(v[k])), x1);
            }
            vi part = join(255, 8, acc);
            if (vi_bias(255) != 128) part = plus_zero(part, zero_of(255, 128), x, 0);
            *total = plus_part(part, vf_load(o->scale[u + i]), x, *total);
        }
    }
}

static direct_fn *const directs[NB_W_TYPE_COUNT] = {
    [NB_W_INT4] = direct_int4,     [NB_W_BYTE] = direct_byte,   [NB_W_FP4] = direct_fp4,
    [NB_W_Q8_0] = direct_q8_0,     [NB_W_Q4_0] = direct_q4_0,   [NB_W_Q4_1] = direct_q4_1,
    [NB_W_Q5_0] = direct_q5_0,     [NB_W_Q5_1] = direct_q5_1,   [NB_W_Q4_K] = direct_q4_k,
    [NB_W_Q5_K] = direct_q5_k,     [NB_W_Q6_K] = direct_q6_k,   [NB_W_IQ4_NL] = direct_iq4_nl,
    [NB_W_IQ4_XS] = direct_iq4_xs, [NB_W_MXFP4] = direct_mxfp4,
};

/* The function for these weights and segments, or NULL. */
static direct_fn *direct_of(const nb_weight *w, size_t span)
{
    const size_t whole = nb_wtypes[w->type].block;
    if (w->n_col % (whole > NB_PK_UNIT ? whole : NB_PK_UNIT)) return NULL;
    if (w->type <= NB_W_FP4 && span != 32 && (span != 16 || w->type != NB_W_FP4)) return NULL;
    if (w->group.zero && (w->type == NB_W_FP4 || (w->type == NB_W_BYTE && vi_bias(255)))) return NULL;
    return directs[w->type];
}
