/* graph.h - what every front end is compiled to: a graph of nodes that read bytes, call rules and
 * count.
 *
 * A rule is a node to start from; a K_RET ends it.  A place in the graph is a node and up to three
 * numbers that depend on its kind (run.c).  Builders return the first node of what they build and get
 * the node that comes after it, so a graph is built from its end. */
#ifndef NB_GRAMMAR_GRAPH_H
#define NB_GRAMMAR_GRAPH_H
#include <stdatomic.h>

#include "base/arena.h"
#include "grammar/grammar.h"

typedef uint32_t nb_gid; /* index of a node */
#define NB_G_NONE UINT32_MAX
#define NB_G_INF UINT32_MAX /* no upper bound */

enum {
    NB_G_MAX_NODE = 200000,
    NB_G_FUEL = 5000000,
    NB_G_MAX_EXPAND = 20000, /* positions that repeats of groups are written out to */
    NB_G_MAX_BRANCH = 512,
    NB_G_MAX_DFA_CELLS = 1 << 20
};

/* a, b: see the comments.  All but K_RET, K_ALT and the ends of objects go on at `next`. */
typedef enum nb_gkind {
    K_RET,   /* the rule's end                                                        */
    K_BYTE,  /* byte a                                                                */
    K_CLASS, /* a byte of class a                                                     */
    K_LIT,   /* bytes a .. a + b of g->text                                           */
    K_SET,   /* one of the strings of set a                                           */
    K_DFA,   /* a text of automaton a                                                 */
    K_CHARS, /* characters of a JSON string, between min and max of count a           */
    K_TOKEN, /* the marker a                                                          */
    K_FREE,  /* any text, and where b is 0 any marker, up to the end of trigger a      */
    K_ALT,   /* one of the nodes edge[a .. a + b]                                     */
    K_CALL,  /* rule a; b: it nests a document                                        */
    K_REP,   /* rule a, as often as count b says; the rule is never empty             */
    K_OPEN,  /* byte a, which opens an array or object: absent where nesting ends     */
    K_OBJ,   /* the members of object a, '{' was read; next: behind '}'               */
    K_KEY,   /* object a: a member may begin                                          */
    K_COMMA, /* object a: another member may follow                                   */
    K_END,   /* object a: it may end; '}'                                             */
    K_NAME,  /* object a: the name of a declared member                               */
    K_OTHER  /* object a: a name of class b that is not declared                      */
} nb_gkind;

typedef struct nb_gnode {
    uint8_t kind;
    bool live; /* some text leads from here to the rule's end */
    uint32_t a, b;
    nb_gid next;
} nb_gnode;

typedef struct nb_gcount {
    uint32_t min, max; /* NB_G_INF: no bound */
} nb_gcount;

/* A deterministic automaton over bytes.  State 0 is the start; all states can reach the end. */
typedef struct nb_gdfa {
    uint8_t cls[256];
    uint32_t n_cls, n_state;
    uint32_t *next;      /* [n_state][n_cls], NB_G_NONE: no such text */
    uint8_t *end;        /* [n_state]: NB_DFA_END, NB_DFA_MORE */
    uint64_t (*live)[4]; /* [n_state] bytes that may follow; by nb_g_finish */
} nb_gdfa;
enum { NB_DFA_END = 1, NB_DFA_MORE = 2 }; /* the text may end here; it may go on */

typedef struct nb_gclass {
    uint64_t bit[4];
} nb_gclass;
static inline void nb_gclass_add(nb_gclass *c, unsigned lo, unsigned hi)
{
    for (unsigned i = lo; i <= hi; i++) c->bit[i >> 6] |= 1ull << (i & 63);
}
static inline bool nb_gclass_has(const nb_gclass *c, unsigned byte)
{
    return c->bit[byte >> 6] >> (byte & 63) & 1;
}

/* Strings in order of their bytes; no two are equal. */
typedef struct nb_gset {
    nb_str *s;
    size_t n;
} nb_gset;

/* Where free text ends: a text, which automaton `dfa` finds (its last state is the end); or a marker,
 * behind the text that `dfa` finds, if there is one. */
typedef struct nb_gtrigger {
    uint32_t marker, dfa;
    bool may_end; /* the whole text may end before the trigger */
} nb_gtrigger;

typedef struct nb_gprop {
    uint32_t rule; /* of its value; NB_G_NONE: no value is possible */
    nb_gid node;   /* behind its name */
    bool required, live;
} nb_gprop;

/* Names that are not declared: those that automaton dfa accepts (with the closing quote).  Where
 * `exclude`, not the declared ones. */
typedef struct nb_gother {
    uint32_t dfa, rule;
    nb_gid node;
    bool exclude, live;
} nb_gother;

typedef struct nb_gobj {
    nb_gprop *prop; /* [n_prop], in the schema's order */
    size_t n_prop;
    nb_gset names;   /* all declared, escaped, with the closing quote */
    uint32_t *index; /* [names.n]: of prop */
    nb_gother *other;
    size_t n_other;
    uint32_t min, max; /* members */
    bool counts;       /* min or max matter */
    nb_gid first;      /* behind '{' */
    /* by nb_g_finish; [n_prop + 1]: the first required one from i on; numbers of required and of
     * possible ones from i on */
    uint32_t *next_required, *n_required, *n_live;
    bool other_live;
} nb_gobj;

struct nb_grammar {
    atomic_size_t n_ref;
    const nb_vocab *vocab;
    nb_gnode *node;
    nb_gid *edge;
    nb_gid *rule; /* start nodes */
    nb_gcount *count;
    nb_gclass *cls;
    nb_gdfa *dfa;
    nb_gset *set;
    nb_gobj *obj;
    nb_gtrigger *trigger;
    nb_buf text; /* of K_LIT */
    size_t n_node, n_edge, n_rule, n_count, n_cls, n_dfa, n_set, n_obj, n_trigger;
    size_t cap_node, cap_edge, cap_rule, cap_count, cap_cls, cap_dfa, cap_set, cap_obj, cap_trigger;
    nb_arena arena;                       /* arrays of automata, sets and objects */
    uint32_t root;                        /* a rule */
    uint32_t start[NB_MATCH_STARTS];      /* rules: root, and with a thought before it */
    uint32_t thought_open, thought_close; /* markers, or NB_GRAMMAR_NO_TOKEN */
    uint32_t chars;                       /* automaton of one character of a JSON string */
    uint32_t name; /* automaton of any name in canonical form, with the closing quote */
    int64_t fuel;
    uint32_t space;                   /* automaton of white space */
    uint32_t any;                     /* rule of any value, or NB_G_NONE until it is needed */
    uint32_t number, integer;         /* automata */
    struct nb_class_memo *class_memo; /* regex.c: sets of code points that have an automaton */
    size_t n_class_memo, cap_class_memo, n_expand;
    bool compact;
    nb_error err; /* the first failure of a builder */
};

/* ---- graph.c ---- */

/* Builders.  They return NB_G_NONE after the first failure, which g->err keeps, and accept it as an
 * argument: a caller checks once. */
nb_gid nb_g_node(nb_grammar *g, nb_gkind kind, uint32_t a, uint32_t b, nb_gid next);
nb_gid nb_g_bytes(nb_grammar *g, nb_str s, nb_gid next);
nb_gid nb_g_text(nb_grammar *g, const char *s, nb_gid next);
nb_gid nb_g_alt(nb_grammar *g, const nb_gid *to, size_t n);
nb_gid nb_g_alt2(nb_grammar *g, nb_gid x, nb_gid y);
/* An alternative whose nodes come later: nb_g_alt_set fills in. */
nb_gid nb_g_alt_room(nb_grammar *g, size_t n);
void nb_g_alt_set(nb_grammar *g, nb_gid alt, size_t i, nb_gid to);
nb_gid nb_g_class(nb_grammar *g, const nb_gclass *c, nb_gid next);
nb_gid nb_g_call(nb_grammar *g, uint32_t rule, bool nests, nb_gid next);
nb_gid nb_g_rep(nb_grammar *g, uint32_t rule, uint32_t min, uint32_t max, nb_gid next);
nb_gid nb_g_chars(nb_grammar *g, uint32_t min, uint32_t max, nb_gid next);
/* White space between two of JSON's tokens. */
nb_gid nb_g_space(nb_grammar *g, nb_gid next);
/* Sorts and copies; equal ones become one. */
nb_gid nb_g_set(nb_grammar *g, const nb_str *s, size_t n, nb_gid next);
nb_gid nb_g_dfa_node(nb_grammar *g, uint32_t dfa, nb_gid next);
/* Takes tables of the arena. */
uint32_t nb_g_dfa_add(nb_grammar *g, const nb_gdfa *d);
/* Text in which markers of the vocabulary stand for their tokens. */
nb_gid nb_g_marked(nb_grammar *g, nb_str s, nb_gid next);
/* Free text up to and with the trigger. */
nb_gid nb_g_free_until(nb_grammar *g, nb_str trigger, bool may_end, nb_gid next);
uint32_t nb_g_rule_new(nb_grammar *g);
void nb_g_rule_set(nb_grammar *g, uint32_t rule, nb_gid start);
uint32_t nb_g_rule_of(nb_grammar *g, nb_gid start);
nb_gid nb_g_ret(nb_grammar *g);

nb_status nb_g_fail(nb_grammar *g, nb_status st, const char *fmt, ...) NB_PRINTF(3, 4);
bool nb_g_ok(const nb_grammar *g);
/* False when the fuel is gone. */
bool nb_g_spend(nb_grammar *g, size_t n);
void *nb_g_alloc(nb_grammar *g, size_t n, size_t item_bytes);
nb_str nb_g_copy(nb_grammar *g, nb_str s);
int nb_str_order(nb_str a, nb_str b);
/* Sorts s[n] by bytes and drops equal ones; returns how many are left. */
size_t nb_str_sort(nb_str *s, size_t n);

/* ---- finish.c ---- */

/* What has no text, what is possible, left recursion.  The graph is complete then. */
nb_status nb_g_finish(nb_grammar *g, nb_error *err);

/* ---- front ends: each sets g->root ---- */

nb_status nb_g_regex(nb_grammar *g, nb_str text);
nb_status nb_g_gbnf(nb_grammar *g, nb_str text);
nb_status nb_g_choice(nb_grammar *g, nb_str json);
nb_status nb_g_schema(nb_grammar *g, nb_str json, bool relaxed);
nb_status nb_g_tools(nb_grammar *g, nb_str json);
/* The rule of a schema in the document `root`, to which its references refer; object: the value is an
 * object, too.  NB_G_NONE: failed. */
struct json_t;
uint32_t nb_g_schema_rule(nb_grammar *g, struct json_t *root, const struct json_t *schema,
                          bool relaxed, bool object);
struct json_t *nb_g_parse(nb_grammar *g, nb_str text, const char *name);

/* ---- json.c ---- */

/* The automata that every grammar has: chars, name, space. */
nb_status nb_g_automata(nb_grammar *g);
/* An object: o's prop (rule, required), names, index, other (dfa, rule, exclude), min and max are set,
 * in memory of the arena. */
nb_gid nb_g_object(nb_grammar *g, const nb_gobj *o, nb_gid next);
/* An array: first the n items of `head` (rules), then items of rule `rest` (NB_G_NONE: none), between
 * min and max items in all. */
nb_gid nb_g_array(nb_grammar *g, const uint32_t *head, size_t n, uint32_t rest, uint32_t min,
                  uint32_t max, nb_gid next);
/* Any string; any number. */
nb_gid nb_g_any_string(nb_grammar *g, nb_gid next);
nb_gid nb_g_any_number(nb_grammar *g, bool integer, nb_gid next);
/* The rule of any JSON value; of any object; of any array. */
uint32_t nb_g_any_value(nb_grammar *g);
nb_gid nb_g_any_object(nb_grammar *g, nb_gid next);
nb_gid nb_g_any_array(nb_grammar *g, nb_gid next);

#endif
