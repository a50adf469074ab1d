/* test_mixed_attention.c - a toy checkpoint whose layers have latent and grouped attention in turn, against a
 * reference in double, for every form and cut of the work, and on the emulated GPU. */
#include "engine_testing.h"

#include <math.h>

#include "engine/engine_internal.h"
#include "nibble/measure.h"
#include "num/bf16.h"

enum { N_TOK = 150, N_PROMPT = 90, MAX_DIM = 512 };

static const char config[] =
    "{\"model_type\": \"nibble_mixed\", \"hidden_size\": 96, \"num_hidden_layers\": 4, \"vocab_size\": 160,"
    "\"num_attention_heads\": 4, \"intermediate_size\": 128, \"kv_lora_rank\": 64, \"q_lora_rank\": 48,"
    "\"qk_nope_head_dim\": 24, \"qk_rope_head_dim\": 16, \"v_head_dim\": 32, \"num_key_value_heads\": 2,"
    "\"head_dim\": 48, \"max_position_embeddings\": 512, \"torch_dtype\": \"bfloat16\","
    "\"initializer_range\": 0.15, \"attention_layers\": [\"mla\", \"gqa\", \"mla\", \"gqa\"]}";

static tmp_dir dir;
static char path[600];
static uint32_t ids[N_TOK];

static nb_engine *open_mixed(const char *kv, const char *form, size_t n_thread, size_t chunk,
                             const char *cuda)
{
    nb_engine *e = NULL;
    nb_error err = { 0 };
    const nb_engine_options o = { .model = path,
                                  .load_format = "dummy",
                                  .device = cuda ? "cuda" : "cpu",
                                  .cuda_library = cuda,
                                  .kv_cache_dtype = kv,
                                  .mla = form,
                                  .prefill_chunk = chunk,
                                  .n_thread = n_thread,
                                  .no_text = true,
                                  .max_model_len = 256 };
    if (nb_engine_create(&o, &e, &err) != NB_OK) fail_msg("%s", err.msg);
    return e;
}

/* ---- the reference ---- */

static double weight_at(const nb_weight *w, size_t r, size_t c)
{
    return (double)nb_bf16_to_f32(((const uint16_t *)w->data)[r * w->n_col + c]);
}

/* y = W x */
static void product(const nb_weight *w, const double *x, double *y)
{
    for (size_t r = 0; r < w->n_row; r++) {
        y[r] = 0;
        for (size_t c = 0; c < w->n_col; c++) y[r] += weight_at(w, r, c) * x[c];
    }
}

static void norm(const float *w, double eps, const double *x, size_t n, double *y)
{
    double s = 0;
    for (size_t i = 0; i < n; i++) s += x[i] * x[i];
    for (size_t i = 0; i < n; i++) y[i] = x[i] * (double)w[i] / sqrt(s / (double)n + eps);
}

static void rotate(const nb_rope_config *r, double *x, size_t pos)
{
    for (size_t j = 0; j < r->dim / 2; j++) {
        const double angle = (double)(r->inv_freq[j] * (float)pos), c = cos(angle), s = sin(angle);
        double *a = x + (r->interleaved ? 2 * j : j), *b = a + (r->interleaved ? 1 : r->dim / 2);
        const double u = *a, v = *b;
        *a = u * c - v * s;
        *b = u * s + v * c;
    }
}

/* One query against keys and values of tokens 0..t: out[d_v]. */
static void attend(const double *q, const double *k, const double *v, size_t t, size_t d_k,
                   size_t k_step, size_t d_v, size_t v_step, double scale, double *out)
{
    double top = -INFINITY, sum = 0, s[N_TOK];
    for (size_t i = 0; i <= t; i++) {
        s[i] = 0;
        for (size_t j = 0; j < d_k; j++) s[i] += q[j] * k[i * k_step + j];
        s[i] *= scale;
        top = fmax(top, s[i]);
    }
    for (size_t j = 0; j < d_v; j++) out[j] = 0;
    for (size_t i = 0; i <= t; i++) {
        const double p = exp(s[i] - top);
        sum += p;
        for (size_t j = 0; j < d_v; j++) out[j] += p * v[i * v_step + j];
    }
    for (size_t j = 0; j < d_v; j++) out[j] /= sum;
}

/* Keys and values of every head, rebuilt from the latent. */
static void mla_layer(const nb_layer *l, const nb_attn_config *a, const double *x, size_t hidden,
                      double *out)
{
    static double keys[N_TOK][MAX_DIM], vals[N_TOK][MAX_DIM], q[N_TOK][MAX_DIM];
    const size_t d_k = a->d_nope + a->d_rope;
    for (size_t t = 0; t < N_TOK; t++) {
        double low[MAX_DIM], kv[MAX_DIM], up[MAX_DIM];
        product(&l->q_a, x + t * hidden, low);
        norm(l->q_a_norm, 1e-6, low, a->q_lora, low);
        product(&l->q_b, low, q[t]);
        product(&l->kv_a, x + t * hidden, kv);
        norm(l->kv_a_norm, 1e-6, kv, a->kv_lora, kv);
        rotate(&a->rope, kv + a->kv_lora, t);
        product(&l->kv_b, kv, up);
        for (size_t h = 0; h < a->n_head; h++) {
            const double *of_head = up + h * (a->d_nope + a->d_v);
            rotate(&a->rope, q[t] + h * d_k + a->d_nope, t);
            memcpy(keys[t] + h * d_k, of_head, a->d_nope * sizeof *of_head);
            memcpy(keys[t] + h * d_k + a->d_nope, kv + a->kv_lora, a->d_rope * sizeof *kv);
            memcpy(vals[t] + h * a->d_v, of_head + a->d_nope, a->d_v * sizeof *of_head);
        }
    }
    for (size_t t = 0; t < N_TOK; t++) {
        double o[MAX_DIM];
        for (size_t h = 0; h < a->n_head; h++)
            attend(q[t] + h * d_k, keys[0] + h * d_k, vals[0] + h * a->d_v, t, d_k, MAX_DIM, a->d_v,
                   MAX_DIM, (double)a->softmax_scale, o + h * a->d_v);
        product(&l->o, o, out + t * hidden);
    }
}

static void gqa_layer(const nb_layer *l, const nb_attn_config *a, const double *x, size_t hidden,
                      double *out)
{
    static double keys[N_TOK][MAX_DIM], vals[N_TOK][MAX_DIM], q[N_TOK][MAX_DIM];
    const size_t d = a->head_dim, group = a->n_head / a->n_kv_head;
    for (size_t t = 0; t < N_TOK; t++) {
        product(&l->q, x + t * hidden, q[t]);
        product(&l->k, x + t * hidden, keys[t]);
        product(&l->v, x + t * hidden, vals[t]);
        for (size_t h = 0; h < a->n_head; h++) rotate(&a->rope, q[t] + h * d, t);
        for (size_t h = 0; h < a->n_kv_head; h++) rotate(&a->rope, keys[t] + h * d, t);
    }
    for (size_t t = 0; t < N_TOK; t++) {
        double o[MAX_DIM];
        for (size_t h = 0; h < a->n_head; h++)
            attend(q[t] + h * d, keys[0] + h / group * d, vals[0] + h / group * d, t, d, MAX_DIM, d,
                   MAX_DIM, (double)a->softmax_scale, o + h * d);
        product(&l->o, o, out + t * hidden);
    }
}

static void mlp(const nb_mlp *m, const double *x, double *y)
{
    double g[MAX_DIM], u[MAX_DIM];
    product(&m->gate, x, g);
    product(&m->up, x, u);
    for (size_t i = 0; i < m->gate.n_row; i++) g[i] = g[i] / (1 + exp(-g[i])) * u[i];
    product(&m->down, g, y);
}

/* Logits [N_TOK][n_vocab] of the tokens. */
static double *reference(const nb_model *m)
{
    const size_t n = m->c.hidden;
    const double eps = (double)m->c.eps;
    static double h[N_TOK * MAX_DIM], x[N_TOK * MAX_DIM], y[N_TOK * MAX_DIM];
    double *logits = calloc(N_TOK * m->c.n_vocab, sizeof *logits);
    for (size_t t = 0; t < N_TOK; t++)
        for (size_t i = 0; i < n; i++) h[t * n + i] = weight_at(&m->embed, ids[t], i);
    for (size_t k = 0; k < m->c.n_layer; k++) {
        const nb_layer *l = &m->layer[k];
        const nb_attn_config *a = nb_layer_attn(&m->c, k);
        for (size_t t = 0; t < N_TOK; t++) norm(l->in_norm, eps, h + t * n, n, x + t * n);
        if (a->kind == NB_ATTN_MLA)
            mla_layer(l, a, x, n, y);
        else
            gqa_layer(l, a, x, n, y);
        for (size_t i = 0; i < N_TOK * n; i++) h[i] += y[i];
        for (size_t t = 0; t < N_TOK; t++) {
            norm(l->post_norm, eps, h + t * n, n, x + t * n);
            mlp(&l->mlp, x + t * n, y + t * n);
        }
        for (size_t i = 0; i < N_TOK * n; i++) h[i] += y[i];
    }
    for (size_t t = 0; t < N_TOK; t++) {
        norm(m->final_norm, eps, h + t * n, n, x);
        product(&m->head, x, logits + t * m->c.n_vocab);
    }
    return logits;
}

/* ---- the comparison ---- */

typedef struct got {
    float *x;
    size_t n_vocab, n;
} got;

static int on_logits(void *ctx, size_t row, const float *logits, size_t n_vocab)
{
    got *g = ctx;
    memcpy(g->x + row * n_vocab, logits, n_vocab * sizeof *logits);
    g->n++;
    return 0;
}

/* All rows as a prompt's, or from N_PROMPT on as generated tokens'. */
static float *rows_of(nb_engine *e, bool forced)
{
    nb_error err = { 0 };
    size_t rows[N_TOK];
    got g = { .n_vocab = e->model.c.n_vocab };
    g.x = calloc(N_TOK * g.n_vocab, sizeof *g.x);
    for (size_t i = 0; i < N_TOK; i++) rows[i] = i;
    const nb_status st = forced ? nb_engine_forced(e, ids, N_TOK, N_PROMPT, on_logits, &g, &err)
                                : nb_logits(e, ids, N_TOK, rows, N_TOK, on_logits, &g, &err);
    if (st != NB_OK) fail_msg("%s", err.msg);
    assert_int_equal(g.n, forced ? N_TOK - N_PROMPT + 1 : N_TOK);
    return g.x;
}

static void compare(const double *want, const float *x, size_t n_vocab, size_t from, double bound,
                    const char *what)
{
    double worst = 0, size = 0;
    for (size_t i = from * n_vocab; i < N_TOK * n_vocab; i++) {
        const double d = fabs((double)x[i] - want[i]);
        worst = d <= worst ? worst : d; /* NaN counts as larger */
        size = fmax(size, fabs(want[i]));
    }
    if (!(worst <= bound * size) || size < 1)
        fail_msg("%s: logits differ by %g of %g, at most %g of it is allowed", what, worst, size,
                 bound);
}

static void check_against(const double *want, const char *kv, const char *form, size_t n_thread,
                          size_t chunk, const char *cuda, double bound)
{
    char what[160];
    nb_engine *e = open_mixed(kv, form, n_thread, chunk, cuda);
    for (int forced = 0; forced < 2; forced++) {
        (void)snprintf(what, sizeof what, "%s %s, %zu threads, chunks of %zu, %s", kv, form,
                       n_thread, chunk, forced ? "generated" : "prompt");
        float *x = rows_of(e, forced);
        compare(want, x, e->model.c.n_vocab, forced ? N_PROMPT : 0, bound, what);
        free(x);
    }
    nb_engine_destroy(e);
}

static double *make_reference(void)
{
    nb_engine *e = open_mixed("f32", "auto", 1, 64, NULL);
    random_ids(ids, N_TOK, e->model.c.n_vocab, 9);
    double *want = reference(&e->model);
    nb_engine_destroy(e);
    return want;
}

static void test_against_reference(void **state)
{
    (void)state;
    static const char *const forms[] = { "auto", "absorbed", "expanded" };
    static const size_t chunks[] = { 512, 7, 64 };
    double *want = make_reference();
    for (size_t i = 0; i < 9; i++)
        check_against(want, "f32", forms[i % 3], 1 + i % 2, chunks[i / 3], NULL, 2e-5);
    check_against(want, "bf16", "auto", 2, 64, NULL, 0.03);
    check_against(want, "nvfp4", "auto", 2, 64, NULL,
                  0.6); /* it runs; what 4 bits cost is `nibble eval`s to say */
    free(want);
}

static void test_on_gpu(void **state)
{
    (void)state;
    const char *cuda = getenv("NB_CUDA_EMU_LIBRARY");
    if (!cuda || !*cuda) skip();
    double *want = make_reference();
    check_against(want, "bf16", "absorbed", 1, 64, cuda, 0.03);
    free(want);
    nb_engine *e = NULL; /* prompts in the expanded form: refused by name */
    nb_error err = { 0 };
    const nb_engine_options o = { .model = path,
                                  .load_format = "dummy",
                                  .device = "cuda",
                                  .cuda_library = cuda,
                                  .no_text = true };
    assert_int_equal(nb_engine_create(&o, &e, &err), NB_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.msg, "several kinds of attention"));
}

/* Sizes of the engine are those of the records of each layer. */
static void test_sizes(void **state)
{
    (void)state;
    nb_engine *e = open_mixed("nvfp4", "auto", 1, 64, NULL);
    size_t block = 0, tail = 0;
    for (size_t i = 0; i < 4; i++) {
        block += e->pages.record[i].page_bytes;
        tail += 64 * e->pages.record[i].n_values * sizeof(float);
        assert_int_equal(e->pages.record[i].n_values, i % 2 ? 2 * 2 * 48 : 64 + 16);
    }
    assert_int_equal(e->pages.block_bytes, block);
    assert_int_equal(e->pages.tail_bytes, tail);
    assert_non_null(strstr(e->pages.kv_layout, "latent"));
    assert_non_null(strstr(e->pages.kv_layout, "keys"));
    nb_engine_destroy(e);
}

static int make_config(void **state)
{
    (void)state;
    tmp_open(&dir);
    (void)snprintf(path, sizeof path, "%s/config.json", dir.path);
    FILE *f = fopen(path, "w");
    return f && fputs(config, f) >= 0 && fclose(f) == 0 ? 0 : 1;
}

static int remove_config(void **state)
{
    (void)state;
    tmp_close(&dir);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_reference),
        cmocka_unit_test(test_on_gpu),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, make_config, remove_config);
}
