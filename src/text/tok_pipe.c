/* tok_pipe.c - reading normalizer, pre_tokenizer and decoder of tokenizer.json.
 *
 * Supported, everything else is refused by name:
 *   normalizer     Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace, Strip,
 *                  Lowercase
 *   pre_tokenizer  Sequence, Split (Regex or String, every behavior, invert),
 *                  ByteLevel, Digits, Metaspace, Gguf (nibble's own: tok_pre.c)
 *   decoder        ByteLevel; Metaspace; or a Sequence of Replace and Strip (of
 *                  single tokens), ByteFallback, Fuse, Strip, in this order,
 *                  each optional.  None: tokens joined with blanks.
 * Sequences are flattened.  ByteLevel must be the last pre-tokenizer, because
 * the model then works on bytes and nothing may look at the stand-ins. */
#include <stdlib.h>

#include "base/utf8.h"
#include "text/tok_internal.h"

#define FILE_NAME "tokenizer.json"

static nb_status no_memory(nb_error *err)
{
    return nb_fail(err, NB_ERR_NOMEM, FILE_NAME ": out of memory");
}

static const char *type_of(const json_t *o)
{
    const char *s = json_string_value(json_object_get(o, "type"));
    return s ? s : "(none)";
}

/* A boolean member; def where it is absent or null. */
static nb_status get_bool(const json_t *o, const char *name, bool def, bool *out, nb_error *err)
{
    const json_t *v = json_object_get(o, name);
    if (v && !json_is_null(v) && !json_is_boolean(v))
        return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": %s.%s: true or false expected", type_of(o),
                       name);
    *out = v && !json_is_null(v) ? json_is_true(v) : def;
    return NB_OK;
}

static nb_status get_text(const json_t *o, const char *name, char **out, size_t *n_bytes,
                          nb_error *err)
{
    const json_t *v = json_object_get(o, name);
    if (!json_is_string(v))
        return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": %s.%s: a string expected", type_of(o),
                       name);
    if (json_string_length(v) > NB_TOK_MAX_LITERAL_BYTES)
        return nb_fail(err, NB_ERR_LIMIT, FILE_NAME ": %s.%s: %zu bytes, at most %d expected",
                       type_of(o), name, json_string_length(v), (int)NB_TOK_MAX_LITERAL_BYTES);
    free(*out);
    *out = nb_tok_strdup(nb_tok_json_str(v));
    *n_bytes = json_string_length(v);
    return *out ? NB_OK : no_memory(err);
}

/* A string of exactly one character. */
static nb_status get_char(const json_t *o, const char *name, uint32_t *cp, nb_error *err)
{
    const json_t *v = json_object_get(o, name);
    const size_t n = json_string_length(v);
    if (!n || nb_utf8_decode(json_string_value(v), n, cp) != (int)n)
        return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": %s.%s: one character expected", type_of(o),
                       name);
    return NB_OK;
}

static nb_status get_count(const json_t *o, const char *name, size_t *out, nb_error *err)
{
    const json_t *v = json_object_get(o, name);
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > 1 << 20)
        return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": %s.%s: a count expected", type_of(o), name);
    *out = (size_t)json_integer_value(v);
    return NB_OK;
}

/* pattern: {"String": s} or {"Regex": r}; one of literal and regex is set. */
static nb_status get_pattern(const json_t *o, bool *use_regex, nb_tok_regex *re, char **literal,
                             size_t *n_bytes, nb_error *err)
{
    const json_t *p = json_object_get(o, "pattern");
    const json_t *r = json_object_get(p, "Regex");
    *use_regex = json_is_string(r);
    if (*use_regex) {
        const nb_status st = nb_tok_regex_compile(nb_tok_json_str(r), true, re, err);
        return st == NB_OK ? st : nb_fail_prefix(err, st, FILE_NAME ": %s", type_of(o));
    }
    if (!json_is_string(json_object_get(p, "String")))
        return nb_fail(err, NB_ERR_FORMAT,
                       FILE_NAME ": %s.pattern: {\"String\": ...} or {\"Regex\": ...} expected",
                       type_of(o));
    return get_text(p, "String", literal, n_bytes, err);
}

/* ---- normalizer ---------------------------------------------------------- */

static nb_status load_replace(const json_t *o, nb_norm_step *s, nb_error *err)
{
    s->kind = NB_NORM_REPLACE;
    NB_TRY(get_pattern(o, &s->use_regex, &s->regex, &s->pattern, &s->n_pattern_bytes, err));
    if (!s->use_regex && !s->n_pattern_bytes)
        return nb_fail(err, NB_ERR_UNSUPPORTED, FILE_NAME ": Replace with an empty pattern");
    NB_TRY(get_text(o, "content", &s->text, &s->n_text_bytes, err));
    if (s->use_regex && strchr(s->text, '$'))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       FILE_NAME ": Replace.content \"%s\": references to groups are not supported",
                       s->text);
    return NB_OK;
}

static nb_status load_norm_step(const json_t *o, nb_norm_step *s, nb_error *err)
{
    static const char *const FORMS[] = { [NB_FORM_NFC] = "NFC",
                                         [NB_FORM_NFD] = "NFD",
                                         [NB_FORM_NFKC] = "NFKC",
                                         [NB_FORM_NFKD] = "NFKD" };
    const char *type = type_of(o);
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) {
        if (strcmp(type, FORMS[i]) != 0) continue;
        s->kind = NB_NORM_FORM;
        s->form = (nb_tok_form)i;
        return NB_OK;
    }
    if (strcmp(type, "Prepend") == 0) {
        s->kind = NB_NORM_PREPEND;
        return get_text(o, "prepend", &s->text, &s->n_text_bytes, err);
    }
    if (strcmp(type, "Replace") == 0) return load_replace(o, s, err);
    if (strcmp(type, "Lowercase") == 0) {
        s->kind = NB_NORM_LOWER;
        return NB_OK;
    }
    if (strcmp(type, "Strip") == 0) {
        s->kind = NB_NORM_STRIP;
        NB_TRY(get_bool(o, "strip_left", true, &s->left, err));
        return get_bool(o, "strip_right", true, &s->right, err);
    }
    return nb_fail(err, NB_ERR_UNSUPPORTED,
                   FILE_NAME ": normalizer \"%.64s\" is not supported (Sequence, NFC, NFD, NFKC, "
                             "NFKD, Prepend, Replace, Strip or Lowercase expected)",
                   type);
}

static nb_status load_norm(nb_tokenizer *t, const json_t *o, unsigned depth, nb_error *err)
{
    if (json_is_null(o) || !o) return NB_OK;
    if (!json_is_object(o))
        return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": normalizer: an object expected");
    if (depth > NB_TOK_MAX_STEPS || t->n_norm >= NB_TOK_MAX_STEPS)
        return nb_fail(err, NB_ERR_LIMIT, FILE_NAME ": normalizer: too many steps");
    if (strcmp(type_of(o), "Sequence") == 0) {
        const json_t *list = json_object_get(o, "normalizers"), *item;
        size_t i;
        if (!json_is_array(list))
            return nb_fail(err, NB_ERR_FORMAT,
                           FILE_NAME ": normalizer: Sequence.normalizers: an array expected");
        json_array_foreach((json_t *)(uintptr_t)list, i, item)
            NB_TRY(load_norm(t, item, depth + 1, err));
        return NB_OK;
    }
    if (NB_GROW(t->norm, t->cap_norm, t->n_norm) != NB_OK) return no_memory(err);
    nb_norm_step *s = &t->norm[t->n_norm++];
    *s = (nb_norm_step){ 0 };
    NB_TRY(load_norm_step(o, s, err));
    if (s->use_regex && s->regex.native == NB_NATIVE_NONE) t->needs_run_check = true;
    return NB_OK;
}

/* ---- pre-tokenizer ------------------------------------------------------- */

static nb_status load_split(const json_t *o, nb_pre_step *s, nb_error *err)
{
    static const char *const NAMES[] = {
        [NB_SPLIT_ISOLATED] = "Isolated",
        [NB_SPLIT_REMOVED] = "Removed",
        [NB_SPLIT_CONTIGUOUS] = "Contiguous",
        [NB_SPLIT_MERGED_PREVIOUS] = "MergedWithPrevious",
        [NB_SPLIT_MERGED_NEXT] = "MergedWithNext",
    };
    bool regex = false;
    NB_TRY(get_pattern(o, &regex, &s->regex, &s->text, &s->n_text_bytes, err));
    NB_TRY(get_bool(o, "invert", false, &s->invert, err));
    s->kind = regex ? NB_PRE_REGEX : NB_PRE_LITERAL;
    const char *b = json_string_value(json_object_get(o, "behavior"));
    for (size_t i = 0; b && i < sizeof NAMES / sizeof *NAMES; i++) {
        if (strcmp(b, NAMES[i]) != 0) continue;
        s->behavior = (nb_split_behavior)i;
        return NB_OK;
    }
    return nb_fail(err, NB_ERR_FORMAT,
                   FILE_NAME ": Split.behavior \"%.64s\": Isolated, Removed, Contiguous, "
                             "MergedWithPrevious or MergedWithNext expected",
                   b ? b : "(none)");
}

static nb_status load_prepend(const json_t *o, nb_prepend *out, nb_error *err)
{
    const json_t *scheme = json_object_get(o, "prepend_scheme");
    bool prefix;
    NB_TRY(get_bool(o, "add_prefix_space", true, &prefix, err));
    const char *s = json_string_value(scheme);
    if (!scheme) {
        *out = prefix ? NB_PREPEND_ALWAYS : NB_PREPEND_NEVER;
        return NB_OK;
    }
    if (s && strcmp(s, "always") == 0)
        *out = NB_PREPEND_ALWAYS;
    else if (s && strcmp(s, "first") == 0)
        *out = NB_PREPEND_FIRST;
    else if (s && strcmp(s, "never") == 0)
        *out = NB_PREPEND_NEVER;
    else
        return nb_fail(err, NB_ERR_FORMAT,
                       FILE_NAME ": Metaspace.prepend_scheme: always, first or never expected");
    return NB_OK;
}

static nb_status load_metaspace(const json_t *o, nb_pre_step *s, nb_error *err)
{
    uint32_t cp;
    s->kind = NB_PRE_METASPACE;
    NB_TRY(get_char(o, "replacement", &cp, err));
    NB_TRY(get_text(o, "replacement", &s->text, &s->n_text_bytes, err));
    NB_TRY(get_bool(o, "split", true, &s->split, err));
    return load_prepend(o, &s->prepend, err);
}

static nb_status load_pre_step(nb_tokenizer *t, const json_t *o, nb_pre_step *s, nb_error *err)
{
    const char *type = type_of(o);
    if (strcmp(type, "Split") == 0) return load_split(o, s, err);
    if (strcmp(type, "Metaspace") == 0) return load_metaspace(o, s, err);
    if (strcmp(type, "Digits") == 0) {
        bool individual = false;
        NB_TRY(get_bool(o, "individual_digits", false, &individual, err));
        s->kind = NB_PRE_REGEX;
        s->regex.native = individual ? NB_NATIVE_NUMBER : NB_NATIVE_NUMBERS;
        return NB_OK;
    }
    if (strcmp(type, "ByteLevel") == 0) {
        t->byte_level = true;
        s->kind = NB_PRE_BYTELEVEL;
        s->regex.native = NB_NATIVE_GPT2;
        NB_TRY(get_bool(o, "add_prefix_space", true, &s->prefix_space, err));
        return get_bool(o, "use_regex", true, &s->use_regex, err);
    }
    return nb_fail(err, NB_ERR_UNSUPPORTED,
                   FILE_NAME ": pre_tokenizer \"%.64s\" is not supported (Sequence, Split, "
                             "ByteLevel, Digits or Metaspace expected)",
                   type);
}

static nb_status load_pre(nb_tokenizer *t, const json_t *o, unsigned depth, nb_error *err)
{
    if (json_is_null(o) || !o) return NB_OK;
    if (!json_is_object(o))
        return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": pre_tokenizer: an object expected");
    if (depth > NB_TOK_MAX_STEPS || t->n_pre >= NB_TOK_MAX_STEPS)
        return nb_fail(err, NB_ERR_LIMIT, FILE_NAME ": pre_tokenizer: too many steps");
    if (strcmp(type_of(o), "Sequence") == 0) {
        const json_t *list = json_object_get(o, "pretokenizers"), *item;
        size_t i;
        if (!json_is_array(list))
            return nb_fail(err, NB_ERR_FORMAT,
                           FILE_NAME ": pre_tokenizer: Sequence.pretokenizers: an array expected");
        json_array_foreach((json_t *)(uintptr_t)list, i, item)
            NB_TRY(load_pre(t, item, depth + 1, err));
        return NB_OK;
    }
    if (t->byte_level)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       FILE_NAME ": pre_tokenizer \"%.64s\" after ByteLevel is not supported",
                       type_of(o));
    const json_t *name = json_object_get(o, "name");
    if (strcmp(type_of(o), "Gguf") == 0 && json_is_string(name))
        return nb_tok_load_named_pre(t, nb_tok_json_str(name), err);
    if (NB_GROW(t->pre, t->cap_pre, t->n_pre) != NB_OK) return no_memory(err);
    nb_pre_step *s = &t->pre[t->n_pre++];
    *s = (nb_pre_step){ 0 };
    NB_TRY(load_pre_step(t, o, s, err));
    if (s->kind == NB_PRE_REGEX && s->regex.native == NB_NATIVE_NONE) t->needs_run_check = true;
    return NB_OK;
}

/* ---- decoder ------------------------------------------------------------- */

/* How far the fixed order of decoder steps has come. */
typedef enum dec_stage { AT_TOKENS, AT_BYTES, AT_FUSED, AT_END } dec_stage;

static nb_status decoder_order(const json_t *o, nb_error *err)
{
    return nb_fail(err, NB_ERR_UNSUPPORTED,
                   FILE_NAME ": decoder \"%.64s\" is not supported at this place of the sequence "
                             "(Replace, Strip, ByteFallback, Fuse, Strip expected, in this order)",
                   type_of(o));
}

static nb_status load_dec_strip(nb_decoder *d, const json_t *o, dec_stage *stage, nb_error *err)
{
    nb_norm_step s = { .kind = NB_NORM_STRIP_CHAR };
    NB_TRY(get_char(o, "content", &s.strip_char, err));
    NB_TRY(get_count(o, "start", &s.strip_start, err));
    NB_TRY(get_count(o, "stop", &s.strip_stop, err));
    if (*stage == AT_FUSED) {
        d->strip = true;
        d->strip_char = s.strip_char;
        d->strip_start = s.strip_start;
        d->strip_stop = s.strip_stop;
        *stage = AT_END;
        return NB_OK;
    }
    if (*stage != AT_TOKENS) return decoder_order(o, err);
    if (NB_GROW(d->steps, d->cap_steps, d->n_steps) != NB_OK) return no_memory(err);
    d->steps[d->n_steps++] = s;
    return NB_OK;
}

static nb_status load_dec_step(nb_tokenizer *t, const json_t *o, dec_stage *stage, bool alone,
                               nb_error *err)
{
    nb_decoder *d = &t->dec;
    const char *type = type_of(o);
    if (d->n_steps >= NB_TOK_MAX_STEPS)
        return nb_fail(err, NB_ERR_LIMIT, FILE_NAME ": decoder: too many steps");
    if (strcmp(type, "Replace") == 0) {
        if (*stage != AT_TOKENS) return decoder_order(o, err);
        if (NB_GROW(d->steps, d->cap_steps, d->n_steps) != NB_OK) return no_memory(err);
        d->steps[d->n_steps] = (nb_norm_step){ 0 };
        return load_replace(o, &d->steps[d->n_steps++], err);
    }
    if (strcmp(type, "Strip") == 0) return load_dec_strip(d, o, stage, err);
    if (strcmp(type, "ByteFallback") == 0) {
        if (*stage != AT_TOKENS) return decoder_order(o, err);
        d->byte_fallback = true;
        *stage = AT_BYTES;
        return NB_OK;
    }
    if (strcmp(type, "Fuse") == 0) {
        if (*stage == AT_END) return decoder_order(o, err);
        *stage = AT_FUSED;
        return NB_OK;
    }
    if (strcmp(type, "ByteLevel") == 0) {
        if (*stage != AT_TOKENS || d->n_steps) return decoder_order(o, err);
        d->kind = NB_DEC_BYTES;
        *stage = AT_END;
        return NB_OK;
    }
    if (strcmp(type, "Metaspace") == 0) {
        nb_prepend p;
        if (!alone) return decoder_order(o, err);
        NB_TRY(get_char(o, "replacement", &d->meta_char, err));
        NB_TRY(load_prepend(o, &p, err));
        d->metaspace = true;
        d->drop_first = p != NB_PREPEND_NEVER;
        *stage = AT_END;
        return NB_OK;
    }
    return nb_fail(err, NB_ERR_UNSUPPORTED,
                   FILE_NAME
                   ": decoder \"%.64s\" is not supported (Sequence, ByteLevel, Metaspace, "
                   "Replace, ByteFallback, Fuse or Strip expected)",
                   type);
}

static nb_status load_dec(nb_tokenizer *t, const json_t *o, dec_stage *stage, unsigned depth,
                          bool alone, nb_error *err)
{
    if (!json_is_object(o))
        return nb_fail(err, NB_ERR_FORMAT, FILE_NAME ": decoder: an object expected");
    if (depth > NB_TOK_MAX_STEPS)
        return nb_fail(err, NB_ERR_LIMIT, FILE_NAME ": decoder: too many steps");
    if (strcmp(type_of(o), "Sequence") != 0) return load_dec_step(t, o, stage, alone, err);
    const json_t *list = json_object_get(o, "decoders"), *item;
    size_t i;
    if (!json_is_array(list))
        return nb_fail(err, NB_ERR_FORMAT,
                       FILE_NAME ": decoder: Sequence.decoders: an array expected");
    json_array_foreach((json_t *)(uintptr_t)list, i, item)
        NB_TRY(load_dec(t, item, stage, depth + 1, alone && json_array_size(list) == 1, err));
    return NB_OK;
}

nb_status nb_tok_load_pipeline(nb_tokenizer *t, const json_t *root, nb_error *err)
{
    NB_TRY(load_norm(t, json_object_get(root, "normalizer"), 0, err));
    NB_TRY(load_pre(t, json_object_get(root, "pre_tokenizer"), 0, err));
    const json_t *dec = json_object_get(root, "decoder");
    if (!dec || json_is_null(dec)) {
        t->dec.kind = NB_DEC_JOIN;
        return NB_OK;
    }
    dec_stage stage = AT_TOKENS;
    t->dec.kind = NB_DEC_CHAIN;
    return load_dec(t, dec, &stage, 0, true, err);
}
