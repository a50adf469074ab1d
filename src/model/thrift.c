/* thrift.c - Thrift mode without the model: options, the choice of tokens, the pool of rows. */
#include "model/thrift.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/attr.h"
#include "num/record.h"

/* ---- options ---- */

#define DEFAULT_TAU 1e-3
#define DEFAULT_TOKENS 0.005
#define DEFAULT_BLOCKS 0.05
#define DEFAULT_POOL 0.02

static const char *const names[] = { "off", "token", "block-mean", "quest", "block-prob" };

const char *nb_thrift_name(nb_thrift_kind kind)
{
    return names[kind];
}

static nb_status share(const char *name, double v, double def, double *out, nb_error *err)
{
    if (!(v >= 0 && v <= 1)) /* not a number: neither */
        return nb_fail(err, NB_ERR_RANGE, "--kv-thrift-%s %g: expected 0 to 1", name, v);
    *out = v > 0 ? v : def;
    return NB_OK;
}

nb_status nb_thrift_parse(const char *kind, double tau, double fraction, double pool,
                          nb_thrift_options *out, nb_error *err)
{
    nb_thrift_options o = { 0 };
    size_t k = 0;
    while (kind && k < NB_COUNT(names) && strcmp(kind, names[k]) != 0) k++;
    if (k == NB_COUNT(names))
        return nb_fail(err, NB_ERR_ARG,
                       "--kv-thrift %s: expected off, token, block-mean, quest or block-prob",
                       kind);
    o.kind = (nb_thrift_kind)k;
    NB_TRY(share("tau", tau, DEFAULT_TAU, &o.tau, err));
    NB_TRY(share("fraction", fraction, o.kind == NB_THRIFT_TOKEN ? DEFAULT_TOKENS : DEFAULT_BLOCKS,
                 &o.fraction, err));
    NB_TRY(share("pool", pool, DEFAULT_POOL, &o.pool, err));
    *out = o;
    return NB_OK;
}

/* ---- the choice ---- */

size_t nb_thrift_token_cap(double fraction, size_t n)
{
    const double c = ceil(fraction * (double)n);
    return c < (double)n ? (size_t)c : n;
}

size_t nb_thrift_n_page(double fraction, size_t n)
{
    const double x = fraction * (double)n, below = floor(x), part = x - below;
    if (n == 0) return 0;
    size_t k = x < (double)n ? (size_t)below : n;
    if (k < n && (part > 0.5 || (part == 0.5 && k % 2))) k++;
    return k ? k : 1;
}

float nb_thrift_lse(const float *s, size_t n)
{
    float max = -INFINITY;
    double sum = 0;
    bool nan = false;
    for (size_t i = 0; i < n; i++) {
        if (s[i] > max) max = s[i];
        nan |= s[i] != s[i];
    }
    if (nan) return NAN;
    if (max == -INFINITY || max == INFINITY) return max;
    for (size_t i = 0; i < n; i++)
        if (s[i] - max > -40.0f) sum += (double)expf(s[i] - max);
    return (float)((double)max + log(sum));
}

/* A float's place in the order of all that are no NaN; -0 and +0 are one. */
static uint32_t order_of(float x)
{
    uint32_t u;
    x += 0.0f;
    memcpy(&u, &x, sizeof u);
    return u >> 31 ? ~u : u | 0x80000000u;
}

/* The cap-th largest key (cap >= 1) of those above: a byte at a time, from the top. *n_equal: how
 * many of this key are among the cap largest. */
static uint32_t last_taken(const float *x, size_t n, double above, size_t cap, size_t *n_equal)
{
    uint32_t key = 0, known = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        size_t count[256] = { 0 };
        for (size_t i = 0; i < n; i++) {
            if (!((double)x[i] > above)) continue;
            const uint32_t k = order_of(x[i]);
            if ((k & known) == key) count[k >> shift & 255]++;
        }
        uint32_t b = 255;
        while (count[b] < cap) cap -= count[b--];
        key |= b << shift;
        known |= 255u << shift;
    }
    *n_equal = cap;
    return key;
}

size_t nb_thrift_choose(const float *x, size_t n, double above, size_t cap, uint32_t *out,
                        size_t *n_over)
{
    size_t n_above = 0, n_out = 0, n_equal = 0;
    for (size_t i = 0; i < n; i++) n_above += (double)x[i] > above;
    *n_over = n_above > cap ? n_above - cap : 0;
    if (cap == 0 || n_above == 0) return 0;
    const uint32_t key = n_above > cap ? last_taken(x, n, above, cap, &n_equal) : 0;
    for (size_t i = 0; i < n; i++) {
        if (!((double)x[i] > above)) continue;
        const uint32_t k = order_of(x[i]);
        if (n_above > cap && (k < key || (k == key && n_equal == 0))) continue;
        if (n_above > cap && k == key) n_equal--;
        out[n_out++] = (uint32_t)i;
    }
    return n_out;
}

/* ---- the pool ----
 *
 * Slots in one list by last use and in chains of a hash table; indices instead of pointers, NONE
 * ends. */

#define NONE UINT32_MAX

typedef struct slot {
    uint64_t key, round; /* last used in this round */
    uint32_t chain, newer, older;
} slot;

struct nb_thrift_pool {
    size_t n_slot, n_used, row_bytes;
    uint32_t newest, oldest, free; /* free: chain of slots that were dropped */
    uint64_t round, mask;
    uint32_t *head; /* [mask + 1] */
    slot *slot;
    unsigned char *row;
};

static size_t n_chain(size_t n_slot)
{
    size_t n = 1;
    while (n < n_slot) n *= 2;
    return n;
}

size_t nb_thrift_pool_bytes(size_t n_slot, size_t row_bytes)
{
    return n_slot * (row_bytes + sizeof(slot)) + n_chain(n_slot) * sizeof(uint32_t);
}

nb_status nb_thrift_pool_create(size_t n_slot, size_t row_bytes, nb_thrift_pool **out,
                                nb_error *err)
{
    if (n_slot >= NONE)
        return nb_fail(err, NB_ERR_LIMIT, "a pool of %zu rows is too large", n_slot);
    nb_thrift_pool *p = calloc(1, sizeof *p);
    const size_t n = n_chain(n_slot);
    if (p) {
        *p = (nb_thrift_pool){ .n_slot = n_slot,
                               .row_bytes = row_bytes,
                               .newest = NONE,
                               .oldest = NONE,
                               .free = NONE,
                               .mask = n - 1,
                               .head = malloc(n * sizeof *p->head),
                               .slot = calloc(n_slot + 1, sizeof *p->slot),
                               .row = calloc(n_slot + 1, row_bytes) };
    }
    if (!p || !p->head || !p->slot || !p->row) {
        nb_thrift_pool_destroy(p);
        return nb_fail(err, NB_ERR_NOMEM, "no memory for a pool of %zu rows of %zu bytes", n_slot,
                       row_bytes);
    }
    for (size_t i = 0; i < n; i++) p->head[i] = NONE;
    *out = p;
    return NB_OK;
}

void nb_thrift_pool_destroy(nb_thrift_pool *p)
{
    if (!p) return;
    free(p->head);
    free(p->slot);
    free(p->row);
    free(p);
}

void nb_thrift_pool_begin(nb_thrift_pool *p)
{
    p->round++;
}

static uint64_t key_of(size_t layer, uint32_t block, size_t tok)
{
    return (uint64_t)layer << 38 | (uint64_t)block << 6 | tok;
}

static uint32_t *chain_of(nb_thrift_pool *p, uint64_t key)
{
    uint64_t x = key * 0x9e3779b97f4a7c15u; /* neighbours are far apart in its upper bits */
    x ^= x >> 32;
    return &p->head[x & p->mask];
}

/* The link that leads to the key's slot, or to NONE. */
static uint32_t *find(nb_thrift_pool *p, uint64_t key)
{
    uint32_t *at = chain_of(p, key);
    while (*at != NONE && p->slot[*at].key != key) at = &p->slot[*at].chain;
    return at;
}

static void unlink_use(nb_thrift_pool *p, uint32_t i)
{
    const slot *s = &p->slot[i];
    *(s->newer == NONE ? &p->newest : &p->slot[s->newer].older) = s->older;
    *(s->older == NONE ? &p->oldest : &p->slot[s->older].newer) = s->newer;
}

static void link_newest(nb_thrift_pool *p, uint32_t i)
{
    slot *s = &p->slot[i];
    s->round = p->round;
    s->newer = NONE;
    s->older = p->newest;
    *(p->newest == NONE ? &p->oldest : &p->slot[p->newest].newer) = i;
    p->newest = i;
}

static void remove_at(nb_thrift_pool *p, uint32_t *link)
{
    const uint32_t i = *link;
    *link = p->slot[i].chain;
    unlink_use(p, i);
    p->slot[i].chain = p->free;
    p->free = i;
}

/* A slot for a new row, or NONE when all are of this round. */
static uint32_t take_slot(nb_thrift_pool *p)
{
    if (p->free == NONE) {
        if (p->n_used < p->n_slot) return (uint32_t)p->n_used++;
        if (p->oldest == NONE || p->slot[p->oldest].round == p->round) return NONE;
        remove_at(p, find(p, p->slot[p->oldest].key));
    }
    const uint32_t i = p->free;
    p->free = p->slot[i].chain;
    return i;
}

const unsigned char *nb_thrift_pool_get(nb_thrift_pool *p, size_t layer, uint32_t block, size_t tok,
                                        const unsigned char *row, bool *hit)
{
    const uint64_t key = key_of(layer, block, tok);
    uint32_t i = *find(p, key);
    *hit = i != NONE;
    if (*hit) {
        unlink_use(p, i);
    } else {
        i = take_slot(p);
        if (i == NONE) return row;
        uint32_t *head = chain_of(p, key);
        p->slot[i].key = key;
        p->slot[i].chain = *head;
        *head = i;
        memcpy(p->row + (size_t)i * p->row_bytes, row, p->row_bytes);
    }
    link_newest(p, i);
    return p->row + (size_t)i * p->row_bytes;
}

void nb_thrift_pool_drop(nb_thrift_pool *p, size_t layer, uint32_t block)
{
    for (size_t t = 0; p->n_used && t < NB_PAGE_TOK; t++) {
        uint32_t *at = find(p, key_of(layer, block, t));
        if (*at != NONE) remove_at(p, at);
    }
}
