/* vocab.c - see vocab.h. */
#include "grammar/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* Code points of a text that any JSON string may contain as it is; 0: it is no such text. */
static size_t plain_points(nb_str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n_bytes; n++) {
        uint32_t cp;
        const int k = nb_utf8_decode(s.p + i, s.n_bytes - i, &cp);
        if (k <= 0 || cp < 0x20 || cp == '"' || cp == '\\') return 0;
        i += (size_t)k;
    }
    return n;
}

typedef struct entry {
    nb_str s;
    uint32_t id, points; /* points: UINT32_MAX when it is no text of a string */
} entry;

static int by_bytes(const void *x, const void *y)
{
    const entry *a = x, *b = y;
    const size_t n = a->s.n_bytes < b->s.n_bytes ? a->s.n_bytes : b->s.n_bytes;
    const int c = memcmp(a->s.p, b->s.p, n);
    if (c) return c;
    if (a->s.n_bytes != b->s.n_bytes) return a->s.n_bytes < b->s.n_bytes ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Writes the subtree of list[lo, hi), which share `depth` bytes, at out; returns its size.  With out
 * NULL it only counts.  Recursion is as deep as the longest token. */
static size_t build(const entry *list, size_t lo, size_t hi, size_t depth, nb_trie_node *out)
{
    size_t n = 0;
    while (lo < hi) {
        const unsigned char byte = (unsigned char)list[lo].s.p[depth];
        size_t end = lo + 1;
        while (end < hi && (unsigned char)list[end].s.p[depth] == byte) end++;
        size_t deeper = lo; /* first that is longer */
        while (deeper < end && list[deeper].s.n_bytes == depth + 1) deeper++;
        const size_t twins = deeper - lo;
        for (size_t t = 1; t < twins; t++, n++)
            if (out) out[n] = (nb_trie_node){ 1u << 8 | byte, list[lo + t].id };
        const size_t below = build(list, deeper, end, depth + 1, out ? out + n + 1 : NULL);
        if (out)
            out[n] = (nb_trie_node){ (uint32_t)(below + 1) << 8 | byte,
                                     twins ? list[lo].id : NB_GRAMMAR_NO_TOKEN };
        n += below + 1;
        lo = end;
    }
    return n;
}

static bool build_trie(nb_trie *t, const entry *list, size_t n)
{
    t->n_node = build(list, 0, n, 0, NULL);
    t->node = calloc(t->n_node + 1, sizeof *t->node);
    if (!t->node) return false;
    (void)build(list, 0, n, 0, t->node);
    return true;
}

/* The trees and the sets of plain tokens; list[n] is sorted. */
static bool build_all(nb_vocab *v, entry *list, size_t n)
{
    v->plain = calloc((NB_VOCAB_POINTS + 1) * v->n_word, sizeof *v->plain);
    if (!v->plain || !build_trie(&v->whole, list, n)) return false;
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        const entry e = list[i];
        if (e.points == UINT32_MAX) {
            list[m++] = e;
            continue;
        }
        const size_t k = e.points < NB_VOCAB_POINTS ? e.points : NB_VOCAB_POINTS;
        v->plain[k * v->n_word + (e.id >> 6)] |= 1ull << (e.id & 63);
    }
    for (size_t i = v->n_word; i < (NB_VOCAB_POINTS + 1) * v->n_word; i++)
        v->plain[i] |= v->plain[i - v->n_word];
    return build_trie(&v->rest, list, m);
}

static int longest_first(const void *x, const void *y)
{
    const nb_marker *a = x, *b = y;
    if (a->text.n_bytes != b->text.n_bytes) return a->text.n_bytes > b->text.n_bytes ? -1 : 1;
    return a->id < b->id ? -1 : a->id > b->id;
}

/* Copies all texts; *list gets the tokens that bytes reach. */
static bool collect(nb_vocab *v, nb_vocab_fn *token, const void *ctx, entry *list, size_t *n_list)
{
    size_t total = 0, n_marker = 0, at = 0, n = 0;
    for (uint32_t id = 0; id < v->n_vocab; id++) {
        const nb_vocab_token t = token(ctx, id);
        total += t.text.n_bytes;
        n_marker += t.marker && t.text.n_bytes;
    }
    v->bytes = malloc(total + 1);
    v->marker = calloc(n_marker + 1, sizeof *v->marker);
    if (!v->bytes || !v->marker) return false;
    for (uint32_t id = 0; id < v->n_vocab; id++) {
        const nb_vocab_token t = token(ctx, id);
        if (!t.text.n_bytes) continue;
        const nb_str s = { v->bytes + at, t.text.n_bytes };
        memcpy(v->bytes + at, t.text.p, t.text.n_bytes);
        at += t.text.n_bytes;
        v->all[id >> 6] |= 1ull << (id & 63);
        if (t.marker) {
            v->marker[v->n_marker++] = (nb_marker){ s, id };
            continue;
        }
        v->text[id] = s;
        if (s.n_bytes > v->max_token) v->max_token = s.n_bytes;
        const size_t points = plain_points(s);
        list[n++] = (entry){ s, id, points ? (uint32_t)points : UINT32_MAX };
    }
    qsort(v->marker, v->n_marker, sizeof *v->marker, longest_first);
    *n_list = n;
    return true;
}

nb_status nb_vocab_create(nb_vocab_fn *token, const void *ctx, size_t n_vocab, nb_vocab **out,
                          nb_error *err)
{
    if (n_vocab == 0 || n_vocab >= 1u << 24)
        return nb_fail(err, NB_ERR_RANGE, "vocabulary of %zu tokens: expected 1..%u", n_vocab,
                       (1u << 24) - 1);
    nb_vocab *v = calloc(1, sizeof *v);
    entry *list = calloc(n_vocab, sizeof *list);
    bool ok = v && list;
    size_t n = 0;
    if (ok) {
        v->n_vocab = n_vocab;
        v->n_word = (n_vocab + 63) / 64;
        v->text = calloc(n_vocab, sizeof *v->text);
        v->all = calloc(v->n_word, sizeof *v->all);
        ok = v->text && v->all && collect(v, token, ctx, list, &n);
    }
    if (ok) qsort(list, n, sizeof *list, by_bytes);
    ok = ok && build_all(v, list, n);
    free(list);
    if (!ok) {
        nb_vocab_destroy(v);
        return nb_fail(err, NB_ERR_NOMEM, "no memory for the tree of %zu tokens", n_vocab);
    }
    *out = v;
    return NB_OK;
}

void nb_vocab_destroy(nb_vocab *v)
{
    if (!v) return;
    free(v->plain);
    free(v->whole.node);
    free(v->rest.node);
    free(v->text);
    free(v->bytes);
    free(v->all);
    free(v->marker);
    free(v);
}

size_t nb_vocab_size(const nb_vocab *v)
{
    return v->n_vocab;
}

size_t nb_vocab_mask_words(const nb_vocab *v)
{
    return v->n_word;
}

uint32_t nb_vocab_marker(const nb_vocab *v, nb_str text)
{
    for (size_t i = 0; i < v->n_marker; i++)
        if (nb_str_eq(v->marker[i].text, text)) return v->marker[i].id;
    return NB_GRAMMAR_NO_TOKEN;
}

bool nb_vocab_is_marker(const nb_vocab *v, uint32_t id)
{
    return id < v->n_vocab && v->text[id].n_bytes == 0 && (v->all[id >> 6] >> (id & 63) & 1);
}
