/* json.c - the automata and rules of JSON itself. */
#include "grammar/graph.h"

#include <string.h>

/* One row per set of edges of a written-out automaton: from, bytes lo..hi, to. */
typedef struct edge_row {
    uint8_t from, lo, hi, to;
} edge_row;

/* Bytes that no row tells apart share a class. */
static uint32_t from_rows(nb_grammar *g, const edge_row *row, size_t n, uint32_t n_state,
                          uint64_t ends)
{
    nb_gdfa d = { .n_state = n_state };
    bool cut[257] = { false };
    for (size_t i = 0; i < n; i++) cut[row[i].lo] = cut[row[i].hi + 1] = true;
    for (unsigned b = 0, c = 0; b < 256; b++) {
        c += b && cut[b];
        d.cls[b] = (uint8_t)c;
        d.n_cls = c + 1;
    }
    d.next = nb_g_alloc(g, (size_t)n_state * d.n_cls, sizeof *d.next);
    d.end = nb_g_alloc(g, n_state, 1);
    if (!nb_g_ok(g)) return NB_G_NONE;
    memset(d.next, 0xff, (size_t)n_state * d.n_cls * sizeof *d.next);
    for (size_t i = 0; i < n; i++) {
        d.end[row[i].from] |= NB_DFA_MORE;
        for (unsigned c = d.cls[row[i].lo]; c <= d.cls[row[i].hi]; c++)
            d.next[row[i].from * d.n_cls + c] = row[i].to;
    }
    for (uint32_t s = 0; s < n_state; s++)
        if (ends >> s & 1) d.end[s] |= NB_DFA_END;
    return nb_g_dfa_add(g, &d);
}

/* A code point in UTF-8 that a string may contain as it is.  States: FROM; N1..N3: so many
 * continuation bytes follow; NE0 .. NF4: after these lead bytes. */
#define UTF8_ROWS(FROM, TO, N1, N2, N3, NE0, NED, NF0, NF4)                                        \
    { FROM, 0x20, 0x21, TO }, { FROM, 0x23, 0x5b, TO }, { FROM, 0x5d, 0x7f, TO },                  \
        { FROM, 0xc2, 0xdf, N1 }, { FROM, 0xe0, 0xe0, NE0 }, { FROM, 0xe1, 0xec, N2 },             \
        { FROM, 0xed, 0xed, NED }, { FROM, 0xee, 0xef, N2 }, { FROM, 0xf0, 0xf0, NF0 },            \
        { FROM, 0xf1, 0xf3, N3 }, { FROM, 0xf4, 0xf4, NF4 }, { N1, 0x80, 0xbf, TO },               \
        { N2, 0x80, 0xbf, N1 }, { N3, 0x80, 0xbf, N2 }, { NE0, 0xa0, 0xbf, N1 },                   \
        { NED, 0x80, 0x9f, N1 }, { NF0, 0x90, 0xbf, N2 },                                          \
    {                                                                                              \
        NF4, 0x80, 0x8f, N2                                                                        \
    }
#define HEX_ROWS(FROM, TO)                                                                         \
    { FROM, '0', '9', TO }, { FROM, 'A', 'F', TO },                                                \
    {                                                                                              \
        FROM, 'a', 'f', TO                                                                         \
    }

/* One character of a string: state 0 is its beginning and, for K_CHARS, its end.  9 follows the
 * backslash, 10 the u; 11..13 read digits; 14 follows a first digit d; 15..21 read the second half
 * of a pair of surrogates. */
static const edge_row char_rows[] = {
    UTF8_ROWS(0, 0, 1, 2, 3, 4, 5, 6, 7),
    { 0, '\\', '\\', 9 },
    { 9, '"', '"', 0 },
    { 9, '\\', '\\', 0 },
    { 9, '/', '/', 0 },
    { 9, 'b', 'b', 0 },
    { 9, 'f', 'f', 0 },
    { 9, 'n', 'n', 0 },
    { 9, 'r', 'r', 0 },
    { 9, 't', 't', 0 },
    { 9, 'u', 'u', 10 },
    { 10, '0', '9', 11 },
    { 10, 'A', 'C', 11 },
    { 10, 'a', 'c', 11 },
    { 10, 'E', 'F', 11 },
    { 10, 'e', 'f', 11 },
    { 10, 'D', 'D', 14 },
    { 10, 'd', 'd', 14 },
    HEX_ROWS(11, 12),
    HEX_ROWS(12, 13),
    HEX_ROWS(13, 0),
    { 14, '0', '7', 12 },
    { 14, '8', '9', 15 },
    { 14, 'A', 'B', 15 },
    { 14, 'a', 'b', 15 },
    HEX_ROWS(15, 16),
    HEX_ROWS(16, 17),
    { 17, '\\', '\\', 18 },
    { 18, 'u', 'u', 19 },
    { 19, 'D', 'D', 20 },
    { 19, 'd', 'd', 20 },
    { 20, 'C', 'F', 12 },
    { 20, 'c', 'f', 12 },
};
enum { N_CHAR_STATE = 21 };

/* A name in canonical form and its closing quote: escapes only where JSON needs them, so that each
 * name is spelled in one way.  State 8 is the end; 10..13 read u00XX of a control character. */
static const edge_row name_rows[] = {
    UTF8_ROWS(0, 0, 1, 2, 3, 4, 5, 6, 7),
    { 0, '"', '"', 8 },
    { 0, '\\', '\\', 9 },
    { 9, '"', '"', 0 },
    { 9, '\\', '\\', 0 },
    { 9, 'b', 'b', 0 },
    { 9, 'f', 'f', 0 },
    { 9, 'n', 'n', 0 },
    { 9, 'r', 'r', 0 },
    { 9, 't', 't', 0 },
    { 9, 'u', 'u', 10 },
    { 10, '0', '0', 11 },
    { 11, '0', '0', 12 },
    { 12, '0', '0', 13 },
    { 12, '1', '1', 14 },
    { 13, '0', '7', 0 },
    { 13, 'b', 'b', 0 },
    { 13, 'e', 'f', 0 },
    { 14, '0', '9', 0 },
    { 14, 'a', 'f', 0 },
};
enum { N_NAME_STATE = 15, NAME_END = 8 };

enum { MAX_INDENT = 20 };

nb_status nb_g_automata(nb_grammar *g)
{
    edge_row space[2 + MAX_INDENT * 2];
    size_t n = 0;
    /* 0: nothing yet; 1: one blank; 2 + i: a line feed and i blanks. */
    space[n++] = (edge_row){ 0, ' ', ' ', 1 };
    space[n++] = (edge_row){ 0, '\n', '\n', 2 };
    for (uint8_t i = 0; i < MAX_INDENT; i++) {
        space[n++] = (edge_row){ (uint8_t)(2 + i), ' ', ' ', (uint8_t)(3 + i) };
        space[n++] = (edge_row){ (uint8_t)(2 + i), '\t', '\t', (uint8_t)(3 + i) };
    }
    (void)nb_g_ret(g);
    g->chars = from_rows(g, char_rows, NB_COUNT(char_rows), N_CHAR_STATE, 1);
    g->name = from_rows(g, name_rows, NB_COUNT(name_rows), N_NAME_STATE, 1u << NAME_END);
    g->space = from_rows(g, space, n, MAX_INDENT + 3, UINT64_MAX);
    return g->err.status;
}

/* ---- numbers, strings ---- */

/* 0 start, 1 minus, 2 zero, 3 digits, 4 point, 5 fraction, 6 e, 7 sign, 8 exponent. */
static const edge_row number_rows[] = {
    { 0, '-', '-', 1 }, { 0, '0', '0', 2 }, { 0, '1', '9', 3 }, { 1, '0', '0', 2 },
    { 1, '1', '9', 3 }, { 3, '0', '9', 3 }, /* up to here: integers */
    { 2, '.', '.', 4 }, { 3, '.', '.', 4 }, { 4, '0', '9', 5 }, { 5, '0', '9', 5 },
    { 2, 'e', 'e', 6 }, { 2, 'E', 'E', 6 }, { 3, 'e', 'e', 6 }, { 3, 'E', 'E', 6 },
    { 5, 'e', 'e', 6 }, { 5, 'E', 'E', 6 }, { 6, '+', '+', 7 }, { 6, '-', '-', 7 },
    { 6, '0', '9', 8 }, { 7, '0', '9', 8 }, { 8, '0', '9', 8 },
};
enum { N_INTEGER_ROW = 6, N_INTEGER_STATE = 4, N_NUMBER_STATE = 9 };

nb_gid nb_g_any_number(nb_grammar *g, bool integer, nb_gid next)
{
    uint32_t *dfa = integer ? &g->integer : &g->number;
    if (*dfa == NB_G_NONE)
        *dfa = integer ? from_rows(g, number_rows, N_INTEGER_ROW, N_INTEGER_STATE, 0xc)
                       : from_rows(g, number_rows, NB_COUNT(number_rows), N_NUMBER_STATE, 0x12c);
    return nb_g_dfa_node(g, *dfa, next);
}

nb_gid nb_g_any_string(nb_grammar *g, nb_gid next)
{
    next = nb_g_text(g, "\"", next);
    next = nb_g_chars(g, 0, NB_G_INF, next);
    return nb_g_text(g, "\"", next);
}

/* ---- arrays, objects ---- */

nb_gid nb_g_array(nb_grammar *g, const uint32_t *head, size_t n, uint32_t rest, uint32_t min,
                  uint32_t max, nb_gid next)
{
    const nb_gid end = nb_g_text(g, "]", next);
    if (n > max) n = max;
    /* Built from the end: `after` follows item i, and may end the array where min allows it. */
    nb_gid more = NB_G_NONE;
    if (rest != NB_G_NONE && n < max) {
        const uint32_t lo = min > n ? min - (uint32_t)n : 0;
        const uint32_t hi = max == NB_G_INF ? NB_G_INF : max - (uint32_t)n;
        if (n == 0) { /* the first has no comma */
            nb_gid tail = nb_g_space(g, nb_g_call(g, rest, true, nb_g_ret(g)));
            tail = nb_g_space(g, nb_g_text(g, ",", tail));
            const uint32_t again = nb_g_rule_of(g, tail);
            more = nb_g_rep(g, again, lo ? lo - 1 : 0, hi == NB_G_INF ? hi : hi - 1,
                            nb_g_space(g, end));
            more = nb_g_call(g, rest, true, more);
        } else {
            nb_gid tail = nb_g_space(g, nb_g_call(g, rest, true, nb_g_ret(g)));
            tail = nb_g_space(g, nb_g_text(g, ",", tail));
            more = nb_g_rep(g, nb_g_rule_of(g, tail), lo, hi, nb_g_space(g, end));
        }
    }
    nb_gid after = n == 0 ? more : more == NB_G_NONE && min <= n ? nb_g_space(g, end) : more;
    for (size_t i = n; i-- > 0 && nb_g_spend(g, 1);) {
        /* `after` is what follows item i: NB_G_NONE, nothing can. */
        if (after == NB_G_NONE) break;
        after = nb_g_call(g, head[i], true, after);
        if (i > 0) {
            after = nb_g_space(g, nb_g_text(g, ",", nb_g_space(g, after)));
            if (min <= i) after = nb_g_alt2(g, after, nb_g_space(g, end));
        }
    }
    nb_gid first = after;
    if (after == NB_G_NONE)
        first = min == 0 ? end : nb_g_alt_room(g, 0); /* nothing is long enough */
    else if (min == 0)
        first = nb_g_alt2(g, after, end);
    first = nb_g_space(g, first);
    return nb_g_node(g, K_OPEN, '[', 0, first);
}

nb_gid nb_g_object(nb_grammar *g, const nb_gobj *o, nb_gid next)
{
    if (!nb_g_ok(g)) return NB_G_NONE;
    if (NB_GROW(g->obj, g->cap_obj, g->n_obj) != NB_OK) {
        (void)nb_g_fail(g, NB_ERR_NOMEM, "no memory for a grammar");
        return NB_G_NONE;
    }
    const uint32_t me = (uint32_t)g->n_obj++;
    g->obj[me] = *o;
    const nb_gid end = nb_g_node(g, K_END, me, 0, NB_G_NONE);
    nb_gid *way = nb_g_alloc(g, o->n_other + 1, sizeof *way);
    if (!way) return NB_G_NONE;
    size_t n_way = 0;
    if (o->n_prop) way[n_way++] = nb_g_node(g, K_NAME, me, 0, NB_G_NONE);
    for (uint32_t i = 0; i < o->n_other; i++)
        way[n_way++] = nb_g_node(g, K_OTHER, me, i, NB_G_NONE);
    if (n_way == 0) {
        g->obj[me].first = nb_g_space(g, end);
    } else {
        const nb_gid key = nb_g_node(g, K_KEY, me, 0, nb_g_alt(g, way, n_way));
        const nb_gid comma = nb_g_node(g, K_COMMA, me, 0, nb_g_space(g, key));
        const nb_gid after = nb_g_space(g, nb_g_alt2(g, comma, end));
        g->obj[me].first = nb_g_space(g, nb_g_alt2(g, key, end));
        for (size_t i = 0; i < o->n_prop + o->n_other && nb_g_ok(g); i++) {
            const bool declared = i < o->n_prop;
            const uint32_t rule = declared ? o->prop[i].rule : o->other[i - o->n_prop].rule;
            nb_gid v = NB_G_NONE;
            if (rule != NB_G_NONE) {
                v = nb_g_space(g, nb_g_call(g, rule, true, after));
                v = nb_g_space(g, nb_g_text(g, ":", v));
            }
            if (declared)
                o->prop[i].node = v;
            else
                o->other[i - o->n_prop].node = v;
        }
    }
    return nb_g_node(g, K_OPEN, '{', 0, nb_g_node(g, K_OBJ, me, 0, next));
}

nb_gid nb_g_any_object(nb_grammar *g, nb_gid next)
{
    nb_gobj o = { .max = NB_G_INF, .n_other = 1 };
    o.other = nb_g_alloc(g, 1, sizeof *o.other);
    if (!o.other) return NB_G_NONE;
    o.other[0] = (nb_gother){ .dfa = g->name, .rule = nb_g_any_value(g) };
    return nb_g_object(g, &o, next);
}

nb_gid nb_g_any_array(nb_grammar *g, nb_gid next)
{
    return nb_g_array(g, NULL, 0, nb_g_any_value(g), 0, NB_G_INF, next);
}

uint32_t nb_g_any_value(nb_grammar *g)
{
    if (g->any != NB_G_NONE) return g->any;
    g->any = nb_g_rule_new(g);
    const nb_gid ret = nb_g_ret(g);
    const nb_gid to[] = {
        nb_g_any_object(g, ret),        nb_g_any_array(g, ret),    nb_g_any_string(g, ret),
        nb_g_any_number(g, false, ret), nb_g_text(g, "true", ret), nb_g_text(g, "false", ret),
        nb_g_text(g, "null", ret),
    };
    nb_g_rule_set(g, g->any, nb_g_alt(g, to, NB_COUNT(to)));
    return g->any;
}
