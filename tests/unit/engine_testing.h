/* engine_testing.h - what the tests of the engine share: models of this repository, an engine
 * in one call, a request in one call, logits as one array. */
#ifndef NB_TESTS_ENGINE_TESTING_H
#define NB_TESTS_ENGINE_TESTING_H
#include "load_testing.h"

#include "base/rng.h"
#include "nibble/nibble.h"

enum { MAX_GEN = 4096, SKIP_EXIT = 77 };

static inline const char *source_dir(void)
{
    const char *dir = getenv("NB_SOURCE_DIR");
    return dir ? dir : ".";
}

/* A path below the repository's root, in one of four buffers. */
static inline const char *in_source(const char *name)
{
    static char buf[4][600];
    static size_t next;
    char *b = buf[next++ % 4];
    (void)snprintf(b, sizeof buf[0], "%s/%s", source_dir(), name);
    return b;
}

static inline bool have_file(const char *name)
{
    struct stat st;
    return stat(in_source(name), &st) == 0;
}

static inline nb_engine *make_engine(const nb_engine_options *o)
{
    nb_engine *e = NULL;
    nb_error err = { 0 };
    nb_engine_options with = *o;
    const char *cuda = getenv("NB_TEST_CUDA"); /* the same test on a GPU: the library to use */
    if (cuda) {
        with.device = "cuda";
        with.cuda_library = cuda;
    }
    const char *ranks = getenv("NB_TEST_RANKS"); /* the same test on so many ranks, where the model allows it */
    if (ranks && !with.device && !with.tensor_parallel_size) {
        with.tensor_parallel_size = (size_t)strtoul(ranks, NULL, 10);
        if (nb_engine_create(&with, &e, &err) == NB_OK) return e;
        with.tensor_parallel_size = 1;
    }
    if (nb_engine_create(&with, &e, &err) != NB_OK) fail_msg("%s: %s", o->model, err.msg);
    return e;
}

/* A model below tests/parity (or anywhere in the repository), ids only. */
static inline nb_engine *simple_engine(const char *model, const char *kv)
{
    return make_engine(&(nb_engine_options){
        .model = in_source(model), .kv_cache_dtype = kv, .no_text = true, .n_thread = 1 });
}

static inline void random_ids(uint32_t *id, size_t n, size_t n_vocab, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) id[i] = (uint32_t)(nb_rng_u64(seed, i) % n_vocab);
}

/* What a request gave, and what its callback saw. */
typedef struct gen {
    nb_result r;
    uint32_t seen[MAX_GEN];
    float logprob[MAX_GEN];
    nb_token_logprob top[MAX_GEN][20];
    size_t n_top[MAX_GEN], n_seen;
    char text[1 << 16];
    size_t text_bytes;
    size_t cancel_after; /* 0: never */
    nb_engine *cancel;   /* with cancel_after: through nb_engine_cancel */
} gen;

static inline int on_token(void *ctx, const nb_token_event *ev)
{
    gen *g = ctx;
    if (g->n_seen >= MAX_GEN || g->text_bytes + ev->text_bytes >= sizeof g->text) return 1;
    g->seen[g->n_seen] = ev->id;
    g->logprob[g->n_seen] = ev->logprob;
    g->n_top[g->n_seen] = ev->n_top;
    for (size_t i = 0; i < ev->n_top && i < 20; i++) g->top[g->n_seen][i] = ev->top[i];
    g->n_seen++;
    memcpy(g->text + g->text_bytes, ev->text, ev->text_bytes);
    g->text_bytes += ev->text_bytes;
    g->text[g->text_bytes] = 0;
    if (!g->cancel_after || g->n_seen < g->cancel_after) return 0;
    if (!g->cancel) return 1;
    nb_engine_cancel(g->cancel);
    return 0;
}

static inline void gen_reset(gen *g)
{
    nb_result_deinit(&g->r);
    g->n_seen = g->text_bytes = g->cancel_after = 0;
    g->text[0] = 0;
    g->cancel = NULL;
}

static inline nb_status try_run(nb_engine *e, const uint32_t *prompt, size_t n,
                                const nb_sampling *s, gen *g, nb_error *err)
{
    const nb_request rq = {
        .prompt = prompt, .n_prompt = n, .sampling = *s, .on_token = on_token, .on_token_ctx = g
    };
    *err = (nb_error){ 0 };
    return nb_generate(e, &rq, &g->r, err);
}

static inline void run_gen(nb_engine *e, const uint32_t *prompt, size_t n, const nb_sampling *s,
                           gen *g)
{
    nb_error err;
    if (try_run(e, prompt, n, s, g, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_int_equal(g->n_seen, g->r.n_tokens);
    assert_memory_equal(g->seen, g->r.tokens, g->n_seen * sizeof *g->seen);
    assert_int_equal(g->text_bytes, g->r.text_bytes);
    assert_memory_equal(g->text, g->r.text, g->text_bytes);
    assert_int_equal(g->r.text[g->r.text_bytes], 0);
    assert_int_equal(g->r.n_prompt, n);
    assert_true(g->r.prefill_s >= 0 && g->r.decode_s >= 0);
}

/* Greedy, exactly n tokens. */
static inline nb_sampling greedy(size_t n)
{
    nb_sampling s;
    nb_sampling_default(&s);
    s.temperature = 0;
    s.max_tokens = n;
    s.ignore_eos = true;
    return s;
}

static inline size_t vocab_of(nb_engine *e)
{
    nb_engine_info info;
    nb_engine_get_info(e, &info);
    return info.vocab;
}

typedef struct row_sink {
    float *out;
    const size_t *row;
    size_t n, n_row, n_vocab;
} row_sink;

static inline int take_row(void *ctx, size_t row, const float *logits, size_t n_vocab)
{
    row_sink *s = ctx;
    if (s->n >= s->n_row || s->row[s->n] != row || n_vocab != s->n_vocab) return 1;
    memcpy(s->out + s->n++ * n_vocab, logits, n_vocab * sizeof *logits);
    return 0;
}

/* Logits at the rows, [n_row][vocab], to be freed. */
static inline float *logits_at(nb_engine *e, const uint32_t *id, size_t n, const size_t *row,
                               size_t n_row)
{
    nb_error err = { 0 };
    row_sink s = { .row = row, .n_row = n_row, .n_vocab = vocab_of(e) };
    s.out = calloc(n_row * s.n_vocab, sizeof *s.out);
    assert_non_null(s.out);
    if (nb_logits(e, id, n, row, n_row, take_row, &s, &err) != NB_OK) fail_msg("%s", err.msg);
    assert_int_equal(s.n, n_row);
    return s.out;
}

static inline bool same_floats(const float *a, const float *b, size_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}
#endif
