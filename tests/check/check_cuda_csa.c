/* check_cuda_csa.c - compressed attention on a device: every row of the table, over compressed rows and a window, against
 * sums in double. */
#include "check/check_cuda_csa.h"
#include "num/bf16.h"

enum { PAGE = NB_PAGE_TOK };

typedef struct shape {
    size_t ratio, dim, rope, n_head, k, window, n_page; /* k 0: all rows; n_page: before the query's own */
    size_t state_off; /* 7: rows of the window are not aligned */
    bool device;      /* too slow for the emulation */
} shape;

static const shape shapes[] = {
    { 4, 32, 8, 4, 16, 128, 3, 7, false },     { 128, 32, 8, 9, 0, 100, 5, 8, false },
    { 0, 48, 16, 3, 0, 64, 2, 7, false },      { 4, 512, 64, 8, 24, 70, 2, 7, false },
    { 4, 512, 64, 8, 24, 70, 2, 8, false },    { 4, 512, 64, 8, 24, 70, 0, 8, false },
    { 128, 512, 64, 33, 0, 40, 4, 7, false },  { 128, 512, 64, 33, 0, 40, 4, 8, false },
    { 0, 512, 64, 5, 0, 33, 1, 8, false },     { 4, 512, 64, 64, 512, 128, 60, 8, true },
    { 128, 512, 64, 64, 0, 128, 1600, 8, true },
};
enum { N_BLOCK = 4, N_TOK = 3, N_ROW = N_TOK + 1 };

typedef struct kase {
    const shape *s;
    nb_record r;
    size_t pos0, n_unit, n_win, k; /* k: chosen at most */
    unsigned char *pool;
    float *dec, *own, *ring, *kv, *q, *sink, *cs;
    uint32_t *block, *at;
} kase;

static bool make_case(chk *t, kase *x, const shape *s, nb_kv_type type)
{
    memset(x, 0, sizeof *x);
    x->s = s;
    if (s->ratio ? !chk_csa_record(&x->r, type, s->ratio, s->dim, s->rope, s->k ? 32 : 0) : (x->r.type = type, false)) return false;
    const size_t nv = x->r.n_values, per = x->r.n_row * nv, n_page = s->n_page + 2;
    const bool round = type != NB_KV_F32;
    x->pos0 = s->n_page * PAGE + 62; /* the last tokens are in the next page */
    x->n_win = (s->window + NB_CUDA_CSA_FIRST - 1) / NB_CUDA_CSA_FIRST;
    const size_t n_comp = s->ratio ? (x->pos0 + N_TOK) / s->ratio : 0;
    x->k = s->k ? s->k : n_comp;
    x->n_unit = x->n_win + nb_cuda_csa_n_unit(s->k && s->k < n_comp ? s->k : n_comp);
    x->pool = chk_raw(t, N_BLOCK * x->r.page_bytes + 1);
    x->dec = chk_raw(t, (N_BLOCK * per + 1) * sizeof *x->dec);
    uint16_t *half = chk_raw(t, (per + 1) * sizeof *half);
    for (size_t b = 0; s->ratio && b < N_BLOCK; b++) {
        unsigned char *page = x->pool + b * x->r.page_bytes;
        const float *made = chk_csa_normals(t, per, true);
        for (size_t i = 0; i < per; i++) half[i] = nb_bf16_from_f32(made[i]);
        if (type == NB_KV_F32)
            nb_record_store_f32(&x->r, page, made, nv);
        else if (nb_record_encode_page(&x->r, page, half, nv) != NB_OK)
            chk_fail(t, "the specification refuses finite values");
        for (size_t g = 0; g < x->r.n_seg; g++)
            nb_record_decode(&x->r, page, g, 0, x->r.n_row, x->dec + b * per + x->r.seg[g].first, nv);
    }
    x->own = chk_csa_normals(t, 2 * per, round);
    x->ring = chk_csa_normals(t, s->window * s->dim, round);
    x->kv = chk_csa_normals(t, N_TOK * s->dim, round);
    x->q = chk_csa_normals(t, N_ROW * s->n_head * s->dim, false);
    for (size_t i = 0; i < N_ROW * s->n_head * s->dim; i++) x->q[i] *= 2;
    x->sink = chk_csa_normals(t, s->n_head, false);
    x->cs = chk_csa_normals(t, N_ROW * s->rope, false);
    x->block = chk_raw(t, n_page * sizeof *x->block);
    for (size_t p = 0; p < n_page; p++) x->block[p] = (uint32_t)chk_between(t, 0, N_BLOCK - 1);
    x->at = chk_raw(t, (N_ROW * x->k + 1) * sizeof *x->at);
    for (size_t i = 0; s->k && i < N_TOK; i++) { /* ascending, with the last row */
        const size_t n = (x->pos0 + i + 1) / s->ratio, take = n < s->k ? n : s->k;
        for (size_t j = 0; j < take; j++) x->at[i * s->k + j] = (uint32_t)(j + (n - take) * j / (take > 1 ? take - 1 : 1));
    }
    return true;
}

/* Values of entry j of the rows that query i sees. */
static const float *entry(const kase *x, size_t i, size_t j, size_t n_comp)
{
    const shape *s = x->s;
    const size_t pos = x->pos0 + i, n_win = pos + 1 < s->window ? pos + 1 : s->window;
    if (j >= n_comp) {
        const size_t p = pos + 1 - n_win + j - n_comp;
        return p >= x->pos0 ? x->kv + (p - x->pos0) * s->dim : x->ring + p % s->window * s->dim;
    }
    const size_t w = s->k ? x->at[i * s->k + j] : j, last = (w + 1) * s->ratio - 1, row = last % PAGE / s->ratio;
    const size_t nv = x->r.n_values, page = last / PAGE, per = x->r.n_row * nv;
    if (page >= pos / PAGE) return x->own + (page - x->pos0 / PAGE) * per + row * nv;
    return x->dec + x->block[page] * per + row * nv;
}

static void attend_ref(const kase *x, size_t i, size_t head, double *score, double *out)
{
    const shape *s = x->s;
    const size_t pos = x->pos0 + i;
    size_t n_comp = s->ratio ? (pos + 1) / s->ratio : 0;
    if (s->k && n_comp > s->k) n_comp = s->k;
    const size_t n = n_comp + (pos + 1 < s->window ? pos + 1 : s->window);
    const float *q = x->q + (i * s->n_head + head) * s->dim;
    double m = (double)x->sink[head], l = 0;
    for (size_t j = 0; j < n; j++) {
        const float *row = entry(x, i, j, n_comp);
        score[j] = 0;
        for (size_t d = 0; d < s->dim; d++) score[j] += (double)q[d] * (double)row[d];
        score[j] *= 0.11;
        m = fmax(m, score[j]);
    }
    l = exp((double)x->sink[head] - m);
    for (size_t d = 0; d < s->dim; d++) out[d] = 0;
    for (size_t j = 0; j < n; j++) {
        const double e = exp(score[j] - m);
        const float *row = entry(x, i, j, n_comp);
        l += e;
        for (size_t d = 0; d < s->dim; d++) out[d] += e * (double)row[d];
    }
    for (size_t d = 0; d < s->dim; d++) out[d] /= l;
    double cs[1024];
    for (size_t d = 0; d < s->rope; d++) cs[d] = (double)x->cs[i * s->rope + d];
    chk_csa_turn(out, s->dim, s->rope, cs, true, true);
}

static size_t attend_rows(chk_row *out, size_t max)
{
    size_t n = 0;
    for (const nb_cuda_csa_row *r = chk_gpu_api(NULL)->csa_attend; r->name && n < max; r++)
        if (r->cc <= chk_gpu_info(NULL)->cc) out[n++] = (chk_row){ r->name, "", NB_SPACE_CUDA, 0, r };
    return n;
}

static void one_attend(chk *t, const nb_cuda_csa_row *v, const kase *x)
{
    const shape *s = x->s;
    const size_t per = x->r.n_row * x->r.n_values, wide = s->n_head * s->dim;
    static const uint32_t row_chunk[N_ROW] = { 0, 0, 0, UINT32_MAX };
    float *tail = chk_raw(t, (s->state_off + s->window * s->dim) * sizeof *tail);
    memset(tail, 0, s->state_off * sizeof *tail);
    memcpy(tail + s->state_off, x->ring, s->window * s->dim * sizeof *tail);
    const nb_cuda_chunk chunk = { .tail = chk_gpu_in(t, tail, (s->state_off + s->window * s->dim) * sizeof *tail),
                                  .own = chk_gpu_in(t, x->own, (2 * per + 1) * sizeof *x->own),
                                  .n_tok = N_TOK,
                                  .pos0 = (uint32_t)x->pos0 };
    nb_cuda_csa_attend_args a = { .cache = { .pool = chk_gpu_in(t, x->pool, N_BLOCK * x->r.page_bytes + 1),
                                             .block_bytes = x->r.page_bytes,
                                             .block = chk_gpu_in(t, x->block, (s->n_page + 2) * sizeof *x->block),
                                             .chunk = chk_gpu_in(t, &chunk, sizeof chunk),
                                             .n_chunk = 1,
                                             .record = x->r },
                                  .q = chk_gpu_in(t, x->q, N_ROW * wide * sizeof *x->q),
                                  .kv = chk_gpu_in(t, x->kv, N_TOK * s->dim * sizeof *x->kv),
                                  .sink = chk_gpu_in(t, x->sink, s->n_head * sizeof *x->sink),
                                  .at = s->k ? chk_gpu_in(t, x->at, (N_ROW * x->k + 1) * sizeof *x->at) : NULL,
                                  .row_chunk = chk_gpu_in(t, row_chunk, sizeof row_chunk),
                                  .cos_sin = chk_gpu_in(t, x->cs, N_ROW * s->rope * sizeof *x->cs),
                                  .part_o = chk_gpu_out(t, N_ROW * x->n_unit * wide * sizeof(float)),
                                  .part_m = chk_gpu_out(t, N_ROW * x->n_unit * s->n_head * sizeof(float)),
                                  .part_l = chk_gpu_out(t, N_ROW * x->n_unit * s->n_head * sizeof(float)),
                                  .y = chk_gpu_out_rows(t, N_ROW, (wide + 7) / 8 * 8, 2),
                                  .n_row = N_ROW,
                                  .n_head = s->n_head,
                                  .dim = s->dim,
                                  .d_rope = s->rope,
                                  .q_stride = wide,
                                  .kv_stride = s->dim,
                                  .k = s->k,
                                  .ratio = s->ratio,
                                  .window = s->window,
                                  .state_off = s->state_off,
                                  .n_win_unit = x->n_win,
                                  .n_unit = x->n_unit,
                                  .scale = 0.11f,
                                  .interleaved = true };
    chk_gpu_call(t, v->fn(chk_gpu(t), &a));
    const nb_cuda_rows y = chk_gpu_get_rows(t, &a.y, N_ROW);
    chk_gpu_parts(t, &y, N_ROW, wide);
    double *want = chk_f64(t, s->dim), *score = chk_f64(t, x->pos0 + N_TOK + s->window);
    for (size_t i = 0; i < N_TOK; i++)
        for (size_t h = 0; h < s->n_head; h++) {
            double off = 0, all = 0;
            const float *got = y.f + i * y.stride + h * s->dim;
            attend_ref(x, i, h, score, want);
            for (size_t d = 0; d < s->dim; d++) {
                off += ((double)got[d] - want[d]) * ((double)got[d] - want[d]);
                all += want[d] * want[d];
            }
            chk_worst(t, sqrt(off / all) / (double)v->error);
            if (!(sqrt(off / all) <= (double)v->error)) {
                chk_fail(t, "query %zu, head %zu: off by %.3g", i, h, sqrt(off / all));
                return;
            }
        }
    /* the second query alone */
    nb_cuda_csa_attend_args b = a;
    b.row0 = b.n_row = 1;
    b.q += wide;
    b.cos_sin += s->rope;
    if (b.at) b.at += s->k;
    b.y = chk_gpu_out_rows(t, 1, (wide + 7) / 8 * 8, 2);
    chk_gpu_call(t, v->fn(chk_gpu(t), &b));
    const nb_cuda_rows one = chk_gpu_get_rows(t, &b.y, 1);
    chk_same(t, "alone", y.f + y.stride, y.stride, one.f, one.stride, 1, wide);
}

static void test_attend(chk *t, const chk_row *row)
{
    static const nb_kv_type types[] = { NB_KV_F32, NB_KV_BF16, NB_KV_FP8, NB_KV_NVFP4 };
    const nb_cuda_csa_row *v = row->row;
    static kase x;
    for (size_t i = 0; i < NB_COUNT(shapes); i++)
        for (size_t k = 0; k < NB_COUNT(types); k++) {
            const shape *s = &shapes[i];
            if (s->device && chk_gpu_info(t)->emulated) continue;
            if (!chk_case(t, "%zu heads of %zu, rows of %zu tokens, %s", s->n_head, s->dim, s->ratio, nb_kv_type_name(types[k])))
                continue;
            (void)make_case(t, &x, s, types[k]);
            if (v->can(&x.r, s->ratio, s->dim, s->n_head)) one_attend(t, v, &x);
        }
}

static const nb_cuda_csa_row *simt(void)
{
    const nb_cuda_csa_row *r = chk_gpu_api(NULL)->csa_attend;
    while (strcmp(r->name, "simt") != 0) r++;
    return r;
}
static bool can_all(const nb_record *r, size_t ratio, size_t dim, size_t n_head)
{
    return simt()->can(r, ratio, dim, n_head);
}
static void other_angles(nb_cuda *g, const nb_cuda_csa_attend_args *a)
{
    nb_cuda_csa_attend_args b = *a;
    b.cos_sin += b.d_rope / 2; /* sines as cosines */
    simt()->fn(g, &b);
}
static void other_window(nb_cuda *g, const nb_cuda_csa_attend_args *a)
{
    nb_cuda_csa_attend_args b = *a;
    b.window--; /* the ring, too, is read as one of fewer tokens */
    simt()->fn(g, &b);
}
static void other_order(nb_cuda *g, const nb_cuda_csa_attend_args *a)
{
    nb_cuda_csa_attend_args b = *a;
    if (b.n_row == 1) b.scale *= 1.0001f;
    simt()->fn(g, &b);
}
#define BUG(what, expect, fn)                                                                      \
    {                                                                                              \
        what, expect, { "broken", "", NB_SPACE_CUDA, 0, &(const nb_cuda_csa_row){ "broken", 80, 1e-5f, can_all, fn } } \
    }
static const chk_broken broken[] = {
    BUG("the output is turned by other angles", "off by", other_angles),
    BUG("the window is a token too short", "off by", other_window),
    BUG("a query alone has another scale", "alone", other_order),
    { 0 },
};

typedef struct job {
    const nb_cuda_csa_row *v;
    nb_cuda *g;
    nb_cuda_csa_attend_args a;
} job;

static void call_attend(void *ctx)
{
    const job *j = ctx;
    j->v->fn(j->g, &j->a);
}

/* V4 Flash's shapes at 1,048,576 tokens, nvfp4: n users, each with one query. */
static void bench_attend(chk *t, const chk_row *row)
{
    enum { USERS = 8, DIM = 512, HEADS = 64, POS = 1048575, BLOCKS = 64 };
    static const size_t ratios[] = { 4, 128, 0 };
    for (size_t i = 0; i < 2 * NB_COUNT(ratios); i++) {
        const size_t ratio = ratios[i / 2], n = i % 2 ? USERS : 1, k = ratio == 4 ? 512 : 0;
        nb_record r = { .type = NB_KV_NVFP4 };
        if (!chk_case(t, "bench %zu", i)) continue;
        if (ratio && !chk_csa_record(&r, NB_KV_NVFP4, ratio, DIM, 64, k ? 128 : 0)) continue;
        job j = { .v = row->row, .g = chk_gpu(t) };
        if (!j.v->can(&r, ratio, DIM, HEADS)) continue;
        const size_t n_unit = 2 + nb_cuda_csa_n_unit(k ? k : ratio ? (POS + 1) / ratio : 0), tail = 128 * DIM;
        nb_cuda_chunk chunk[USERS];
        uint32_t has[USERS], *block = chk_raw(t, (POS / PAGE + 2) * sizeof *block), *at = chk_raw(t, USERS * 512 * sizeof *at);
        float *tails = chk_gpu_in(t, chk_csa_normals(t, tail, true), tail * sizeof(float));
        for (size_t p = 0; p < POS / PAGE + 2; p++) block[p] = (uint32_t)(p % BLOCKS);
        for (size_t u = 0; u < USERS; u++) {
            chunk[u] = (nb_cuda_chunk){ .tail = tails, .row0 = (uint32_t)u, .n_tok = 1, .pos0 = POS };
            has[u] = (uint32_t)u;
            for (size_t c = 0; c < 512; c++) at[u * 512 + c] = (uint32_t)(c * 511 + u);
        }
        unsigned char *pool = chk_raw(t, BLOCKS * r.page_bytes + 1);
        for (size_t c = 0; c < BLOCKS * r.page_bytes; c++) pool[c] = (unsigned char)(0x33 + c % 7);
        j.a = (nb_cuda_csa_attend_args){ .cache = { .pool = chk_gpu_in(t, pool, BLOCKS * r.page_bytes + 1),
                                                    .block_bytes = r.page_bytes,
                                                    .block = chk_gpu_in(t, block, (POS / PAGE + 2) * sizeof *block),
                                                    .chunk = chk_gpu_in(t, chunk, sizeof chunk),
                                                    .n_chunk = n,
                                                    .record = r },
                                         .q = chk_gpu_in(t, chk_csa_normals(t, n * HEADS * DIM, false), n * HEADS * DIM * sizeof(float)),
                                         .kv = tails,
                                         .sink = tails,
                                         .at = k ? chk_gpu_in(t, at, USERS * 512 * sizeof *at) : NULL,
                                         .row_chunk = chk_gpu_in(t, has, sizeof has),
                                         .cos_sin = tails,
                                         .part_o = chk_gpu_out(t, n * n_unit * HEADS * DIM * sizeof(float)),
                                         .part_m = chk_gpu_out(t, n * n_unit * HEADS * sizeof(float)),
                                         .part_l = chk_gpu_out(t, n * n_unit * HEADS * sizeof(float)),
                                         .y = chk_gpu_out_rows(t, n, HEADS * DIM, 2),
                                         .n_row = n,
                                         .n_head = HEADS,
                                         .dim = DIM,
                                         .d_rope = 64,
                                         .q_stride = HEADS * DIM,
                                         .kv_stride = DIM,
                                         .k = k,
                                         .ratio = ratio,
                                         .window = 128,
                                         .n_win_unit = 2,
                                         .n_unit = n_unit,
                                         .scale = 0.044f,
                                         .interleaved = true };
        const size_t n_row = 128 + (k ? k : ratio ? (POS + 1) / ratio : 0);
        char label[64];
        (void)snprintf(label, sizeof label, "%zu users, %zu rows of %zu", n, n_row, ratio);
        chk_gpu_time(t, label, (double)(n * n_row * 292), 4.0 * (double)(n * n_row * HEADS * DIM), call_attend, &j);
    }
}

const chk_op chk_cuda_csa_attend = { "cuda_csa_attend", attend_rows, test_attend, bench_attend, broken };
