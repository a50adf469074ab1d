/* tok_score.c - merges from the scores of a SentencePiece vocabulary.
 *
 * SentencePiece merges two neighbours if together they are a token, the one with the highest score first
 * and the leftmost of equal ones.  That is BPE with a merge for every way to cut a token into two
 * tokens, whose rank is the place of the token's score among all scores. */
#include <stdlib.h>

#include "text/tok_internal.h"

#define WHERE "tokenizer.json: model.scores"

typedef struct scored {
    double score;
    uint32_t id;
} scored;

static int best_first(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static uint32_t find(const nb_tokenizer *t, const char *p, size_t n_bytes)
{
    const nb_tok_slot *s = nb_tok_map_get(&t->keys, t->key, &t->blob, p, n_bytes);
    return s ? s->value : NB_TOK_NONE;
}

static nb_status add_cuts(nb_tokenizer *t, uint32_t id, uint32_t rank, nb_error *err)
{
    const nb_str s = nb_tok_bytes(t, t->key[id]);
    for (size_t cut = 1; cut < s.n_bytes; cut++) {
        if (((unsigned char)s.p[cut] & 0xc0) == 0x80) continue; /* inside of a character */
        const uint32_t a = find(t, s.p, cut);
        if (a == NB_TOK_NONE) continue;
        const uint32_t b = find(t, s.p + cut, s.n_bytes - cut);
        if (b == NB_TOK_NONE) continue;
        const nb_status st = nb_tok_merges_put(&t->merges, a, b, rank, id);
        if (st != NB_OK) return nb_fail(err, st, WHERE ": %s", nb_status_text(st));
    }
    return NB_OK;
}

nb_status nb_tok_load_scores(nb_tokenizer *t, const json_t *scores, nb_error *err)
{
    const size_t n = json_array_size(scores);
    if (t->byte_level || n < t->n_ids)
        return nb_fail(err, NB_ERR_FORMAT,
                       WHERE ": expected a list with a number or null for each of %zu ids",
                       t->n_ids);
    scored *x = malloc((n ? n : 1) * sizeof *x);
    if (!x) return nb_fail(err, NB_ERR_NOMEM, WHERE ": out of memory");
    size_t m = 0;
    for (size_t i = 0; i < t->n_ids; i++) {
        const json_t *v = json_array_get(scores, i);
        if (json_is_number(v) && (t->flags[i] & NB_TF_MODEL))
            x[m++] = (scored){ json_number_value(v), (uint32_t)i };
    }
    qsort(x, m, sizeof *x, best_first);
    nb_status st = NB_OK;
    uint32_t rank = 0;
    for (size_t i = 0; i < m && st == NB_OK; i++) {
        if (i && x[i].score != x[i - 1].score) rank++;
        st = add_cuts(t, x[i].id, rank, err);
    }
    free(x);
    return st;
}
