/* refill.c - see refill.h.
 *
 * Texts are a list; the one in hand is its head.  Keys are made when a text is first looked at, in
 * idle time: they say which of its blocks are in the cache already. */
#include "sched/refill.h"

#include <math.h>
#include <stdlib.h>

#include "sched/sched_internal.h"
#include "sched/sched_look.h"

typedef struct text {
    struct text *next;
    uint32_t *tok; /* [n_tok], whole blocks */
    size_t n_tok, n_prompt, n_expanded, n_upload, rope_from;
    nb_block_key root, *key; /* [n_tok / 64], or NULL: not looked at yet */
} text;

struct nb_refill {
    nb_refill_options o;
    nb_sched *s;
    nb_kv_cache *kv;
    text *head, *tail;
    bool active; /* the head is in the scheduler */
    nb_refill_stats stat;
};

static void free_text(text *t)
{
    free(t->tok);
    free(t->key);
    free(t);
}

/* Takes out *at, whose predecessor is prev (NULL: it is the head). */
static void unlink_text(nb_refill *f, text *prev, text *t)
{
    *(prev ? &prev->next : &f->head) = t->next;
    if (f->tail == t) f->tail = prev;
    f->stat.n_text--;
    f->stat.n_waiting_tok -= t->n_tok;
    free_text(t);
}

/* Out of the scheduler; what was computed stays in the cache. */
static void stop(nb_refill *f)
{
    if (f->active) nb_sched_remove(f->s, NB_REFILL_ID);
    f->active = false;
}

static void leave(nb_refill *f, uint64_t *counter)
{
    stop(f);
    ++*counter;
    unlink_text(f, NULL, f->head);
}

nb_status nb_refill_create(const nb_refill_options *o, nb_sched *s, nb_kv_cache *kv,
                           nb_refill **out, nb_error *err)
{
    if (o->chunk_tok == 0 || o->chunk_tok % NB_BLOCK_TOK || !(o->quiet_s >= 0))
        return nb_fail(err, NB_ERR_ARG,
                       "refills: chunks of %zu tokens after %g s; expected a multiple of %d, and 0 "
                       "or more",
                       o->chunk_tok, o->quiet_s, NB_BLOCK_TOK);
    nb_refill *f = calloc(1, sizeof *f);
    if (!f) return nb_fail(err, NB_ERR_NOMEM, "refills: out of memory");
    *f = (nb_refill){ .o = *o, .s = s, .kv = kv };
    *out = f;
    return NB_OK;
}

void nb_refill_destroy(nb_refill *f)
{
    if (!f) return;
    nb_refill_clear(f);
    free(f);
}

/* ---- queue ---- */

static nb_status make_text(const nb_refill_text *q, text **out)
{
    text *t = calloc(1, sizeof *t);
    if (!t) return NB_ERR_NOMEM;
    *t = (text){ .n_tok = q->n_tok / NB_BLOCK_TOK * NB_BLOCK_TOK,
                 .n_prompt = q->n_prompt,
                 .n_expanded = q->n_expanded,
                 .n_upload = q->n_upload,
                 .rope_from = q->rope_from };
    t->tok = malloc(t->n_tok * sizeof *t->tok);
    const nb_status st = t->tok ? nb_block_key_root(q->salt, &t->root) : NB_ERR_NOMEM;
    if (st != NB_OK) {
        free_text(t);
        return st;
    }
    memcpy(t->tok, q->tok, t->n_tok * sizeof *t->tok);
    *out = t;
    return NB_OK;
}

nb_status nb_refill_add(nb_refill *f, const nb_refill_text *q)
{
    text *t = NULL;
    if (q->n_tok / NB_BLOCK_TOK <= q->n_prompt / NB_BLOCK_TOK) return NB_OK;
    const nb_status st =
        q->n_tok > f->o.max_tok || f->o.max_text == 0 ? NB_ERR_LIMIT : make_text(q, &t);
    if (st != NB_OK) {
        f->stat.n_dropped++;
        return st;
    }
    while (f->head && (f->stat.n_text >= f->o.max_text ||
                       f->stat.n_waiting_tok + t->n_tok > f->o.max_tok))
        leave(f, &f->stat.n_dropped);
    *(f->tail ? &f->tail->next : &f->head) = t;
    f->tail = t;
    f->stat.n_text++;
    f->stat.n_waiting_tok += t->n_tok;
    return NB_OK;
}

void nb_refill_yield(nb_refill *f, const uint32_t *tok, size_t n_tok, nb_str salt)
{
    nb_block_key root;
    stop(f);
    if (!f->head || nb_block_key_root(salt, &root) != NB_OK) return;
    for (text *t = f->head, *prev = NULL, *next; t; t = next) {
        next = t->next;
        if (t->n_tok <= n_tok && memcmp(&t->root, &root, sizeof root) == 0 &&
            memcmp(t->tok, tok, t->n_tok * sizeof *tok) == 0) {
            f->stat.n_dropped++;
            unlink_text(f, prev, t);
        } else {
            prev = t;
        }
    }
}

void nb_refill_drop(nb_refill *f)
{
    if (f->active) leave(f, &f->stat.n_dropped);
}

void nb_refill_clear(nb_refill *f)
{
    while (f->head) leave(f, &f->stat.n_dropped);
}

/* ---- computing ---- */

static nb_status make_keys(text *t)
{
    const size_t n = t->n_tok / NB_BLOCK_TOK;
    if (t->key) return NB_OK;
    nb_block_key *key = malloc(n * sizeof *key);
    if (!key) return NB_ERR_NOMEM;
    for (size_t b = 0; b < n; b++) {
        const nb_status st = nb_block_key_next(
            b ? &key[b - 1] : &t->root, t->tok + b * NB_BLOCK_TOK,
            nb_sched_form(t->n_expanded, t->n_upload, b), nb_sched_mark(t->rope_from, b), &key[b]);
        if (st != NB_OK) {
            free(key);
            return st;
        }
    }
    t->key = key;
    return NB_OK;
}

static size_t n_found(const nb_refill *f, const text *t)
{
    size_t n = 0;
    while (n < t->n_tok / NB_BLOCK_TOK && nb_kv_cache_find(f->kv, &t->key[n]) != NB_BLOCK_NONE) n++;
    return n;
}

/* All blocks are there, and the next turn can go on from the last one. */
static bool is_there(const nb_refill *f, const text *t, size_t n)
{
    const size_t n_all = t->n_tok / NB_BLOCK_TOK;
    return n == n_all &&
           (!f->s->o.snap_tok ||
            nb_kv_snap_of(f->kv, nb_kv_cache_find(f->kv, &t->key[n - 1])) != NB_SNAP_NONE);
}

static nb_status start_head(nb_refill *f)
{
    const text *t = f->head;
    const nb_sched_request rq = { .id = NB_REFILL_ID,
                                  .prompt = t->tok,
                                  .n_prompt = t->n_tok,
                                  .n_expanded = t->n_expanded,
                                  .n_upload = t->n_upload,
                                  .rope_from = t->rope_from,
                                  .max_item_tok = f->o.chunk_tok,
                                  .deadline = (double)INFINITY,
                                  .key = t->key,
                                  .n_key = t->n_tok / NB_BLOCK_TOK,
                                  .background = true };
    return nb_sched_add(f->s, &rq, 0, NULL);
}

bool nb_refill_start(nb_refill *f, double idle_s)
{
    nb_sched_stats s;
    nb_sched_get_stats(f->s, &s);
    if (f->active || s.n_running + s.n_waiting || !(idle_s >= f->o.quiet_s)) return false;
    while (f->head) {
        text *t = f->head;
        const bool have_keys = make_keys(t) == NB_OK;
        const size_t n = have_keys ? n_found(f, t) : 0;
        if (have_keys && is_there(f, t, n))
            leave(f, &f->stat.n_done);
        else if (!have_keys || n < t->n_prompt / NB_BLOCK_TOK || start_head(f) != NB_OK)
            leave(f, &f->stat.n_dropped);
        else
            return f->active = true;
    }
    return false;
}

nb_status nb_refill_computed(nb_refill *f)
{
    nb_sched_look_at before, after;
    if (!f->active || !nb_sched_look(f->s, NB_REFILL_ID, &before)) return NB_ERR_ARG;
    const nb_status st = nb_sched_computed(f->s, NB_REFILL_ID);
    if (st != NB_OK) {
        nb_refill_drop(f);
        return st;
    }
    (void)nb_sched_look(f->s, NB_REFILL_ID, &after);
    f->stat.n_tok += after.n_computed - before.n_computed;
    if (after.n_computed == after.n_known) leave(f, &f->stat.n_done);
    return NB_OK;
}

bool nb_refill_active(const nb_refill *f)
{
    return f->active;
}

void nb_refill_get_stats(const nb_refill *f, nb_refill_stats *out)
{
    nb_sched_look_at v;
    *out = f->stat;
    if (f->active && nb_sched_look(f->s, NB_REFILL_ID, &v)) out->n_waiting_tok -= v.n_computed;
}

const char *nb_refill_check(const nb_refill *f)
{
    size_t n = 0, n_tok = 0;
    nb_sched_stats s;
    nb_sched_look_at v;
    const text *last = NULL;
    for (const text *t = f->head; t; last = t, t = t->next) {
        if (++n > f->stat.n_text) return "refills: more than their count";
        if (t->n_tok == 0 || t->n_tok % NB_BLOCK_TOK || t->n_prompt >= t->n_tok)
            return "refills: a text of a wrong length";
        n_tok += t->n_tok;
    }
    if (n != f->stat.n_text || last != f->tail) return "refills: fewer than their count";
    if (n_tok != f->stat.n_waiting_tok) return "refills: wrong number of tokens";
    if (n > f->o.max_text || n_tok > f->o.max_tok) return "refills: more than are allowed";
    if (nb_sched_look(f->s, NB_REFILL_ID, &v) != f->active)
        return "refills: one is in the scheduler and is not, or the reverse";
    nb_sched_get_stats(f->s, &s);
    return f->active && s.n_running + s.n_waiting ? "refills: one runs beside a request" : NULL;
}
