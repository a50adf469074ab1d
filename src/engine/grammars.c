/* grammars.c - nb_grammar_compile: a text's vocabulary as grammars see it, and the grammars that were
 * compiled lately, found again by the SHA-256 of their specification.
 *
 * Agents send the same tools with each request.  The cache holds a reference to each of its grammars;
 * what was not used for longest goes first. */
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"

enum { MAX_BYTES = 64 << 20, MAX_CACHED = 256, KEY_BYTES = 32 };

typedef struct cached {
    unsigned char key[KEY_BYTES];
    nb_grammar *g;
    size_t bytes;
    uint64_t used;
} cached;

struct nb_grammars {
    const nb_tokenizer *tok;
    nb_mutex *lock; /* of all below */
    nb_vocab *vocab;
    cached entry[MAX_CACHED];
    size_t n, bytes;
    uint64_t clock;
};

nb_status nb_grammars_create(const nb_tokenizer *tok, nb_grammars **out, nb_error *err)
{
    nb_grammars *c = calloc(1, sizeof *c);
    if (!c || nb_mutex_create(&c->lock) != NB_OK) {
        free(c);
        return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    }
    c->tok = tok;
    *out = c;
    return NB_OK;
}

void nb_grammars_destroy(nb_grammars *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n; i++) nb_grammar_unref(c->entry[i].g);
    nb_vocab_destroy(c->vocab);
    nb_mutex_destroy(c->lock);
    free(c);
}

static nb_vocab_token token(const void *ctx, uint32_t id)
{
    return (nb_vocab_token){ nb_tokenizer_token_bytes(ctx, id), nb_tokenizer_is_control(ctx, id) };
}

nb_status nb_grammars_vocab(nb_grammars *c, const nb_vocab **out, nb_error *err)
{
    nb_status st = NB_OK;
    nb_mutex_lock(c->lock);
    if (!c->vocab)
        st = nb_vocab_create(token, c->tok, nb_tokenizer_n_vocab(c->tok), &c->vocab, err);
    *out = c->vocab;
    nb_mutex_unlock(c->lock);
    return st;
}

/* ---- the cache ---- */

/* Everything that a grammar depends on. */
static bool key_of(const nb_grammar_spec *s, unsigned char key[KEY_BYTES])
{
    const unsigned char head[3] = { (unsigned char)s->kind, s->relaxed, s->compact };
    const char *const texts[] = { s->after, s->thought_open, s->thought_close };
    unsigned n = 0;
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    bool ok = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) == 1 &&
              EVP_DigestUpdate(ctx, head, sizeof head) == 1;
    for (size_t i = 0; ok && i < NB_COUNT(texts); i++) { /* with the end of each */
        const char *p = texts[i] ? texts[i] : "";
        ok = EVP_DigestUpdate(ctx, p, strlen(p) + 1) == 1;
    }
    ok = ok && (s->text_bytes == 0 || EVP_DigestUpdate(ctx, s->text, s->text_bytes) == 1) &&
         EVP_DigestFinal_ex(ctx, key, &n) == 1 && n == KEY_BYTES;
    EVP_MD_CTX_free(ctx);
    return ok;
}

/* With the lock: a new reference, or NULL. */
static nb_grammar *look_up(nb_grammars *c, const unsigned char *key)
{
    for (size_t i = 0; i < c->n; i++) {
        if (memcmp(c->entry[i].key, key, KEY_BYTES) != 0) continue;
        c->entry[i].used = ++c->clock;
        return nb_grammar_ref(c->entry[i].g);
    }
    return NULL;
}

static void drop_oldest(nb_grammars *c)
{
    size_t k = 0;
    for (size_t i = 1; i < c->n; i++)
        if (c->entry[i].used < c->entry[k].used) k = i;
    c->bytes -= c->entry[k].bytes;
    nb_grammar_unref(c->entry[k].g);
    c->entry[k] = c->entry[--c->n];
}

/* With the lock. */
static void remember(nb_grammars *c, const unsigned char *key, nb_grammar *g)
{
    const size_t bytes = nb_grammar_bytes(g);
    nb_grammar *have = look_up(c, key); /* another thread was faster */
    if (have || bytes > MAX_BYTES / 4) {
        nb_grammar_unref(have);
        return;
    }
    while (c->n && (c->n == MAX_CACHED || c->bytes + bytes > MAX_BYTES)) drop_oldest(c);
    cached *e = &c->entry[c->n++];
    memcpy(e->key, key, KEY_BYTES);
    e->g = nb_grammar_ref(g);
    e->bytes = bytes;
    e->used = ++c->clock;
    c->bytes += bytes;
}

nb_status nb_grammar_compile(const nb_text *t, const nb_grammar_spec *spec, nb_grammar **out,
                             nb_error *err)
{
    nb_grammars *c = nb_text_grammars(t);
    const nb_vocab *v;
    unsigned char key[KEY_BYTES];
    NB_TRY(nb_grammars_vocab(c, &v, err));
    const bool keyed = key_of(spec, key);
    nb_mutex_lock(c->lock);
    nb_grammar *g = keyed ? look_up(c, key) : NULL;
    nb_mutex_unlock(c->lock);
    if (!g) {
        NB_TRY(nb_grammar_build(v, spec, &g, err));
        nb_mutex_lock(c->lock);
        if (keyed) remember(c, key, g);
        nb_mutex_unlock(c->lock);
    }
    *out = g;
    return NB_OK;
}
