/* finish.c - what follows from a complete graph: which nodes can be completed, how many members an
 * object can have, and whether a rule calls itself before it reads anything. */
#include <stdlib.h>
#include <string.h>

#include "grammar/graph.h"

/* ---- what has a text ---- */

static bool rule_live(const nb_grammar *g, uint32_t rule)
{
    return rule != NB_G_NONE && g->rule[rule] != NB_G_NONE && g->node[g->rule[rule]].live;
}

static bool object_live(const nb_grammar *g, nb_gobj *o)
{
    size_t n = 0, n_required = 0;
    o->other_live = false;
    for (size_t i = 0; i < o->n_other; i++) {
        o->other[i].live = rule_live(g, o->other[i].rule);
        o->other_live |= o->other[i].live;
    }
    for (size_t i = 0; i < o->n_prop; i++) {
        nb_gprop *p = &o->prop[i];
        p->live = rule_live(g, p->rule);
        if (p->required && !p->live) return false;
        n_required += p->required;
        n += p->live;
    }
    return n_required <= o->max && (o->other_live || n >= o->min) && o->min <= o->max;
}

static bool node_live(const nb_grammar *g, const nb_gnode *n)
{
    const bool next = n->next != NB_G_NONE && g->node[n->next].live;
    switch ((nb_gkind)n->kind) {
    case K_RET:
    case K_END:
    case K_NAME: return true;
    case K_OTHER: return rule_live(g, g->obj[n->a].other[n->b].rule);
    case K_ALT:
        for (uint32_t i = 0; i < n->b; i++) {
            const nb_gid to = g->edge[n->a + i];
            if (to != NB_G_NONE && g->node[to].live) return true;
        }
        return false;
    case K_CALL: return next && rule_live(g, n->a);
    case K_REP: return next && (g->count[n->b].min == 0 || rule_live(g, n->a));
    case K_FREE: return next || g->trigger[n->a].may_end;
    case K_OBJ: return next && object_live(g, &g->obj[n->a]);
    case K_BYTE:
    case K_CLASS:
    case K_LIT:
    case K_SET:
    case K_DFA:
    case K_CHARS:
    case K_TOKEN:
    case K_OPEN:
    case K_KEY:
    case K_COMMA: return next;
    }
    return false;
}

/* Least fixed point, by passes: forwards and backwards in turn, since a graph is built from its
 * end. */
static nb_status find_live(nb_grammar *g)
{
    bool changed = true;
    for (size_t pass = 0; changed; pass++) {
        changed = false;
        if (!nb_g_spend(g, g->n_node / 4 + 1)) return g->err.status;
        for (size_t k = 0; k < g->n_node; k++) {
            nb_gnode *n = &g->node[pass & 1 ? g->n_node - 1 - k : k];
            if (n->live || !node_live(g, n)) continue;
            n->live = changed = true;
        }
    }
    return NB_OK;
}

static nb_status count_members(nb_grammar *g)
{
    for (size_t k = 0; k < g->n_obj; k++) {
        nb_gobj *o = &g->obj[k];
        (void)object_live(g, o);
        const size_t n = o->n_prop;
        o->counts = o->min > 0 || o->max != NB_G_INF;
        o->next_required = nb_g_alloc(g, n + 1, sizeof *o->next_required);
        o->n_required = nb_g_alloc(g, n + 1, sizeof *o->n_required);
        o->n_live = nb_g_alloc(g, n + 1, sizeof *o->n_live);
        if (!nb_g_ok(g)) return g->err.status;
        o->next_required[n] = (uint32_t)n;
        for (size_t i = n; i-- > 0;) {
            o->next_required[i] = o->prop[i].required ? (uint32_t)i : o->next_required[i + 1];
            o->n_required[i] = o->n_required[i + 1] + o->prop[i].required;
            o->n_live[i] = o->n_live[i + 1] + o->prop[i].live;
        }
        for (size_t i = 0; i < n; i++) /* nodes of values nobody can give */
            o->prop[i].live = o->prop[i].live && g->node[o->prop[i].node].live;
    }
    return NB_OK;
}

/* ---- left recursion ---- */

static bool dfa_empty_ok(const nb_grammar *g, uint32_t dfa)
{
    return (g->dfa[dfa].end[0] & NB_DFA_END) != 0;
}

/* Whether a node can be passed without reading, given which rules can be. */
static bool passes(const nb_grammar *g, const nb_gnode *n, const uint8_t *empty)
{
    switch ((nb_gkind)n->kind) {
    case K_DFA: return dfa_empty_ok(g, n->a);
    case K_CHARS: return g->count[n->b].min == 0;
    case K_SET: return g->set[n->a].s[0].n_bytes == 0;
    case K_REP: return g->count[n->b].min == 0;
    case K_CALL: return empty[g->rule[n->a]] != 0;
    default: return false;
    }
}

/* empty[node]: the rule's end can be reached from it without reading. */
static bool find_empty(nb_grammar *g, uint8_t *empty)
{
    bool changed = true;
    for (size_t pass = 0; changed; pass++) {
        changed = false;
        if (!nb_g_spend(g, g->n_node / 4 + 1)) return false;
        for (size_t k = 0; k < g->n_node; k++) {
            const size_t i = pass & 1 ? g->n_node - 1 - k : k;
            const nb_gnode *n = &g->node[i];
            if (empty[i] || !n->live) continue;
            bool e = n->kind == K_RET;
            if (n->kind == K_ALT)
                for (uint32_t j = 0; j < n->b && !e; j++) {
                    const nb_gid to = g->edge[n->a + j];
                    e = to != NB_G_NONE && empty[to];
                }
            else if (passes(g, n, empty))
                e = empty[n->next] != 0;
            if (e) empty[i] = changed = true;
        }
    }
    return true;
}

/* The i-th node that is reached from n without reading; *push: a frame comes onto the stack.
 * NB_G_NONE: there is no such one, or no more (i beyond *n_way). */
static nb_gid left(const nb_grammar *g, const nb_gnode *n, const uint8_t *empty, size_t i,
                   size_t *n_way, bool *push)
{
    *push = false;
    switch ((nb_gkind)n->kind) {
    case K_ALT: *n_way = n->b; return i < n->b ? g->edge[n->a + i] : NB_G_NONE;
    case K_CALL:
    case K_REP:
        *n_way = 2;
        *push = i == 0 && (n->kind == K_REP || g->node[n->next].kind != K_RET);
        if (i == 0) return g->rule[n->a];
        break;
    default: *n_way = 2; break;
    }
    return i == 1 && passes(g, n, empty) ? n->next : NB_G_NONE;
}

typedef struct visit {
    nb_gid node;
    uint32_t way;
} visit;

/* Tarjan's strongly connected components; comp[] receives their numbers. */
static bool components(nb_grammar *g, const uint8_t *empty, uint32_t *comp, uint32_t *low,
                       uint32_t *at, visit *stack, nb_gid *open)
{
    uint32_t n_at = 0, n_comp = 0;
    size_t n_open = 0;
    for (nb_gid root = 0; root < g->n_node; root++) {
        if (at[root] || !g->node[root].live) continue;
        size_t sp = 0;
        stack[sp++] = (visit){ root, 0 };
        at[root] = low[root] = ++n_at;
        open[n_open++] = root;
        while (sp) {
            visit *v = &stack[sp - 1];
            size_t n_way;
            bool push;
            const nb_gid u = v->node;
            const nb_gid to = left(g, &g->node[u], empty, v->way++, &n_way, &push);
            if (v->way <= n_way) {
                if (to == NB_G_NONE || !g->node[to].live) continue;
                if (!at[to]) {
                    at[to] = low[to] = ++n_at;
                    open[n_open++] = to;
                    stack[sp++] = (visit){ to, 0 };
                } else if (comp[to] == 0 && at[to] < low[u]) {
                    low[u] = at[to];
                }
                continue;
            }
            sp--;
            if (sp && low[u] < low[stack[sp - 1].node]) low[stack[sp - 1].node] = low[u];
            if (low[u] != at[u]) continue;
            n_comp++;
            nb_gid w;
            do {
                w = open[--n_open];
                comp[w] = n_comp;
            } while (w != u);
        }
        if (!nb_g_spend(g, 1)) return false;
    }
    return true;
}

static nb_status check_left_recursion(nb_grammar *g)
{
    const size_t n = g->n_node;
    uint8_t *empty = calloc(n, 1);
    uint32_t *comp = calloc(n, sizeof *comp), *low = calloc(n, sizeof *low),
             *at = calloc(n, sizeof *at);
    visit *stack = calloc(n, sizeof *stack);
    nb_gid *open = calloc(n, sizeof *open);
    if (!empty || !comp || !low || !at || !stack || !open) {
        (void)nb_g_fail(g, NB_ERR_NOMEM, "no memory for a grammar");
    } else if (find_empty(g, empty) && components(g, empty, comp, low, at, stack, open)) {
        for (nb_gid u = 0; u < n && nb_g_ok(g); u++) {
            size_t n_way;
            bool push;
            if (!g->node[u].live) continue;
            const nb_gid to = left(g, &g->node[u], empty, 0, &n_way, &push);
            if (push && to != NB_G_NONE && g->node[to].live && comp[to] == comp[u])
                (void)nb_g_fail(g, NB_ERR_UNSUPPORTED,
                                "a rule refers to itself before it reads anything (left "
                                "recursion); write it with the recursion at the end");
        }
    }
    free(empty);
    free(comp);
    free(low);
    free(at);
    free(stack);
    free(open);
    return g->err.status;
}

static nb_status find_bytes(nb_grammar *g)
{
    for (size_t k = 0; k < g->n_dfa; k++) {
        nb_gdfa *d = &g->dfa[k];
        d->live = nb_g_alloc(g, d->n_state, sizeof *d->live);
        for (uint32_t s = 0; d->live && s < d->n_state; s++)
            for (unsigned b = 0; b < 256; b++)
                if (d->next[(size_t)s * d->n_cls + d->cls[b]] != NB_G_NONE)
                    d->live[s][b >> 6] |= 1ull << (b & 63);
    }
    return g->err.status;
}

nb_status nb_g_finish(nb_grammar *g, nb_error *err)
{
    if (nb_g_ok(g) && find_live(g) == NB_OK && count_members(g) == NB_OK &&
        find_bytes(g) == NB_OK) {
        if (!rule_live(g, g->root))
            (void)nb_g_fail(g, NB_ERR_RANGE, "nothing satisfies it: no text can be generated");
        else
            (void)check_left_recursion(g);
    }
    if (!nb_g_ok(g)) return nb_fail(err, g->err.status, "%s", g->err.msg);
    return NB_OK;
}
