/* state.c - interned frames and states of a match. */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "grammar/match.h"

enum { TABLE0 = 256 };

static bool out_of_memory(nb_match *m)
{
    if (m->st == NB_OK) m->st = NB_ERR_NOMEM;
    return false;
}

static size_t bytes_used(const nb_match *m)
{
    return m->n_frame * sizeof *m->frame + m->n_state * sizeof *m->state +
           m->n_place * sizeof *m->place + m->n_go * sizeof *m->go;
}

bool nb_m_full(const nb_match *m)
{
    return m->n_state > NB_GRAMMAR_MAX_STATES || bytes_used(m) > NB_GRAMMAR_MAX_STATE_BYTES;
}

static bool grow_table(uint32_t **table, size_t *n)
{
    const size_t want = *n ? *n * 2 : TABLE0;
    uint32_t *t = malloc(want * sizeof *t);
    if (!t) return false;
    memset(t, 0xff, want * sizeof *t);
    free(*table);
    *table = t;
    *n = want;
    return true;
}

/* ---- frames ---- */

static uint64_t frame_hash(const nb_frame *f)
{
    const uint32_t key[4] = { f->parent, f->node, f->x, f->y };
    return nb_hash_bytes(key, sizeof key, 1);
}

uint32_t nb_m_frame(nb_match *m, uint32_t parent, nb_gid node, uint32_t x, uint32_t y)
{
    const nb_frame *up = &m->frame[parent];
    const nb_gnode *n = &m->g->node[node];
    if (up->depth >= NB_M_MAX_FRAME) return NB_G_NONE;
    nb_frame f = { .parent = parent, .node = node, .x = x, .y = y, .canon = NB_G_NONE };
    f.depth = (uint16_t)(up->depth + 1);
    f.nest = (uint16_t)(up->nest + (n->kind == K_CALL && n->b));
    uint64_t h = frame_hash(&f);
    for (uint32_t i = m->frame_table[h & (m->n_frame_table - 1)]; i != NB_G_NONE;
         i = m->frame[i].chain) {
        const nb_frame *o = &m->frame[i];
        if (o->parent == parent && o->node == node && o->x == x && o->y == y) return i;
    }
    if (m->n_frame >= m->n_frame_table) {
        if (!grow_table(&m->frame_table, &m->n_frame_table)) {
            (void)out_of_memory(m);
            return NB_G_NONE;
        }
        for (uint32_t i = 1; i < m->n_frame; i++) {
            uint32_t *head = &m->frame_table[frame_hash(&m->frame[i]) & (m->n_frame_table - 1)];
            m->frame[i].chain = *head;
            *head = i;
        }
    }
    if (NB_GROW(m->frame, m->cap_frame, m->n_frame) != NB_OK) {
        (void)out_of_memory(m);
        return NB_G_NONE;
    }
    uint32_t *head = &m->frame_table[h & (m->n_frame_table - 1)];
    f.chain = *head;
    *head = (uint32_t)m->n_frame;
    m->frame[m->n_frame] = f;
    return (uint32_t)m->n_frame++;
}

/* ---- states ---- */

static int by_place(const void *x, const void *y)
{
    return memcmp(x, y, sizeof(nb_place));
}

static uint64_t state_hash(const nb_place *p, size_t n, bool accepting)
{
    return nb_hash_bytes(p, n * sizeof *p, 2 + accepting);
}

static bool rehash_states(nb_match *m)
{
    if (!grow_table(&m->state_table, &m->n_state_table)) return out_of_memory(m);
    for (uint32_t i = 1; i < m->n_state; i++) {
        nb_state *s = &m->state[i];
        const uint64_t h = state_hash(m->place + s->place, s->n_place, s->accepting);
        uint32_t *head = &m->state_table[h & (m->n_state_table - 1)];
        s->chain = *head;
        *head = i;
    }
    return true;
}

static bool append_places(nb_match *m)
{
    for (size_t i = 0; i < m->n_kept; i++) {
        if (NB_GROW(m->place, m->cap_place, m->n_place) != NB_OK) return out_of_memory(m);
        m->place[m->n_place++] = m->kept[i];
    }
    return true;
}

static bool append_go(nb_match *m, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (NB_GROW(m->go, m->cap_go, m->n_go) != NB_OK) return out_of_memory(m);
        m->go[m->n_go++] = NB_G_NONE;
    }
    return true;
}

static bool counts(const nb_match *m, const nb_frame *f)
{
    return f->node != NB_G_NONE &&
           (m->g->node[f->node].kind == K_REP || m->g->node[f->node].kind == K_CHARS);
}

/* Whether a place's counter is the stack's top, so that it can be compared with others of its kind. */
static bool counter_of(const nb_match *m, const nb_place *p, const nb_frame **f)
{
    *f = &m->frame[p->stack];
    return p->stack != 0 && counts(m, *f);
}

/* Of places that differ in their counters only, one that needs no more and has room for as many admits
 * all that the others do: they are dropped.  "[a-z]{0,999}[a-z]{0,999}" has two places then, not 1,000. */
static void drop_covered(nb_match *m)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_kept; i++) {
        const nb_place p = m->kept[i];
        const nb_frame *f, *o;
        bool covered = false;
        if (counter_of(m, &p, &f))
            for (size_t k = 0; k < n && !covered; k++) {
                nb_place *q = &m->kept[k];
                if (q->node != p.node || q->a != p.a || q->b != p.b || q->c != p.c) continue;
                if (!counter_of(m, q, &o) || o->parent != f->parent || o->node != f->node) continue;
                covered = o->x <= f->x && o->y >= f->y;
                if (covered || f->x > o->x || f->y < o->y) continue;
                *q = p; /* the other way round */
                covered = true;
            }
        if (!covered) m->kept[n++] = p;
    }
    m->n_kept = n;
}

uint32_t nb_m_intern(nb_match *m)
{
    if (m->st != NB_OK || (m->n_kept == 0 && !m->accepting)) return NB_M_DEAD;
    if (m->n_kept > 1) drop_covered(m);
    if (m->n_kept > NB_M_MAX_PLACE) {
        m->st = NB_ERR_LIMIT;
        return NB_M_DEAD;
    }
    if (m->n_kept > 1) qsort(m->kept, m->n_kept, sizeof *m->kept, by_place);
    const uint64_t h = state_hash(m->kept, m->n_kept, m->accepting);
    for (uint32_t i = m->state_table[h & (m->n_state_table - 1)]; i != NB_G_NONE;
         i = m->state[i].chain) {
        const nb_state *s = &m->state[i];
        if (s->n_place == m->n_kept && s->accepting == m->accepting &&
            (m->n_kept == 0 ||
             memcmp(m->place + s->place, m->kept, m->n_kept * sizeof *m->kept) == 0))
            return i;
    }
    if (m->n_state >= m->n_state_table && !rehash_states(m)) return NB_M_DEAD;
    nb_state s = { .place = (uint32_t)m->n_place,
                   .n_place = (uint32_t)m->n_kept,
                   .go = (uint32_t)m->n_go,
                   .canon = NB_G_NONE,
                   .mask = NB_G_NONE,
                   .accepting = m->accepting };
    for (size_t i = 0; i < m->n_kept; i++) nb_m_live(m, &m->kept[i], s.live);
    size_t n_go = 0;
    for (size_t w = 0; w < 4; w++) {
        s.before[w] = (uint16_t)n_go;
        n_go += nb_m_popcount(s.live[w]);
    }
    if (NB_GROW(m->state, m->cap_state, m->n_state) != NB_OK) {
        (void)out_of_memory(m);
        return NB_M_DEAD;
    }
    if (!append_places(m) || !append_go(m, n_go)) return NB_M_DEAD;
    uint32_t *head = &m->state_table[h & (m->n_state_table - 1)];
    s.chain = *head;
    *head = (uint32_t)m->n_state;
    m->state[m->n_state] = s;
    return (uint32_t)m->n_state++;
}

/* ---- saturated counters ---- */

/* One token cannot tell counters apart that are beyond its length. */
static uint32_t canon_frame(nb_match *m, uint32_t f)
{
    uint32_t chain[NB_M_MAX_FRAME + 1];
    size_t n = 0;
    uint32_t up = f;
    while (up != 0 && m->frame[up].canon == NB_G_NONE) {
        chain[n++] = up;
        up = m->frame[up].parent;
    }
    uint32_t c = up == 0 ? 0 : m->frame[up].canon;
    const uint32_t most = (uint32_t)m->v->max_token + 1;
    while (n && c != NB_G_NONE) {
        const nb_frame o = m->frame[chain[--n]];
        uint32_t x = o.x, y = o.y;
        if (counts(m, &o)) {
            if (x > most) x = most;
            if (y > most) y = NB_G_INF;
        }
        c = nb_m_frame(m, c, o.node, x, y);
        m->frame[chain[n]].canon = c;
    }
    return c;
}

uint32_t nb_m_canon(nb_match *m, uint32_t state)
{
    if (m->state[state].canon != NB_G_NONE) return m->state[state].canon;
    const uint32_t first = m->state[state].place;
    m->n_kept = m->state[state].n_place;
    m->accepting = m->state[state].accepting;
    bool same = true;
    for (size_t i = 0; i < m->n_kept; i++) {
        m->kept[i] = m->place[first + i];
        const uint32_t c = canon_frame(m, m->kept[i].stack);
        if (c == NB_G_NONE) return state; /* no memory: m->st says so */
        same &= c == m->kept[i].stack;
        m->kept[i].stack = c;
    }
    if (!same) { /* two places may have become one */
        qsort(m->kept, m->n_kept, sizeof *m->kept, by_place);
        size_t n = 0;
        for (size_t i = 0; i < m->n_kept; i++)
            if (n == 0 || memcmp(&m->kept[n - 1], &m->kept[i], sizeof *m->kept) != 0)
                m->kept[n++] = m->kept[i];
        m->n_kept = n;
    }
    const uint32_t c = same ? state : nb_m_intern(m);
    if (m->st != NB_OK) return state;
    m->state[state].canon = c;
    m->state[c].canon = c;
    return c;
}

/* ---- all of them ---- */

void nb_m_free_states(nb_match *m)
{
    free(m->frame);
    free(m->state);
    free(m->place);
    free(m->go);
    free(m->frame_table);
    free(m->state_table);
    m->frame = NULL;
    m->state = NULL;
    m->place = NULL;
    m->go = NULL;
    m->frame_table = m->state_table = NULL;
    m->n_frame = m->cap_frame = m->n_state = m->cap_state = 0;
    m->n_place = m->cap_place = m->n_go = m->cap_go = 0;
    m->n_frame_table = m->n_state_table = 0;
}

nb_status nb_m_reset(nb_match *m)
{
    nb_m_free_states(m);
    if (!grow_table(&m->frame_table, &m->n_frame_table) ||
        !grow_table(&m->state_table, &m->n_state_table) ||
        NB_GROW(m->frame, m->cap_frame, 0) != NB_OK || NB_GROW(m->state, m->cap_state, 0) != NB_OK)
        return NB_ERR_NOMEM;
    m->frame[0] = (nb_frame){ .node = NB_G_NONE, .canon = 0, .chain = NB_G_NONE };
    m->state[NB_M_DEAD] = (nb_state){ .canon = 0, .mask = NB_G_NONE, .chain = NB_G_NONE };
    m->n_frame = m->n_state = 1;
    for (size_t i = 0; i < m->n_slot; i++) m->slot[i].state = NB_G_NONE;
    return NB_OK;
}

/* Puts the frames of old[f]'s chain into the new tables. */
static uint32_t move_frame(nb_match *m, const nb_frame *old, uint32_t f)
{
    uint32_t chain[NB_M_MAX_FRAME + 1], c = 0;
    size_t n = 0;
    for (; f != 0; f = old[f].parent) chain[n++] = f;
    while (n && c != NB_G_NONE) {
        const nb_frame *o = &old[chain[--n]];
        c = nb_m_frame(m, c, o->node, o->x, o->y);
    }
    return c;
}

nb_status nb_m_flush(nb_match *m)
{
    const nb_state now = m->state[m->now];
    memcpy(m->kept, m->place + now.place, now.n_place * sizeof *m->kept);
    m->n_kept = now.n_place;
    m->accepting = now.accepting;
    nb_frame *old = m->frame;
    m->frame = NULL;
    m->stats.n_flush++;
    if (m->n_token - m->flush_token > NB_M_FLUSH_TOKENS) {
        m->flush_token = m->n_token;
        m->n_flush_now = 0;
    }
    nb_status st = ++m->n_flush_now > NB_M_FLUSH_MAX ? NB_ERR_LIMIT : nb_m_reset(m);
    if (st == NB_OK) {
        for (size_t i = 0; i < m->n_kept; i++)
            m->kept[i].stack = move_frame(m, old, m->kept[i].stack);
        m->now = nb_m_intern(m);
        st = m->st;
    } else if (!m->frame) { /* nothing can be computed any more */
        m->st = st;
    }
    free(old);
    return st;
}
