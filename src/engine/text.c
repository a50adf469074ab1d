/* text.c - nb_text_*: a tokenizer with its chat template, read from a directory. */
#include <jansson.h>
#include <stdlib.h>

#include "nibble/nibble.h"

#include "engine/engine_internal.h"
#include "load/explain.h"
#include "load/gguf.h"
#include "load/hub.h"
#include "load/optional.h"
#include "os/file.h"
#include "os/sys.h"
#include "text/chat.h"
#include "text/chat_style.h"
#include "text/jinja.h"

enum {
    TOKENIZER_MAX_BYTES = 256 << 20,
    CONFIG_MAX_BYTES = 16 << 20,
    TEMPLATE_MAX_BYTES = NB_JINJA_MAX_SOURCE_BYTES,
    REQUEST_MAX_BYTES = 256 << 20
};

struct nb_text {
    nb_tokenizer *tok;
    nb_grammars *grammars;
    nb_jinja *tmpl;  /* NULL: none */
    json_t *special; /* tokenizer_config.json, or NULL */
    nb_chat_style style; /* of tmpl */
    nb_text_formats formats;
};

typedef struct text_files {
    nb_buf tokenizer, tiktoken, tekken, config, special_map, added, tmpl;
} text_files;

static nb_status read_files(const char *dir, text_files *f, nb_error *err)
{
    bool found;
    NB_TRY(
        nb_optional_read(dir, "tokenizer.json", TOKENIZER_MAX_BYTES, &f->tokenizer, &found, err));
    if (!found) {
        NB_TRY(nb_optional_read(dir, "tiktoken.model", TOKENIZER_MAX_BYTES, &f->tiktoken, &found,
                                err));
        if (!found)
            NB_TRY(nb_optional_read(dir, "tokenizer.model", TOKENIZER_MAX_BYTES, &f->tiktoken,
                                    &found, err));
        if (!found)
            NB_TRY(nb_optional_read(dir, "tekken.json", TOKENIZER_MAX_BYTES, &f->tekken, &found, err));
        if (!found && !nb_path_is_dir(dir) && !nb_gguf_is(dir)) return nb_explain_model(dir, NB_ERR_NOT_FOUND, err);
        if (!found)
            return nb_hub_missing(
                dir,
                nb_fail(err, NB_ERR_NOT_FOUND,
                        "%s: no tokenizer there (expected tokenizer.json, tiktoken.model or tekken.json)", dir),
                err);
    }
    NB_TRY(
        nb_optional_read(dir, "tokenizer_config.json", CONFIG_MAX_BYTES, &f->config, &found, err));
    NB_TRY(nb_optional_read(dir, "special_tokens_map.json", CONFIG_MAX_BYTES, &f->special_map,
                            &found, err));
    NB_TRY(nb_optional_read(dir, "added_tokens.json", CONFIG_MAX_BYTES, &f->added, &found, err));
    return nb_optional_read(dir, "chat_template.jinja", TEMPLATE_MAX_BYTES, &f->tmpl, &found, err);
}

static uint32_t find_token(const void *tok, nb_str text)
{
    const uint32_t id = nb_tokenizer_find_added(tok, text);
    return id == NB_TOK_NONE ? NB_PARSE_NO_ID : id;
}

nb_token_lookup nb_text_lookup(const nb_text *t)
{
    return (nb_token_lookup){ find_token, t->tok };
}

const nb_text_formats *nb_text_formats_of(const nb_text *t)
{
    return &t->formats;
}

/* Where a text of our own declares the tools, calls come in its format. */
static void find_formats(nb_text *t, nb_str source)
{
    const nb_token_lookup tokens = nb_text_lookup(t);
    nb_chat_style_find(t->tmpl, t->special, &t->style);
    t->formats.calls = t->style.own ? nb_call_format_find(nb_str_c(t->style.own->family))
                                    : nb_call_format_detect(source, tokens);
    t->formats.thought = nb_thought_format_detect(source, tokens);
}

nb_status nb_text_set_formats(nb_text *t, const char *calls, const char *thought, nb_error *err)
{
    if (calls && strcmp(calls, "auto") != 0) {
        t->formats.calls = strcmp(calls, "none") == 0 ? NULL : nb_call_format_find(nb_str_c(calls));
        if (!t->formats.calls && strcmp(calls, "none") != 0)
            return nb_fail(err, NB_ERR_ARG, "--tool-call-parser %.60s: expected auto, none, %s",
                           calls, nb_call_format_names());
        if (t->formats.calls) nb_chat_style_family(&t->style, nb_call_format_name(t->formats.calls));
    }
    if (thought && strcmp(thought, "auto") != 0) {
        t->formats.thought =
            strcmp(thought, "none") == 0 ? NULL : nb_thought_format_find(nb_str_c(thought));
        if (!t->formats.thought && strcmp(thought, "none") != 0)
            return nb_fail(err, NB_ERR_ARG, "--reasoning-parser %.60s: expected auto, none, %s",
                           thought, nb_thought_format_names());
    }
    return NB_OK;
}

/* The tokenizer of DeepSeek V4: the first in which this is a token. */
static bool is_v4(const nb_text *t)
{
    static const char *const names[] = { "\xef\xbd\x9c" "DSML" "\xef\xbd\x9c", "<think>", "</think>" };
    for (size_t i = 0; i < NB_COUNT(names); i++)
        if (find_token(t->tok, nb_str_c(names[i])) == NB_PARSE_NO_ID) return false;
    return true;
}

static nb_status load_template(nb_text *t, const text_files *f, const char *path, nb_error *err)
{
    nb_str src = nb_tokenizer_chat_template(t->tok, "default");
    nb_buf own = { 0 };
    const char *name = "chat_template";
    nb_status st = NB_OK;
    if (path) {
        st = nb_file_read(path, TEMPLATE_MAX_BYTES, &own, err);
        src = nb_buf_view(&own);
        name = path;
    } else if (f->tmpl.n_bytes) {
        src = nb_buf_view(&f->tmpl);
        name = "chat_template.jinja";
    }
    if (st == NB_OK && !src.n_bytes && is_v4(t)) {
        src = nb_chat_template_v4();
        name = "the template of DeepSeek V4";
    }
    if (st == NB_OK && src.n_bytes) {
        st = nb_jinja_parse(src, &t->tmpl, err);
        if (st != NB_OK) (void)nb_fail_prefix(err, st, "%s", name);
    }
    if (st == NB_OK && t->tmpl) find_formats(t, src);
    nb_buf_deinit(&own);
    return st;
}

static nb_status build_text(nb_text *t, const char *dir, const char *chat_template, nb_error *err)
{
    text_files f = { 0 };
    nb_status st = read_files(dir, &f, err);
    if (st == NB_OK) {
        const nb_tokenizer_files tf = {
            .tokenizer_json = nb_buf_view(&f.tokenizer),
            .tiktoken_model = nb_buf_view(&f.tiktoken),
            .tekken_json = nb_buf_view(&f.tekken),
            .tokenizer_config_json = nb_buf_view(&f.config),
            .special_tokens_map_json = nb_buf_view(&f.special_map),
            .added_tokens_json = nb_buf_view(&f.added),
        };
        st = nb_tokenizer_create(&tf, &t->tok, err);
        if (st != NB_OK) (void)nb_fail_prefix(err, st, "%s", dir);
    }
    if (st == NB_OK) st = nb_grammars_create(t->tok, &t->grammars, err);
    if (st == NB_OK && f.config.n_bytes)
        t->special = json_loadb(f.config.p, f.config.n_bytes, 0, NULL);
    if (st == NB_OK) st = load_template(t, &f, chat_template, err);
    nb_buf_deinit(&f.tokenizer);
    nb_buf_deinit(&f.tiktoken);
    nb_buf_deinit(&f.tekken);
    nb_buf_deinit(&f.config);
    nb_buf_deinit(&f.special_map);
    nb_buf_deinit(&f.added);
    nb_buf_deinit(&f.tmpl);
    return st;
}

nb_status nb_text_create(const char *model, const char *chat_template, nb_text **out, nb_error *err)
{
    char *dir = NULL;
    if (!out) return nb_fail(err, NB_ERR_ARG, "no place for the text given");
    NB_TRY(nb_model_find(model, &dir, err));
    nb_text *t = calloc(1, sizeof *t);
    const nb_status st =
        t ? build_text(t, dir, chat_template, err) : nb_fail(err, NB_ERR_NOMEM, "out of memory");
    free(dir);
    if (st != NB_OK) {
        nb_text_destroy(t);
        return st;
    }
    *out = t;
    return NB_OK;
}

void nb_text_destroy(nb_text *t)
{
    if (!t) return;
    nb_grammars_destroy(t->grammars);
    nb_tokenizer_destroy(t->tok);
    nb_jinja_destroy(t->tmpl);
    json_decref(t->special);
    free(t);
}

nb_grammars *nb_text_grammars(const nb_text *t)
{
    return t->grammars;
}

const nb_tokenizer *nb_text_tokenizer(const nb_text *t)
{
    return t->tok;
}

size_t nb_text_vocab_size(const nb_text *t)
{
    return nb_tokenizer_n_vocab(t->tok);
}

const char *nb_text_token_bytes(const nb_text *t, uint32_t id, size_t *n_bytes)
{
    const nb_str s = nb_tokenizer_token_bytes(t->tok, id);
    *n_bytes = s.n_bytes;
    return s.n_bytes ? s.p : "";
}

bool nb_text_has_template(const nb_text *t)
{
    return t->tmpl != NULL;
}

bool nb_text_template_mentions(const nb_text *t, const char *word)
{
    return t->tmpl && nb_jinja_mentions(t->tmpl, nb_str_c(word));
}

nb_status nb_text_tokenize(const nb_text *t, const char *text, size_t n_bytes, unsigned flags,
                           uint32_t **ids, size_t *n_ids, nb_error *err)
{
    unsigned tf = 0;
    if (!t || (!text && n_bytes)) return nb_fail(err, NB_ERR_ARG, "no text given");
    if (flags & NB_TEXT_ADD_SPECIAL) tf |= NB_TOK_ADD_SPECIAL;
    if (flags & NB_TEXT_PARSE_SPECIAL) tf |= NB_TOK_PARSE_SPECIAL;
    return nb_tokenizer_encode(t->tok, (nb_str){ text ? text : "", n_bytes }, tf, ids, n_ids, err);
}

nb_status nb_text_detokenize(const nb_text *t, const uint32_t *ids, size_t n_ids, bool skip_special,
                             char **text, size_t *n_bytes, nb_error *err)
{
    nb_buf b = { 0 };
    nb_status st = nb_buf_reserve(&b, 1);
    if (st == NB_OK) {
        b.p[0] = 0;
        st = nb_tokenizer_decode(t->tok, ids, n_ids, skip_special, &b);
    }
    if (st != NB_OK) {
        nb_buf_deinit(&b);
        return nb_fail(err, st, "cannot decode %zu tokens: %s", n_ids, nb_status_text(st));
    }
    *text = b.p;
    if (n_bytes) *n_bytes = b.n_bytes;
    return NB_OK;
}

nb_status nb_text_render(const nb_text *t, const char *request_json, size_t n_bytes, char **text,
                         size_t *text_bytes, uint32_t **ids, size_t *n_ids, nb_error *err)
{
    if (!t->tmpl)
        return nb_fail(err, NB_ERR_NOT_FOUND,
                       "the model has no chat template (--chat-template FILE gives one)");
    if (n_bytes > REQUEST_MAX_BYTES)
        return nb_fail(err, NB_ERR_LIMIT, "request of %zu bytes, at most %d are accepted", n_bytes,
                       REQUEST_MAX_BYTES);
    json_error_t je;
    json_t *rq = json_loadb(request_json, n_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (!rq)
        return nb_fail(err, NB_ERR_FORMAT, "request: not valid JSON at line %d: %s", je.line,
                       je.text);
    const nb_jinja_limits lim = { .now_s = nb_os_wall_s() };
    const nb_chat_input in = {
        .request = rq,
        .special_tokens = t->special,
        .limits = &lim,
        .refuse_unseen = true,
        .style = &t->style,
        .tokenizer = t->tok,
    };
    nb_buf b = { 0 };
    size_t *mark = NULL, n_mark = 0;
    const bool special = json_is_true(json_object_get(rq, "add_special_tokens"));
    nb_status st = nb_buf_reserve(&b, 1);
    if (st == NB_OK) {
        b.p[0] = 0;
        st = nb_chat_render(t->tmpl, &in, &b, err);
    }
    json_decref(rq);
    if (st == NB_OK && nb_chat_unmark(&b, &mark, &n_mark) != NB_OK)
        st = nb_fail(err, NB_ERR_NOMEM, "out of memory");
    if (st == NB_OK && ids)
        st = nb_tokenizer_encode_marked(t->tok, nb_buf_view(&b),
                                        NB_TOK_PARSE_SPECIAL | (special ? NB_TOK_ADD_SPECIAL : 0u),
                                        mark, n_mark, ids, n_ids, err);
    free(mark);
    if (st != NB_OK) {
        nb_buf_deinit(&b);
        return st;
    }
    if (text_bytes) *text_bytes = b.n_bytes;
    if (text)
        *text = b.p;
    else
        nb_buf_deinit(&b);
    return NB_OK;
}
