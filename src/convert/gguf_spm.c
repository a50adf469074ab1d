/* gguf_spm.c - SentencePiece's BPE of a tokenizer.json as llama.cpp has it.
 *
 * A tokenizer.json lists pairs in the order in which they merge.  llama.cpp has a score for each token, and merges two
 * neighbours that are a token together, the highest score first.  Both are the same where the pairs of one token stand
 * beside each other and none is missing, as in every list that was made of scores; other lists are refused.  A token without
 * any pair never comes from merging: its score is minus infinity. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "convert/gguf_vocab.h"

#define BAR "\xe2\x96\x81"

/* ---- blanks ---- */

static bool is_text(const json_t *o, const char *field, const char *text)
{
    const char *s = json_string_value(json_object_get(o, field));
    return s && strcmp(s, text) == 0;
}

static bool is_replace(const json_t *o)
{
    return is_text(o, "type", "Replace") && is_text(json_object_get(o, "pattern"), "String", " ") &&
           is_text(o, "content", BAR);
}

static bool is_prepend(const json_t *o)
{
    return is_text(o, "type", "Prepend") && is_text(o, "prepend", BAR);
}

/* Whether a text begins with a blank that it has not; false where text is treated in another way than llama.cpp's. */
static bool blanks(const nb_gguf_vocab *v, bool *prefix)
{
    const json_t *norm = json_object_get(v->json, "normalizer"),
                 *pre = json_object_get(v->json, "pre_tokenizer"),
                 *list = json_object_get(norm, "normalizers");
    *prefix = false;
    if (is_text(pre, "type", "Metaspace")) {
        *prefix = is_text(pre, "prepend_scheme", "always");
        return (!norm || json_is_null(norm)) && is_text(pre, "replacement", BAR) &&
               json_is_false(json_object_get(pre, "split")) &&
               (*prefix || is_text(pre, "prepend_scheme", "never"));
    }
    if (pre && !json_is_null(pre)) return false;
    if (is_replace(norm)) return true;
    *prefix = json_array_size(list) == 2 && is_prepend(json_array_get(list, 0));
    return is_text(norm, "type", "Sequence") &&
           is_replace(json_array_get(list, json_array_size(list) - 1)) &&
           json_array_size(list) == (*prefix ? 2 : 1);
}

/* ---- scores ---- */

typedef struct scores {
    const nb_gguf_vocab *v;
    const json_t *words; /* token -> id */
    float *score;        /* [n] */
    unsigned *pairs;     /* [n]: how many merges make a token */
    nb_buf text;
    size_t last, group; /* the token of the last merge; how many tokens had merges so far */
} scores;

static bool id_of(scores *s, const char *p, size_t n, size_t *id)
{
    s->text.n_bytes = 0;
    if (nb_buf_add(&s->text, p, n) != NB_OK || nb_buf_add_ch(&s->text, 0) != NB_OK) return false;
    const json_t *x = json_object_get(s->words, s->text.p);
    if (!json_is_integer(x)) return false;
    *id = (size_t)json_integer_value(x); /* gguf_vocab.c has checked them */
    return true;
}

static nb_status add_merge(scores *s, const json_t *x)
{
    const char *one = json_string_value(x), *a = json_string_value(json_array_get(x, 0)),
               *b = json_string_value(json_array_get(x, 1));
    nb_buf both = { 0 };
    size_t id = 0;
    nb_status st = NB_OK;
    if (one) {
        const char *blank = strchr(one, ' ');
        a = one;
        b = blank ? blank + 1 : NULL;
        if (b) st = nb_buf_add(&both, one, (size_t)(blank - one));
    } else if (a && b) {
        st = nb_buf_add_c(&both, a);
    }
    if (!a || !b) return nb_gguf_vocab_refuse(s->v, "a merge is no pair of tokens");
    if (st == NB_OK) st = nb_buf_add_c(&both, b);
    const bool found = st == NB_OK && id_of(s, both.p, both.n_bytes, &id);
    nb_buf_deinit(&both);
    if (st != NB_OK) return nb_conv_nomem(s->v->c);
    if (!found) return nb_gguf_vocab_refuse(s->v, "a merge makes no token");
    if (id != s->last && s->pairs[id])
        return nb_gguf_vocab_refuse(
            s->v,
            "the merges of a token are not beside each other, so that no score tells their order");
    if (id != s->last) s->score[id] = -(float)s->group++;
    s->last = id;
    s->pairs[id]++;
    return NB_OK;
}

/* All pairs that a token can be cut into must be merges. */
static nb_status check_cuts(scores *s, size_t id)
{
    const char *t = s->v->token[id];
    const size_t n = strlen(t);
    size_t a, b;
    unsigned cuts = 0;
    for (size_t i = 1; i < n; i++)
        if (((unsigned char)t[i] & 0xc0) != 0x80 && id_of(s, t, i, &a) &&
            id_of(s, t + i, n - i, &b) && s->v->type[a] == NB_GGUF_NORMAL &&
            s->v->type[b] == NB_GGUF_NORMAL)
            cuts++;
    if (cuts <= s->pairs[id]) return NB_OK;
    return nb_gguf_vocab_refuse(s->v, "a token is two others together, but no merge says so");
}

static nb_status find_scores(scores *s)
{
    const json_t *model = json_object_get(s->v->json, "model"),
                 *list = json_object_get(model, "merges"), *x;
    size_t i;
    s->words = json_object_get(model, "vocab");
    s->score = malloc(s->v->n * sizeof *s->score);
    s->pairs = calloc(s->v->n, sizeof *s->pairs);
    s->last = s->v->n;
    if (!s->score || !s->pairs) return nb_conv_nomem(s->v->c);
    if (json_array_size(list) > 1 << 24)
        return nb_gguf_vocab_refuse(s->v, "it has more merges than 2^24");
    for (i = 0; i < s->v->n; i++) s->score[i] = -INFINITY;
    json_array_foreach(list, i, x) NB_TRY(add_merge(s, x));
    for (i = 0; i < s->v->n; i++)
        if (s->pairs[i] && s->v->type[i] == NB_GGUF_NORMAL) NB_TRY(check_cuts(s, i));
    return NB_OK;
}

nb_status nb_gguf_put_spm(const nb_gguf_vocab *v)
{
    bool prefix;
    scores s = { .v = v };
    if (json_is_true(json_object_get(json_object_get(v->json, "model"), "ignore_merges")))
        return nb_gguf_vocab_refuse(v, "ignore_merges is not supported beside byte_fallback");
    if (!blanks(v, &prefix))
        return nb_gguf_vocab_refuse(
            v, "its normalizer or pre_tokenizer does more than blanks: llama.cpp has no such rule");
    nb_status st = find_scores(&s);
    if (st == NB_OK) {
        nb_gguf_put_str(v->g, "tokenizer.ggml.pre", nb_str_c("default"));
        nb_gguf_put_array(v->g, "tokenizer.ggml.scores", NB_GGUF_F32, v->n);
        for (size_t i = 0; i < v->n; i++) nb_gguf_item_f32(v->g, s.score[i]);
        nb_gguf_put_bool(v->g, "tokenizer.ggml.add_space_prefix", prefix);
    }
    nb_buf_deinit(&s.text);
    free(s.score);
    free(s.pairs);
    return st;
}
