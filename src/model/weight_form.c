/* weight_form.c - see weight_form.h: forms whose rows are those of the matrix. */
#include "model/weight_form.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "num/bf16.h"
#include "num/fp16.h"

enum { NAME_BYTES = 256 };
#define DT(t) (1u << NB_DT_##t)
#define HALVES (DT(BF16) | DT(F16) | DT(F32))

static void name_of(const nb_form *f, const char *suffix, char *out)
{
    (void)snprintf(out, NAME_BYTES, "%s.%s", f->module, suffix);
}

static bool has(const nb_form *f, const char *suffix, nb_tensor *t)
{
    char name[NAME_BYTES];
    name_of(f, suffix, name);
    return nb_source_peek(f->source, name, t);
}

nb_status nb_form_bad(const nb_form *f, const char *suffix, const char *fmt, ...)
{
    char what[300];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    return nb_fail(f->err, NB_ERR_FORMAT, "tensor '%s.%s': %s", f->module, suffix, what);
}

nb_status nb_form_nomem(const nb_form *f)
{
    return nb_fail(f->err, NB_ERR_NOMEM, "out of memory for %s", f->module);
}

nb_status nb_form_tensor(nb_form *f, const char *suffix, uint32_t dtypes, size_t n_dim, size_t d0,
                         size_t d1, nb_tensor *out)
{
    char name[NAME_BYTES];
    name_of(f, suffix, name);
    const nb_tensor_want want = {
        .name = name, .dtypes = dtypes, .n_dim = n_dim, .dim = { d0, d1 }
    };
    return nb_source_take(f->source, &want, out, f->err);
}

static size_t div_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

static size_t n_elem(const nb_tensor *t)
{
    size_t n = 1;
    for (size_t i = 0; i < t->n_dim; i++) n *= t->dim[i];
    return n;
}

/* ---- scales ---- */

static nb_stype stype_of(nb_dtype t)
{
    return t == NB_DT_F32       ? NB_S_F32
           : t == NB_DT_BF16    ? NB_S_BF16
           : t == NB_DT_F16     ? NB_S_F16
           : t == NB_DT_F8_E4M3 ? NB_S_E4M3
                                : NB_S_E8M0;
}

/* A form of config.json whose rows have n_group groups; the first one of integers where n_group is 0. */
static const nb_quant_form *form_with(const nb_form *f, size_t n_group)
{
    for (size_t i = 0; i < f->quant->n_form; i++) {
        const nb_quant_form *x = &f->quant->form[i];
        const size_t size = x->cols ? x->cols : f->cols;
        if (!x->fp4 && !x->block && (n_group == 0 || div_up(f->cols, size) == n_group)) return x;
    }
    return NULL;
}

nb_status nb_form_group(nb_form *f, const char *suffix, size_t n_group, size_t *size)
{
    const nb_quant_form *any = form_with(f, 0), *x = form_with(f, n_group);
    const size_t want = any && any->cols ? any->cols : f->cols;
    *size = x && n_group > 1 ? x->cols : n_group == 1 && (x || !any) ? f->cols : 0;
    if (!any && f->cols % n_group == 0) *size = f->cols / n_group;
    if (*size == 0)
        return nb_form_bad(f, suffix, "has scales for %zu groups of %zu columns, expected %zu",
                           n_group, f->cols, div_up(f->cols, want));
    if (*size % 8 && *size != f->cols)
        return nb_form_bad(f, suffix, "groups of %zu columns, expected a multiple of 8", *size);
    return NB_OK;
}

bool nb_form_may_have(const nb_form *f, size_t bits)
{
    const nb_quant *q = f->quant;
    for (size_t i = 0; i < q->n_form; i++)
        if (!q->form[i].fp4 && q->form[i].bits == bits) return true;
    return form_with(f, 0) == NULL;
}

nb_status nb_form_check_scales(nb_form *f, const char *suffix, const nb_weight *w)
{
    const size_t n_group = nb_weight_n_group(w), n = w->n_row * n_group;
    float s[256];
    for (size_t i = 0; i < n; i += NB_COUNT(s)) {
        const size_t m = n - i < NB_COUNT(s) ? n - i : NB_COUNT(s);
        nb_packed_scales(&w->group, i, m, s);
        for (size_t k = 0; k < m; k++)
            if (!isfinite(s[k]))
                return nb_form_bad(f, suffix, "[%zu, %zu] is %g, expected a finite scale",
                                   (i + k) / n_group, (i + k) % n_group, (double)s[k]);
    }
    return NB_OK;
}

/* One float, as a scalar or [1]. */
static nb_status one_float(nb_form *f, const char *suffix, float *out)
{
    nb_tensor t;
    const bool there = has(f, suffix, &t);
    NB_TRY(nb_form_tensor(f, suffix, HALVES, there && t.n_dim == 0 ? 0 : 1, 1, 0, &t));
    nb_packed_scales(&(nb_wgroups){ .scale = t.data, .scale_type = stype_of(t.dtype) }, 0, 1, out);
    if (!isfinite(*out) || *out == 0)
        return nb_form_bad(f, suffix, "is %g, expected a finite number other than 0", (double)*out);
    return NB_OK;
}

/* The plane of scales of w, [rows][groups], [rows], or one for all; its groups. */
static nb_status take_scales(nb_form *f, const char *suffix, uint32_t dtypes, nb_weight *w)
{
    nb_tensor t;
    nb_wgroups *g = &w->group;
    const bool there = has(f, suffix, &t);
    g->outer = 1;
    if (there && n_elem(&t) == 1 && f->rows > 1) { /* per tensor */
        float s, *all = nb_arena_array(f->arena, f->rows, sizeof *all);
        NB_TRY(one_float(f, suffix, &s));
        if (!all) return nb_form_nomem(f);
        for (size_t r = 0; r < f->rows; r++) all[r] = s;
        g->scale = all;
        g->scale_type = NB_S_F32;
        g->size = f->cols;
        return NB_OK;
    }
    const bool row = there && t.n_dim == 1;
    NB_TRY(nb_form_tensor(f, suffix, dtypes, row ? 1 : 2, f->rows, 0, &t));
    if (!row && t.dim[1] == 0) return nb_form_bad(f, suffix, "has no groups");
    NB_TRY(nb_form_group(f, suffix, row ? 1 : t.dim[1], &g->size));
    g->scale = t.data;
    g->scale_type = stype_of(t.dtype);
    return nb_form_check_scales(f, suffix, w);
}

/* ---- compressed-tensors: integers in words of 32 bits ---- */

static nb_status check_shape(nb_form *f)
{
    nb_tensor t;
    uint64_t n[2];
    if (!has(f, "weight_shape", &t)) return NB_OK;
    NB_TRY(nb_form_tensor(f, "weight_shape", DT(I64) | DT(I32), 1, 2, 0, &t));
    for (int i = 0; i < 2; i++)
        n[i] = t.dtype == NB_DT_I64 ? (uint64_t)((const int64_t *)t.data)[i]
                                    : (uint64_t)((const int32_t *)t.data)[i];
    if (n[0] == f->rows && n[1] == f->cols) return NB_OK;
    return nb_form_bad(f, "weight_shape", "says [%llu, %llu], expected [%zu, %zu]",
                       (unsigned long long)n[0], (unsigned long long)n[1], f->rows, f->cols);
}

/* Bits from the width of the packed rows, which have to be among those of config.json. */
static nb_status packed_bits(nb_form *f, size_t words, size_t *bits)
{
    static const size_t others[] = { 2, 3, 5, 6, 7 };
    for (*bits = 4; *bits <= 8; *bits += 4)
        if (words == div_up(f->cols * *bits, 32) && nb_form_may_have(f, *bits)) return NB_OK;
    for (size_t i = 0; i < NB_COUNT(others); i++) {
        const size_t b = others[i];
        if (nb_form_may_have(f, b) && (words == div_up(f->cols * b, 32) || words == div_up(f->cols, 32 / b)))
            return nb_fail(f->err, NB_ERR_UNSUPPORTED,
                           "tensor '%s.weight_packed': codes of %zu bits are not supported (expected: 4, 8)",
                           f->module, b);
    }
    const bool four = nb_form_may_have(f, 4), eight = nb_form_may_have(f, 8);
    if (four && eight)
        return nb_form_bad(f, "weight_packed",
                           "has %zu words a row, expected %zu (4 bits) or %zu (8 bits) for %zu columns",
                           words, div_up(f->cols, 8), div_up(f->cols, 4), f->cols);
    return nb_form_bad(f, "weight_packed", "has %zu words a row, expected %zu for %zu columns of %d bits",
                       words, div_up(f->cols, four ? 8 : 4), f->cols, four ? 4 : 8);
}

/* Zero points of a group or of all, one signed byte each; a code of 0 is stored as middle. */
static nb_status signed_zeros(nb_form *f, unsigned middle, nb_weight *w)
{
    nb_tensor t;
    if (!has(f, "weight_zero_point", &t)) return NB_OK;
    const size_t n_group = nb_weight_n_group(w), n = f->rows * n_group;
    const bool one = n_elem(&t) == 1;
    NB_TRY(nb_form_tensor(f, "weight_zero_point", DT(I8), one ? t.n_dim : 2, one ? 1 : f->rows,
                          one ? 1 : n_group, &t));
    uint8_t *zero = nb_arena_alloc(f->arena, n);
    if (!zero) return nb_form_nomem(f);
    for (size_t i = 0; i < n; i++) {
        const int z = ((const int8_t *)t.data)[one ? 0 : i] + (int)middle;
        if (z < 0 || z >= 2 * (int)middle)
            return nb_form_bad(f, "weight_zero_point", "element %zu is %d, expected %d to %d", i,
                               z - (int)middle, -(int)middle, (int)middle - 1);
        zero[i] = (uint8_t)z;
    }
    w->group.zero = zero;
    return NB_OK;
}

/* Zero points, packed along the rows: word i / (32 / bits), lowest first. */
static nb_status packed_zeros(nb_form *f, size_t bits, nb_weight *w)
{
    nb_tensor t;
    if (!has(f, "weight_zero_point", &t)) return NB_OK;
    const size_t n_group = nb_weight_n_group(w), per = 32 / bits;
    if (t.dtype == NB_DT_I8) return signed_zeros(f, 1u << (bits - 1), w); /* until 2025 */
    NB_TRY(nb_form_tensor(f, "weight_zero_point", DT(I32), 2, div_up(f->rows, per), n_group, &t));
    const uint32_t *word = t.data;
    uint8_t *zero = nb_arena_array(f->arena, f->rows, n_group);
    if (!zero) return nb_form_nomem(f);
    for (size_t r = 0; r < f->rows; r++)
        for (size_t k = 0; k < n_group; k++)
            zero[r * n_group + k] =
                (uint8_t)(word[r / per * n_group + k] >> r % per * bits & ((1u << bits) - 1));
    w->group.zero = zero;
    return NB_OK;
}

static nb_status take_packed_int(nb_form *f, nb_weight *w)
{
    nb_tensor t;
    size_t bits;
    NB_TRY(nb_form_tensor(f, "weight_packed", DT(I32), 2, f->rows, 0, &t));
    NB_TRY(packed_bits(f, t.dim[1], &bits));
    NB_TRY(check_shape(f));
    w->type = bits == 4 ? NB_W_INT4 : NB_W_BYTE;
    w->data = t.data;
    NB_TRY(take_scales(f, "weight_scale", HALVES, w));
    NB_TRY(packed_zeros(f, bits, w));
    if (!has(f, "weight_g_idx", &t)) return NB_OK;
    NB_TRY(nb_form_tensor(f, "weight_g_idx", DT(I32), 1, f->cols, 0, &t));
    return nb_form_act_order(f, "weight_g_idx", t.data, w);
}

/* ---- E2M1 in bytes ---- */

static nb_status take_fp4(nb_form *f, const char *suffix, nb_weight *w)
{
    nb_tensor t, s;
    float outer = 1;
    NB_TRY(nb_form_tensor(f, suffix, DT(U8), 2, f->rows, div_up(f->cols, 2), &t));
    if (f->cols % 8)
        return nb_form_bad(f, suffix, "has %zu columns, expected a multiple of 8", f->cols);
    w->type = NB_W_FP4;
    w->data = t.data;
    const bool nv = has(f, "weight_scale", &s) && s.dtype == NB_DT_F8_E4M3;
    w->group.size = nv ? 16 : 32;
    NB_TRY(nb_form_tensor(f, "weight_scale", nv ? DT(F8_E4M3) : DT(U8), 2, f->rows,
                          div_up(f->cols, w->group.size), &s));
    if (nv && has(f, "weight_global_scale", &t)) {
        NB_TRY(one_float(f, "weight_global_scale", &outer)); /* divides */
        outer = 1 / outer;
    } else if (nv) {
        NB_TRY(one_float(f, "weight_scale_2", &outer));
    }
    w->group.scale = s.data;
    w->group.scale_type = nv ? NB_S_E4M3 : NB_S_E8M0;
    w->group.outer = outer;
    return nb_form_check_scales(f, "weight_scale", w);
}

/* ---- E4M3 ---- */

static nb_status fp8_scales(nb_form *f, const char *suffix, const nb_tensor *t, size_t n,
                            const float **out)
{
    const size_t have = n_elem(t);
    const bool as_is = t->dtype == NB_DT_F32 && have == n;
    float *own = as_is ? NULL : nb_arena_array(f->arena, n, sizeof *own);
    if (!own && !as_is) return nb_form_nomem(f);
    if (own)
        nb_packed_scales(&(nb_wgroups){ .scale = t->data, .scale_type = stype_of(t->dtype) }, 0,
                         have, own);
    const float *s = own ? own : t->data;
    for (size_t i = 0; i < have; i++)
        if (!isfinite(s[i]))
            return nb_form_bad(f, suffix, "element %zu is %g, expected a finite scale", i,
                               (double)s[i]);
    for (size_t i = have; i < n; i++) own[i] = s[0]; /* one for all */
    *out = s;
    return NB_OK;
}

nb_status nb_form_one_scale(nb_form *f, const nb_tensor *t, size_t i, nb_weight *w)
{
    const size_t n = div_up(w->n_row, NB_FP8_BLOCK) * div_up(w->n_col, NB_FP8_BLOCK);
    float *scale = nb_arena_array(f->arena, n, sizeof *scale);
    if (!scale) return nb_form_nomem(f);
    nb_packed_scales(&(nb_wgroups){ .scale = t->data, .scale_type = stype_of(t->dtype) }, i, 1,
                     scale);
    if (!isfinite(scale[0]))
        return nb_form_bad(f, "gate_up_proj_scale_inv, down_proj_scale_inv",
                           "element %zu is %g, expected a finite scale", i, (double)scale[0]);
    for (size_t k = 1; k < n; k++) scale[k] = scale[0];
    w->scale = scale;
    return NB_OK;
}

static nb_status take_fp8(nb_form *f, nb_weight *w)
{
    nb_tensor t, s;
    const size_t b = NB_FP8_BLOCK, nr = div_up(f->rows, b), nc = div_up(f->cols, b);
    NB_TRY(nb_form_tensor(f, "weight", DT(F8_E4M3), 2, f->rows, f->cols, &t));
    const char *suffix = has(f, "weight_scale", &s) ? "weight_scale" : "weight_scale_inv";
    w->type = NB_W_FP8B;
    w->data = t.data;
    const bool there = has(f, suffix, &s);
    const bool one = there && n_elem(&s) == 1;
    if (there && s.n_dim == 4 && s.dim[1] == 1 && s.dim[3] == 1) { /* [blocks, 1, blocks, 1] */
        char name[NAME_BYTES];
        name_of(f, suffix, name);
        const nb_tensor_want want = {
            .name = name, .dtypes = HALVES, .n_dim = 4, .dim = { nr, 1, nc, 1 }
        };
        NB_TRY(nb_source_take(f->source, &want, &s, f->err));
    } else if (one) {
        NB_TRY(nb_form_tensor(f, suffix, HALVES | DT(F8_E8M0), s.n_dim, s.n_dim ? 1 : 0, s.n_dim > 1,
                              &s));
    } else {
        const bool vector = there && s.n_dim == 1;
        w->row_scales = vector || (there && s.n_dim == 2 && s.dim[1] == 1 && s.dim[0] != nr);
        NB_TRY(nb_form_tensor(f, suffix, HALVES | DT(F8_E8M0), vector ? 1 : 2,
                              w->row_scales ? f->rows : nr,
                              w->row_scales ? 1 : nc, &s));
    }
    NB_TRY(fp8_scales(f, suffix, &s, w->row_scales ? f->rows : nr * nc, &w->scale));
    return NB_OK;
}

/* ---- signed bytes ---- */

/* E2M1, whose scales tell it from integers: two codes in a byte, the even column in the low bits, E8M0 scales of 32
 * columns. */
static nb_status take_signed_fp4(nb_form *f, nb_weight *w)
{
    static const char scales[] = "weight_scale_inv";
    nb_tensor t, s;
    if (f->cols % 8)
        return nb_form_bad(f, "weight", "has %zu columns, expected a multiple of 8", f->cols);
    NB_TRY(nb_form_tensor(f, "weight", DT(I8), 2, f->rows, f->cols / 2, &t));
    NB_TRY(nb_form_tensor(f, scales, DT(F8_E8M0), 2, f->rows, div_up(f->cols, 32), &s));
    w->type = NB_W_FP4;
    w->data = t.data;
    w->group.size = 32;
    w->group.scale = s.data;
    w->group.scale_type = NB_S_E8M0;
    w->group.outer = 1;
    return nb_form_check_scales(f, scales, w);
}

static nb_status take_signed(nb_form *f, nb_weight *w)
{
    nb_tensor t;
    if (has(f, "weight_scale_inv", &t) && t.dtype == NB_DT_F8_E8M0) return take_signed_fp4(f, w);
    (void)has(f, "weight", &t);
    const bool nibbles = t.n_dim == 2 && f->cols > 1 && t.dim[1] == f->cols / 2;
    if (f->cols % (nibbles ? 8 : 4))
        return nb_form_bad(f, "weight", "has %zu columns, expected a multiple of %d", f->cols,
                           nibbles ? 8 : 4);
    NB_TRY(nb_form_tensor(f, "weight", DT(I8), 2, f->rows, nibbles ? f->cols / 2 : f->cols, &t));
    w->data = t.data;
    w->type = nibbles ? NB_W_INT4 : NB_W_BYTE;
    w->group.flip = nibbles ? 0x88 : 0x80;
    NB_TRY(take_scales(f, has(f, "weight_scale", &t) ? "weight_scale" : "weight_scale_inv", HALVES,
                       w));
    return signed_zeros(f, 0x80, w);
}

/* ---- together ---- */

/* The tensor that holds the codes; NULL: plain weights. */
static const char *codes_of(const nb_source *s, const char *module, nb_tensor *t)
{
    static const char *const suffixes[] = { "weight_packed", "qweight", "weight" };
    char name[NAME_BYTES];
    for (size_t i = 0; i < NB_COUNT(suffixes); i++) {
        (void)snprintf(name, sizeof name, "%s.%s", module, suffixes[i]);
        if (!nb_source_peek(s, name, t)) continue;
        const bool code = 1u << t->dtype & (DT(F8_E4M3) | DT(U8) | DT(I8));
        return i < 2 || code ? suffixes[i] : NULL;
    }
    return NULL;
}

bool nb_form_is_quantised(const nb_source *s, const char *module)
{
    nb_tensor t;
    return codes_of(s, module, &t) != NULL;
}

nb_status nb_form_take(nb_form *f, nb_weight *out)
{
    nb_tensor t, scaled;
    const char *codes = codes_of(f->source, f->module, &t);
    nb_weight w = { .n_row = f->rows, .n_col = f->cols };
    if (has(f, "pre_quant_scale", &scaled))
        return nb_fail(f->err, NB_ERR_UNSUPPORTED,
                       "tensor '%s.pre_quant_scale': weights whose inputs are scaled (NVFP4_AWQ, "
                       "W4A8_AWQ) are not supported",
                       f->module);
    nb_status st;
    if (!codes)
        st = nb_form_bad(f, "weight", "is missing");
    else if (!strcmp(codes, "qweight"))
        st = nb_form_take_repacked(f, &w);
    else if (!strcmp(codes, "weight_packed"))
        st = t.dtype == NB_DT_U8 ? take_fp4(f, codes, &w) : take_packed_int(f, &w);
    else
        st = t.dtype == NB_DT_U8   ? take_fp4(f, codes, &w)
             : t.dtype == NB_DT_I8 ? take_signed(f, &w)
                                   : take_fp8(f, &w);
    if (st == NB_OK) *out = w;
    return st;
}
