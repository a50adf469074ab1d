/* replay_cache.c - requests one after the other through caches of several sizes; see replay.h. */
#include <math.h>
#include <stdlib.h>

#include "capacity/replay.h"

/* ---- an endless cache: which blocks were ever seen ---- */

enum { MAX_SEEN = 1 << 26 };

/* The first 8 bytes of SHA-256 stand for a key: this is a count, and serves no request. */
typedef struct seen {
    uint64_t *slot; /* [mask + 1] 0: empty */
    size_t mask, n;
    bool full;
} seen;

static uint64_t short_key(const nb_block_key *k)
{
    uint64_t v;
    memcpy(&v, k->b, sizeof v);
    return v ? v : 1;
}

static bool seen_has(const seen *s, uint64_t v)
{
    if (!s->slot) return false;
    for (size_t i = (size_t)v & s->mask; s->slot[i]; i = (i + 1) & s->mask)
        if (s->slot[i] == v) return true;
    return false;
}

static void seen_put(seen *s, uint64_t v)
{
    size_t i = (size_t)v & s->mask;
    while (s->slot[i]) i = (i + 1) & s->mask;
    s->slot[i] = v;
    s->n++;
}

static nb_status seen_grow(seen *s)
{
    const seen old = *s;
    s->mask = old.slot ? 2 * old.mask + 1 : 4095;
    s->slot = calloc(s->mask + 1, sizeof *s->slot);
    if (!s->slot) {
        *s = old;
        return NB_ERR_NOMEM;
    }
    s->n = 0;
    for (size_t i = 0; old.slot && i <= old.mask; i++)
        if (old.slot[i]) seen_put(s, old.slot[i]);
    free(old.slot);
    return NB_OK;
}

/* Leading blocks that were seen; the others are from now on. */
static nb_status seen_play(seen *s, const nb_mix_req *r, size_t n_find, size_t *n_hit)
{
    size_t n = 0;
    *n_hit = 0;
    if (s->full) return NB_OK;
    while (n < r->n_key && seen_has(s, short_key(&r->key[n]))) n++;
    *n_hit = n < n_find ? n : n_find;
    for (; n < r->n_key; n++) {
        const uint64_t v = short_key(&r->key[n]);
        if (s->n == MAX_SEEN) s->full = true;
        if (s->full) return NB_OK;
        if (s->n * 2 >= s->mask) NB_TRY(seen_grow(s));
        if (!seen_has(s, v)) seen_put(s, v);
    }
    return NB_OK;
}

/* ---- times of requests ---- */

/* A median of any number of times in little memory: counts and sums of times whose binary logarithms share their
 * multiple of 1/64.  The median is the mean of its bin, which is 1.1 % wide. */
enum { BIN_PER_OCTAVE = 64, BIN_OCTAVE_LO = -24, BIN_OCTAVE_HI = 24 };
#define N_BIN (BIN_PER_OCTAVE * (BIN_OCTAVE_HI - BIN_OCTAVE_LO))

typedef struct times {
    uint64_t n[N_BIN];
    double sum_s[N_BIN], all_s;
} times;

static void times_add(times *t, double s)
{
    double at = s > 0 ? (log2(s) - BIN_OCTAVE_LO) * BIN_PER_OCTAVE : 0;
    if (!(at > 0)) at = 0;
    if (at > N_BIN - 1) at = N_BIN - 1;
    const size_t i = (size_t)at;
    t->n[i]++;
    t->sum_s[i] += s;
    t->all_s += s;
}

static void times_result(const times *t, uint64_t n, nb_replay_result *r)
{
    uint64_t below = 0;
    for (size_t i = 0; n && i < N_BIN; i++) {
        below += t->n[i];
        if (2 * below < n) continue;
        r->alone_p50_s = t->sum_s[i] / (double)t->n[i];
        r->alone_mean_s = t->all_s / (double)n;
        return;
    }
}

/* ---- one cache ---- */

/* *n_hit blocks are found, the others computed as far as there is room. */
static nb_status play(nb_kv_cache *c, const nb_mix_req *r, size_t n_find, uint32_t *block,
                      size_t *n_hit)
{
    size_t n = 0;
    for (; n < n_find; n++) {
        block[n] = n ? nb_kv_cache_find_next(c, block[n - 1], &r->key[n])
                     : nb_kv_cache_find(c, &r->key[n]);
        if (block[n] == NB_BLOCK_NONE) break;
        nb_kv_cache_hold(c, block[n], true);
    }
    *n_hit = n;
    for (; n < r->n_key; n++) {
        if (nb_kv_cache_acquire(c, &block[n]) != NB_OK)
            break; /* the prompt is longer than the cache */
        block[n] = nb_kv_cache_publish(c, block[n], &r->key[n], n ? block[n - 1] : NB_BLOCK_NONE);
    }
    nb_kv_cache_release(c, block, n);
    return NB_OK;
}

typedef struct player {
    nb_mix *mix;
    const nb_replay_point *point; /* [n_point] */
    nb_kv_cache **cache;          /* [n_point] */
    times **times;                /* [n_point] NULL: without a clock */
    uint32_t *block;
    size_t cap_block;
    seen seen;
    nb_replay_result sum; /* what is the same for all */
} player;

static nb_status play_all(player *p, size_t n_point, nb_replay_result *result, nb_error *err)
{
    nb_mix_req r;
    bool more;
    for (;;) {
        NB_TRY(nb_mix_next(p->mix, &r, &more, err));
        if (!more) return NB_OK;
        const size_t n_full = (r.n_in - 1) / NB_BLOCK_TOK;
        const size_t n_find = n_full < r.n_key ? n_full : r.n_key;
        size_t n_hit;
        nb_status st = NB_GROW(p->block, p->cap_block, r.n_key);
        if (st == NB_OK) st = seen_play(&p->seen, &r, n_find, &n_hit);
        if (st != NB_OK) return nb_fail(err, st, "replay: %s", nb_status_text(st));
        p->sum.n_ceiling_tok += n_hit * NB_BLOCK_TOK;
        p->sum.n_request++;
        p->sum.n_in_tok += r.n_in;
        p->sum.n_out_tok += r.n_out;
        p->sum.duration_s = r.t_s;
        for (size_t i = 0; i < n_point; i++) {
            NB_TRY(play(p->cache[i], &r, n_find, p->block, &n_hit));
            n_hit *= NB_BLOCK_TOK;
            result[i].n_hit_tok += n_hit;
            if (p->times[i])
                times_add(p->times[i], nb_clock_prompt_s(p->point[i].clock, r.n_in - n_hit, n_hit));
        }
    }
}

static nb_status setup(player *p, size_t n_point, nb_error *err)
{
    p->cache = calloc(n_point + 1, sizeof(nb_kv_cache *));
    p->times = calloc(n_point + 1, sizeof(times *));
    if (!p->cache || !p->times) return nb_fail(err, NB_ERR_NOMEM, "replay: out of memory");
    for (size_t i = 0; i < n_point; i++) {
        const nb_replay_point *at = &p->point[i];
        const nb_kv_cache_options o = { .n_block = at->n_block,
                                        .index = true,
                                        .protected_share = at->protected_share,
                                        .evict = at->evict };
        NB_TRY(nb_kv_cache_create(&o, &p->cache[i], err));
        if (!at->clock) continue;
        NB_TRY(nb_clock_check(at->clock, err));
        p->times[i] = calloc(1, sizeof(times));
        if (!p->times[i]) return nb_fail(err, NB_ERR_NOMEM, "replay: out of memory");
    }
    return NB_OK;
}

nb_status nb_replay_cache(const nb_mix_options *mix, const nb_replay_point *point, size_t n_point,
                          nb_replay_result *result, nb_error *err)
{
    player p = { .point = point };
    nb_status st = nb_mix_create(mix, &p.mix, err);
    if (st != NB_OK) return st;
    for (size_t i = 0; i < n_point; i++) result[i] = (nb_replay_result){ 0 };
    NB_TRY_OUT(setup(&p, n_point, err));
    NB_TRY_OUT(play_all(&p, n_point, result, err));
    for (size_t i = 0; i < n_point; i++) {
        nb_kv_cache_stats s;
        const uint64_t n_hit = result[i].n_hit_tok;
        nb_kv_cache_get_stats(p.cache[i], &s);
        result[i] = p.sum;
        result[i].n_hit_tok = n_hit;
        result[i].n_evicted = s.n_evicted;
        result[i].n_skipped = nb_mix_n_skipped(p.mix);
        result[i].n_session = nb_mix_n_opened(p.mix);
        if (p.times[i]) times_result(p.times[i], p.sum.n_request, &result[i]);
        if (p.seen.full) result[i].n_ceiling_tok = UINT64_MAX;
    }
out:
    for (size_t i = 0; p.cache && i < n_point; i++) nb_kv_cache_destroy(p.cache[i]);
    for (size_t i = 0; p.times && i < n_point; i++) free(p.times[i]);
    nb_mix_destroy(p.mix);
    free(p.cache);
    free(p.times);
    free(p.block);
    free(p.seen.slot);
    return st;
}
