/* prop_kv_cache.c - random operations on a block cache against a naive model: arrays, linear
 * searches, and for every block the whole text it stands for instead of a key.
 *
 * Holders are requests as the scheduler makes them: each holds its text from the first block
 * on.  The model follows every block's state, holders, parent, hits and class, knows in which
 * order the cached blocks of a class became so, and from that which block must be evicted.
 * When blocks of the `many` class move to `once` is read from the cache, and then checked
 * against the rule: the oldest ones, and only with a reason.
 *
 * Seeds, steps and shrinking: prop.h. */
#include "prop/prop.h"

#include "base/attr.h"
#include "kv/kv_cache.h"

enum { MAX_BLOCK = 40, MAX_REQ = 10, MAX_LEN = 8, N_SALT = 3, N_CONTENT = 3, N_MARK = 3 };

/* The text up to the end of a block. */
typedef struct text {
    unsigned char salt, n, content[MAX_LEN], mark[MAX_LEN];
} text;

typedef struct block {
    unsigned n_ref, n_hit;
    bool indexed, many;
    bool orphan; /* indexed, after a reset took what comes before it   */
    uint32_t parent;
    text t;         /* indexed: what it stands for                     */
    uint64_t stamp; /* cached: ascending in the order of becoming so   */
    uint64_t born;  /* ascending in the order of publication           */
    uint64_t rank;  /* by the policy, when it became cached            */
    unsigned depth; /* indexed blocks before it                        */
} block;

typedef struct request {
    bool live;
    text t; /* n is MAX_LEN */
    nb_block_key key[MAX_LEN];
    uint32_t id[MAX_LEN];
    size_t n_id, n_pub; /* the first n_pub were published (or found) */
} request;

typedef struct model {
    prop *p;
    nb_kv_cache *c;
    size_t n_block;
    bool index;
    double share;
    block b[MAX_BLOCK];
    request r[MAX_REQ];
    nb_kv_evict evict;
    uint64_t age; /* rank of the last victim */
    uint64_t clock, n_evicted, n_published, n_duplicate;
} model;

static const nb_str salts[N_SALT] = { { "", 0 }, { "a", 1 }, { "a\0b", 3 } };
static const unsigned marks[N_MARK][2] = { { 0, 64 }, { 64, 64 }, { 64, 0 } };
/* A mark that is not at a block's edge. */
static const unsigned odd_marks[2] = { 17, 64 };

/* Contents differ in one token only: the first, the last or none. */
static void tokens_of(unsigned content, uint32_t tok[NB_BLOCK_TOK])
{
    for (uint32_t i = 0; i < NB_BLOCK_TOK; i++) tok[i] = 1000 + i;
    if (content == 1) tok[0] ^= 1u << 31;
    if (content == 2) tok[NB_BLOCK_TOK - 1] ^= 1;
}

static void key_of(const nb_block_key *parent, unsigned content, unsigned mark, nb_block_key *out)
{
    uint32_t tok[NB_BLOCK_TOK];
    tokens_of(content, tok);
    const unsigned *m = mark < N_MARK ? marks[mark] : odd_marks;
    NB_ASSERT(nb_block_key_next(parent, tok, m[0], m[1], out) == NB_OK);
}

static void keys_of(const text *t, size_t n, nb_block_key *key)
{
    nb_block_key root;
    NB_ASSERT(nb_block_key_root(salts[t->salt], &root) == NB_OK);
    for (size_t i = 0; i < n; i++)
        key_of(i ? &key[i - 1] : &root, t->content[i], t->mark[i], &key[i]);
}

static text prefix(const text *t, size_t n)
{
    text out = { .salt = t->salt, .n = (unsigned char)n };
    memcpy(out.content, t->content, n);
    memcpy(out.mark, t->mark, n);
    return out;
}

static bool cached(const block *b)
{
    return b->indexed && b->n_ref == 0;
}

static uint32_t model_find(const model *m, const text *t)
{
    for (uint32_t i = 0; i < m->n_block; i++)
        if (m->b[i].indexed && memcmp(&m->b[i].t, t, sizeof *t) == 0) return i;
    return NB_BLOCK_NONE;
}

static size_t count_many(const model *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_block; i++) n += cached(&m->b[i]) && m->b[i].many;
    return n;
}

/* Does an indexed block continue this one? */
static bool continued(const model *m, uint32_t id)
{
    for (uint32_t i = 0; i < m->n_block; i++)
        if (m->b[i].indexed && m->b[i].parent == id) return true;
    return false;
}

static uint32_t oldest(const model *m, bool many, bool leaf)
{
    uint32_t best = NB_BLOCK_NONE;
    for (uint32_t i = 0; i < m->n_block; i++)
        if (cached(&m->b[i]) && m->b[i].many == many && !(leaf && continued(m, i)) &&
            (best == NB_BLOCK_NONE || m->b[i].stamp < m->b[best].stamp))
            best = i;
    return best;
}

static void model_release(model *m, uint32_t id)
{
    block *b = &m->b[id];
    if (--b->n_ref || !b->indexed) return;
    b->stamp = ++m->clock;
    switch (m->evict) {
    case NB_KV_EVICT_FIFO: b->rank = b->born; break;
    case NB_KV_EVICT_LFU: b->rank = b->n_hit; break;
    case NB_KV_EVICT_AGED: b->rank = m->age + 1 + b->n_hit; break;
    case NB_KV_EVICT_LONGEST: b->rank = MAX_LEN - b->depth; break;
    default: b->rank = 0;
    }
}

/* The oldest `many` block moves to the young end of `once`, with a reason. */
static int demote_one(model *m, bool forced)
{
    const uint32_t id = oldest(m, true, false);
    if (id == NB_BLOCK_NONE) return prop_fail(m->p, "a class moved out of nothing");
    if (!forced && (double)count_many(m) <= m->share * (double)m->n_block)
        return prop_fail(m->p,
                         "block %u left the `many` class, which has %zu of %zu blocks, %g "
                         "allowed",
                         (unsigned)id, count_many(m), m->n_block, m->share);
    m->b[id].many = false;
    m->b[id].stamp = ++m->clock;
    return 0;
}

/* Cached blocks that the cache calls `once` and the model `many`. */
static size_t count_moved(const model *m, uint32_t except)
{
    size_t n = 0;
    for (uint32_t i = 0; i < m->n_block; i++) {
        nb_kv_block_info info;
        nb_kv_cache_block(m->c, i, &info);
        n += i != except && cached(&m->b[i]) && m->b[i].many && !info.many;
    }
    return n;
}

static void forget_continuations(model *m, uint32_t id)
{
    for (uint32_t i = 0; i < m->n_block; i++)
        if (m->b[i].indexed && m->b[i].parent == id) {
            forget_continuations(m, i);
            const unsigned n_ref = m->b[i].n_ref;
            m->b[i] = (block){ .n_ref = n_ref, .parent = NB_BLOCK_NONE };
            m->n_evicted++;
        }
}

/* Of the policies without classes: the leaf of least rank, of equals the one that was cached first; without
 * a leaf the first cached block, and what continues it leaves the index. */
static int evicted_leaf(model *m, uint32_t id)
{
    uint32_t want = NB_BLOCK_NONE;
    bool any = false;
    for (uint32_t i = 0; i < m->n_block; i++) {
        const block *b = &m->b[i];
        if (!cached(b) || continued(m, i)) continue;
        any |= i == id;
        if (want == NB_BLOCK_NONE || b->rank < m->b[want].rank ||
            (b->rank == m->b[want].rank && b->stamp < m->b[want].stamp))
            want = i;
    }
    if (want == NB_BLOCK_NONE) {
        for (want = 0; !cached(&m->b[want]);) want++;
        forget_continuations(m, want);
    } else if (m->evict == NB_KV_EVICT_RANDOM && any) {
        want = id;
    }
    if (want != id)
        return prop_fail(m->p, "%s: block %u was evicted instead of %u", nb_kv_evict_name(m->evict),
                         (unsigned)id, (unsigned)want);
    m->age = m->b[id].rank;
    m->n_evicted++;
    return 0;
}

static int evicted(model *m, uint32_t id)
{
    prop *p = m->p;
    if (m->evict != NB_KV_EVICT_CLASSES) return evicted_leaf(m, id);
    const bool over = (double)count_many(m) > m->share * (double)m->n_block;
    size_t n_moved = count_moved(m, id);
    if (m->b[id].many) n_moved++; /* moved, and was then the oldest of the others */
    if (over && n_moved == 0)
        return prop_fail(p, "`many` has %zu of %zu blocks, %g allowed, and keeps them",
                         count_many(m), m->n_block, m->share);
    for (size_t i = 0; i < n_moved; i++)
        if (demote_one(m, oldest(m, false, true) == NB_BLOCK_NONE)) return 1;
    uint32_t want = oldest(m, false, true);
    if (want == NB_BLOCK_NONE) { /* possible after a reset: all is continued by held blocks */
        want = oldest(m, false, false);
        if (want == id) forget_continuations(m, id);
    }
    if (want != id)
        return prop_fail(p, "block %u was evicted instead of %u", (unsigned)id, (unsigned)want);
    m->n_evicted++;
    return 0;
}

/* 0: *id is a new block; 1: failed; -1: there is none. */
static int acquire(model *m, uint32_t *id)
{
    size_t n_free = 0, n_cached = 0;
    for (size_t i = 0; i < m->n_block; i++) {
        n_free += m->b[i].n_ref == 0 && !m->b[i].indexed;
        n_cached += cached(&m->b[i]);
    }
    if (nb_kv_cache_available(m->c) != n_free + n_cached)
        return prop_fail(m->p, "%zu blocks available, expected %zu", nb_kv_cache_available(m->c),
                         n_free + n_cached);
    *id = 12345;
    const nb_status st = nb_kv_cache_acquire(m->c, id);
    if (n_free + n_cached == 0) {
        if (st == NB_ERR_CAPACITY && *id == 12345) return -1;
        return prop_fail(m->p, "all blocks are held, but acquire said %d, block %u", (int)st,
                         (unsigned)*id);
    }
    if (st != NB_OK) return prop_fail(m->p, "acquire said %d", (int)st);
    if (*id >= m->n_block || m->b[*id].n_ref)
        return prop_fail(m->p, "block %u is held and was handed out", (unsigned)*id);
    if (n_free && m->b[*id].indexed) return prop_fail(m->p, "evicted with %zu free", n_free);
    if (m->b[*id].indexed && evicted(m, *id)) return 1;
    m->b[*id] = (block){ .n_ref = 1, .parent = NB_BLOCK_NONE };
    return 0;
}

/* ---- operations ---- */

static request *some_request(model *m, bool live)
{
    const size_t at = prop_below(m->p, MAX_REQ);
    for (size_t i = 0; i < MAX_REQ; i++)
        if (m->r[(at + i) % MAX_REQ].live == live) return &m->r[(at + i) % MAX_REQ];
    return NULL;
}

static text some_text(prop *p)
{
    text t = { .salt = (unsigned char)(prop_one_in(p, 3) ? prop_below(p, N_SALT) : 0),
               .n = MAX_LEN };
    const size_t same = prop_below(p, MAX_LEN); /* a common beginning makes hits likely */
    for (size_t i = 0; i < MAX_LEN; i++) {
        t.content[i] = (unsigned char)(i < same ? 0 : prop_below(p, N_CONTENT));
        t.mark[i] = (unsigned char)(prop_one_in(p, 6) ? prop_below(p, N_MARK + 1) : 0);
    }
    return t;
}

/* Finds what is there of a new text and holds it. */
static int op_start(model *m)
{
    prop *p = m->p;
    request *r = some_request(m, false);
    if (!r) return 0;
    *r = (request){ .live = true, .t = some_text(p) };
    keys_of(&r->t, MAX_LEN, r->key);
    const bool hit = !prop_one_in(p, 6);
    const size_t most = prop_below(p, MAX_LEN + 1);
    while (r->n_id < most) {
        const text t = prefix(&r->t, r->n_id + 1);
        const nb_block_key *key = &r->key[r->n_id];
        const uint32_t want = model_find(m, &t);
        const uint32_t id = r->n_id && prop_one_in(p, 2)
                                ? nb_kv_cache_find_next(m->c, r->id[r->n_id - 1], key)
                                : nb_kv_cache_find(m->c, key);
        if (id != want)
            return prop_fail(p, "block %u found instead of %u", (unsigned)id, (unsigned)want);
        if (id == NB_BLOCK_NONE) break;
        nb_kv_cache_hold(m->c, id, hit);
        m->b[id].n_ref++;
        if (hit) {
            m->b[id].n_hit++;
            m->b[id].many = m->evict == NB_KV_EVICT_CLASSES;
        }
        r->id[r->n_id++] = id;
    }
    r->n_pub = r->n_id;
    prop_trace(p, "start %zu, salt %u, %zu blocks found", (size_t)(r - m->r), r->t.salt, r->n_id);
    return 0;
}

/* A request that shares what another one has published, found or not. */
static int op_share(model *m)
{
    const request *from = some_request(m, true);
    request *r = some_request(m, false);
    if (!from || !r) return 0;
    const size_t n = prop_below(m->p, from->n_pub + 1);
    *r = (request){ .live = true, .t = from->t, .n_id = n, .n_pub = n };
    keys_of(&r->t, MAX_LEN, r->key);
    for (size_t i = 0; i < n; i++) {
        r->id[i] = from->id[i];
        nb_kv_cache_hold(m->c, r->id[i], false);
        m->b[r->id[i]].n_ref++;
    }
    prop_trace(m->p, "share %zu blocks of %zu as %zu", n, (size_t)(from - m->r),
               (size_t)(r - m->r));
    return 0;
}

static int op_acquire(model *m)
{
    request *r = some_request(m, true);
    if (!r || r->n_id == MAX_LEN) return 0;
    uint32_t id;
    const int rc = acquire(m, &id);
    prop_trace(m->p, "acquire for %zu: %s %u", (size_t)(r - m->r), rc ? "none" : "block",
               (unsigned)id);
    if (rc) return rc > 0;
    r->id[r->n_id++] = id;
    return 0;
}

static int op_publish(model *m)
{
    prop *p = m->p;
    request *r = some_request(m, true);
    if (!r || r->n_pub == r->n_id) return 0;
    const size_t k = r->n_pub;
    const uint32_t own = r->id[k], parent = k ? r->id[k - 1] : NB_BLOCK_NONE;
    const text t = prefix(&r->t, k + 1);
    const uint32_t there = m->index ? model_find(m, &t) : NB_BLOCK_NONE;
    const uint32_t got = nb_kv_cache_publish(m->c, own, &r->key[k], parent);
    prop_trace(p, "publish block %zu of %zu: %u is %u", k, (size_t)(r - m->r), (unsigned)own,
               (unsigned)got);
    r->n_pub++;
    if (!m->index) {
        if (got != own) return prop_fail(p, "publish without index changed the block");
        return 0;
    }
    if (there != NB_BLOCK_NONE) {
        if (got != there)
            return prop_fail(p, "the text of block %u was indexed again as %u", (unsigned)there,
                             (unsigned)got);
        m->b[own] = (block){ .parent = NB_BLOCK_NONE };
        m->b[there].n_ref++;
        r->id[k] = there;
        m->n_duplicate++;
        return 0;
    }
    if (got != own)
        return prop_fail(p, "block %u became %u, which is another text", (unsigned)own,
                         (unsigned)got);
    m->b[own].indexed = true;
    /* What a reset has forgotten is nobody's parent. */
    m->b[own].parent = parent != NB_BLOCK_NONE && m->b[parent].indexed ? parent : NB_BLOCK_NONE;
    m->b[own].orphan = m->b[own].parent != parent;
    m->b[own].born = ++m->clock;
    m->b[own].depth = m->b[own].orphan || !k ? 0 : m->b[parent].depth + 1;
    m->b[own].t = t;
    m->n_published++;
    return 0;
}

/* Gives back the blocks from `keep` on. */
static int release(model *m, request *r, size_t keep)
{
    prop_trace(m->p, "release %zu from block %zu of %zu", (size_t)(r - m->r), keep, r->n_id);
    nb_kv_cache_release(m->c, r->id + keep, r->n_id - keep);
    for (size_t i = r->n_id; i-- > keep;) model_release(m, r->id[i]);
    for (size_t n = count_moved(m, NB_BLOCK_NONE); n; n--)
        if (demote_one(m, false)) return 1;
    r->n_id = keep;
    if (r->n_pub > keep) r->n_pub = keep;
    r->live = keep > 0;
    return 0;
}

static int op_release(model *m)
{
    request *r = some_request(m, true);
    if (!r) return 0;
    return release(m, r, prop_one_in(m->p, 5) && r->n_id ? prop_below(m->p, r->n_id) : 0);
}

static int op_reset(model *m)
{
    size_t n_indexed = 0;
    for (size_t i = 0; i < m->n_block; i++) {
        block *b = &m->b[i];
        n_indexed += b->indexed;
        b->indexed = b->many = b->orphan = false;
        b->n_hit = 0;
        b->parent = NB_BLOCK_NONE;
    }
    const size_t got = nb_kv_cache_reset(m->c);
    prop_trace(m->p, "reset: %zu blocks", got);
    if (got != n_indexed)
        return prop_fail(m->p, "reset: %zu blocks left the index, expected %zu", got, n_indexed);
    return 0;
}

/* Any text, whether somebody has it or not. */
static int op_find(model *m)
{
    const text t = some_text(m->p);
    nb_block_key key[MAX_LEN];
    keys_of(&t, MAX_LEN, key);
    for (size_t n = 1; n <= MAX_LEN; n++) {
        const text q = prefix(&t, n);
        const uint32_t got = nb_kv_cache_find(m->c, &key[n - 1]), want = model_find(m, &q);
        if (got != want)
            return prop_fail(m->p, "block %u found instead of %u", (unsigned)got, (unsigned)want);
    }
    return 0;
}

/* ---- comparison ---- */

static int compare_block(const model *m, uint32_t id)
{
    prop *p = m->p;
    const block *b = &m->b[id];
    nb_kv_block_info got;
    nb_kv_cache_block(m->c, id, &got);
    if (got.n_ref != b->n_ref)
        return prop_fail(p, "block %u has %u holders, expected %u", id, got.n_ref, b->n_ref);
    if (got.indexed != b->indexed)
        return prop_fail(p, "block %u is%s indexed", id, got.indexed ? "" : " not");
    if (!b->indexed) {
        if (got.parent != NB_BLOCK_NONE)
            return prop_fail(p, "block %u is not indexed and has a parent", id);
        return 0;
    }
    nb_block_key key[MAX_LEN];
    if (p->step % 8 == 0) {
        keys_of(&b->t, b->t.n, key);
        if (memcmp(&key[b->t.n - 1], &got.key, sizeof got.key) != 0)
            return prop_fail(p, "block %u has another key", id);
    }
    if (got.parent != b->parent || got.n_hit != b->n_hit || got.many != b->many)
        return prop_fail(p, "block %u: parent %u, %u hits, many %d; expected %u, %u, %d", id,
                         got.parent, got.n_hit, got.many, b->parent, b->n_hit, b->many);
    /* What can be found can be reached: what comes before it can be found too. */
    const text t = prefix(&b->t, b->t.n - 1u);
    if (t.n && !b->orphan && model_find(m, &t) != b->parent)
        return prop_fail(p, "block %u is indexed, what comes before it is not", id);
    return 0;
}

static int compare(const model *m)
{
    prop *p = m->p;
    const char *broken = nb_kv_cache_check(m->c);
    if (broken) return prop_fail(p, "check: %s", broken);
    nb_kv_cache_stats want = { .n_block = m->n_block,
                               .n_evicted = m->n_evicted,
                               .n_published = m->n_published,
                               .n_duplicate = m->n_duplicate };
    for (uint32_t i = 0; i < m->n_block; i++) {
        if (compare_block(m, i)) return 1;
        const block *b = &m->b[i];
        want.n_indexed += b->indexed;
        want.n_held += b->n_ref > 0;
        want.n_free += b->n_ref == 0 && !b->indexed;
        want.n_once += cached(b) && !b->many;
        want.n_many += cached(b) && b->many;
    }
    nb_kv_cache_stats s;
    nb_kv_cache_get_stats(m->c, &s);
    if (s.n_block != want.n_block || s.n_free != want.n_free || s.n_held != want.n_held ||
        s.n_once != want.n_once || s.n_many != want.n_many || s.n_indexed != want.n_indexed)
        return prop_fail(p,
                         "blocks %zu free %zu held %zu once %zu many %zu indexed %zu, expected %zu "
                         "%zu %zu %zu %zu %zu",
                         s.n_block, s.n_free, s.n_held, s.n_once, s.n_many, s.n_indexed,
                         want.n_block, want.n_free, want.n_held, want.n_once, want.n_many,
                         want.n_indexed);
    if (s.n_evicted != want.n_evicted || s.n_published != want.n_published ||
        s.n_duplicate != want.n_duplicate)
        return prop_fail(p, "evicted %llu published %llu duplicate %llu, expected %llu %llu %llu",
                         (unsigned long long)s.n_evicted, (unsigned long long)s.n_published,
                         (unsigned long long)s.n_duplicate, (unsigned long long)want.n_evicted,
                         (unsigned long long)want.n_published,
                         (unsigned long long)want.n_duplicate);
    return 0;
}

static int one_step(model *m, size_t bias)
{
    const size_t kind = prop_below(m->p, 20 + bias);
    if (kind == 0) return prop_one_in(m->p, 12) ? op_reset(m) : op_find(m);
    if (kind == 1) return op_share(m);
    if (kind <= 4) return op_start(m);
    if (kind <= 10) return op_acquire(m);
    if (kind <= 16) return op_publish(m);
    return op_release(m);
}

static int steps(model *m)
{
    prop *p = m->p;
    const size_t bias = prop_below(p, 3) * 3; /* more or fewer requests at once */
    for (size_t step = 1; step <= p->n_step; step++) {
        prop_begin_step(p, step);
        if (prop_skipped(p)) continue;
        if (one_step(m, bias)) return 1;
        if ((!p->big || step % 16 == 0) && compare(m)) return 1;
    }
    for (size_t i = 0; i < MAX_REQ; i++)
        if (m->r[i].live && release(m, &m->r[i], 0)) return 1;
    if (compare(m)) return 1;
    if (nb_kv_cache_available(m->c) != m->n_block)
        return prop_fail(p, "%zu of %zu blocks available at the end", nb_kv_cache_available(m->c),
                         m->n_block);
    return 0;
}

static int run(prop *p)
{
    static model m;
    prop_begin_step(p, 0);
    m = (model){ .p = p };
    m.n_block = prop_between(p, 1, prop_one_in(p, 3) ? 6 : MAX_BLOCK);
    m.index = !prop_one_in(p, 12);
    m.share = prop_one_in(p, 5) ? (double)prop_below(p, 2) : (double)prop_below(p, 101) / 100;
    for (size_t i = 0; i < MAX_BLOCK; i++) m.b[i].parent = NB_BLOCK_NONE;
    if (prop_one_in(p, 2)) m.evict = (nb_kv_evict)prop_below(p, NB_KV_N_EVICT);
    const nb_kv_cache_options o = {
        .n_block = m.n_block, .index = m.index, .protected_share = m.share, .evict = m.evict
    };
    nb_error err = { 0 };
    if (nb_kv_cache_create(&o, &m.c, &err) != NB_OK)
        return prop_fail(p, "cannot be made: %s", err.msg);
    prop_trace(p, "%zu blocks, index %d, protected %g, %s", m.n_block, m.index, m.share,
               nb_kv_evict_name(m.evict));
    const int bad = steps(&m);
    nb_kv_cache_destroy(m.c);
    return bad;
}

/* ---- keys and options ---- */

static bool same_key(const nb_block_key *a, const nb_block_key *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* SHA-256("nibble kv 1" 0x00 salt), by another program. */
static int check_roots(void)
{
    static const struct {
        nb_str salt;
        unsigned char start[8];
    } known[] = { { { "", 0 }, { 0x2f, 0x83, 0x36, 0xdd, 0xb6, 0xe8, 0x9f, 0x64 } },
                  { { "tenant\0 a", 9 }, { 0x0f, 0x31, 0xee, 0x8d, 0x81, 0x18, 0x34, 0xb9 } } };
    for (size_t i = 0; i < NB_COUNT(known); i++) {
        nb_block_key k;
        if (nb_block_key_root(known[i].salt, &k) != NB_OK || memcmp(k.b, known[i].start, 8) != 0) {
            fprintf(stderr, "prop_kv_cache: another root key than the header says\n");
            return 1;
        }
    }
    return 0;
}

/* Each part of a key changes it; the same parts give the same key. */
static int check_keys(void)
{
    enum { N = 64 + 65 * 65 + 3 };
    static nb_block_key k[N];
    nb_block_key root, other;
    uint32_t tok[NB_BLOCK_TOK] = { 0 };
    size_t n = 0;
    NB_ASSERT(nb_block_key_root((nb_str){ "", 0 }, &root) == NB_OK);
    NB_ASSERT(nb_block_key_root((nb_str){ "x", 1 }, &other) == NB_OK);
    NB_ASSERT(nb_block_key_next(&other, tok, 0, 0, &k[n++]) == NB_OK);
    k[n++] = root;
    k[n++] = other;
    for (unsigned i = 0; i < NB_BLOCK_TOK; i++) {
        tok[i] = 1u << (i % 32);
        NB_ASSERT(nb_block_key_next(&root, tok, 0, 0, &k[n++]) == NB_OK);
        tok[i] = 0;
    }
    for (unsigned e = 0; e <= 64; e++)
        for (unsigned s = 0; s <= 64; s++) {
            NB_ASSERT(nb_block_key_next(&root, tok, e, s, &k[n]) == NB_OK);
            NB_ASSERT(nb_block_key_next(&root, tok, e, s, &other) == NB_OK);
            if (!same_key(&k[n++], &other)) {
                fprintf(stderr, "prop_kv_cache: the same block has two keys\n");
                return 1;
            }
        }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++)
            if (same_key(&k[i], &k[j])) {
                fprintf(stderr, "prop_kv_cache: keys %zu and %zu are the same\n", j, i);
                return 1;
            }
    return 0;
}

static int check_options(void)
{
    static const nb_kv_cache_options bad[] = {
        { .n_block = 0, .protected_share = 0.5 },
        { .n_block = UINT32_MAX, .protected_share = 0.5 },
        { .n_block = 4, .protected_share = -0.1 },
        { .n_block = 4, .protected_share = 1.1 },
        { .n_block = 4, .protected_share = 0.5, .evict = NB_KV_N_EVICT },
    };
    for (size_t i = 0; i < NB_COUNT(bad); i++) {
        nb_kv_cache *c = NULL;
        nb_error err = { 0 };
        if (nb_kv_cache_create(&bad[i], &c, &err) == NB_OK || c || !err.msg[0]) {
            fprintf(stderr, "prop_kv_cache: options %zu were accepted\n", i);
            return 1;
        }
    }
    nb_kv_cache_destroy(NULL);
    return 0;
}

int main(int argc, char **argv)
{
#if defined(__SANITIZE_ADDRESS__)
    enum { STEPS = 250000 };
#else
    enum { STEPS = 500000 };
#endif
    if (check_roots() || check_keys() || check_options()) return 1;
    return prop_main(argc, argv, "prop_kv_cache", run, STEPS);
}
