/* test_thrift_forward.c - one decode step in Thrift mode against its definition, in double: the
 * scores of all cached tokens, what each way of choosing takes, and attention over what was
 * chosen, refined, and the rest, as it is. */
#include "engine_testing.h"

#include <math.h>

#include "engine/engine_internal.h"
#include "model/cpu/cpu.h"
#include "num/bf16.h"
#include "num/residual.h"

enum { N_PROMPT = 300, MAX_PAGE = 6, N_SINK = 3 };

typedef struct bed {
    nb_engine *e; /* for its model and records */
    nb_dev *dev;
    nb_thrift_pool *pool;
    nb_rank *r;
    nb_cpu *f; /* the same */
    nb_kv_pool kv;
    uint32_t block[MAX_PAGE];
    size_t n, n_layer; /* values of a token */
} bed;

static const nb_record *record_of(const bed *b, size_t layer)
{
    return &b->e->pages.record[layer];
}

static void make_bed(bed *b, const char *dir, const char *type, const char *kind, double tau,
                     double fraction)
{
    *b = (bed){ 0 };
    b->e = make_engine(&(nb_engine_options){ .model = in_source(dir),
                                             .kv_cache_dtype = type,
                                             .kv_thrift = kind,
                                             .kv_thrift_tau = tau,
                                             .kv_thrift_fraction = fraction,
                                             .kv_sinks = N_SINK,
                                             .no_text = true,
                                             .n_thread = 1,
                                             .max_model_len = MAX_PAGE * 64 });
    b->n = b->e->pages.record[0].n_values;
    b->n_layer = b->e->model.c.n_layer;
    assert_int_equal(nb_dev_create_host(2, &b->dev, NULL), NB_OK);
    assert_int_equal(nb_thrift_pool_create(50, b->e->pages.plane_row, &b->pool, NULL), NB_OK);
    const nb_rank_options fo = { .model = &b->e->model,
                                 .dev = b->dev,
                                 .record = b->e->pages.record,
                                 .n_sink = N_SINK,
                                 .caps = 0, /* the portable variants round neither queries nor weights */
                                 .max_tok = N_PROMPT,
                                 .thrift = b->e->pages.thrift,
                                 .thrift_pool = b->pool };
    assert_int_equal(nb_rank_create(&fo, &b->r, NULL), NB_OK);
    for (uint32_t i = 0; i < MAX_PAGE; i++) b->block[i] = MAX_PAGE - 1 - i;
    b->f = nb_cpu_of(b->r);
    b->kv = nb_engine_pool(b->e);
    b->kv.page = nb_dev_alloc(b->dev, MAX_PAGE * b->e->pages.block_bytes); /* pages are aligned */
    b->kv.plane = calloc(MAX_PAGE, b->e->pages.plane_block);
    b->kv.tail = calloc(b->n_layer * 64 * b->n, sizeof *b->kv.tail);
    b->kv.sink = calloc(MAX_PAGE * b->kv.sink_block, sizeof *b->kv.sink);
    (void)nb_rank_set_pool(b->r, &b->kv);
}

static void drop_bed(bed *b)
{
    nb_dev_free(b->dev, b->kv.page, MAX_PAGE * b->e->pages.block_bytes);
    free(b->kv.plane);
    free(b->kv.tail);
    free(b->kv.sink);
    nb_rank_destroy(b->r);
    nb_thrift_pool_destroy(b->pool);
    nb_dev_destroy(b->dev);
    nb_engine_destroy(b->e);
}

static void step(bed *b, const uint32_t *id, size_t n, size_t pos, bool thrift)
{
    const nb_chunk c = { .block = b->block,
                         .n_block = MAX_PAGE,
                         .tok = id,
                         .n_tok = n,
                         .pos0 = pos,
                         .absorbed = true,
                         .thrift = thrift };
    nb_error err = { 0 };
    if (nb_rank_step(b->r, &c, 1, NULL, &err) != NB_OK) fail_msg("%s", err.msg);
}

/* All that the last token's query sees in a layer, as stored: [n_tok][n]. */
static float *stored(const bed *b, size_t layer, size_t n_earlier, size_t n_own)
{
    const nb_record *r = record_of(b, layer);
    float *x = calloc((n_earlier + n_own) * b->n, sizeof *x);
    for (size_t p = 0; p < n_earlier / 64; p++) {
        const unsigned char *page =
            b->kv.page + b->block[p] * b->kv.block_bytes + b->kv.page_off[layer];
        nb_record_decode(r, page, 0, 0, 64, x + p * 64 * b->n, b->n);
        nb_record_decode(r, page, 1, 0, 64, x + p * 64 * b->n + r->seg[0].dim, b->n);
    }
    const uint16_t *sink = b->kv.sink + b->block[0] * b->kv.sink_block + layer * N_SINK * b->n;
    for (size_t k = 0; k < N_SINK * b->n; k++) x[k] = nb_bf16_to_f32(sink[k]);
    memcpy(x + n_earlier * b->n, b->kv.tail + layer * 64 * b->n, n_own * b->n * sizeof *x);
    return x;
}

static double score_of(const bed *b, const float *q, const float *k)
{
    double s = 0;
    for (size_t i = 0; i < b->n; i++) s += (double)q[i] * (double)k[i];
    return s * (double)b->e->model.c.attn[0].softmax_scale;
}

/* What each candidate is worth: tokens (by log-probability) or pages. */
static void worth_of(const bed *b, nb_thrift_kind kind, const float *x, size_t n_earlier,
                     size_t n_own, double *worth)
{
    const size_t nh = b->e->model.c.attn[0].n_head, n_page = n_earlier / 64;
    double *s = calloc(n_earlier + n_own, sizeof *s);
    for (size_t i = 0; i < (kind == NB_THRIFT_TOKEN ? n_earlier : n_page); i++)
        worth[i] = -INFINITY;
    for (size_t h = 0; h < nh; h++) {
        const float *q = b->f->qx + h * b->n;
        double sum = 0;
        for (size_t t = 0; t < n_earlier + n_own; t++) {
            s[t] = score_of(b, q, x + t * b->n);
            sum += exp(s[t]);
        }
        for (size_t p = 0; p < n_page; p++) {
            double mean = 0, prob = 0, quest = 0;
            for (size_t t = p * 64; t < (p + 1) * 64; t++) {
                mean += s[t] / 64;
                prob += exp(s[t]) / sum;
                if (kind == NB_THRIFT_TOKEN) worth[t] = fmax(worth[t], s[t] - log(sum));
            }
            for (size_t i = 0; i < b->n; i++) {
                double hi = -INFINITY, lo = INFINITY;
                for (size_t t = p * 64; t < (p + 1) * 64; t++) {
                    hi = fmax(hi, (double)x[t * b->n + i]);
                    lo = fmin(lo, (double)x[t * b->n + i]);
                }
                quest += fmax((double)q[i] * hi, (double)q[i] * lo);
            }
            if (kind == NB_THRIFT_BLOCK_MEAN) worth[p] = fmax(worth[p], mean);
            if (kind == NB_THRIFT_BLOCK_PROB) worth[p] = fmax(worth[p], prob);
            if (kind == NB_THRIFT_QUEST) worth[p] = fmax(worth[p], quest);
        }
    }
    free(s);
}

/* The n_best best of what is above the limit, as far as floats can tell. */
static void check_choice(const double *worth, const unsigned char *taken, size_t n, double above,
                         size_t n_best)
{
    const double slack = 2e-5;
    double worst_in = INFINITY, best_out = -INFINITY;
    size_t n_in = 0;
    for (size_t i = 0; i < n; i++) {
        n_in += taken[i];
        if (taken[i])
            worst_in = fmin(worst_in, worth[i]);
        else
            best_out = fmax(best_out, worth[i]);
    }
    assert_true(n_in <= n_best);
    assert_true(n_in > 0 && n_in < n); /* else nothing is shown */
    assert_true(worst_in > above - slack * fabs(above));
    if (n_in < n_best)
        assert_true(best_out <= above + slack * fabs(above));
    else
        assert_true(worst_in >= best_out - slack * (1 + fabs(best_out)));
}

/* u_h of all heads over rows x, in double, against the step's. */
static void check_output(const bed *b, const float *x, size_t n_tok)
{
    const size_t nh = b->e->model.c.attn[0].n_head, dl = b->e->model.c.attn[0].kv_lora;
    double *u = calloc(dl, sizeof *u);
    for (size_t h = 0; h < nh; h++) {
        double sum = 0, far = 0, size = 0;
        memset(u, 0, dl * sizeof *u);
        for (size_t t = 0; t < n_tok; t++) {
            const double w = exp(score_of(b, b->f->qx + h * b->n, x + t * b->n));
            sum += w;
            for (size_t i = 0; i < dl; i++) u[i] += w * (double)x[t * b->n + i];
        }
        for (size_t i = 0; i < dl; i++) {
            const double d = u[i] / sum - (double)b->f->tot_o[h * dl + i];
            far += d * d;
            size += u[i] / sum * (u[i] / sum);
        }
        assert_true(sqrt(far) <= 2e-5 * sqrt(size));
    }
    free(u);
}

static void check_kind(const char *dir, const char *type, const char *kind, double tau,
                       double fraction)
{
    bed b;
    uint32_t id[N_PROMPT + 1];
    make_bed(&b, dir, type, kind, tau, fraction);
    random_ids(id, N_PROMPT + 1, b.e->model.c.n_vocab, 77);
    step(&b, id, N_PROMPT, 0, false);
    step(&b, id + N_PROMPT, 1, N_PROMPT, true);
    const size_t last = b.n_layer - 1, n = N_PROMPT / 64 * 64, own = N_PROMPT + 1 - n;
    const nb_thrift_kind k = b.e->pages.thrift.kind;
    float *x = stored(&b, last, n, own);
    double *worth = calloc(n, sizeof *worth);
    unsigned char *taken = calloc(n, 1);
    worth_of(&b, k, x, n, own, worth);
    const size_t n_pick = b.f->t_first[n / 64];
    for (size_t i = 0; i < n_pick; i++) {
        const size_t pos = b.f->t_pick[i], p = pos / 64;
        const unsigned char *page = b.kv.page + b.block[p] * b.kv.block_bytes + b.kv.page_off[last];
        const unsigned char *row = b.kv.plane + b.block[p] * b.kv.plane_block +
                                   b.kv.plane_off[last] + pos % 64 * b.e->pages.plane_row;
        assert_true(pos >= N_SINK && pos < n && (i == 0 || pos > b.f->t_pick[i - 1]));
        assert_true(b.f->t_first[p] <= i && i < b.f->t_first[p + 1]);
        assert_memory_equal(b.f->t_row[i], row, b.e->pages.plane_row);
        nb_residual_decode(record_of(&b, last), page, pos % 64, row, x + pos * b.n);
        taken[k == NB_THRIFT_TOKEN ? pos : p] = 1;
    }
    if (k == NB_THRIFT_TOKEN) {
        for (size_t t = 0; t < N_SINK; t++) worth[t] = -INFINITY;
        check_choice(worth, taken, n, log(b.e->pages.thrift.tau), nb_thrift_token_cap(fraction, n));
    } else {
        check_choice(worth, taken, n / 64, -INFINITY, nb_thrift_n_page(fraction, n / 64));
    }
    check_output(&b, x, n + own);
    free(x);
    free(worth);
    free(taken);
    drop_bed(&b);
}

static void test_definition(void **state)
{
    (void)state;
    static const char *const dir[] = { "tests/parity/v3_geom", "tests/parity/v3" };
    static const char *const type[] = { "nvfp4", "if4" };
    for (size_t i = 0; i < 2; i++) {
        check_kind(dir[i], type[i], "token", 1e-9, 0.07); /* the cap decides */
        check_kind(dir[i], type[i], "token", 0.0045, 1);  /* tau decides */
        check_kind(dir[i], type[i], "block-mean", 0, 0.5);
        check_kind(dir[i], type[i], "quest", 0, 0.3);
        check_kind(dir[i], type[i], "block-prob", 0, 0.5);
    }
}

int main(void)
{
    if (!have_file("tests/parity/v3_geom/config.json")) {
        printf("skipped: tests/parity/v3_geom is missing\n");
        return SKIP_EXIT;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_definition) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
