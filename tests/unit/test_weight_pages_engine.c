/* test_weight_pages_engine.c - on several ranks every byte of the matrices is read once, by a thread of the rank that
 * computes with it. */
#include "engine_testing.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "engine/engine_internal.h"
#include "engine/weight_pages.h"
#include "kernel/linear/packed.h"
#include "model/backend.h"

/* Who has read each piece: a thread, by its number in the system. */
typedef struct readers {
    const nb_weight_piece *piece;
    long *by; /* [n] */
    size_t n_report;
    uint64_t last, total;
} readers;

static void note(void *ctx, const nb_weight_piece *p)
{
    readers *x = ctx;
    const size_t i = (size_t)(p - x->piece);
    assert_int_equal(x->by[i], 0); /* once */
    x->by[i] = syscall(SYS_gettid);
}

static void on_progress(void *ctx, const char *label, uint64_t done, uint64_t total)
{
    readers *x = ctx;
    assert_string_equal(label, "reading weights");
    assert_true(x->n_report ? done > x->last : done == 0);
    x->n_report++;
    x->last = done;
    x->total = total;
}

/* Rows [first, first + n) of a matrix are all of one rank. */
static void expect_rows(const nb_weight_piece *piece, size_t n_piece, const nb_weight *w, size_t first, size_t n,
                        size_t rank)
{
    const size_t row = nb_weight_data_bytes(w) / w->n_row;
    const unsigned char *begin = (const unsigned char *)w->data + first * row, *end = begin + n * row;
    size_t found = 0;
    for (size_t i = 0; i < n_piece; i++) {
        const unsigned char *a = piece[i].p, *b = a + piece[i].n_bytes;
        if (a >= end || b <= begin) continue;
        assert_int_equal(piece[i].rank, rank);
        found += (size_t)((b < end ? b : end) - (a > begin ? a : begin));
    }
    assert_int_equal(found, n * row);
}

/* What the rank's part says that it computes with. */
static void expect_part(nb_engine *e, const nb_weight_piece *piece, size_t n, size_t rank)
{
    const nb_rank_part *p = &e->rank[rank].rank->part;
    const nb_model *m = &e->model;
    assert_true(e->ranks.n > 1);
    expect_rows(piece, n, &m->head, p->vocab0, p->n_vocab, rank);
    for (size_t i = 0; i < m->c.n_layer; i++) {
        const nb_layer *l = &m->layer[i];
        expect_rows(piece, n, &l->o, p->out0, p->n_out, rank);
        if (m->c.dense[i]) {
            expect_rows(piece, n, &l->mlp.gate, p->inter0, p->inter, rank);
            expect_rows(piece, n, &l->mlp.up, p->inter0, p->inter, rank);
            expect_rows(piece, n, &l->mlp.down, p->out0, p->n_out, rank);
            continue;
        }
        expect_rows(piece, n, &l->mlp.gate, p->shared0, p->shared_inter, rank);
        for (size_t j = p->expert0; j < m->c.n_expert; j += p->expert_step) {
            expect_rows(piece, n, &l->expert[j].up, 0, l->expert[j].up.n_row, rank);
            expect_rows(piece, n, &l->expert[j].down, 0, l->expert[j].down.n_row, rank);
        }
    }
}

static nb_status sum(void *ctx, const char *name, nb_weight *w)
{
    (void)name;
    *(uint64_t *)ctx += nb_weight_data_bytes(w);
    return NB_OK;
}

/* Threads of different ranks are different ones, and each rank has some. */
static void expect_threads(const nb_weight_piece *piece, const long *by, size_t n, size_t n_rank)
{
    bool has[NB_ENGINE_MAX_RANK] = { false };
    for (size_t i = 0; i < n; i++) {
        assert_int_not_equal(by[i], 0);
        assert_int_not_equal(by[i], syscall(SYS_gettid));
        has[piece[i].rank] = true;
        for (size_t j = 0; j < i; j++)
            if (by[i] == by[j]) assert_int_equal(piece[i].rank, piece[j].rank);
    }
    for (size_t k = 0; k < n_rank; k++) assert_true(has[k]);
}

static void reads_own(const char *dir, size_t n_rank)
{
    nb_weight_piece *piece = NULL;
    size_t n = 0;
    uint64_t all = 0, listed = 0;
    nb_error err = { 0 };
    const nb_engine_options o = { .model = in_source(dir),
                                  .device = "cpu",
                                  .no_text = true,
                                  .n_thread = 2 * n_rank,
                                  .tensor_parallel_size = n_rank,
                                  .max_model_len = 128 };
    nb_engine *e = make_engine(&o);
    assert_int_equal(nb_weight_pieces(&e->model, n_rank, &piece, &n, &err), NB_OK);
    for (size_t i = 0; i < n; i++) {
        assert_true(piece[i].n_bytes > 0 && piece[i].n_bytes <= NB_WEIGHT_PIECE && piece[i].rank < n_rank);
        listed += piece[i].n_bytes;
    }
    assert_int_equal(nb_model_each_matrix(&e->model, sum, &all), NB_OK);
    assert_int_equal(listed, all);
    for (size_t k = 0; k < n_rank; k++) expect_part(e, piece, n, k);

    /* The engine's own threads are its ranks' while it is there. */
    nb_dev *dev = NULL;
    nb_ranks ranks = { 0 };
    assert_int_equal(nb_ranks_create(&ranks, 1, n_rank, 2, &dev, &err), NB_OK);
    readers x = { .piece = piece, .by = calloc(n, sizeof(long)) };
    assert_non_null(x.by);
    const nb_weight_reading how = {
        .read = note, .read_ctx = &x, .progress = on_progress, .progress_ctx = &x
    };
    assert_int_equal(nb_weight_pieces_read(&ranks, piece, n, &how, &err), NB_OK);
    expect_threads(piece, x.by, n, n_rank);
    assert_true(x.n_report >= 2);
    assert_int_equal(x.last, all);
    assert_int_equal(x.total, all);
    nb_ranks_deinit(&ranks);
    nb_dev_destroy(dev);

    /* a process with one rank of several keeps what is this rank's */
    uint64_t own = 0, kept = 0;
    for (size_t i = 0; i < n; i++) own += piece[i].rank == 1 ? piece[i].n_bytes : 0;
    n = nb_weight_pieces_keep(piece, n, 1);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(piece[i].rank, 0);
        kept += piece[i].n_bytes;
    }
    assert_true(own > 0 && kept == own);
    free(x.by);
    free(piece);
    nb_engine_destroy(e);
}

static void test_experts(void **state)
{
    (void)state;
    reads_own("tests/parity/v2_lite", 2);
    reads_own("tests/parity/v2_lite", 3);
}

static void test_dense(void **state)
{
    (void)state;
    reads_own("tests/parity/qwen2", 2);
}

static void count_reports(void *ctx, const char *label, uint64_t done, uint64_t total)
{
    if (strcmp(label, "reading weights") == 0) *(uint64_t *)ctx += total > 0 && done == total;
}

/* The engine does so at start: one bar, which ends. */
static void test_start(void **state)
{
    (void)state;
    for (size_t n_rank = 1; n_rank <= 2; n_rank++) {
        uint64_t n_end = 0;
        const nb_engine_options o = { .model = in_source("tests/parity/v2_lite"),
                                      .device = "cpu",
                                      .no_text = true,
                                      .n_thread = 2,
                                      .tensor_parallel_size = n_rank,
                                      .max_model_len = 128,
                                      .progress = count_reports,
                                      .progress_ctx = &n_end };
        nb_engine_destroy(make_engine(&o));
        assert_int_equal(n_end, 1);
    }
}

/* Bytes of mapped safetensors for which large pages were asked, as the system tells it. */
static size_t asked_bytes(void)
{
    char line[1024];
    size_t n = 0, begin = 0, end = 0;
    bool weights = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    if (!f) return 0;
    while (fgets(line, sizeof line, f)) {
        size_t a, b;
        if (sscanf(line, "%zx-%zx ", &a, &b) == 2) {
            begin = a;
            end = b;
            weights = strstr(line, ".safetensors") != NULL;
        } else if (weights && strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg")) {
            n += end - begin;
        }
    }
    (void)fclose(f);
    return n;
}

/* Weights are mapped with the system's large pages, where it has some: but for the ends of a file all of them. */
static void test_large_pages(void **state)
{
    (void)state;
    enum { HUGE_BYTES = 2 << 20 };
    struct stat st;
    if (stat("/sys/kernel/mm/transparent_hugepage", &st) != 0) skip();
    const char *dir = "models/nibble-tiny";
    size_t n_file = 0, n_bytes = 0;
    for (char path[700];; n_file++) {
        (void)snprintf(path, sizeof path, "%s/model-0000%zu-of-00002.safetensors", in_source(dir), n_file + 1);
        if (stat(path, &st) != 0) break;
        n_bytes += (size_t)st.st_size;
    }
    assert_true(n_file == 2 && n_bytes > 4 * n_file * HUGE_BYTES);
    assert_int_equal(asked_bytes(), 0);
    nb_engine *e = make_engine(&(nb_engine_options){ .model = in_source(dir), .device = "cpu", .no_text = true,
                                                     .n_thread = 1, .max_model_len = 128 });
    const size_t asked = asked_bytes();
    nb_engine_destroy(e);
    assert_true(asked >= n_bytes - 2 * n_file * HUGE_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_experts), cmocka_unit_test(test_dense),
                                        cmocka_unit_test(test_start), cmocka_unit_test(test_large_pages) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
