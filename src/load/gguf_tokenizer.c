/* gguf_tokenizer.c - tokenizer.json and tokenizer_config.json from the metadata of a GGUF file.
 *
 * Two members are nibble's own, for what tokenizer.json cannot say: a pre_tokenizer {"type": "Gguf", "name": ...}, which
 * src/text/tok_pre.c knows by llama.cpp's name, and model.scores in the place of model.merges: two neighbours merge if
 * together they are a token, the one with the highest score first (SentencePiece's rule); null never.
 * Source: src/llama-vocab.cpp of llama.cpp. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/utf8.h"
#include "load/gguf.h"
#include "load/load_internal.h"

enum { MAX_TOKEN = 1 << 22 };

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

/* What llama.cpp sets by the pre-tokenizer's name alone. */
typedef struct pre_row {
    const char *name;
    bool ignore_merges, add_bos;
} pre_row;
static const pre_row pre_rows[] = {
    { "llama-bpe", true, true }, { "llama3", true, true }, { "llama-v3", true, true },
    { "tekken", true, true },    { "youtu", true, false },
};

typedef struct vocab {
    const nb_gguf *g;
    nb_error *err;
    nb_buf *out;
    bool spm; /* SentencePiece's BPE, by scores */
    nb_str pre;
    nb_str *token;       /* [n] */
    unsigned char *type; /* [n] */
    size_t n;
    const nb_gguf_kv *score, *merge;
    uint32_t bos, eos; /* UINT32_MAX: none */
    bool add_bos, add_eos, ignore_merges, space_prefix;
} vocab;

static nb_status fail(const vocab *v, const char *what)
{
    return nb_fail(v->err, NB_ERR_FORMAT, "%s: %s", nb_show_path(nb_gguf_name(v->g)).s, what);
}

static nb_status no_memory(const vocab *v)
{
    return nb_fail(v->err, NB_ERR_NOMEM, "%s: out of memory", nb_show_path(nb_gguf_name(v->g)).s);
}

/* ---- reading ---- */

static nb_status read_tokens(vocab *v)
{
    const nb_gguf_kv *tok, *type;
    size_t at = 0;
    NB_TRY(nb_gguf_list(v->g, "tokenizer.ggml.tokens", true, &tok, v->err));
    NB_TRY(nb_gguf_list(v->g, "tokenizer.ggml.token_type", false, &type, v->err));
    if (!tok || tok->n == 0) return fail(v, "metadata 'tokenizer.ggml.tokens' is missing or empty");
    if (tok->n > MAX_TOKEN)
        return fail(v, "tokenizer.ggml.tokens has more tokens than the limit of 4194304");
    if (type && type->n < tok->n)
        return fail(v, "tokenizer.ggml.token_type is shorter than tokenizer.ggml.tokens");
    v->token = calloc((size_t)tok->n, sizeof *v->token);
    v->type = calloc((size_t)tok->n, 1);
    if (!v->token || !v->type) return no_memory(v);
    v->n = (size_t)tok->n;
    for (size_t i = 0; i < v->n; i++) {
        v->token[i] = nb_gguf_next_str(tok, &at);
        const double t = type ? nb_gguf_item(type, i) : TYPE_NORMAL;
        v->type[i] = (unsigned char)(t >= 1 && t <= TYPE_BYTE ? t : TYPE_UNUSED);
        if (!nb_utf8_valid(v->token[i]) || memchr(v->token[i].p, 0, v->token[i].n_bytes))
            return nb_fail(v->err, NB_ERR_FORMAT,
                           "%s: tokenizer.ggml.tokens[%zu] is not UTF-8 without zeros",
                           nb_show_path(nb_gguf_name(v->g)).s, i);
        if (v->token[i].n_bytes == 0) v->type[i] = TYPE_UNUSED;
    }
    return NB_OK;
}

static nb_status read_id(const vocab *v, const char *role, uint32_t *id)
{
    char key[64];
    uint64_t n = 0;
    bool found;
    (void)snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", role);
    NB_TRY(nb_gguf_u64(v->g, key, &n, &found, v->err));
    *id = found && n < v->n && v->type[n] != TYPE_UNUSED ? (uint32_t)n : UINT32_MAX;
    return NB_OK;
}

static nb_status read_flags(vocab *v)
{
    bool found;
    for (size_t i = 0; i < NB_COUNT(pre_rows); i++) {
        if (v->spm || !nb_str_eqc(v->pre, pre_rows[i].name)) continue;
        v->ignore_merges = pre_rows[i].ignore_merges;
        v->add_bos = pre_rows[i].add_bos;
    }
    NB_TRY(nb_gguf_bool(v->g, "tokenizer.ggml.add_bos_token", &v->add_bos, &found, v->err));
    NB_TRY(nb_gguf_bool(v->g, "tokenizer.ggml.add_eos_token", &v->add_eos, &found, v->err));
    NB_TRY(nb_gguf_bool(v->g, "tokenizer.ggml.add_space_prefix", &v->space_prefix, &found, v->err));
    NB_TRY(read_id(v, "bos", &v->bos));
    NB_TRY(read_id(v, "eos", &v->eos));
    return NB_OK;
}

/* *found is false for files without a tokenizer. */
static nb_status read_vocab(vocab *v, bool *found)
{
    nb_str model = { 0 };
    NB_TRY(nb_gguf_str(v->g, "tokenizer.ggml.model", &model, found, v->err));
    if (*found) *found = !nb_str_eqc(model, "none") && !nb_str_eqc(model, "no_vocab");
    if (!*found) return NB_OK;
    v->spm = nb_str_eqc(model, "llama");
    v->space_prefix = v->add_bos = v->spm;
    if (!v->spm && !nb_str_eqc(model, "gpt2"))
        return nb_fail(
            v->err, NB_ERR_UNSUPPORTED,
            "%s: metadata 'tokenizer.ggml.model' \"%s\" is not supported (supported: gpt2, llama, none)",
            nb_show_path(nb_gguf_name(v->g)).s, nb_show(model).s);
    bool have;
    NB_TRY(nb_gguf_str(v->g, "tokenizer.ggml.pre", &v->pre, &have, v->err));
    if (!v->spm && !have)
        return nb_fail(
            v->err, NB_ERR_UNSUPPORTED,
            "%s: metadata 'tokenizer.ggml.pre' is missing: how text is split before merging is not known (the "
            "file is older than this key; take a newer one)",
            nb_show_path(nb_gguf_name(v->g)).s);
    NB_TRY(read_tokens(v));
    NB_TRY(nb_gguf_list(v->g, "tokenizer.ggml.scores", false, &v->score, v->err));
    NB_TRY(nb_gguf_list(v->g, "tokenizer.ggml.merges", true, &v->merge, v->err));
    if (v->spm && (!v->score || v->score->n < v->n))
        return fail(v, "tokenizer.ggml.scores is missing or shorter than tokenizer.ggml.tokens");
    if (!v->spm && !v->merge) return fail(v, "metadata 'tokenizer.ggml.merges' is missing");
    return read_flags(v);
}

/* ---- writing ---- */

static nb_status add(const vocab *v, const char *text)
{
    return nb_buf_add_c(v->out, text) == NB_OK ? NB_OK : no_memory(v);
}

/* A JSON string. */
static nb_status add_str(const vocab *v, nb_str s)
{
    nb_status st = nb_buf_add_ch(v->out, '"');
    for (size_t i = 0; st == NB_OK && i < s.n_bytes; i++) {
        const unsigned char c = (unsigned char)s.p[i];
        if (c == '"' || c == '\\')
            st = nb_buf_printf(v->out, "\\%c", c);
        else if (c < 0x20)
            st = nb_buf_printf(v->out, "\\u%04x", c);
        else
            st = nb_buf_add_ch(v->out, (char)c);
    }
    if (st == NB_OK) st = nb_buf_add_ch(v->out, '"');
    return st == NB_OK ? st : no_memory(v);
}

static bool in_model(const vocab *v, size_t i)
{
    const unsigned char t = v->type[i];
    return t == TYPE_NORMAL || t == TYPE_BYTE || (v->spm && (t == TYPE_UNKNOWN || t == TYPE_USER));
}

static nb_status add_vocab(const vocab *v)
{
    const char *sep = "";
    NB_TRY(add(v, "\"vocab\": {"));
    for (size_t i = 0; i < v->n; i++) {
        if (!in_model(v, i)) continue;
        NB_TRY(add(v, sep));
        NB_TRY(add_str(v, v->token[i]));
        if (nb_buf_printf(v->out, ": %zu", i) != NB_OK) return no_memory(v);
        sep = ", ";
    }
    return add(v, "}");
}

static nb_status add_scores(const vocab *v)
{
    NB_TRY(add(v, ", \"scores\": ["));
    for (size_t i = 0; i < v->n; i++) {
        const double s = nb_gguf_item(v->score, i);
        const bool merges = (v->type[i] == TYPE_NORMAL || v->type[i] == TYPE_USER) && isfinite(s);
        if (i) NB_TRY(add(v, ", "));
        if (merges ? nb_buf_printf(v->out, "%.9g", s) != NB_OK
                   : nb_buf_add_c(v->out, "null") != NB_OK)
            return no_memory(v);
    }
    return add(v, "]");
}

static nb_status add_merges(const vocab *v)
{
    size_t at = 0;
    NB_TRY(add(v, ", \"merges\": ["));
    for (uint64_t i = 0; i < v->merge->n; i++) {
        const nb_str s = nb_gguf_next_str(v->merge, &at);
        if (!nb_utf8_valid(s))
            return nb_fail(v->err, NB_ERR_FORMAT, "%s: tokenizer.ggml.merges[%llu] is not UTF-8",
                           nb_show_path(nb_gguf_name(v->g)).s, (unsigned long long)i);
        if (i) NB_TRY(add(v, ", "));
        NB_TRY(add_str(v, s));
    }
    return add(v, "]");
}

static nb_status add_model(const vocab *v)
{
    NB_TRY(add(v, "\"model\": {\"type\": \"BPE\", "));
    if (v->spm) {
        NB_TRY(add(v, "\"byte_fallback\": true, \"fuse_unk\": true, "));
        for (size_t i = 0; i < v->n; i++) {
            if (v->type[i] != TYPE_UNKNOWN) continue;
            NB_TRY(add(v, "\"unk_token\": "));
            NB_TRY(add_str(v, v->token[i]));
            NB_TRY(add(v, ", "));
            break;
        }
    }
    if (v->ignore_merges) NB_TRY(add(v, "\"ignore_merges\": true, "));
    NB_TRY(add_vocab(v));
    NB_TRY(v->spm ? add_scores(v) : add_merges(v));
    return add(v, "}");
}

static nb_status add_added(const vocab *v)
{
    const char *sep = "";
    NB_TRY(add(v, "\"added_tokens\": ["));
    for (size_t i = 0; i < v->n; i++) {
        const unsigned char t = v->type[i];
        if (t != TYPE_CONTROL && t != TYPE_UNKNOWN && t != TYPE_USER) continue;
        if (nb_buf_printf(v->out, "%s{\"id\": %zu, \"content\": ", sep, i) != NB_OK)
            return no_memory(v);
        NB_TRY(add_str(v, v->token[i]));
        if (nb_buf_printf(v->out, ", \"special\": %s, \"normalized\": false}",
                          t == TYPE_USER ? "false" : "true") != NB_OK)
            return no_memory(v);
        sep = ", ";
    }
    return add(v, "]");
}

static nb_status add_piece(const vocab *v, uint32_t id)
{
    NB_TRY(add(v, "{\"SpecialToken\": {\"id\": "));
    NB_TRY(add_str(v, v->token[id]));
    return add(v, ", \"type_id\": 0}}");
}

static nb_status add_ids(const vocab *v, uint32_t id)
{
    NB_TRY(add_str(v, v->token[id]));
    NB_TRY(add(v, ": {\"ids\": ["));
    return nb_buf_printf(v->out, "%u]}", (unsigned)id) == NB_OK ? NB_OK : no_memory(v);
}

/* The tokens around a text. */
static nb_status add_post(const vocab *v)
{
    const bool bos = v->add_bos && v->bos != UINT32_MAX, eos = v->add_eos && v->eos != UINT32_MAX;
    if (!bos && !eos) return NB_OK;
    NB_TRY(add(v, ", \"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": ["));
    if (bos) NB_TRY(add_piece(v, v->bos));
    if (bos) NB_TRY(add(v, ", "));
    NB_TRY(add(v, "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"));
    if (eos) NB_TRY(add(v, ", "));
    if (eos) NB_TRY(add_piece(v, v->eos));
    NB_TRY(add(v, "], \"special_tokens\": {"));
    if (bos) NB_TRY(add_ids(v, v->bos));
    if (bos && eos && v->bos != v->eos) NB_TRY(add(v, ", "));
    if (eos && !(bos && v->bos == v->eos)) NB_TRY(add_ids(v, v->eos));
    return add(v, "}}");
}

#define REPLACE(from, to)                                                                          \
    "{\"type\": \"Replace\", \"pattern\": {\"String\": \"" from "\"}, \"content\": \"" to "\"}"
#define BAR "\xe2\x96\x81"

static nb_status add_pipeline(const vocab *v)
{
    if (!v->spm) {
        NB_TRY(add(
            v,
            ", \"decoder\": {\"type\": \"ByteLevel\"}, \"pre_tokenizer\": {\"type\": \"Gguf\", \"name\": "));
        NB_TRY(add_str(v, v->pre));
        return add(v, "}");
    }
    NB_TRY(add(v, ", \"normalizer\": {\"type\": \"Sequence\", \"normalizers\": ["));
    if (v->space_prefix) NB_TRY(add(v, "{\"type\": \"Prepend\", \"prepend\": \"" BAR "\"}, "));
    NB_TRY(add(
        v, REPLACE(" ", BAR) "]}, \"decoder\": {\"type\": \"Sequence\", \"decoders\": [" REPLACE(
               BAR, " ") ", {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}"));
    if (v->space_prefix)
        NB_TRY(add(v, ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}"));
    return add(v, "]}");
}

static nb_status add_tokenizer(vocab *v)
{
    NB_TRY(add(v, "{"));
    NB_TRY(add_added(v));
    NB_TRY(add_pipeline(v));
    NB_TRY(add_post(v));
    NB_TRY(add(v, ", "));
    NB_TRY(add_model(v));
    return add(v, "}");
}

static nb_status add_roles(const vocab *v)
{
    static const struct {
        const char *gguf, *hf;
    } roles[] = { { "bos", "bos_token" },
                  { "eos", "eos_token" },
                  { "padding", "pad_token" },
                  { "unknown", "unk_token" } };
    for (size_t i = 0; i < NB_COUNT(roles); i++) {
        uint32_t id = 0;
        NB_TRY(read_id(v, roles[i].gguf, &id));
        if (id == UINT32_MAX) continue;
        if (nb_buf_printf(v->out, "\"%s\": ", roles[i].hf) != NB_OK) return no_memory(v);
        NB_TRY(add_str(v, v->token[id]));
        NB_TRY(add(v, ", "));
    }
    return NB_OK;
}

/* tokenizer.chat_template, and further ones by their names. */
static nb_status add_templates(const vocab *v)
{
    static const char main_key[] = "tokenizer.chat_template";
    const size_t n = sizeof main_key - 1;
    const char *sep = "";
    NB_TRY(add(v, "\"chat_template\": ["));
    for (size_t i = 0; i < v->g->file[0].n_kv; i++) {
        const nb_str key = v->g->kv[i].key;
        if (key.n_bytes < n || memcmp(key.p, main_key, n) != 0) continue;
        nb_str name = nb_str_c("default"), text;
        if (key.n_bytes > n + 1 && key.p[n] == '.')
            name = (nb_str){ key.p + n + 1, key.n_bytes - n - 1 };
        else if (key.n_bytes != n)
            continue;
        char copy[128];
        if (key.n_bytes >= sizeof copy || !nb_utf8_valid(key)) continue;
        memcpy(copy, key.p, key.n_bytes);
        copy[key.n_bytes] = 0;
        bool found;
        NB_TRY(nb_gguf_str(v->g, copy, &text, &found, v->err));
        if (!found) continue;
        NB_TRY(add(v, sep));
        NB_TRY(add(v, "{\"name\": "));
        NB_TRY(add_str(v, name));
        NB_TRY(add(v, ", \"template\": "));
        NB_TRY(add_str(v, text));
        NB_TRY(add(v, "}"));
        sep = ", ";
    }
    return add(v, "]");
}

static nb_status add_config(vocab *v)
{
    NB_TRY(add(v, "{"));
    NB_TRY(add_roles(v));
    NB_TRY(add_templates(v));
    return add(v, "}");
}

static nb_status make(const nb_gguf *g, bool config, nb_buf *out, bool *found, nb_error *err)
{
    vocab v = { .g = g, .err = err, .out = out, .bos = UINT32_MAX, .eos = UINT32_MAX };
    nb_status st = read_vocab(&v, found);
    if (st == NB_OK && *found) st = config ? add_config(&v) : add_tokenizer(&v);
    free(v.token);
    free(v.type);
    return st;
}

/* ---- all files ---- */

static nb_status make_config(const nb_gguf *g, nb_buf *out, nb_error *err)
{
    json_t *o = NULL;
    NB_TRY(nb_gguf_config(g, &o, err));
    char *text = json_dumps(o, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(o);
    const nb_status st = text && nb_buf_add_c(out, text) == NB_OK ? NB_OK : NB_ERR_NOMEM;
    free(text);
    return st == NB_OK ? st
                       : nb_fail(err, st, "%s: out of memory", nb_show_path(nb_gguf_name(g)).s);
}

nb_status nb_gguf_text(const nb_gguf *g, const char *name, nb_buf *out, bool *found, nb_error *err)
{
    const bool config = strcmp(name, "tokenizer_config.json") == 0;
    *found = strcmp(name, "config.json") == 0;
    if (*found) return make_config(g, out, err);
    if (!config && strcmp(name, "tokenizer.json") != 0) return NB_OK;
    return make(g, config, out, found, err);
}
