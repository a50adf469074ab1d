/* convert_gguf.c - one GGUF file: its tensors from those of the folder.
 *
 * Five things differ from a folder.  The experts of a layer are one tensor, their matrices one behind the other.
 * kv_b of deepseek2 comes in two: attn_k_b is W_UK transposed for each head, [heads][latent][nope], and attn_v_b W_UV,
 * [heads][v][latent].  The rows of llama's q and k that rotate together lie beside each other: row i + j * d / 2 of a head
 * becomes row 2i + j.  Factors of the rotation are tensors.  Norms, biases and routers are F32. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/gguf_out.h"
#include "num/ggml_encode.h"
#include "os/file.h"

enum { NAME_BYTES = 256 };

typedef enum source_kind {
    FROM_TENSOR,
    FROM_EXPERTS,
    FROM_K,
    FROM_V,
    FROM_PAIRS, /* heads whose rows are put in pairs */
    FROM_TABLE
} source_kind;

/* Where a tensor of the file comes from. */
typedef struct source {
    source_kind kind;
    const char *name; /* in the folder; of experts: that of the first */
    size_t n_head;    /* FROM_PAIRS */
    const nb_gguf_table *table;
    size_t layer, rank; /* order in the file */
    nb_gguf_out_tensor out;
} source;

typedef struct writer {
    nb_conv *c;
    const nb_gguf_mix *mix;
    nb_gguf_model model;
    size_t skip; /* of "language_model." in front of names */
    source *src;
    size_t n, cap;
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
    const nb_gguf_model *g = &w->model;
    const nb_gguf_place p = { .name = dot ? dot + 1 : s->out.name,
                              .layer = s->layer - 1,
                              .n_layer = g->n_layer,
                              .n_expert = g->n_expert,
                              .shared_by = g->head / g->kv_head,
                              .large = g->n_layer == 80 && g->kind >= NB_GGUF_GQA &&
                                       (strcmp(g->arch, "qwen2") == 0 || g->head != g->kv_head),
                              .cols = ne[0],
                              .head = strcmp(s->out.name, g->tied ? "token_embd.weight"
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
    return nb_fail(w->c->err, NB_ERR_UNSUPPORTED, "tensor '%s' has no place in a GGUF file of %s",
                   nb_show_c(name).s, w->model.arch);
}

static nb_status add_kv_b(writer *w, source *s, const nb_tensor *t)
{
    const nb_gguf_model *d = &w->model;
    if (t->n_dim != 2 || t->dim[0] != d->head * (d->nope + d->v) || t->dim[1] != d->lora)
        return nb_fail(w->c->err, NB_ERR_FORMAT, "tensor '%s': expected [%zu, %zu]",
                       nb_show_c(s->name).s, d->head * (d->nope + d->v), d->lora);
    s->kind = FROM_K;
    (void)snprintf(s->out.name, sizeof s->out.name, "blk.%zu.attn_k_b.weight", s->layer - 1);
    NB_TRY(add(w, s, 3, (size_t[3]){ d->nope, d->lora, d->head }));
    s->kind = FROM_V;
    (void)snprintf(s->out.name, sizeof s->out.name, "blk.%zu.attn_v_b.weight", s->layer - 1);
    return add(w, s, 3, (size_t[3]){ d->lora, d->v, d->head });
}

/* q and k of llama: their heads' rows in pairs. */
static nb_status add_pairs(writer *w, source *s, const nb_tensor *t, const size_t ne[3])
{
    const bool q = strncmp(strrchr(s->out.name, '_'), "_q.", 3) == 0;
    s->kind = FROM_PAIRS;
    s->n_head = q ? w->model.head : w->model.kv_head;
    if (t->dim[0] != s->n_head * w->model.head_dim)
        return nb_fail(w->c->err, NB_ERR_FORMAT,
                       "tensor '%s' has %zu rows, expected %zu: %zu heads of %zu",
                       nb_show_c(s->name).s, t->dim[0], s->n_head * w->model.head_dim, s->n_head,
                       w->model.head_dim);
    return add(w, s, t->n_dim, ne);
}

/* rest: the name behind "model.layers.N.". */
static nb_status add_of_layer(writer *w, source *s, const char *rest, const nb_tensor *t)
{
    unsigned long expert;
    int used = 0;
    if (s->layer > w->model.n_layer) {
        w->c->report->n_left_out++;
        return NB_OK;
    }
    if (w->model.kind == NB_GGUF_MLA && strcmp(rest, "self_attn.kv_b_proj.weight") == 0)
        return add_kv_b(w, s, t);
    if (sscanf(rest, "mlp.experts.%6lu.%n", &expert, &used) == 1 && used) {
        const char *part = rest + used;
        const char *which = !strcmp(part, "gate_proj.weight")   ? "gate"
                            : !strcmp(part, "up_proj.weight")   ? "up"
                            : !strcmp(part, "down_proj.weight") ? "down"
                                                                : NULL;
        if (!which || t->n_dim != 2 || w->model.n_expert == 0) return no_place(w, s->name);
        if (expert != 0) return NB_OK;
        s->kind = FROM_EXPERTS;
        (void)snprintf(s->out.name, sizeof s->out.name, "blk.%zu.ffn_%s_exps.weight", s->layer - 1,
                       which);
        return add(w, s, 3, (size_t[3]){ t->dim[1], t->dim[0], w->model.n_expert });
    }
    const char *name = nb_gguf_layer_name(rest);
    if (!name || t->n_dim < 1 || t->n_dim > 2) return no_place(w, s->name);
    (void)snprintf(s->out.name, sizeof s->out.name, "blk.%zu.%.40s", s->layer - 1, name);
    const size_t ne[3] = { t->dim[t->n_dim - 1], t->n_dim > 1 ? t->dim[0] : 1, 1 };
    if (w->model.kind == NB_GGUF_GQA_PAIRS &&
        (strncmp(name, "attn_q.", 7) == 0 || strncmp(name, "attn_k.", 7) == 0))
        return add_pairs(w, s, t, ne);
    return add(w, s, t->n_dim, ne);
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
    if (n > 9 && strcmp(name + n - 9, ".inv_freq") == 0) return NB_OK;
    nb_conv_matrix m;
    NB_TRY(nb_conv_size(w->c, full, &m));
    t = m.t;
    if (sscanf(name, "model.layers.%5lu.%n", &layer, &used) == 1 && used) {
        s.layer = layer + 1;
        return add_of_layer(w, &s, name + used, &t);
    }
    for (size_t i = 0; i < sizeof top / sizeof *top; i++) {
        if (strcmp(name, top[i][0]) != 0 || t.n_dim < 1 || t.n_dim > 2) continue;
        if (i == 2 && w->model.tied) return NB_OK;
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
    w->skip =
        nb_source_peek(c->source, "model.embed_tokens.weight", &t) ? 0 : strlen("language_model.");
    for (size_t i = 0; i < c->n_name; i++) {
        const char *name = c->name[i];
        if (w->skip && strncmp(name, "language_model.", w->skip) != 0) continue; /* vision */
        NB_TRY(add_tensor(w, name));
    }
    for (size_t i = 0; i < NB_COUNT(w->model.table); i++) {
        source s = { .kind = FROM_TABLE, .table = &w->model.table[i] };
        if (!s.table->name) continue;
        s.name = s.table->name;
        (void)snprintf(s.out.name, sizeof s.out.name, "%s", s.name);
        NB_TRY(add(w, &s, 1, (size_t[3]){ s.table->n, 1, 1 }));
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
        j.w_rows = part == NB_IMATRIX_WHOLE ? m->rows : m->rows / w->model.head;
        NB_TRY(nb_conv_importance(w->c, m->name, part, w->model.head, m->cols, &j.w));
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
    for (size_t i = 0; i < w->model.n_expert; i++) {
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

/* All of a matrix as floats; *out is the caller's, to be freed in any case. */
static nb_status floats_of(const writer *w, const nb_conv_matrix *m, float **out)
{
    *out = malloc(m->rows * m->cols * sizeof **out + 1);
    if (!*out) return nb_conv_nomem(w->c);
    copy_job j = { *out, m->cols };
    return nb_conv_strips(w->c, m, copy_strip, &j);
}

/* Rows of heads, of each `d` from row `first` on, kept or transposed. */
static void part_of_heads(const nb_gguf_model *g, const float *kv, size_t first, size_t d,
                          bool transpose, float *to)
{
    for (size_t h = 0; h < g->head; h++, to += d * g->lora) {
        const float *from = kv + (h * (g->nope + g->v) + first) * g->lora;
        for (size_t i = 0; i < d; i++)
            for (size_t k = 0; k < g->lora; k++)
                to[transpose ? k * d + i : i * g->lora + k] = from[i * g->lora + k];
    }
}

static nb_status write_kv_b(writer *w, const source *s)
{
    const nb_gguf_model *g = &w->model;
    const bool k = s->kind == FROM_K;
    const size_t d = k ? g->nope : g->v;
    nb_conv_matrix m;
    float *kv = NULL;
    NB_TRY(nb_conv_take(w->c, s->name, &m));
    float *part = malloc(g->head * d * g->lora * sizeof *part + 1);
    nb_status st = part ? floats_of(w, &m, &kv) : nb_conv_nomem(w->c);
    if (st == NB_OK) {
        part_of_heads(g, kv, k ? 0 : g->nope, d, k, part);
        const nb_conv_matrix p = { .name = s->name,
                                   .t = { .data = part, .dtype = NB_DT_F32 },
                                   .rows = g->head * (k ? g->lora : d),
                                   .cols = k ? d : g->lora };
        st = write_matrix(w, s, &p);
    }
    free(kv);
    free(part);
    if (st == NB_OK && !k) nb_conv_progress(w->c, &m);
    return st;
}

static nb_status write_pairs(writer *w, const source *s)
{
    nb_conv_matrix m;
    float *x = NULL;
    NB_TRY(nb_conv_take(w->c, s->name, &m));
    const size_t rows = m.t.dim[0], cols = m.t.n_dim > 1 ? m.cols : 1, d = rows / s->n_head;
    float *pairs = malloc(rows * cols * sizeof *pairs + 1);
    nb_status st = pairs ? floats_of(w, &m, &x) : nb_conv_nomem(w->c);
    if (st == NB_OK) {
        for (size_t r = 0; r < rows; r++) {
            const size_t i = r % d, from = r - i + i / 2 + i % 2 * (d / 2);
            memcpy(pairs + r * cols, x + from * cols, cols * sizeof *x);
        }
        const nb_conv_matrix p = { .name = s->name,
                                   .t = { .data = pairs, .dtype = NB_DT_F32 },
                                   .rows = m.rows,
                                   .cols = m.cols };
        st = write_matrix(w, s, &p);
    }
    free(x);
    free(pairs);
    if (st == NB_OK) nb_conv_progress(w->c, &m);
    return st;
}

static nb_status write_source(writer *w, const source *s)
{
    static const uint8_t zeros[NB_GGUF_ALIGN];
    nb_conv_matrix m;
    if (s->kind == FROM_EXPERTS) {
        NB_TRY(write_experts(w, s));
    } else if (s->kind == FROM_K || s->kind == FROM_V) {
        NB_TRY(write_kv_b(w, s));
    } else if (s->kind == FROM_PAIRS) {
        NB_TRY(write_pairs(w, s));
    } else if (s->kind == FROM_TABLE) {
        const nb_conv_matrix p = { .name = s->name,
                                   .t = { .data = s->table->v, .dtype = NB_DT_F32 },
                                   .rows = 1,
                                   .cols = s->table->n };
        NB_TRY(write_matrix(w, s, &p));
    } else {
        NB_TRY(nb_conv_take(w->c, s->name, &m));
        NB_TRY(write_matrix(w, s, &m));
        nb_conv_progress(w->c, &m);
    }
    return write_bytes(w, zeros, (size_t)(-s->out.bytes % NB_GGUF_ALIGN));
}

/* ---- together ---- */

/* The head of the file, into *head. */
static nb_status describe(writer *w, nb_gguf_out *g, nb_buf *head)
{
    nb_conv *c = w->c;
    NB_TRY(nb_gguf_put_model(c, g, &w->model));
    nb_gguf_put_u32(g, "general.file_type", nb_gguf_mix_number(w->mix));
    NB_TRY(nb_gguf_put_tokenizer(c, g));
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
