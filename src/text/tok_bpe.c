/* tok_bpe.c - byte-pair merging of one piece.
 *
 * The merge with the lowest rank goes first, the leftmost of equal ones before
 * the others.  Three ways to the same result:
 *   - the whole piece is a token that merging is known to reach (checked once
 *     for every token when the tokenizer is made): one look-up;
 *   - up to SHORT characters: scan for the lowest rank after each merge;
 *   - longer: a linked list and a binary heap of candidates, so that a piece of
 *     n characters costs O(n log n).  An outdated candidate is recognised when
 *     it is taken out: its place was merged away, or the pair there now makes
 *     another token. */
#include <stdlib.h>

#include "text/tok_internal.h"

enum { SHORT = 48 };

void nb_tok_enc_deinit(nb_tok_enc *e)
{
    free(e->init);
    free(e->sym);
    free(e->heap);
    nb_tok_regex_run_deinit(&e->run);
}

static inline const nb_tok_merge *merge_of(const nb_tok_enc *e, uint32_t left, uint32_t right)
{
    const nb_tok_merge *m = nb_tok_merges_get(&e->t->merges, left, right);
    if (m && e->guard && e->t->merges_make_control && (e->t->flags[m->id] & NB_TF_CONTROL))
        return NULL;
    return m;
}

static nb_status unknown(const nb_tok_enc *e)
{
    return nb_fail(e->err, NB_ERR_FORMAT,
                   "a character has no token, and unk_token is not in the vocabulary");
}

static bool fallback_bytes(const nb_tokenizer *t, const char *p, unsigned n, uint32_t *id)
{
    for (unsigned k = 0; k < n; k++)
        if ((id[k] = t->fallback_id[(unsigned char)p[k]]) == NB_TOK_NONE) return false;
    return true;
}

/* The characters of the piece as ids; a character without a token becomes its
 * byte tokens, else the unknown token, else nothing.  An unknown token waits
 * for the next known character, past byte tokens: that is how the reference
 * orders them.  id: at least one item per byte. */
static nb_status first_ids(const nb_tok_enc *e, nb_str piece, uint32_t *id, size_t *n_id)
{
    const nb_tokenizer *t = e->t;
    size_t n = 0;
    bool pending = false;
    for (size_t i = 0; i < piece.n_bytes;) {
        unsigned len = 1;
        uint32_t known;
        if (t->byte_level) {
            known = t->byte_id[(unsigned char)piece.p[i]];
        } else {
            len = nb_tok_char_bytes(piece.p + i);
            const nb_tok_slot *s = nb_tok_map_get(&t->keys, t->key, &t->blob, piece.p + i, len);
            known = s ? s->value : NB_TOK_NONE;
        }
        if (known != NB_TOK_NONE) {
            if (pending) id[n++] = t->unk_id;
            pending = false;
            id[n++] = known;
        } else if (t->byte_fallback && fallback_bytes(t, piece.p + i, len, id + n)) {
            n += len;
        } else if (t->has_unk) {
            if (t->unk_id == NB_TOK_NONE) return unknown(e);
            if (pending && !t->fuse_unk) id[n++] = t->unk_id;
            pending = true;
        }
        i += len;
    }
    if (pending) id[n++] = t->unk_id;
    *n_id = n;
    return NB_OK;
}

static nb_status merge_short(nb_tok_enc *e, uint32_t *id, size_t n)
{
    uint32_t rank[SHORT + 1], to[SHORT + 1];
    for (size_t i = 0; i < n; i++) {
        const nb_tok_merge *m = i + 1 < n ? merge_of(e, id[i], id[i + 1]) : NULL;
        rank[i] = m ? m->rank : UINT32_MAX;
        to[i] = m ? m->id : 0;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == UINT32_MAX) break;
        id[best] = to[best];
        n--;
        for (size_t i = best + 1; i < n; i++) {
            id[i] = id[i + 1];
            rank[i] = rank[i + 1];
            to[i] = to[i + 1];
        }
        for (size_t i = best ? best - 1 : 0; i <= best && i + 1 < n; i++) {
            const nb_tok_merge *m = merge_of(e, id[i], id[i + 1]);
            rank[i] = m ? m->rank : UINT32_MAX;
            to[i] = m ? m->id : 0;
        }
    }
    for (size_t i = 0; i < n; i++) NB_TRY(nb_tok_emit(e, id[i]));
    return NB_OK;
}

static nb_status heap_push(nb_tok_enc *e, uint32_t rank, uint32_t place, uint32_t id)
{
    NB_TRY(NB_GROW(e->heap, e->cap_heap, e->n_heap));
    const nb_bpe_entry x = { (uint64_t)rank << 32 | place, id };
    size_t i = e->n_heap++;
    while (i > 0 && e->heap[(i - 1) / 2].order > x.order) {
        e->heap[i] = e->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    e->heap[i] = x;
    return NB_OK;
}

static nb_bpe_entry heap_pop(nb_tok_enc *e)
{
    nb_bpe_entry *h = e->heap;
    const nb_bpe_entry top = h[0], x = h[--e->n_heap];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < e->n_heap; i = k) {
        if (k + 1 < e->n_heap && h[k + 1].order < h[k].order) k++;
        if (x.order <= h[k].order) break;
        h[i] = h[k];
    }
    h[i] = x;
    return top;
}

static nb_status push_pair(nb_tok_enc *e, uint32_t i)
{
    const nb_bpe_symbol *s = e->sym;
    if (i == NB_TOK_NONE || s[i].next == NB_TOK_NONE) return NB_OK;
    const nb_tok_merge *m = merge_of(e, s[i].id, s[s[i].next].id);
    return m ? heap_push(e, m->rank, i, m->id) : NB_OK;
}

static nb_status merge_long(nb_tok_enc *e, const uint32_t *id, size_t n)
{
    NB_TRY(NB_GROW(e->sym, e->cap_sym, n));
    nb_bpe_symbol *s = e->sym;
    for (size_t i = 0; i < n; i++)
        s[i] = (nb_bpe_symbol){ id[i], i ? (uint32_t)i - 1 : NB_TOK_NONE,
                                i + 1 < n ? (uint32_t)i + 1 : NB_TOK_NONE };
    e->n_heap = 0;
    for (size_t i = 0; i + 1 < n; i++) NB_TRY(push_pair(e, (uint32_t)i));
    while (e->n_heap) {
        const nb_bpe_entry top = heap_pop(e);
        const uint32_t i = (uint32_t)top.order;
        const uint32_t right = s[i].next;
        if (s[i].id == NB_TOK_NONE || right == NB_TOK_NONE) continue;
        const nb_tok_merge *m = merge_of(e, s[i].id, s[right].id);
        if (!m || m->id != top.id) continue;
        s[i].id = top.id;
        s[i].next = s[right].next;
        s[right].id = NB_TOK_NONE;
        if (s[i].next != NB_TOK_NONE) s[s[i].next].prev = i;
        NB_TRY(push_pair(e, s[i].prev));
        NB_TRY(push_pair(e, i));
    }
    for (uint32_t i = 0; n && i != NB_TOK_NONE; i = s[i].next) NB_TRY(nb_tok_emit(e, s[i].id));
    return NB_OK;
}

nb_status nb_bpe_merge(nb_tok_enc *e, nb_str piece)
{
    uint32_t local[SHORT + 1];
    size_t n;
    if (piece.n_bytes <= SHORT) {
        NB_TRY(first_ids(e, piece, local, &n));
        return merge_short(e, local, n);
    }
    if (piece.n_bytes > INT32_MAX)
        return nb_fail(e->err, NB_ERR_LIMIT, "a piece of %zu bytes, at most 2 GiB expected",
                       piece.n_bytes);
    NB_TRY(NB_GROW(e->init, e->cap_init, piece.n_bytes));
    NB_TRY(first_ids(e, piece, e->init, &n));
    if (n <= SHORT) return merge_short(e, e->init, n);
    return merge_long(e, e->init, n);
}

nb_status nb_bpe_piece(nb_tok_enc *e, nb_str piece)
{
    const nb_tokenizer *t = e->t;
    if (!piece.n_bytes) return NB_OK;
    if (piece.n_bytes <= t->max_key_bytes) {
        const nb_tok_slot *s = nb_tok_map_get(&t->keys, t->key, &t->blob, piece.p, piece.n_bytes);
        if (s && (s->meta & NB_SLOT_DIRECT) && !(e->guard && (s->meta & NB_SLOT_CONTROL)))
            return nb_tok_emit(e, s->value);
    }
    return nb_bpe_merge(e, piece);
}

nb_status nb_tok_build_direct(nb_tokenizer *t, nb_error *err)
{
    nb_tok_enc e = { .t = t };
    nb_status st = NB_OK;
    for (size_t i = 0; i < t->keys.n_slots && st == NB_OK; i++) {
        nb_tok_slot *s = &t->keys.slots[i];
        if (!s->meta) continue;
        if (t->flags[s->value] & NB_TF_CONTROL) s->meta |= NB_SLOT_CONTROL;
        if (t->ignore_merges) {
            s->meta |= NB_SLOT_DIRECT;
            continue;
        }
        e.n_ids = 0;
        st = nb_bpe_merge(&e, nb_tok_bytes(t, t->key[s->value]));
        if (st == NB_ERR_FORMAT) { /* an unknown character: not reachable */
            st = NB_OK;
            continue;
        }
        if (st == NB_OK && e.n_ids == 1 && e.ids[0] == s->value) s->meta |= NB_SLOT_DIRECT;
    }
    free(e.ids);
    nb_tok_enc_deinit(&e);
    return st == NB_OK ? st : nb_fail(err, st, "tokenizer: %s", nb_status_text(st));
}
