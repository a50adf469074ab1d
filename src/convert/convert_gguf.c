/* convert_gguf.c - one GGUF file: its tensors from those of the folder.
 *
 * Three things differ from a folder.  The experts of a layer are one tensor, their matrices one behind the other.
 * kv_b comes in two: attn_k_b is W_UK transposed for each head, [heads][latent][nope], and attn_v_b W_UV,
 * [heads][v][latent].  Norms, biases and routers are F32. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/gguf_out.h"
#include "num/ggml_encode.h"
#include "os/file.h"

enum { NAME_BYTES = 256 };

typedef enum source_kind { FROM_TENSOR, FROM_EXPERTS, FROM_K, FROM_V } source_kind;

/* Where a tensor of the file comes from. */
typedef struct source {
    source_kind kind;
    const char *name; /* in the folder; of experts: that of the first */
    size_t n_expert;
    size_t layer, rank; /* order in the file */
    nb_gguf_out_tensor out;
} source;

typedef struct writer {
    nb_conv *c;
    const nb_gguf_mix *mix;
    size_t n_layer, n_expert, heads, nope, v, lora;
    size_t skip; /* of "language_model." in front of names */
    source *src;
    size_t n, cap;
    bool tied;
    FILE *file;
    const char *path;
} writer;

/* ---- encoders ---- */

static nb_ggml_encode_fn *encoder_of(const nb_gguf_dtype *t)
{
    static const struct {
        nb_dtype type;
        nb_ggml_encode_fn *fn;
    } rows[] = {
        { NB_DT_F32, nb_ggml_encode_f32 },   { NB_DT_F16, nb_ggml_encode_f16 },
        { NB_DT_BF16, nb_ggml_encode_bf16 }, { NB_DT_Q8_0, nb_ggml_encode_q8_0 },
        { NB_DT_Q4_0, nb_ggml_encode_q4_0 }, { NB_DT_Q4_1, nb_ggml_encode_q4_1 },
        { NB_DT_Q5_0, nb_ggml_encode_q5_0 }, { NB_DT_Q5_1, nb_ggml_encode_q5_1 },
        { NB_DT_Q2_K, nb_ggml_encode_q2_k }, { NB_DT_Q3_K, nb_ggml_encode_q3_k },
        { NB_DT_Q4_K, nb_ggml_encode_q4_k }, { NB_DT_Q5_K, nb_ggml_encode_q5_k },
        { NB_DT_Q6_K, nb_ggml_encode_q6_k },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].type == t->dtype) return rows[i].fn;
    return NULL; /* no mixture has others */
}

typedef struct encode_job {
    nb_ggml_encode_fn *fn;
    size_t cols, block, row_bytes;
    const float *w; /* weights of the columns, others for each w_rows rows; or NULL */
    size_t w_rows;
    uint8_t *out;
} encode_job;

static void encode_strip(void *ctx, const float *x, size_t r, size_t n)
{
    const encode_job *j = ctx;
    if (!j->w) j->fn(x, NULL, n * j->cols / j->block, j->out + r * j->row_bytes);
    for (size_t i = r; j->w && i < r + n; i++, x += j->cols)
        j->fn(x, j->w + i / j->w_rows * j->cols, j->cols / j->block, j->out + i * j->row_bytes);
}

/* ---- which tensors ---- */

static nb_status add(writer *w, const source *s, size_t n_dim, const size_t ne[3])
{
    nb_conv *c = w->c;
    const char *dot = strncmp(s->out.name, "blk.", 4) == 0 ? strchr(s->out.name + 4, '.') : NULL;
    const nb_gguf_place p = { .name = dot ? dot + 1 : s->out.name,
                              .layer = s->layer - 1,
                              .n_layer = w->n_layer,
                              .n_expert = w->n_expert,
                              .cols = ne[0],
                              .head = strcmp(s->out.name, w->tied ? "token_embd.weight"
                                                                  : "output.weight") == 0 };
    bool fallback = false;
    const bool floats = n_dim == 1 || strncmp(p.name, "ffn_gate_inp.", 13) == 0;
    if (NB_GROW(w->src, w->cap, w->n) != NB_OK) return nb_conv_nomem(c);
    source *d = &w->src[w->n++];
    *d = *s;
    d->rank = w->n;
    d->out.n_dim = n_dim;
    memcpy(d->out.ne, ne, sizeof d->out.ne);
    d->out.type = floats ? nb_gguf_dtype_of(0) : nb_gguf_mix_type(w->mix, &p, &fallback);
    d->out.bytes = ne[0] / d->out.type->block * d->out.type->block_bytes * ne[1] * ne[2];
    c->report->n_fallback += fallback;
    if (dot && !floats) c->report->n_quantised += d->out.type->block > 1;
    return NB_OK;
}

static nb_status no_place(const writer *w, const char *name)
{
    return nb_fail(w->c->err, NB_ERR_UNSUPPORTED,
                   "tensor '%s' has no place in a GGUF file of deepseek2", nb_show_c(name).s);
}

static nb_status add_kv_b(writer *w, source *s, const nb_tensor *t)
{
    if (t->n_dim != 2 || t->dim[0] != w->heads * (w->nope + w->v) || t->dim[1] != w->lora)
        return nb_fail(w->c->err, NB_ERR_FORMAT, "tensor '%s': expected [%zu, %zu]",
                       nb_show_c(s->name).s, w->heads * (w->nope + w->v), w->lora);
    s->kind = FROM_K;
    (void)snprintf(s->out.name, sizeof s->out.name, "blk.%zu.attn_k_b.weight", s->layer - 1);
    NB_TRY(add(w, s, 3, (size_t[3]){ w->nope, w->lora, w->heads }));
    s->kind = FROM_V;
    (void)snprintf(s->out.name, sizeof s->out.name, "blk.%zu.attn_v_b.weight", s->layer - 1);
    return add(w, s, 3, (size_t[3]){ w->lora, w->v, w->heads });
}

/* rest: the name behind "model.layers.N.". */
static nb_status add_of_layer(writer *w, source *s, const char *rest, const nb_tensor *t)
{
    unsigned long expert;
    int used = 0;
    if (s->layer > w->n_layer) {
        w->c->report->n_left_out++;
        return NB_OK;
    }
    if (strcmp(rest, "self_attn.kv_b_proj.weight") == 0) return add_kv_b(w, s, t);
    if (sscanf(rest, "mlp.experts.%6lu.%n", &expert, &used) == 1 && used) {
        const char *part = rest + used;
        const char *which = !strcmp(part, "gate_proj.weight")   ? "gate"
                            : !strcmp(part, "up_proj.weight")   ? "up"
                            : !strcmp(part, "down_proj.weight") ? "down"
                                                                : NULL;
        if (!which || t->n_dim != 2) return no_place(w, s->name);
        if (expert != 0) return NB_OK;
        s->kind = FROM_EXPERTS;
        s->n_expert = w->n_expert;
        (void)snprintf(s->out.name, sizeof s->out.name, "blk.%zu.ffn_%s_exps.weight", s->layer - 1,
                       which);
        return add(w, s, 3, (size_t[3]){ t->dim[1], t->dim[0], w->n_expert });
    }
    const char *name = nb_gguf_layer_name(rest);
    if (!name || t->n_dim < 1 || t->n_dim > 2) return no_place(w, s->name);
    (void)snprintf(s->out.name, sizeof s->out.name, "blk.%zu.%.40s", s->layer - 1, name);
    return add(w, s, t->n_dim,
               (size_t[3]){ t->dim[t->n_dim - 1], t->n_dim > 1 ? t->dim[0] : 1, 1 });
}

static nb_status add_tensor(writer *w, const char *full)
{
    static const char *const top[][2] = { { "model.embed_tokens.weight", "token_embd.weight" },
                                          { "model.norm.weight", "output_norm.weight" },
                                          { "lm_head.weight", "output.weight" } };
    const char *name = full + w->skip;
    unsigned long layer;
    int used = 0;
    nb_tensor t;
    source s = { .name = full };
    const size_t n = strlen(name);
    if (n > 17 && strcmp(name + n - 17, ".weight_scale_inv") == 0) return NB_OK;
    if (n > 9 && strcmp(name + n - 9, ".inv_freq") == 0) return NB_OK;
    (void)nb_source_peek(w->c->source, full, &t);
    if (sscanf(name, "model.layers.%5lu.%n", &layer, &used) == 1 && used) {
        s.layer = layer + 1;
        return add_of_layer(w, &s, name + used, &t);
    }
    for (size_t i = 0; i < sizeof top / sizeof *top; i++) {
        if (strcmp(name, top[i][0]) != 0 || t.n_dim < 1 || t.n_dim > 2) continue;
        if (i == 2 && w->tied) return NB_OK;
        (void)snprintf(s.out.name, sizeof s.out.name, "%s", top[i][1]);
        return add(w, &s, t.n_dim,
                   (size_t[3]){ t.dim[t.n_dim - 1], t.n_dim > 1 ? t.dim[0] : 1, 1 });
    }
    return no_place(w, full);
}

static int by_layer(const void *a, const void *b)
{
    const source *x = a, *y = b;
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    return x->rank < y->rank ? -1 : 1;
}

static nb_status list_tensors(writer *w)
{
    nb_conv *c = w->c;
    nb_tensor t;
    const size_t n = nb_source_n_tensor(c->source);
    w->skip =
        nb_source_peek(c->source, "model.embed_tokens.weight", &t) ? 0 : strlen("language_model.");
    for (size_t i = 0; i < n; i++) {
        const char *name = nb_source_leftover(c->source, i);
        if (!name) break;
        if (w->skip && strncmp(name, "language_model.", w->skip) != 0) continue; /* vision */
        NB_TRY(add_tensor(w, name));
    }
    qsort(w->src, w->n, sizeof *w->src, by_layer);
    return NB_OK;
}

/* ---- bytes ---- */

static nb_status write_bytes(writer *w, const void *p, size_t n)
{
    if (n == 0 || fwrite(p, 1, n, w->file) == n) return NB_OK;
    return nb_fail(w->c->err, NB_ERR_IO, "%s: cannot write: is the disk full?",
                   nb_show_path(w->path).s);
}

/* The rows of m in the type of s. */
static nb_status write_matrix(writer *w, const source *s, const nb_conv_matrix *m)
{
    const nb_gguf_dtype *t = s->out.type;
    encode_job j = { .fn = encoder_of(t),
                     .cols = m->cols,
                     .block = t->block,
                     .row_bytes = m->cols / t->block * t->block_bytes };
    if (!j.fn) return no_place(w, s->name);
    if (t->block > 1) { /* else nothing is searched */
        const nb_imatrix_part part = s->kind == FROM_K   ? NB_IMATRIX_UK
                                     : s->kind == FROM_V ? NB_IMATRIX_UV
                                                         : NB_IMATRIX_WHOLE;
        j.w_rows = part == NB_IMATRIX_WHOLE ? m->rows : m->rows / w->heads;
        NB_TRY(nb_conv_importance(w->c, m->name, part, w->heads, m->cols, &j.w));
    }
    j.out = malloc(m->rows * j.row_bytes + 1);
    if (!j.out) return nb_conv_nomem(w->c);
    nb_status st = nb_conv_strips(w->c, m, encode_strip, &j);
    if (st == NB_OK) st = write_bytes(w, j.out, m->rows * j.row_bytes);
    free(j.out);
    return st;
}

static nb_status write_experts(writer *w, const source *s)
{
    char name[NAME_BYTES];
    const char *at = strstr(s->name, "experts.0."), *rest = at + strlen("experts.0.");
    for (size_t i = 0; i < s->n_expert; i++) {
        nb_conv_matrix m;
        const int n = snprintf(name, sizeof name, "%.*sexperts.%zu.%s", (int)(at - s->name),
                               s->name, i, rest);
        if (n < 0 || (size_t)n >= sizeof name) return no_place(w, s->name);
        NB_TRY(nb_conv_take(w->c, name, &m));
        if (m.t.n_dim != 2 || m.cols != s->out.ne[0] || m.rows != s->out.ne[1])
            return nb_fail(w->c->err, NB_ERR_FORMAT,
                           "tensor '%s': expected [%zu, %zu], as the first expert",
                           nb_show_c(name).s, s->out.ne[1], s->out.ne[0]);
        NB_TRY(write_matrix(w, s, &m));
        nb_conv_progress(w->c, &m);
    }
    return NB_OK;
}

typedef struct copy_job {
    float *to;
    size_t cols;
} copy_job;

static void copy_strip(void *ctx, const float *x, size_t r, size_t n)
{
    const copy_job *j = ctx;
    memcpy(j->to + r * j->cols, x, n * j->cols * sizeof *x);
}

/* Rows of heads, of each `d` from row `first` on, kept or transposed. */
static void part_of_heads(const writer *w, const float *kv, size_t first, size_t d, bool transpose,
                          float *to)
{
    for (size_t h = 0; h < w->heads; h++, to += d * w->lora) {
        const float *from = kv + (h * (w->nope + w->v) + first) * w->lora;
        for (size_t i = 0; i < d; i++)
            for (size_t k = 0; k < w->lora; k++)
                to[transpose ? k * d + i : i * w->lora + k] = from[i * w->lora + k];
    }
}

static nb_status write_kv_b(writer *w, const source *s)
{
    nb_conv_matrix m;
    NB_TRY(nb_conv_take(w->c, s->name, &m));
    const size_t d = s->kind == FROM_K ? w->nope : w->v;
    float *kv = malloc(m.rows * m.cols * sizeof *kv + 1),
          *part = malloc(w->heads * d * w->lora * sizeof *part + 1);
    nb_status st = kv && part ? NB_OK : nb_conv_nomem(w->c);
    copy_job j = { kv, m.cols };
    if (st == NB_OK) st = nb_conv_strips(w->c, &m, copy_strip, &j);
    if (st == NB_OK) {
        part_of_heads(w, kv, s->kind == FROM_K ? 0 : w->nope, d, s->kind == FROM_K, part);
        const nb_conv_matrix p = { .name = s->name,
                                   .t = { .data = part, .dtype = NB_DT_F32 },
                                   .rows = w->heads * (s->kind == FROM_K ? w->lora : d),
                                   .cols = s->kind == FROM_K ? d : w->lora };
        st = write_matrix(w, s, &p);
    }
    free(kv);
    free(part);
    if (st == NB_OK && s->kind == FROM_V) nb_conv_progress(w->c, &m);
    return st;
}

static nb_status write_source(writer *w, const source *s)
{
    static const uint8_t zeros[NB_GGUF_ALIGN];
    nb_conv_matrix m;
    if (s->kind == FROM_EXPERTS) {
        NB_TRY(write_experts(w, s));
    } else if (s->kind != FROM_TENSOR) {
        NB_TRY(write_kv_b(w, s));
    } else {
        NB_TRY(nb_conv_take(w->c, s->name, &m));
        NB_TRY(write_matrix(w, s, &m));
        nb_conv_progress(w->c, &m);
    }
    return write_bytes(w, zeros, (size_t)(-s->out.bytes % NB_GGUF_ALIGN));
}

/* ---- together ---- */

static nb_status count_of(nb_conv *c, const char *field, size_t *out)
{
    const json_t *v = json_object_get(c->text, field);
    const json_int_t n = json_integer_value(v);
    if (n < 1 || n > 1 << 20)
        return nb_fail(c->err, NB_ERR_FORMAT, "config.json: %s: expected 1 to 1048576", field);
    *out = (size_t)n;
    return NB_OK;
}

/* The head of the file, into *head. */
static nb_status describe(writer *w, nb_gguf_out *g, nb_buf *head)
{
    nb_conv *c = w->c;
    NB_TRY(nb_gguf_put_model(c, g, &w->n_layer, &w->n_expert));
    NB_TRY(count_of(c, "num_attention_heads", &w->heads));
    NB_TRY(count_of(c, "qk_nope_head_dim", &w->nope));
    NB_TRY(count_of(c, "v_head_dim", &w->v));
    NB_TRY(count_of(c, "kv_lora_rank", &w->lora));
    nb_gguf_put_u32(g, "general.file_type", nb_gguf_mix_number(w->mix));
    NB_TRY(nb_gguf_put_tokenizer(c, g));
    w->tied = json_is_true(json_object_get(c->text, "tie_word_embeddings"));
    NB_TRY(list_tensors(w));
    nb_gguf_out_tensor *t = calloc(w->n ? w->n : 1, sizeof *t);
    if (!t) return nb_conv_nomem(c);
    for (size_t i = 0; i < w->n; i++) {
        t[i] = w->src[i].out;
        c->report->out_bytes += t[i].bytes;
    }
    const nb_status st = nb_gguf_out_head(g, t, w->n, head);
    free(t);
    return st == NB_OK ? NB_OK : nb_conv_nomem(c);
}

static nb_status write_all(writer *w, const nb_buf *head)
{
    w->file = fopen(w->path, "wbx");
    if (!w->file)
        return nb_fail(w->c->err, NB_ERR_IO,
                       "%s: cannot be made (another conversion, or one that was interrupted?)",
                       nb_show_path(w->path).s);
    nb_status st = write_bytes(w, head->p, head->n_bytes);
    for (size_t i = 0; st == NB_OK && i < w->n; i++) st = write_source(w, &w->src[i]);
    if (fclose(w->file) != 0 && st == NB_OK)
        st = nb_fail(w->c->err, NB_ERR_IO, "%s: cannot write: is the disk full?",
                     nb_show_path(w->path).s);
    if (st == NB_OK) st = nb_path_rename(w->path, w->c->o->out, w->c->err);
    if (st != NB_OK) (void)remove(w->path);
    return st;
}

nb_status nb_conv_gguf(nb_conv *c, const char *type)
{
    writer w = { .c = c, .mix = nb_gguf_mix_of(type) };
    nb_gguf_out g = { 0 };
    nb_buf head = { 0 }, path = { 0 };
    nb_status st =
        nb_buf_printf(&path, "%s.partial", c->o->out) == NB_OK ? NB_OK : nb_conv_nomem(c);
    w.path = path.p;
    if (st == NB_OK) st = describe(&w, &g, &head);
    if (st == NB_OK) st = write_all(&w, &head);
    nb_buf_deinit(&g.kv);
    nb_buf_deinit(&head);
    nb_buf_deinit(&path);
    free(w.src);
    return st;
}
