/* step.c - how places move: what can follow without reading, and what a byte or a marker does. */
#include <string.h>

#include "base/hash.h"
#include "grammar/match.h"

/* ---- members of objects ---- */

/* Declared members [lo, hi] that may come next, some of which have no value. */
typedef struct window {
    uint32_t lo, hi; /* lo > hi: none */
} window;

static window declared(const nb_gobj *o, const nb_frame *f)
{
    const uint32_t i = f->x, n = (uint32_t)o->n_prop, r = o->next_required[i];
    window none = { 1, 0 };
    if (i >= n || f->y >= o->max) return none;
    window w = { i, r < n ? r : n - 1 };
    if (!o->counts) return w;
    /* All members that are still possible are required ones. */
    if (r < n && f->y + o->n_required[i] >= o->max) w.lo = r;
    if (!o->other_live) /* enough must be left */
        while (w.hi > w.lo && f->y + 1 + o->n_live[w.hi + 1] < o->min) w.hi--;
    return w;
}

static bool may_other(const nb_gobj *o, const nb_frame *f)
{
    return o->other_live && o->next_required[f->x] == o->n_prop && f->y < o->max;
}

static bool may_more(const nb_gobj *o, const nb_frame *f)
{
    const window w = declared(o, f);
    return (w.lo <= w.hi && o->n_live[w.lo] > o->n_live[w.hi + 1]) || may_other(o, f);
}

static bool may_end(const nb_gobj *o, const nb_frame *f)
{
    return o->next_required[f->x] == o->n_prop && f->y >= o->min;
}

/* ---- ranges of sorted strings ---- */

/* First string of [lo, hi) whose byte at depth is not below b; shorter strings come first. */
static size_t bound(const nb_gset *s, size_t lo, size_t hi, size_t depth, unsigned b)
{
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (s->s[mid].n_bytes <= depth || (unsigned char)s->s[mid].p[depth] < b)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* The end of the strings that share their first `depth` bytes with s[lo]. */
static size_t range_end(const nb_gset *s, size_t lo, size_t depth)
{
    size_t a = lo + 1, b = s->n;
    while (a < b) {
        const size_t mid = a + (b - a) / 2;
        if (s->s[mid].n_bytes >= depth && memcmp(s->s[mid].p, s->s[lo].p, depth) == 0)
            a = mid + 1;
        else
            b = mid;
    }
    return a;
}

/* The strings of the range that go on with byte b; false: none. */
static bool narrow(const nb_gset *s, uint32_t lo, size_t depth, unsigned b, size_t *first,
                   size_t *end)
{
    const size_t hi = range_end(s, lo, depth);
    *first = bound(s, lo, hi, depth, b);
    *end = b == 255 ? hi : bound(s, *first, hi, depth, b + 1);
    return *first < *end;
}

static bool any_allowed(const nb_gobj *o, window w, size_t first, size_t end)
{
    for (size_t k = first; k < end; k++) {
        const uint32_t i = o->index[k];
        if (i >= w.lo && i <= w.hi && o->prop[i].live) return true;
    }
    return false;
}

static void live_in(const nb_gset *s, uint32_t lo, size_t depth, const nb_gobj *o, window w,
                    uint64_t live[4])
{
    const size_t hi = range_end(s, lo, depth);
    for (size_t k = lo; k < hi;) {
        if (s->s[k].n_bytes <= depth) {
            k++;
            continue;
        }
        const unsigned b = (unsigned char)s->s[k].p[depth];
        const size_t end = b == 255 ? hi : bound(s, k, hi, depth, b + 1);
        if (!o || any_allowed(o, w, k, end)) live[b >> 6] |= 1ull << (b & 63);
        k = end;
    }
}

/* ---- what can follow without reading ---- */

void nb_m_begin(nb_match *m)
{
    m->n_todo = m->n_kept = m->n_seen = 0;
    m->accepting = false;
    if (++m->stamp == 0) {
        memset(m->seen_stamp, 0, (size_t)2 * NB_M_MAX_CLOSURE * sizeof *m->seen_stamp);
        m->stamp = 1;
    }
}

void nb_m_visit(nb_match *m, nb_place p)
{
    if (p.stack == NB_G_NONE || p.node == NB_G_NONE || !m->g->node[p.node].live) return;
    size_t h = nb_hash_bytes(&p, sizeof p, 3) & (2 * NB_M_MAX_CLOSURE - 1);
    for (; m->seen_stamp[h] == m->stamp; h = (h + 1) & (2 * NB_M_MAX_CLOSURE - 1))
        if (memcmp(&m->seen_place[m->seen[h]], &p, sizeof p) == 0) return;
    if (m->n_seen >= NB_M_MAX_CLOSURE) {
        m->st = NB_ERR_LIMIT;
        return;
    }
    m->seen_stamp[h] = m->stamp;
    m->seen[h] = (uint32_t)m->n_seen;
    m->seen_place[m->n_seen++] = p;
    m->todo[m->n_todo++] = p;
}

static void visit_node(nb_match *m, nb_gid node, uint32_t stack)
{
    nb_m_visit(m, (nb_place){ .node = node, .stack = stack });
}

static void keep(nb_match *m, const nb_place *p)
{
    m->kept[m->n_kept++] = *p;
}

static void repeat(nb_match *m, nb_gid node, uint32_t need, uint32_t room, uint32_t stack)
{
    const nb_gnode *n = &m->g->node[node];
    const nb_gid body = m->g->rule[n->a];
    if (need == 0) visit_node(m, n->next, stack);
    if (room == 0 || body == NB_G_NONE || !m->g->node[body].live) return;
    const uint32_t left = room == NB_G_INF ? room : room - 1;
    visit_node(m, body, nb_m_frame(m, stack, node, need ? need - 1 : 0, left));
}

static void leave_rule(nb_match *m, uint32_t stack)
{
    const nb_frame f = m->frame[stack];
    if (stack == 0)
        m->accepting = true;
    else if (m->g->node[f.node].kind == K_REP)
        repeat(m, f.node, f.x, f.y, f.parent);
    else
        visit_node(m, m->g->node[f.node].next, f.parent);
}

static void chars(nb_match *m, const nb_place *p)
{
    const nb_gnode *n = &m->g->node[p->node];
    const nb_gcount c = m->g->count[n->b];
    const bool counted = c.min > 0 || c.max != NB_G_INF;
    if (p->b == 0) {
        nb_place q = { .node = p->node, .b = 1, .stack = p->stack };
        if (counted) q.stack = nb_m_frame(m, p->stack, p->node, c.min, c.max);
        nb_m_visit(m, q);
        return;
    }
    const nb_frame f = m->frame[p->stack];
    if (p->a == 0 && (!counted || f.x == 0)) visit_node(m, n->next, counted ? f.parent : p->stack);
    if (p->a != 0 || !counted || f.y > 0) keep(m, p);
}

static void close_one(nb_match *m, const nb_place *p)
{
    const nb_grammar *g = m->g;
    const nb_gnode *n = &g->node[p->node];
    switch ((nb_gkind)n->kind) {
    case K_RET: leave_rule(m, p->stack); break;
    case K_ALT:
        for (uint32_t i = 0; i < n->b; i++) visit_node(m, g->edge[n->a + i], p->stack);
        break;
    case K_CALL: {
        const bool tail = g->node[n->next].kind == K_RET;
        visit_node(m, g->rule[n->a], tail ? p->stack : nb_m_frame(m, p->stack, p->node, 0, 0));
        break;
    }
    case K_REP: repeat(m, p->node, g->count[n->b].min, g->count[n->b].max, p->stack); break;
    case K_CHARS: chars(m, p); break;
    case K_DFA: {
        const uint8_t end = g->dfa[n->a].end[p->a];
        if (end & NB_DFA_END) visit_node(m, n->next, p->stack);
        if (end & NB_DFA_MORE) keep(m, p);
        break;
    }
    case K_SET: {
        const nb_gset *s = &g->set[n->a];
        if (s->s[p->a].n_bytes == p->b) visit_node(m, n->next, p->stack);
        if (s->s[p->a].n_bytes > p->b || range_end(s, p->a, p->b) > p->a + 1) keep(m, p);
        break;
    }
    case K_OPEN:
        if (m->frame[p->stack].nest < NB_GRAMMAR_MAX_DEPTH) keep(m, p);
        break;
    case K_OBJ: visit_node(m, g->obj[n->a].first, nb_m_frame(m, p->stack, p->node, 0, 0)); break;
    case K_KEY:
    case K_COMMA:
        if (may_more(&g->obj[n->a], &m->frame[p->stack])) keep(m, p);
        break;
    case K_END:
        if (may_end(&g->obj[n->a], &m->frame[p->stack])) keep(m, p);
        break;
    case K_NAME: {
        const window w = declared(&g->obj[n->a], &m->frame[p->stack]);
        if (w.lo <= w.hi && g->obj[n->a].n_live[w.lo] > g->obj[n->a].n_live[w.hi + 1]) keep(m, p);
        break;
    }
    case K_OTHER:
        if (may_other(&g->obj[n->a], &m->frame[p->stack])) keep(m, p);
        break;
    case K_FREE:
        if (g->trigger[n->a].may_end) m->accepting = true;
        keep(m, p);
        break;
    case K_BYTE:
    case K_CLASS:
    case K_LIT:
    case K_TOKEN: keep(m, p); break;
    }
}

uint32_t nb_m_close(nb_match *m)
{
    while (m->n_todo && m->st == NB_OK) {
        const nb_place p = m->todo[--m->n_todo];
        close_one(m, &p);
    }
    return nb_m_intern(m);
}

/* ---- bytes ---- */

static void live_dfa(const nb_gdfa *d, uint32_t state, uint64_t live[4])
{
    for (size_t w = 0; w < 4; w++) live[w] |= d->live[state][w];
}

static uint32_t dfa_next(const nb_gdfa *d, uint32_t state, unsigned byte)
{
    return d->next[(size_t)state * d->n_cls + d->cls[byte]];
}

/* K_OTHER on a byte: its automaton, and which declared names still begin so.  False: not allowed. */
static bool other_next(const nb_match *m, const nb_place *p, unsigned byte, nb_place *q)
{
    const nb_gobj *o = &m->g->obj[m->g->node[p->node].a];
    const nb_gother *t = &o->other[m->g->node[p->node].b];
    *q = *p;
    q->a = dfa_next(&m->g->dfa[t->dfa], p->a, byte);
    if (q->a == NB_G_NONE) return false;
    if (!t->exclude || p->b == NB_G_NONE || o->names.n == 0) {
        q->b = NB_G_NONE;
        q->c = 0;
        return true;
    }
    size_t first, end;
    if (!narrow(&o->names, p->b, p->c, byte, &first, &end)) {
        q->b = NB_G_NONE;
        q->c = 0;
        return true;
    }
    q->b = (uint32_t)first;
    q->c = p->c + 1;
    return o->names.s[first].n_bytes > q->c; /* else it is a declared name */
}

void nb_m_live(const nb_match *m, const nb_place *p, uint64_t live[4])
{
    const nb_grammar *g = m->g;
    const nb_gnode *n = &g->node[p->node];
    unsigned b = 0;
    switch ((nb_gkind)n->kind) {
    case K_BYTE:
    case K_OPEN: b = n->a; break;
    case K_LIT: b = (unsigned char)g->text.p[n->a + p->a]; break;
    case K_KEY: b = '"'; break;
    case K_COMMA: b = ','; break;
    case K_END: b = '}'; break;
    case K_CLASS:
        for (size_t w = 0; w < 4; w++) live[w] |= g->cls[n->a].bit[w];
        return;
    case K_DFA: live_dfa(&g->dfa[n->a], p->a, live); return;
    case K_CHARS: live_dfa(&g->dfa[g->chars], p->a, live); return;
    case K_SET: live_in(&g->set[n->a], p->a, p->b, NULL, (window){ 0, 0 }, live); return;
    case K_NAME: {
        const nb_gobj *o = &g->obj[n->a];
        live_in(&o->names, p->a, p->b, o, declared(o, &m->frame[p->stack]), live);
        return;
    }
    case K_OTHER:
        for (unsigned i = 0; i < 256; i++) {
            nb_place q;
            if (other_next(m, p, i, &q)) live[i >> 6] |= 1ull << (i & 63);
        }
        return;
    case K_FREE: memset(live, 0xff, 4 * sizeof *live); return;
    case K_TOKEN:
    default: return;
    }
    live[b >> 6] |= 1ull << (b & 63);
}

static void step_name(nb_match *m, const nb_place *p, unsigned byte)
{
    const nb_gobj *o = &m->g->obj[m->g->node[p->node].a];
    const nb_frame f = m->frame[p->stack];
    const window w = declared(o, &f);
    size_t first, end;
    if (!narrow(&o->names, p->a, p->b, byte, &first, &end) || !any_allowed(o, w, first, end))
        return;
    const uint32_t i = o->index[first];
    if (o->names.s[first].n_bytes > p->b + 1) {
        nb_m_visit(m, (nb_place){ p->node, (uint32_t)first, p->b + 1, 0, p->stack });
        return;
    }
    const uint32_t n = o->counts ? f.y + 1 : 0;
    visit_node(m, o->prop[i].node, nb_m_frame(m, f.parent, f.node, i + 1, n));
}

static void step_other(nb_match *m, const nb_place *p, unsigned byte)
{
    const nb_gnode *n = &m->g->node[p->node];
    const nb_gobj *o = &m->g->obj[n->a];
    const nb_gother *t = &o->other[n->b];
    nb_place q;
    if (!other_next(m, p, byte, &q)) return;
    if (!(m->g->dfa[t->dfa].end[q.a] & NB_DFA_END)) {
        nb_m_visit(m, q);
        return;
    }
    const nb_frame f = m->frame[p->stack];
    const uint32_t count = o->counts ? f.y + 1 : 0;
    visit_node(m, t->node, nb_m_frame(m, f.parent, f.node, (uint32_t)o->n_prop, count));
}

static void step_chars(nb_match *m, const nb_place *p, unsigned byte)
{
    nb_place q = *p;
    q.a = dfa_next(&m->g->dfa[m->g->chars], p->a, byte);
    if (q.a == NB_G_NONE) return;
    const nb_gcount c = m->g->count[m->g->node[p->node].b];
    if (q.a == 0 && (c.min > 0 || c.max != NB_G_INF)) {
        const nb_frame f = m->frame[p->stack];
        q.stack =
            nb_m_frame(m, f.parent, f.node, f.x ? f.x - 1 : 0, f.y == NB_G_INF ? f.y : f.y - 1);
    }
    nb_m_visit(m, q);
}

static void step_free(nb_match *m, const nb_place *p, unsigned byte)
{
    const nb_gnode *n = &m->g->node[p->node];
    const nb_gtrigger *t = &m->g->trigger[n->a];
    nb_place q = *p;
    if (t->dfa != NB_G_NONE) {
        const nb_gdfa *d = &m->g->dfa[t->dfa];
        q.a = dfa_next(d, p->a, byte);
        if (t->marker == NB_GRAMMAR_NO_TOKEN && d->end[q.a] & NB_DFA_END) {
            visit_node(m, n->next, p->stack);
            return;
        }
    }
    nb_m_visit(m, q);
}

static void step_one(nb_match *m, const nb_place *p, unsigned byte)
{
    const nb_grammar *g = m->g;
    const nb_gnode *n = &g->node[p->node];
    switch ((nb_gkind)n->kind) {
    case K_BYTE:
    case K_OPEN:
        if (n->a == byte) visit_node(m, n->next, p->stack);
        break;
    case K_CLASS:
        if (nb_gclass_has(&g->cls[n->a], byte)) visit_node(m, n->next, p->stack);
        break;
    case K_LIT:
        if ((unsigned char)g->text.p[n->a + p->a] != byte) break;
        if (p->a + 1 == n->b)
            visit_node(m, n->next, p->stack);
        else
            nb_m_visit(m, (nb_place){ p->node, p->a + 1, 0, 0, p->stack });
        break;
    case K_DFA: {
        const uint32_t to = dfa_next(&g->dfa[n->a], p->a, byte);
        if (to != NB_G_NONE) nb_m_visit(m, (nb_place){ p->node, to, 0, 0, p->stack });
        break;
    }
    case K_CHARS: step_chars(m, p, byte); break;
    case K_SET: {
        size_t first, end;
        if (narrow(&g->set[n->a], p->a, p->b, byte, &first, &end))
            nb_m_visit(m, (nb_place){ p->node, (uint32_t)first, p->b + 1, 0, p->stack });
        break;
    }
    case K_KEY:
        if (byte == '"') visit_node(m, n->next, p->stack);
        break;
    case K_COMMA:
        if (byte == ',') visit_node(m, n->next, p->stack);
        break;
    case K_END:
        if (byte == '}') {
            const nb_frame f = m->frame[p->stack];
            visit_node(m, g->node[f.node].next, f.parent);
        }
        break;
    case K_NAME: step_name(m, p, byte); break;
    case K_OTHER: step_other(m, p, byte); break;
    case K_FREE: step_free(m, p, byte); break;
    default: break;
    }
}

uint32_t nb_m_step(nb_match *m, uint32_t state, unsigned byte)
{
    const nb_state *s = &m->state[state];
    if (!nb_m_is_live(s, byte)) return NB_M_DEAD;
    const uint32_t go = s->go + nb_m_rank(s, byte);
    if (m->go[go] != NB_G_NONE) return m->go[go];
    nb_m_begin(m);
    const uint32_t first = s->place, n = s->n_place;
    for (uint32_t i = 0; i < n; i++) {
        const nb_place p = m->place[first + i];
        step_one(m, &p, byte);
    }
    const uint32_t to = nb_m_close(m);
    if (m->st == NB_OK) m->go[go] = to;
    return to;
}

bool nb_m_may_trigger(const nb_match *m, const nb_place *p)
{
    const nb_gtrigger *t = &m->g->trigger[m->g->node[p->node].a];
    if (t->marker == NB_GRAMMAR_NO_TOKEN) return false;
    return t->dfa == NB_G_NONE || m->g->dfa[t->dfa].end[p->a] & NB_DFA_END;
}

uint32_t nb_m_step_marker(nb_match *m, uint32_t state, uint32_t id)
{
    nb_m_begin(m);
    const uint32_t first = m->state[state].place, n_place = m->state[state].n_place;
    for (uint32_t i = 0; i < n_place; i++) {
        const nb_place p = m->place[first + i];
        const nb_gnode *n = &m->g->node[p.node];
        if (n->kind == K_TOKEN && n->a == id) visit_node(m, n->next, p.stack);
        if (n->kind != K_FREE) continue;
        if (m->g->trigger[n->a].marker == id && nb_m_may_trigger(m, &p))
            visit_node(m, n->next, p.stack);
        else if (!n->b)
            nb_m_visit(m, (nb_place){ .node = p.node, .stack = p.stack });
    }
    return nb_m_close(m);
}
