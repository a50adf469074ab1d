/* check_kv_residual.c - the residual plane: the bytes of nb_residual_encode and the values of
 * nb_residual_decode, exactly. */
#include "check/check.h"
#include "kernel/kv_residual/kv_residual.h"
#include "num/bf16.h"

CHK_ROWS(rows, nb_kv_residual_variant, nb_kv_residual_variants, "")

typedef struct shape {
    bool is_mla;
    size_t dim, n_vec, n_outlier;
    float fixed_scale;
} shape;

static const shape shapes[] = {
    { true, 512, 1, 0, 0 },    { true, 512, 1, 8, 0 },  { true, 1, 1, 0, 0 },
    { true, 15, 1, 2, 0 },     { true, 31, 1, 0, 0 },   { true, 49, 1, 3, 0 },
    { false, 33, 3, 5, 0 },    { false, 128, 2, 0, 0 }, { true, 64, 1, 0, 3e-4f },
    { true, 49, 1, 2, 3e-3f },
};

typedef struct plane {
    nb_record r;
    const uint16_t *x;
    const unsigned char *page, *rows; /* as the specification writes them */
    size_t stride, row_bytes, n;
} plane;

static bool make_plane(chk *t, plane *p, const shape *s, nb_kv_type type, nb_kv_mode mode,
                       chk_pattern pat)
{
    uint16_t outlier[8];
    nb_record_opts o = { .type = type, .mode = mode };
    chk_segs(&o, s->is_mla, (const size_t[]){ s->dim, 1 }, (const size_t[]){ s->n_vec, 1 });
    p->n = s->dim * s->n_vec;
    for (size_t k = 0; k < s->n_outlier; k++) outlier[k] = (uint16_t)(p->n * k / s->n_outlier);
    o.seg[0].outlier = outlier, o.seg[0].n_outlier = s->n_outlier;
    o.seg[0].fixed_scale = type == NB_KV_NVFP4 ? s->fixed_scale : 0;
    if (nb_record_init(&p->r, &o, NULL) != NB_OK) {
        chk_fail(t, "the record is refused");
        return false;
    }
    p->stride = p->n + 1 + chk_between(t, 0, 5);
    uint16_t *x = chk_in(t, chk_rows_bytes(NB_PAGE_TOK, p->n + 1, p->stride, 2));
    for (size_t i = 0; i < NB_PAGE_TOK; i++) {
        float row[512];
        chk_fill(t, row, p->n, pat);
        for (size_t j = 0; j < p->n; j++) x[i * p->stride + j] = nb_bf16_from_f32(row[j]);
        x[i * p->stride + p->n] = 0;
    }
    p->x = x;
    unsigned char *page = chk_in(t, p->r.page_bytes);
    p->row_bytes = nb_residual_row_bytes(&p->r);
    unsigned char *rows_of = chk_in(t, nb_residual_page_bytes(&p->r));
    if (nb_record_encode_page(&p->r, page, x, p->stride) != NB_OK) {
        chk_fail(t, "the specification refuses finite values");
        return false;
    }
    nb_residual_encode(&p->r, page, x, p->stride, rows_of);
    p->page = page;
    p->rows = rows_of;
    return true;
}

static void one_case(chk *t, const nb_kv_residual_variant *v, const shape *s, nb_kv_type type,
                     nb_kv_mode mode, chk_pattern pat)
{
    plane p = { 0 };
    if (!make_plane(t, &p, s, type, mode, pat)) return;
    const size_t n_bytes = NB_PAGE_TOK * p.row_bytes;
    unsigned char *got = chk_out(t, n_bytes);
    chk_call(t, v->encode(&p.r, p.page, p.x, p.stride, got));
    chk_same_bytes(t, "encoded plane", got, p.rows, n_bytes);
    for (size_t k = 0; k < 4; k++) {
        const size_t tok = chk_between(t, 0, NB_PAGE_TOK - 1);
        const void *row = chk_copy(t, p.rows + tok * p.row_bytes, p.row_bytes, true);
        float *out = chk_out(t, p.n * sizeof *out), *want = chk_raw(t, p.n * sizeof *want);
        nb_residual_decode(&p.r, p.page, tok, row, want);
        chk_call(t, v->decode(&p.r, p.page, tok, row, out));
        chk_same_bytes(t, "refined values", out, want, p.n * sizeof *out);
    }
}

static void test(chk *t, const chk_row *row)
{
    for (size_t i = 0; i < NB_COUNT(shapes); i++)
        for (int k = 0; k < 6; k++) {
            const nb_kv_type type = k < 3 ? NB_KV_NVFP4 : NB_KV_IF4;
            for (chk_pattern p = i < 2 ? (chk_pattern)(k % 3) : 0; p < CHK_PATTERN_COUNT;
                 p += i < 2 ? 3 : 1)
                if (chk_case(t, "shape %zu %s mode %d %s", i, nb_kv_type_name(type), k % 3,
                             chk_pattern_name(p)))
                    one_case(t, row->row, &shapes[i], type, (nb_kv_mode)(k % 3), p);
        }
}

typedef struct job {
    const nb_kv_residual_variant *v;
    plane p;
    float *out;
    unsigned char *bytes;
} job;

static void decode_call(void *ctx)
{
    const job *j = ctx;
    for (size_t t = 0; t < NB_PAGE_TOK; t++)
        j->v->decode(&j->p.r, j->p.page, t, j->p.rows + t * j->p.row_bytes, j->out);
}

static void encode_call(void *ctx)
{
    const job *j = ctx;
    j->v->encode(&j->p.r, j->p.page, j->p.x, j->p.stride, j->bytes);
}

static void bench(chk *t, const chk_row *row)
{
    static const nb_kv_type types[] = { NB_KV_NVFP4, NB_KV_IF4 };
    for (size_t i = 0; i < NB_COUNT(types); i++) {
        char label[64];
        job j = { .v = row->row };
        chk_case(t, "bench");
        if (!make_plane(t, &j.p, &shapes[0], types[i], NB_KV_SEARCH, CHK_NORMAL)) return;
        j.out = chk_out_rows(t, 1, 512, 512);
        j.bytes = chk_out(t, nb_residual_page_bytes(&j.p.r));
        snprintf(label, sizeof label, "decode 64 rows of 512 %s", nb_kv_type_name(types[i]));
        chk_time(t, label, (double)NB_PAGE_TOK * 512 * 4, 0, decode_call, &j);
        snprintf(label, sizeof label, "encode 64 rows of 512 %s", nb_kv_type_name(types[i]));
        chk_time(t, label, (double)NB_PAGE_TOK * 512 * 2, 0, encode_call, &j);
    }
}

/* Planted bugs. */
static void ties_down(const nb_record *r, const void *page, const uint16_t *x, size_t stride,
                      void *out)
{
    uint8_t *b = out;
    nb_residual_encode(r, page, x, stride, out);
    for (size_t i = 0; i < nb_residual_page_bytes(r); i++)
        if ((b[i] & 15) == 15) b[i]--; /* the upper end of a cell is not in it */
}
static void first_row(const nb_record *r, const void *page, size_t tok, const void *row, float *out)
{
    (void)tok;
    nb_residual_decode(r, page, 0, row, out);
}
static void forgets_outliers(const nb_record *r, const void *page, size_t tok, const void *row,
                             float *out)
{
    nb_residual_decode(r, page, tok, row, out);
    for (size_t k = 0; k < r->seg[0].n_outlier; k++) out[r->seg[0].outlier[k]] = 0;
}

#define BUG(what, expect, enc, dec)                                                                \
    {                                                                                              \
        what, expect,                                                                              \
        {                                                                                          \
            "broken", "", NB_SPACE_HOST, 0, &(const nb_kv_residual_variant)                        \
            {                                                                                      \
                "broken", NB_SPACE_HOST, 0, enc, dec                                               \
            }                                                                                      \
        }                                                                                          \
    }
static const chk_broken broken[] = {
    BUG("upper part of a cell left out", "encoded plane", ties_down, nb_residual_decode),
    BUG("scales of the first token", "refined values", nb_residual_encode, first_row),
    BUG("outliers read as zero", "refined values", nb_residual_encode, forgets_outliers),
    { 0 },
};

const chk_op chk_kv_residual = { "kv_residual", rows, test, bench, broken };
