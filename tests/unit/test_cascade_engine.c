/* test_cascade_engine.c - sequences with a common beginning attend to its pages together: the bits
 * are those that each has alone, for any number of threads, and the pages are read once. */
#include "engine_testing.h"

#include <math.h>

#include "engine/engine_internal.h"

enum {
    N_SEQ = 8, /* the first N_FIRST begin alike, the others have another beginning in common */
    N_FIRST = 6,
    N_LONG = 300, /* tokens of the beginnings: 4 pages and a part, 2 pages and a part */
    N_SHORT = 150,
    N_STEP = 30, /* generated: the open page of the first is filled on the way */
    FAR = 123,   /* pages put before the first, so that they pass page 128 while they generate */
    MAX_PAGE = FAR + 6,
    N_BLOCK = 32,
    N_SINK = 3
};

typedef struct bed {
    nb_engine *e; /* for its model and records */
    nb_dev *dev;
    nb_rank *r;
    nb_kv_pool kv;
    uint32_t block[N_SEQ][MAX_PAGE];
    size_t n_vocab;
    size_t far;    /* pages before the first sequences: 0 or FAR */
    bool expanded; /* generated tokens use the expanded form */
} bed;

static size_t length_of(size_t i)
{
    return i < N_FIRST ? N_LONG : N_SHORT;
}

static void make_bed(bed *b, const char *dir, const char *type, size_t n_thread)
{
    *b = (bed){ 0 };
    b->e = make_engine(&(nb_engine_options){ .model = in_source(dir),
                                             .kv_cache_dtype = type,
                                             .kv_sinks = N_SINK,
                                             .no_text = true,
                                             .n_thread = 1,
                                             .max_model_len = MAX_PAGE * 64 });
    const nb_model_config *c = &b->e->model.c;
    assert_int_equal(nb_dev_create_host(n_thread, &b->dev, NULL), NB_OK);
    const nb_rank_options fo = { .model = &b->e->model,
                                 .dev = b->dev,
                                 .record = b->e->pages.record,
                                 .n_sink = b->e->pages.n_sink,
                                 .caps = nb_rank_plan(b->e->rank[0].rank)->caps,
                                 .max_tok = N_LONG,
                                 .max_seq = N_SEQ };
    assert_int_equal(nb_rank_create(&fo, &b->r, NULL), NB_OK);
    b->n_vocab = c->n_vocab;
    b->kv = nb_engine_pool(b->e);
    b->kv.page = nb_dev_alloc(b->dev, N_BLOCK * b->e->pages.block_bytes);
    b->kv.sink = nb_dev_alloc(b->dev, N_BLOCK * b->kv.sink_block * sizeof *b->kv.sink + 1);
    b->kv.tail = calloc(N_SEQ, b->kv.tail_floats * sizeof *b->kv.tail);
    (void)nb_rank_set_pool(b->r, &b->kv);
    for (size_t i = 0; i < N_SEQ; i++) {
        for (uint32_t p = 0; p < MAX_PAGE; p++) /* whole pages of a beginning are common */
            b->block[i][p] = p < length_of(i) / 64
                                 ? (i < N_FIRST ? p : 4 + p)
                                 : 6 + 2 * (uint32_t)i + (p - (uint32_t)length_of(i) / 64) % 2;
    }
}

static void drop_bed(bed *b)
{
    free(b->kv.tail);
    nb_dev_free(b->dev, b->kv.page, N_BLOCK * b->e->pages.block_bytes);
    nb_dev_free(b->dev, b->kv.sink, N_BLOCK * b->kv.sink_block * sizeof *b->kv.sink + 1);
    nb_rank_destroy(b->r);
    nb_dev_destroy(b->dev);
    nb_engine_destroy(b->e);
}

static nb_chunk chunk_of(bed *b, size_t i, const uint32_t *id, size_t n, size_t pos)
{
    return (nb_chunk){ .block = b->block[i],
                       .n_block = MAX_PAGE,
                       .slot = i,
                       .tok = id,
                       .n_tok = n,
                       .pos0 = pos,
                       .absorbed = n == 1 && !b->expanded };
}

static void run(bed *b, const nb_chunk *c, size_t n)
{
    nb_error err = { 0 };
    if (nb_rank_step(b->r, c, n, NULL, &err) != NB_OK) fail_msg("%s", err.msg);
}

/* The beginnings, computed once each; all who share one get its open rows. */
static void begin(bed *b)
{
    static uint32_t prompt[N_LONG];
    for (size_t i = 0; i < N_SEQ; i += N_FIRST) {
        random_ids(prompt, length_of(i), b->n_vocab, 40 + i);
        const nb_chunk c = chunk_of(b, i, prompt, length_of(i), 0);
        run(b, &c, 1);
        for (size_t k = i + 1; k < (i == 0 ? N_FIRST : N_SEQ); k++)
            memcpy(b->kv.tail + k * b->kv.tail_floats, b->kv.tail + i * b->kv.tail_floats,
                   b->kv.tail_floats * sizeof *b->kv.tail);
    }
}

/* The first sequences' whole pages again and again, then their open one. */
static void go_far(bed *b)
{
    b->far = FAR;
    for (size_t i = 0; i < N_FIRST; i++)
        for (uint32_t p = 0; p < MAX_PAGE; p++)
            b->block[i][p] = p < FAR + N_LONG / 64 ? p % 3 : 6 + 2 * (uint32_t)i + p % 2;
}

/* N_STEP tokens of sequences [i0, i1) side by side; out: [N_STEP][N_SEQ][n_vocab] logits. */
static void generate(bed *b, size_t i0, size_t i1, float *out)
{
    uint32_t id[N_SEQ][N_STEP];
    for (size_t i = 0; i < N_SEQ; i++) random_ids(id[i], N_STEP, b->n_vocab, 70 + i);
    for (size_t t = 0; t < N_STEP; t++) {
        nb_chunk c[N_SEQ];
        size_t place[N_SEQ];
        for (size_t i = i0; i < i1; i++) {
            const size_t far = i < N_FIRST ? b->far * 64 : 0;
            c[i - i0] = chunk_of(b, i, &id[i][t], 1, far + length_of(i) + t);
            place[i - i0] = i - i0;
        }
        run(b, c, i1 - i0);
        nb_rank_logits(b->r, place, i1 - i0, out + (t * N_SEQ + i0) * b->n_vocab, NULL);
    }
}

static float *together(const char *dir, const char *type, size_t n_thread, size_t *n_vocab)
{
    bed b;
    make_bed(&b, dir, type, n_thread);
    begin(&b);
    float *out = calloc(N_STEP * N_SEQ * b.n_vocab, sizeof *out);
    generate(&b, 0, N_SEQ, out);
    *n_vocab = b.n_vocab;
    drop_bed(&b);
    return out;
}

static void check(const char *dir, const char *type)
{
    bed b;
    make_bed(&b, dir, type, 1);
    begin(&b);
    float *want = calloc(N_STEP * N_SEQ * b.n_vocab, sizeof *want);
    for (size_t i = 0; i < N_SEQ; i++) generate(&b, i, i + 1, want);
    drop_bed(&b);
    for (size_t n_thread = 1; n_thread <= 3; n_thread++) {
        size_t n_vocab;
        float *got = together(dir, type, n_thread, &n_vocab);
        for (size_t k = 0; k < N_STEP * N_SEQ; k++)
            if (!same_floats(want + k * n_vocab, got + k * n_vocab, n_vocab))
                fail_msg("%s, %s, %zu threads: token %zu of sequence %zu has other logits than "
                         "alone",
                         dir, type, n_thread, k / N_SEQ, k % N_SEQ);
        free(got);
    }
    free(want);
}

static void test_alone_and_together(void **state)
{
    (void)state;
    check("tests/parity/v3_geom", "nvfp4");
    check("tests/parity/v3_geom", "bf16");
    check("tests/parity/v3_geom", "fp8");
    check("tests/parity/llama3", "nvfp4"); /* attention of another kind */
}

/* From page 128 on the splits of a context are longer. */
static void test_far(void **state)
{
    (void)state;
    bed b;
    make_bed(&b, "tests/parity/v3_geom", "nvfp4", 1);
    begin(&b);
    go_far(&b);
    const size_t n = N_STEP * N_SEQ * b.n_vocab;
    float *want = calloc(n, sizeof *want), *got = calloc(n, sizeof *got);
    for (size_t i = 0; i < N_SEQ; i++) generate(&b, i, i + 1, want);
    drop_bed(&b);
    make_bed(&b, "tests/parity/v3_geom", "nvfp4", 3);
    begin(&b);
    go_far(&b);
    generate(&b, 0, N_SEQ, got);
    assert_true(same_floats(want, got, n));
    drop_bed(&b);
    /* the expanded form sums in another order, and keeps its splits */
    for (int expanded = 0; expanded < 2; expanded++) {
        make_bed(&b, "tests/parity/v3_geom", "f32", 2);
        begin(&b);
        go_far(&b);
        b.expanded = expanded;
        generate(&b, 0, 1, expanded ? got : want);
        if (!expanded) drop_bed(&b);
    }
    for (size_t t = 0; t < N_STEP; t++)
        for (size_t k = 0; k < b.n_vocab; k++) {
            const size_t at = t * N_SEQ * b.n_vocab + k;
            if (!(fabsf(want[at] - got[at]) < 1e-4f))
                fail_msg("token %zu: %g, expanded %g", t, (double)want[at], (double)got[at]);
        }
    drop_bed(&b);
    free(want);
    free(got);
}

static void test_read_once(void **state)
{
    (void)state;
    bed b;
    make_bed(&b, "tests/parity/v3_geom", "nvfp4", 1);
    begin(&b);
    const size_t n_layer = b.e->model.c.n_layer;
    float *out = calloc(N_STEP * N_SEQ * b.n_vocab, sizeof *out);
    uint64_t before = nb_rank_count(b.r).page_reads;
    generate(&b, 0, N_SEQ, out);
    /* 4 pages and 2, once per step and layer; when the first have filled a page, it is theirs */
    const size_t later = N_STEP - (320 - N_LONG);
    assert_int_equal(nb_rank_count(b.r).page_reads - before,
                     n_layer * (N_STEP * (4 + 2) + later * N_FIRST));
    drop_bed(&b);
    make_bed(&b, "tests/parity/v3_geom", "nvfp4", 1);
    begin(&b);
    before = nb_rank_count(b.r).page_reads;
    generate(&b, 0, 1, out);
    generate(&b, 1, 2, out);
    assert_int_equal(nb_rank_count(b.r).page_reads - before, n_layer * 2 * (N_STEP * 4 + later));
    drop_bed(&b);
    free(out);
}

int main(void)
{
    if (!have_file("tests/parity/v3_geom/config.json") ||
        !have_file("tests/parity/llama3/config.json")) {
        printf("skipped: tests/parity is missing\n");
        return SKIP_EXIT;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone_and_together),
        cmocka_unit_test(test_far),
        cmocka_unit_test(test_read_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
