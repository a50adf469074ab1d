/* convert_hf.c - a Hugging Face folder: which tensors it will have, its shards, its files.
 *
 * All sizes follow from shapes, so headers are written first and tensors at their places.  Within a shard tensors
 * lie by the size of their elements, largest first, as safetensors' own writer has them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/convert_internal.h"
#include "convert/hf_format.h"
#include "num/weight_encode.h"
#include "os/file.h"

enum { MAX_SHARD = 10000, MAX_COPY_BYTES = 64 << 20, NAME_BYTES = 512 };
static const uint64_t SHARD_BYTES = 5000000000u;

/* A tensor of the result. */
typedef struct out_tensor {
    char *name;
    const char *dtype;
    size_t n_dim, dim[NB_TENSOR_MAX_DIM], align;
    uint64_t bytes, at; /* at: behind the header */
    size_t shard;
} out_tensor;

/* A tensor of the source, and what it becomes: out[first .. first + n_out). */
typedef struct item {
    const char *name;
    const nb_hf_format *format; /* NULL: a copy */
    const float *outer;         /* of format->outer: shared by what is multiplied together */
    char *key;                  /* names what that is */
    size_t rows, cols, first, n_out;
} item;

typedef struct hf {
    nb_conv *c;
    const nb_hf_format *format;
    char *dir; /* the folder while it is made */
    item *items;
    out_tensor *out;
    size_t n_item, n_out, cap_out, n_shard;
    uint64_t *head; /* [n_shard]: bytes in front of the data */
    json_t *ignore, *map;
    FILE *file;
    size_t open_shard;
} hf;

/* ---- which matrices ---- */

static bool ends_with(const char *s, const char *end)
{
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* An expert's matrix of Kimi-Linear: w1 is the gate, w3 up, w2 down. */
static bool is_numbered(const char *name)
{
    return strstr(name, ".experts.") &&
           (ends_with(name, ".w1.weight") || ends_with(name, ".w2.weight") ||
            ends_with(name, ".w3.weight"));
}

/* A projection of a layer. */
static bool is_projection(const char *name)
{
    return strstr(name, "model.layers.") && !strstr(name, ".indexer.") && !strstr(name, ".compressor.") &&
           !strstr(name, "eh_proj") &&
           (ends_with(name, "_proj.weight") || ends_with(name, "_proj_with_mqa.weight") ||
            is_numbered(name));
}

/* A matrix of an indexer or a compressor, which stays as it is: choices are more sensitive than values. */
static bool is_indexer(const char *name)
{
    return strstr(name, "model.layers.") && ends_with(name, ".weight") &&
           (strstr(name, ".indexer.") || strstr(name, ".compressor."));
}

static const nb_hf_format *format_for(const hf *h, const char *name, const nb_conv_matrix *m)
{
    static const char bf16[] = "bf16";
    const bool coded = m->coded;
    if (strcmp(h->format->name, bf16) == 0)
        return coded || (m->t.n_dim == 2 && ends_with(name, ".weight") && !ends_with(name, ".gate.weight") &&
                         !strstr(name, ".compressor.") && !ends_with(name, "classifier.weight"))
                   ? h->format
                   : NULL;
    const bool wanted = m->t.n_dim == 2 && is_projection(name);
    if (wanted && m->cols % h->format->group == 0 && !nb_conv_keeps(h->c, name)) return h->format;
    return coded ? nb_hf_format_of(bf16) : NULL;
}

/* ---- the scale of what is multiplied together ---- */

/* Engines join these matrices into one, and then know one outer scale: gate and up, q_a and kv_a, q and k and v. */
static const char *partner_key(const char *name, char *out, size_t n)
{
    static const char *const parts[][2] = {
        { "gate_proj", "gate_up" },
        { "up_proj", "gate_up" },
        { "q_a_proj", "qkv_a" },
        { "q_proj", "qkv" },
        { "kv_a_proj_with_mqa", "qkv_a" },
        { "kv_proj", "qkv_a" },
        { "k_proj", "qkv" },
        { "v_proj", "qkv" },
        { "w1", "gate_up" },
        { "w3", "gate_up" },
    };
    const char *last = strrchr(name, '.');
    while (last && last > name && last[-1] != '.') last--;
    const size_t head = last ? (size_t)(last - name) : 0;
    (void)snprintf(out, n, "%s", name);
    for (size_t i = 0; last && i < sizeof parts / sizeof *parts; i++) {
        const size_t m = strlen(parts[i][0]);
        if (strncmp(last, parts[i][0], m) == 0 && last[m] == '.')
            (void)snprintf(out, n, "%.*s%s", (int)head, name, parts[i][1]);
    }
    return out;
}

static int by_key(const void *a, const void *b)
{
    const item *x = *(item *const *)a, *y = *(item *const *)b;
    return strcmp(x->key, y->key);
}

/* Items of one key share a scale, that of the largest of their values. */
static nb_status share_outer(hf *h, item **list, size_t n)
{
    nb_conv *c = h->c;
    for (size_t i = 0; i < n;) {
        const size_t from = i;
        float top = 0, one;
        for (; i < n && strcmp(list[i]->key, list[from]->key) == 0; i++) {
            nb_conv_matrix m;
            NB_TRY(nb_conv_take(c, list[i]->name, &m));
            NB_TRY(nb_conv_largest(c, &m, &one));
            nb_source_drop(c->source, m.t.data, m.t.n_bytes);
            top = one > top ? one : top;
        }
        float *outer = nb_arena_alloc(&c->arena, sizeof *outer);
        if (!outer) return nb_conv_nomem(c);
        *outer = nb_encode_nvfp4_outer(top);
        for (size_t k = from; k < i; k++) list[k]->outer = outer;
    }
    return NB_OK;
}

static nb_status find_outers(hf *h)
{
    item **list = calloc(h->n_item ? h->n_item : 1, sizeof *list);
    size_t n = 0;
    nb_status st = list ? NB_OK : nb_conv_nomem(h->c);
    for (size_t i = 0; st == NB_OK && i < h->n_item; i++) {
        item *it = &h->items[i];
        if (!it->format || !it->format->outer) continue;
        char key[NAME_BYTES];
        it->key = nb_arena_strdup(&h->c->arena, nb_str_c(partner_key(it->name, key, sizeof key)));
        if (!it->key) st = nb_conv_nomem(h->c);
        list[n++] = it;
    }
    if (st == NB_OK && n) {
        qsort(list, n, sizeof *list, by_key);
        st = share_outer(h, list, n);
    }
    free(list);
    return st;
}

/* ---- what there will be ---- */

static nb_status add_out(hf *h, const char *stem, size_t n_stem, const nb_hf_tensor *t)
{
    if (NB_GROW(h->out, h->cap_out, h->n_out) != NB_OK) return nb_conv_nomem(h->c);
    char name[NAME_BYTES];
    if (n_stem + strlen(t->suffix) >= sizeof name)
        return nb_fail(h->c->err, NB_ERR_LIMIT, "tensor '%s': its name is too long",
                       nb_show_c(stem).s);
    memcpy(name, stem, n_stem);
    memcpy(name + n_stem, t->suffix, strlen(t->suffix) + 1);
    if (h->c->v4) {
        const nb_str own = nb_str_c(nb_arena_strdup(&h->c->arena, nb_str_c(name)));
        if (!own.p || !nb_names_v4(own.p, name, sizeof name)) return nb_conv_nomem(h->c);
    }
    out_tensor o = { .dtype = t->dtype,
                     .n_dim = t->n_dim,
                     .dim = { t->dim[0], t->dim[1] },
                     .bytes = t->bytes,
                     .align = t->align,
                     .name = nb_arena_strdup(&h->c->arena, nb_str_c(name)) };
    if (!o.name) return nb_conv_nomem(h->c);
    h->out[h->n_out++] = o;
    return NB_OK;
}

static nb_status add_copy(hf *h, const nb_tensor *t, const char *name)
{
    NB_TRY(add_out(h, name, strlen(name),
                   &(nb_hf_tensor){ .suffix = "",
                                    .dtype = nb_dtype_name(t->dtype),
                                    .bytes = t->n_bytes,
                                    .align = nb_dtype_bytes(t->dtype) }));
    out_tensor *o = &h->out[h->n_out - 1];
    o->n_dim = t->n_dim;
    memcpy(o->dim, t->dim, sizeof o->dim);
    return NB_OK;
}

static nb_status ignore(hf *h, const char *name)
{
    const size_t n = strlen(name) - strlen(".weight");
    return json_array_append_new(h->ignore, json_stringn(name, n)) == 0 ? NB_OK
                                                                        : nb_conv_nomem(h->c);
}

static nb_status plan_item(hf *h, item *it)
{
    nb_conv *c = h->c;
    nb_conv_matrix m;
    it->first = h->n_out;
    if (!ends_with(it->name, ".weight")) { /* a bias, a table: whatever type it has */
        nb_tensor t;
        (void)nb_source_peek(c->source, it->name, &t);
        it->n_out = 1;
        return add_copy(h, &t, it->name);
    }
    NB_TRY(nb_conv_take_size(c, it->name, &m));
    it->rows = m.rows;
    it->cols = m.cols;
    it->format = format_for(h, it->name, &m);
    if ((is_projection(it->name) || is_indexer(it->name)) && m.t.n_dim == 2) {
        if (it->format == h->format)
            c->report->n_quantised++;
        else
            c->report->n_kept++;
        if (it->format != h->format && h->ignore) NB_TRY(ignore(h, it->name));
    }
    if (!it->format) {
        it->n_out = 1;
        return add_copy(h, &m.t, it->name);
    }
    nb_hf_tensor t[NB_HF_MAX_OUT];
    it->format->describe(it->format, m.rows, m.cols, t);
    it->n_out = it->format->n_out;
    for (size_t i = 0; i < it->n_out; i++)
        NB_TRY(add_out(h, it->name, strlen(it->name) - strlen(".weight"), &t[i]));
    return NB_OK;
}

/* Names of the source, but the scales that belong to a matrix; experts that share a tensor become single ones. */
static nb_status list_items(hf *h)
{
    nb_conv *c = h->c;
    size_t most = 1;
    for (size_t i = 0; i < c->n_name; i++) most += 1 + nb_conv_n_stacked(c, c->name[i]);
    h->items = nb_arena_array(&c->arena, most, sizeof *h->items);
    if (!h->items) return nb_conv_nomem(c);
    for (size_t i = 0; i < c->n_name; i++) {
        const char *const name = c->name[i];
        const size_t parts = nb_conv_n_stacked(c, name);
        for (size_t k = 0; k < parts; k++) {
            char *own;
            NB_TRY(nb_conv_stacked_name(c, name, k, &own));
            h->items[h->n_item++].name = own;
        }
        if (!parts && !nb_conv_is_beside_stack(name)) h->items[h->n_item++].name = name;
    }
    for (size_t i = 0; i < h->n_item; i++) NB_TRY(plan_item(h, &h->items[i]));
    return NB_OK;
}

/* ---- shards ---- */

static int by_place(const void *a, const void *b)
{
    const out_tensor *x = *(out_tensor *const *)a, *y = *(out_tensor *const *)b;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    if (x->align != y->align) return x->align > y->align ? -1 : 1;
    return strcmp(x->name, y->name);
}

static void shard_name(const hf *h, size_t shard, char out[64])
{
    if (h->n_shard == 1)
        (void)snprintf(out, 64, "model.safetensors");
    else
        (void)snprintf(out, 64, "model-%05zu-of-%05zu.safetensors", shard + 1, h->n_shard);
}

static nb_status place(hf *h)
{
    const uint64_t most = h->c->o->max_shard_bytes ? h->c->o->max_shard_bytes : SHARD_BYTES;
    uint64_t fill = 0;
    size_t shard = 0;
    for (size_t i = 0; i < h->n_item; i++) { /* a module stays together */
        uint64_t bytes = 0;
        for (size_t k = 0; k < h->items[i].n_out; k++) bytes += h->out[h->items[i].first + k].bytes;
        if (fill && fill + bytes > most) {
            shard++;
            fill = 0;
        }
        fill += bytes;
        for (size_t k = 0; k < h->items[i].n_out; k++) h->out[h->items[i].first + k].shard = shard;
    }
    h->n_shard = shard + 1;
    if (h->n_shard > MAX_SHARD)
        return nb_fail(h->c->err, NB_ERR_LIMIT, "%zu shards, at most %d: the shards are too small",
                       h->n_shard, MAX_SHARD);
    h->head = nb_arena_array(&h->c->arena, h->n_shard, sizeof *h->head);
    return h->head ? NB_OK : nb_conv_nomem(h->c);
}

static json_t *header_entry(const out_tensor *o)
{
    json_t *dims = json_array();
    for (size_t i = 0; dims && i < o->n_dim; i++)
        (void)json_array_append_new(dims, json_integer((json_int_t)o->dim[i]));
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", o->dtype, "shape", dims, "data_offsets",
                     (json_int_t)o->at, (json_int_t)(o->at + o->bytes));
}

static nb_status open_shard(hf *h, size_t shard, const char *mode)
{
    char name[64];
    nb_buf path = { 0 };
    if (h->file && fclose(h->file) != 0) {
        h->file = NULL;
        return nb_fail(h->c->err, NB_ERR_IO, "%s: cannot write: is the disk full?",
                       nb_show_path(h->dir).s);
    }
    shard_name(h, shard, name);
    h->file = NULL;
    if (nb_path_join(&path, h->dir, name) == NB_OK) h->file = fopen(path.p, mode);
    nb_buf_deinit(&path);
    h->open_shard = shard;
    return h->file ? NB_OK
                   : nb_fail(h->c->err, NB_ERR_IO, "%s/%s: cannot be opened for writing",
                             nb_show_path(h->dir).s, name);
}

static nb_status write_bytes(hf *h, const void *p, size_t n)
{
    if (n == 0 || fwrite(p, 1, n, h->file) == n) return NB_OK;
    return nb_fail(h->c->err, NB_ERR_IO, "%s: cannot write: is the disk full?",
                   nb_show_path(h->dir).s);
}

/* The length of the header and the header; it ends at a multiple of 8. */
static nb_status write_header(hf *h, size_t shard, json_t *head)
{
    char *text = json_dumps(head, JSON_COMPACT);
    if (!text) return nb_conv_nomem(h->c);
    const size_t n = strlen(text), padded = (n + 7) / 8 * 8;
    uint8_t size[8];
    for (int i = 0; i < 8; i++) size[i] = (uint8_t)((uint64_t)padded >> 8 * i);
    nb_status st = open_shard(h, shard, "wb");
    if (st == NB_OK) st = write_bytes(h, size, sizeof size);
    if (st == NB_OK) st = write_bytes(h, text, n);
    if (st == NB_OK) st = write_bytes(h, "       ", padded - n);
    h->head[shard] = 8 + padded;
    free(text);
    return st;
}

/* Places all tensors and writes the headers. */
static nb_status write_headers(hf *h)
{
    out_tensor **order = calloc(h->n_out ? h->n_out : 1, sizeof *order);
    if (!order) return nb_conv_nomem(h->c);
    for (size_t i = 0; i < h->n_out; i++) order[i] = &h->out[i];
    qsort(order, h->n_out, sizeof *order, by_place);
    nb_status st = NB_OK;
    char file[64];
    for (size_t i = 0; st == NB_OK && i < h->n_out;) {
        const size_t shard = order[i]->shard;
        uint64_t at = 0;
        json_t *head = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
        shard_name(h, shard, file);
        for (; i < h->n_out && order[i]->shard == shard; i++) {
            order[i]->at = at;
            at += order[i]->bytes;
            if (json_object_set_new(head, order[i]->name, header_entry(order[i])) != 0 ||
                json_object_set_new(h->map, order[i]->name, json_string(file)) != 0)
                st = nb_conv_nomem(h->c);
        }
        h->c->report->out_bytes += at;
        if (st == NB_OK) st = write_header(h, shard, head);
        json_decref(head);
    }
    free(order);
    return st;
}

/* ---- tensors ---- */

typedef struct strip_job {
    const item *it;
    const float *w;
    float outer;
    uint8_t *out[NB_HF_MAX_OUT];
} strip_job;

static void encode_strip(void *ctx, const float *x, size_t r, size_t n)
{
    const strip_job *j = ctx;
    j->it->format->strip(j->it->format, x, j->w, r, n, j->it->rows, j->it->cols, j->outer, j->out);
}

static nb_status put(hf *h, const out_tensor *o, const void *p)
{
    if (!h->file || h->open_shard != o->shard) NB_TRY(open_shard(h, o->shard, "r+b"));
    if (fseek(h->file, (long)(h->head[o->shard] + o->at), SEEK_SET) != 0)
        return nb_fail(h->c->err, NB_ERR_IO, "%s: cannot write", nb_show_path(h->dir).s);
    return write_bytes(h, p, (size_t)o->bytes);
}

static nb_status copy_item(hf *h, const item *it)
{
    nb_conv *c = h->c;
    nb_conv_matrix m = { .name = it->name };
    nb_tensor t;
    if (nb_source_peek(c->source, it->name, &t)) {
        const nb_tensor_want want = { .name = it->name, .dtypes = 1u << t.dtype, .n_dim = t.n_dim };
        NB_TRY(nb_source_take(c->source, &want, &m.t, c->err));
    } else {
        NB_TRY(nb_conv_take(c, it->name, &m)); /* of a stack */
    }
    NB_TRY(put(h, &h->out[it->first], m.t.data));
    nb_conv_progress(c, &m);
    return NB_OK;
}

static nb_status code_item(hf *h, const item *it)
{
    nb_conv_matrix m;
    nb_status st = nb_conv_take(h->c, it->name, &m);
    strip_job j = { .it = it, .outer = it->outer ? *it->outer : 1 };
    if (st == NB_OK && it->format->search)
        st = nb_conv_importance(h->c, it->name, NB_IMATRIX_WHOLE, 0, m.cols, &j.w);
    for (size_t i = 0; st == NB_OK && i < it->n_out; i++) {
        j.out[i] = calloc(1, h->out[it->first + i].bytes ? (size_t)h->out[it->first + i].bytes : 1);
        if (!j.out[i]) st = nb_conv_nomem(h->c);
    }
    if (st == NB_OK) st = nb_conv_strips(h->c, &m, encode_strip, &j);
    for (size_t i = 0; st == NB_OK && i < it->n_out; i++)
        st = put(h, &h->out[it->first + i], j.out[i]);
    for (size_t i = 0; i < it->n_out; i++) free(j.out[i]);
    if (st == NB_OK) nb_conv_progress(h->c, &m);
    return st;
}

/* ---- other files ---- */

static nb_status write_text(hf *h, const char *name, const void *p, size_t n)
{
    nb_buf path = { 0 };
    nb_status st = nb_path_join(&path, h->dir, name);
    if (st == NB_OK) st = nb_file_write(path.p, p, n, h->c->err);
    nb_buf_deinit(&path);
    return st;
}

static nb_status write_json(hf *h, const char *name, const json_t *j)
{
    nb_buf text = { 0 };
    char *s = j ? json_dumps(j, JSON_INDENT(2) | JSON_REAL_PRECISION(17)) : NULL;
    nb_status st = s && nb_buf_add_c(&text, s) == NB_OK && nb_buf_add_ch(&text, '\n') == NB_OK
                       ? NB_OK
                       : nb_conv_nomem(h->c);
    if (st == NB_OK) st = write_text(h, name, text.p, text.n_bytes);
    free(s);
    nb_buf_deinit(&text);
    return st;
}

static nb_status write_config(hf *h)
{
    json_t *const text = h->c->text;
    (void)json_object_del(h->c->config, "quantization_config");
    (void)json_object_del(text, "quantization_config");
    if (h->format->config &&
        json_object_set_new(text, "quantization_config",
                            h->format->config(h->format, json_incref(h->ignore))) != 0)
        return nb_conv_nomem(h->c);
    NB_TRY(write_json(h, "config.json", h->c->config));
    if (!h->format->file) return NB_OK;
    json_t *j = h->format->file(h->format, json_incref(h->ignore));
    const nb_status st = write_json(h, "hf_quant_config.json", j);
    json_decref(j);
    return st;
}

/* Files beside the weights go along: tokenizer, templates, code, licence.  Weights of other forms do not. */
static nb_status copy_file(void *ctx, const char *name, nb_error *err)
{
    static const char *const not [] = { ".safetensors", ".safetensors.index.json",
                                        ".bin",         ".bin.index.json",
                                        ".gguf",        ".pt",
                                        ".pth",         ".h5",
                                        ".msgpack",     ".onnx",
                                        ".incomplete",  "README.md" };
    hf *h = ctx;
    nb_buf path = { 0 }, bytes = { 0 };
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        if (ends_with(name, not [i])) return NB_OK;
    if (!strcmp(name, "config.json") || !strcmp(name, "hf_quant_config.json") || name[0] == '.')
        return NB_OK;
    nb_status st = nb_path_join(&path, h->c->o->model, name);
    if (st == NB_OK && nb_path_is_file(path.p)) {
        st = nb_file_read(path.p, MAX_COPY_BYTES, &bytes, err);
        if (st == NB_OK) st = write_text(h, name, bytes.p, bytes.n_bytes);
        if (st == NB_ERR_LIMIT) st = NB_OK; /* no part of a model that is that large is needed */
    }
    nb_buf_deinit(&path);
    nb_buf_deinit(&bytes);
    return st;
}

static nb_status write_index(hf *h)
{
    if (h->n_shard == 1) return NB_OK;
    json_t *j = json_pack("{s:{s:I}, s:O}", "metadata", "total_size",
                          (json_int_t)h->c->report->out_bytes, "weight_map", h->map);
    const nb_status st = write_json(h, "model.safetensors.index.json", j);
    json_decref(j);
    return st;
}

/* ---- together ---- */

static nb_status make(hf *h)
{
    NB_TRY(list_items(h));
    NB_TRY(place(h));
    NB_TRY(find_outers(h));
    NB_TRY(write_headers(h));
    for (size_t i = 0; i < h->n_item; i++)
        NB_TRY(h->items[i].format ? code_item(h, &h->items[i]) : copy_item(h, &h->items[i]));
    if (h->file && fclose(h->file) != 0) {
        h->file = NULL;
        return nb_fail(h->c->err, NB_ERR_IO, "%s: cannot write: is the disk full?",
                       nb_show_path(h->dir).s);
    }
    h->file = NULL;
    NB_TRY(write_index(h));
    NB_TRY(write_config(h));
    return nb_dir_each(h->c->o->model, copy_file, h, h->c->err);
}

nb_status nb_conv_hf(nb_conv *c, const char *format)
{
    hf h = { .c = c, .format = nb_hf_format_of(format), .map = json_object() };
    nb_buf dir = { 0 };
    h.ignore = json_pack("[s,s]", "lm_head", h.format->routers);
    if (!h.map || !h.ignore || nb_buf_add_c(&dir, c->o->out) != NB_OK) {
        json_decref(h.map);
        json_decref(h.ignore);
        return nb_conv_nomem(c);
    }
    while (dir.n_bytes > 1 && dir.p[dir.n_bytes - 1] == '/') dir.p[--dir.n_bytes] = 0;
    nb_status st = nb_buf_add_c(&dir, ".partial") == NB_OK ? NB_OK : nb_conv_nomem(c);
    bool made = false;
    h.dir = dir.p;
    if (st == NB_OK) st = nb_dir_make_new(h.dir, c->err);
    made = st == NB_OK;
    if (st == NB_OK) st = make(&h);
    if (h.file) (void)fclose(h.file);
    if (st == NB_OK) st = nb_path_rename(h.dir, c->o->out, c->err);
    if (st != NB_OK && made) nb_dir_remove(h.dir);
    nb_buf_deinit(&dir);
    free(h.out);
    json_decref(h.map);
    json_decref(h.ignore);
    return st;
}
