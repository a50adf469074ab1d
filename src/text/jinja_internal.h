/* jinja_internal.h - what the files of the template engine share: values, the
 * syntax tree, the state of one rendering.
 *
 * Memory: the tree lives in the nb_jinja's arena; every value made while rendering
 * lives in the rendering's arena and dies with it, so values are plain structs that
 * are copied freely.  Text under construction is appended to nb_jr.buf, used as
 * a stack: take a mark, append, cut the text off with nb_j_take.  An error leaves
 * everything where it is; nb_jinja_render_stats cleans up once.
 *
 * Names: "Python" below means the behaviour of CPython 3.11 objects as Jinja2
 * 3.1 exposes them. */
#ifndef NB_TEXT_JINJA_INTERNAL_H
#define NB_TEXT_JINJA_INTERNAL_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/attr.h"
#include "base/status.h"
#include "base/str.h"
#include "text/jinja.h"

/* ---- values ---- */

typedef enum nb_jkind {
    NB_JK_MISSING = 0, /* argument not given, variable not set; never a template value */
    NB_JK_UNDEF,
    NB_JK_NONE,
    NB_JK_BOOL,
    NB_JK_INT,
    NB_JK_FLOAT,
    NB_JK_STR,
    NB_JK_LIST,
    NB_JK_TUPLE,
    NB_JK_DICT,
    NB_JK_NS,     /* namespace(): u.dict */
    NB_JK_RANGE,
    NB_JK_VIEW,   /* dict.keys(), .values(), .items(): u.dict, sub = nb_jview */
    NB_JK_GEN,    /* an iterator that can be consumed once */
    NB_JK_SLICE,  /* only as the subscript of an item access */
    NB_JK_FUNC,   /* global function */
    NB_JK_BOUND,  /* method of an object */
    NB_JK_MACRO,
    NB_JK_LOOP,
} nb_jkind;

typedef enum nb_jview { NB_JVIEW_KEYS, NB_JVIEW_VALUES, NB_JVIEW_ITEMS } nb_jview;

/* How an undefined value describes itself (sub of NB_JK_UNDEF). */
typedef enum nb_jundef {
    NB_JUNDEF_NAME,   /* u.s: the variable's name */
    NB_JUNDEF_ATTR,   /* u.s: attribute, aux: kind of the object */
    NB_JUNDEF_ITEM,   /* u.s: repr of the subscript, aux: kind of the object */
    NB_JUNDEF_HINT,   /* u.s: the whole message */
} nb_jundef;

typedef struct nb_jlist nb_jlist;
typedef struct nb_jdict nb_jdict;
typedef struct nb_jrange nb_jrange;
typedef struct nb_jgen nb_jgen;
typedef struct nb_jslice nb_jslice;
typedef struct nb_jbound nb_jbound;
typedef struct nb_jmacro nb_jmacro;
typedef struct nb_jloop nb_jloop;
typedef struct nb_jdef nb_jdef;
typedef struct nb_jn nb_jn;
typedef struct nb_jr nb_jr;

typedef struct nb_jv {
    uint8_t kind; /* nb_jkind */
    uint8_t sub;  /* STR: 1 = Markup; see above */
    uint32_t aux;
    union {
        bool b;
        int64_t i;
        double f;
        nb_str s; /* valid UTF-8 */
        nb_jlist *list;
        nb_jdict *dict;
        const nb_jrange *range;
        nb_jgen *gen;
        const nb_jslice *slice;
        const nb_jdef *func;
        const nb_jbound *bound;
        const nb_jmacro *macro;
        nb_jloop *loop;
    } u;
} nb_jv;

struct nb_jlist {
    nb_jv *v;
    size_t n, cap;
};
typedef struct nb_jentry {
    nb_jv key, val;
    uint64_t hash;
} nb_jentry;
struct nb_jdict { /* insertion order; index is open addressing, 0 = free, else entry + 1 */
    nb_jentry *e;
    size_t n, cap;
    uint32_t *index; /* NULL while small */
    size_t index_cap;
};
struct nb_jrange {
    int64_t start, stop, step;
    size_t n;
};
struct nb_jgen {
    const nb_jv *v;
    size_t n, pos;
    const char *type_name;
};
struct nb_jslice {
    nb_jv start, stop, step; /* NONE when left out */
};
struct nb_jbound {
    nb_jv self;
    const nb_jdef *def;
};

typedef struct nb_jargs {
    const nb_jv *pos;
    size_t n_pos;
    const nb_str *kw_name;
    const nb_jv *kw_val;
    size_t n_kw;
} nb_jargs;

/* A filter, test, method or global function.  params: the parameters' names,
 * separated by blanks; a[] gets them bound, MISSING where not given.  "*" takes
 * anything: a is NULL.  raw always holds the arguments as they came.  self is the
 * filtered or tested value or the method's object, NULL for a function. */
typedef nb_status nb_jfn(nb_jr *r, const nb_jv *self, const nb_jv *a, const nb_jargs *raw,
                         nb_jv *out);
struct nb_jdef {
    const char *name;
    const char *params;
    unsigned n_required;
    nb_jfn *fn; /* NULL: known to Python or Jinja2, refused here */
};
enum { NB_J_MAX_PARAMS = 6 };
#define NB_J_REFUSED(name) { name, "*", 0, NULL } /* a row: no public chat template needs it */

/* Tables end with name == NULL. */
extern const nb_jdef nb_j_filters_basic[], nb_j_filters_seq[], nb_j_tests[], nb_j_globals[];
extern const nb_jdef nb_j_str_methods[], nb_j_list_methods[], nb_j_tuple_methods[];
extern const nb_jdef nb_j_dict_methods[], nb_j_loop_methods[];
const nb_jdef *nb_j_find_def(const nb_jdef *table, nb_str name);
const nb_jdef *nb_j_find_filter(nb_str name);

/* ---- syntax tree ---- */

typedef enum nb_jop {
    /* expressions */
    NB_JE_CONST, NB_JE_NAME, NB_JE_TUPLE, NB_JE_LIST, NB_JE_DICT, NB_JE_COND, NB_JE_OR, NB_JE_AND,
    NB_JE_NOT, NB_JE_CMP, NB_JE_CONCAT, NB_JE_ADD, NB_JE_SUB, NB_JE_MUL, NB_JE_DIV, NB_JE_FLOORDIV,
    NB_JE_MOD, NB_JE_NEG, NB_JE_POS, NB_JE_ATTR, NB_JE_ITEM, NB_JE_SLICE, NB_JE_CALL,
    NB_JE_FILTER, NB_JE_TEST, NB_JE_NSREF,
    /* statements */
    NB_JS_BODY, NB_JS_DATA, NB_JS_OUT, NB_JS_IF, NB_JS_FOR, NB_JS_SET, NB_JS_SETBLOCK, NB_JS_MACRO,
    NB_JS_CALL, NB_JS_BREAK, NB_JS_CONTINUE, NB_JS_SCOPE,
} nb_jop;

typedef enum nb_jcmp {
    NB_JC_EQ, NB_JC_NE, NB_JC_LT, NB_JC_LE, NB_JC_GT, NB_JC_GE, NB_JC_IN, NB_JC_NOTIN
} nb_jcmp;

typedef struct nb_jcall {
    nb_jn **pos;
    nb_str *kw_name;
    nb_jn **kw;
    uint32_t n_pos, n_kw;
} nb_jcall;

typedef struct nb_jsig { /* parameters of a macro or of a call block's caller */
    uint32_t *param;      /* name ids */
    nb_jn **dflt;         /* of the last n_dflt parameters */
    uint32_t n_param, n_dflt;
    bool uses_caller;
} nb_jsig;

/* Which member is used by which op:
 *  CONST k | NAME id,name | TUPLE LIST BODY kid | DICT kid: key, value, ...
 *  COND a ? b : c (c may be NULL) | OR AND arithmetic a,b | NOT NEG POS a
 *  CMP kid operands, ops one nb_jcmp each | CONCAT kid | ATTR a.name | ITEM a[b]
 *  SLICE a:b:c (each may be NULL) | CALL a(call) | FILTER TEST a, name, def, call
 *  NSREF id.name | DATA name | OUT a
 *  IF kid: test, body, ... and a last body without test
 *  FOR a target, b iterable, c test, kid[0] body, kid[1] else
 *  SET a target, b value | SETBLOCK a target, b filters (innermost operand NULL), kid[0]
 *  MACRO id,name,sig,kid[0] | CALL a (a JE_CALL), sig, kid[0] | SCOPE kid[0] */
struct nb_jn {
    uint8_t op;
    uint32_t line, id, n_kid;
    nb_str name;
    nb_jn *a, *b, *c;
    nb_jn **kid;
    union {
        nb_jv k;
        const nb_jcall *call;
        const nb_jsig *sig;
        const uint8_t *ops;
    } u;
    const nb_jdef *def;
};

struct nb_jinja {
    nb_arena arena;
    nb_jn *root;
    nb_str *names; /* by id; terminated */
    uint32_t n_names;
    bool iterates_content;
    const struct nb_jtoken *tokens; /* in the arena */
    size_t n_tokens;
};
enum { NB_JID_LOOP, NB_JID_CALLER }; /* names that the engine itself sets */

/* ---- tokens (jinja_lex.c) ---- */

typedef enum nb_jtok {
    NB_JT_EOF, NB_JT_DATA, NB_JT_VAR_BEGIN, NB_JT_VAR_END, NB_JT_BLOCK_BEGIN, NB_JT_BLOCK_END,
    NB_JT_NAME, NB_JT_STRING, NB_JT_INT, NB_JT_FLOAT,
    NB_JT_ADD, NB_JT_SUB, NB_JT_MUL, NB_JT_DIV, NB_JT_FLOORDIV, NB_JT_MOD, NB_JT_POW, NB_JT_TILDE,
    NB_JT_LPAREN, NB_JT_RPAREN, NB_JT_LBRACKET, NB_JT_RBRACKET, NB_JT_LBRACE, NB_JT_RBRACE,
    NB_JT_EQ, NB_JT_NE, NB_JT_LT, NB_JT_LE, NB_JT_GT, NB_JT_GE, NB_JT_ASSIGN, NB_JT_DOT,
    NB_JT_COLON, NB_JT_PIPE, NB_JT_COMMA, NB_JT_SEMI,
} nb_jtok;

typedef struct nb_jtoken {
    uint8_t type; /* nb_jtok */
    uint32_t line;
    nb_str s;     /* DATA, NAME: text; STRING: the unescaped text */
    union {
        int64_t i;
        double f;
    } num;
} nb_jtoken;

/* Source without newline normalisation; tokens end with EOF and point into the arena. */
nb_status nb_j_lex(nb_arena *arena, nb_str source, nb_jtoken **tokens, size_t *n_tokens,
                   nb_error *err);

/* ---- parser (jinja_parse.c statements, jinja_parse_expr.c expressions) ---- */

typedef struct nb_jp {
    nb_jinja *t;
    const nb_jtoken *tok; /* the current token; EOF repeats */
    nb_error *err;
    unsigned depth, loop_depth;
    nb_jsig *sig; /* of the innermost macro being parsed, to note caller */
    uint32_t *name_index; /* open addressing over t->names */
    size_t name_cap, name_index_cap;
    uint8_t *content_alias; /* by id: set from X.content */
    size_t content_alias_cap;
} nb_jp;

enum { NB_J_MAX_PARSE_DEPTH = 150 };

nb_status nb_jp_fail(nb_jp *p, uint32_t line, const char *fmt, ...) NB_PRINTF(3, 4);
nb_status nb_jp_node(nb_jp *p, nb_jop op, uint32_t line, nb_jn **out);
nb_status nb_jp_intern(nb_jp *p, nb_str name, uint32_t *id);
nb_status nb_jp_expect(nb_jp *p, nb_jtok type, const char *what);
bool nb_jp_is_name(const nb_jp *p, const char *name);
bool nb_jp_skip_name(nb_jp *p, const char *name);
void nb_jp_next(nb_jp *p);
nb_status nb_jp_enter(nb_jp *p);

/* A list of nodes while parsing: arena memory, doubled. */
typedef struct nb_jnodes {
    nb_jn **v;
    size_t n, cap;
} nb_jnodes;
nb_status nb_jp_push(nb_jp *p, nb_jnodes *l, nb_jn *n);

typedef struct nb_jtuple_opts {
    bool simplified, no_condexpr, explicit_parens, with_namespace;
    const char *end_name; /* a name that also ends the tuple, or NULL */
} nb_jtuple_opts;
nb_status nb_jp_expr(nb_jp *p, nb_jn **out);
nb_status nb_jp_tuple(nb_jp *p, nb_jtuple_opts o, nb_jn **out);
nb_status nb_jp_filters(nb_jp *p, nb_jn *operand, nb_jn **out);
/* NB_ERR_UNSUPPORTED: "what is not supported". */
nb_status nb_jp_refuse(nb_jp *p, uint32_t line, const char *what);

/* ---- rendering ---- */

typedef struct nb_jvar {
    uint32_t id;
    nb_jv v;
} nb_jvar;
typedef struct nb_jscope nb_jscope;
struct nb_jscope {
    nb_jscope *parent;
    nb_jvar *var;
    uint32_t n, cap;
    bool captured; /* a macro refers to it: not to be reused */
};
struct nb_jmacro {
    const nb_jn *node; /* NB_JS_MACRO or NB_JS_CALL */
    const nb_jsig *sig;
    nb_jscope *closure;
    nb_str name;
};

/* Iteration over anything iterable; see nb_j_iter. */
typedef struct nb_jiter {
    const nb_jv *v;       /* list, tuple */
    const nb_jentry *e;   /* dict, view */
    nb_jgen *gen;
    nb_str s;
    size_t i, n;          /* n: items in all (what was left, for a generator) */
    int64_t at, step;
    uint8_t kind, sub;
} nb_jiter;

struct nb_jloop {
    nb_jiter it;
    int64_t index0;
    size_t n;
    nb_jv before, current;
};

typedef enum nb_jflow { NB_JFLOW_NONE, NB_JFLOW_BREAK, NB_JFLOW_CONTINUE } nb_jflow;

struct nb_jr {
    const nb_jinja *t;
    const json_t *vars;
    nb_jinja_limits lim;
    nb_arena arena;
    char *bump;
    size_t bump_left, value_bytes;
    uint64_t n_steps;
    unsigned depth;
    nb_buf buf;
    nb_jscope *scope;
    nb_jv *context; /* by name id: the converted variable, MISSING = not yet */
    nb_jflow flow;
    nb_jv filter_operand; /* the text of a set block, for its first filter */
    uint32_t line;
    bool printed_container;
    nb_error *err;
};

/* jinja_render.c: errors, limits, memory, text */
nb_status nb_j_fail(nb_jr *r, nb_status st, const char *fmt, ...) NB_PRINTF(3, 4);
#define NB_J_TYPE_ERROR(r, ...) nb_j_fail((r), NB_ERR_FORMAT, "TypeError: " __VA_ARGS__)
#define NB_J_VALUE_ERROR(r, ...) nb_j_fail((r), NB_ERR_FORMAT, "ValueError: " __VA_ARGS__)
nb_status nb_j_fail_undef(nb_jr *r, const nb_jv *undef);
nb_status nb_j_enter(nb_jr *r);              /* one level deeper; pair with nb_j_leave */
static inline void nb_j_leave(nb_jr *r) { r->depth--; }
nb_status nb_j_work(nb_jr *r, size_t bytes); /* charges steps for work on long values */
nb_status nb_j_alloc(nb_jr *r, size_t bytes, void **out); /* zeroed */
nb_status nb_j_add(nb_jr *r, nb_str s);
nb_status nb_j_add_c(nb_jr *r, const char *s);
nb_status nb_j_add_ch(nb_jr *r, char c);
static inline size_t nb_j_mark(const nb_jr *r) { return r->buf.n_bytes; }
nb_status nb_j_take(nb_jr *r, size_t mark, nb_jv *out); /* text since mark -> a str */
void nb_j_drop(nb_jr *r, size_t mark);
nb_status nb_j_from_json(nb_jr *r, const json_t *j, nb_jv *out);

/* jinja_exec.c */
nb_status nb_j_exec(nb_jr *r, const nb_jn *n);
nb_status nb_j_push_scope(nb_jr *r, nb_jscope *parent, nb_jscope **out);
nb_status nb_j_set_var(nb_jr *r, nb_jscope *s, uint32_t id, const nb_jv *v);
nb_status nb_j_get_var(nb_jr *r, uint32_t id, nb_jv *out); /* MISSING if nowhere */
nb_status nb_j_call_macro(nb_jr *r, const nb_jmacro *m, const nb_jargs *args, nb_jv *out);

/* jinja_eval.c, jinja_ops.c */
nb_status nb_j_eval(nb_jr *r, const nb_jn *n, nb_jv *out);
nb_status nb_j_eval_args(nb_jr *r, const nb_jcall *c, nb_jargs *out);
nb_status nb_j_call(nb_jr *r, const nb_jv *fn, const nb_jargs *args, nb_jv *out);
nb_status nb_j_call_def(nb_jr *r, const nb_jdef *d, const char *what, const nb_jv *self,
                        const nb_jargs *args, nb_jv *out);
nb_status nb_j_getitem(nb_jr *r, const nb_jv *o, const nb_jv *key, nb_jv *out);
nb_status nb_j_binop(nb_jr *r, nb_jop op, const nb_jv *a, const nb_jv *b, nb_jv *out);
nb_status nb_j_compare(nb_jr *r, nb_jcmp op, const nb_jv *a, const nb_jv *b, bool *out);

/* jinja_value.c */
static inline nb_jv nb_jv_none(void) { return (nb_jv){ .kind = NB_JK_NONE }; }
static inline nb_jv nb_jv_bool(bool b) { return (nb_jv){ .kind = NB_JK_BOOL, .u.b = b }; }
static inline nb_jv nb_jv_int(int64_t i) { return (nb_jv){ .kind = NB_JK_INT, .u.i = i }; }
static inline nb_jv nb_jv_float(double f) { return (nb_jv){ .kind = NB_JK_FLOAT, .u.f = f }; }
static inline nb_jv nb_jv_str(nb_str s) { return (nb_jv){ .kind = NB_JK_STR, .u.s = s }; }
static inline bool nb_jv_given(const nb_jv *v)
{
    return v->kind != NB_JK_MISSING && v->kind != NB_JK_NONE;
}
static inline bool nb_jv_is_int(const nb_jv *v) /* a bool is an int */
{
    return v->kind == NB_JK_INT || v->kind == NB_JK_BOOL;
}
static inline int64_t nb_jv_as_int(const nb_jv *v)
{
    return v->kind == NB_JK_BOOL ? (int64_t)v->u.b : v->u.i;
}
static inline bool nb_jv_is_num(const nb_jv *v)
{
    return nb_jv_is_int(v) || v->kind == NB_JK_FLOAT;
}
static inline double nb_jv_as_float(const nb_jv *v)
{
    return v->kind == NB_JK_FLOAT ? v->u.f : (double)nb_jv_as_int(v);
}
nb_jv nb_jv_undef(nb_jundef why, nb_str s, nb_jkind of);
nb_status nb_jv_copy_str(nb_jr *r, nb_str s, nb_jv *out);
/* Copies every string inside v, in place, into the rendering's memory. */
nb_status nb_jv_own(nb_jr *r, nb_jv *v);
bool nb_jv_truth(const nb_jv *v);
const char *nb_jv_type_name(const nb_jv *v);
nb_status nb_jv_equal(nb_jr *r, const nb_jv *a, const nb_jv *b, bool *out);
/* -1, 0, 1 as `a < b` would decide; op_name only for the error line. */
nb_status nb_jv_order(nb_jr *r, const nb_jv *a, const nb_jv *b, const char *op_name, int *out);
nb_status nb_j_list_new(nb_jr *r, nb_jkind kind, size_t cap, nb_jv *out);
nb_status nb_j_list_push(nb_jr *r, nb_jlist *l, const nb_jv *v);
nb_status nb_j_gen_new(nb_jr *r, const nb_jlist *items, const char *type_name, nb_jv *out);
nb_status nb_j_dict_new(nb_jr *r, nb_jkind kind, nb_jv *out);
nb_status nb_j_dict_set(nb_jr *r, nb_jdict *d, const nb_jv *key, const nb_jv *val);
nb_status nb_j_dict_find(nb_jr *r, const nb_jdict *d, const nb_jv *key, size_t *index);
const nb_jv *nb_j_dict_get_str(const nb_jdict *d, nb_str key); /* NULL if absent */
nb_status nb_j_dict_remove(nb_jr *r, nb_jdict *d, size_t index);
nb_status nb_j_iter(nb_jr *r, const nb_jv *v, nb_jiter *it); /* TypeError if not iterable */
nb_status nb_j_next(nb_jr *r, nb_jiter *it, nb_jv *out, bool *got);
nb_status nb_j_to_list(nb_jr *r, const nb_jv *v, nb_jlist **out); /* a fresh list */
nb_status nb_j_sort(nb_jr *r, nb_jv *keys, nb_jv *items, size_t n, bool reverse); /* stable */

/* jinja_repr.c */
nb_status nb_j_add_str(nb_jr *r, const nb_jv *v);  /* str(v) */
nb_status nb_j_add_repr(nb_jr *r, const nb_jv *v); /* repr(v) */
nb_status nb_j_to_str(nb_jr *r, const nb_jv *v, nb_jv *out); /* str(v); a str is itself */
size_t nb_j_float_repr(double x, char out[40]);
nb_status nb_j_parse_float(nb_str s, double *out); /* NB_ERR_FORMAT if s is no number */
/* jinja_json.c */
nb_status nb_j_tojson(nb_jr *r, const nb_jv *self, const nb_jv *a, const nb_jargs *raw, nb_jv *out);
nb_status nb_j_fromjson(nb_jr *r, const nb_jv *self, const nb_jv *a, const nb_jargs *raw,
                        nb_jv *out);
/* jinja_time.c */
nb_status nb_j_strftime(nb_jr *r, nb_str fmt, int64_t now_s, nb_jv *out);

/* jinja_unicode.c: strings by code points, Python's notions of space and case */
uint32_t nb_j_cp(nb_str s, size_t at, size_t *len); /* s is valid UTF-8, at < n_bytes */
size_t nb_j_cp_count(nb_str s);
size_t nb_j_cp_offset(nb_str s, size_t n_cp); /* bytes of the first n_cp code points */
bool nb_j_is_space(uint32_t cp);
bool nb_j_is_printable(uint32_t cp);
bool nb_j_is_word(uint32_t cp); /* \w */
nb_str nb_j_lstrip(nb_str s, const nb_str *chars); /* chars NULL: white space */
nb_str nb_j_rstrip(nb_str s, const nb_str *chars);
typedef enum nb_jcase { NB_JCASE_UPPER, NB_JCASE_LOWER, NB_JCASE_CAPITALIZE } nb_jcase;
nb_status nb_j_add_case(nb_jr *r, nb_str s, nb_jcase c);
size_t nb_j_find(nb_str s, nb_str what, size_t from);  /* byte offset or SIZE_MAX */
size_t nb_j_rfind(nb_str s, nb_str what, size_t end);
nb_str nb_j_sub(nb_str s, size_t from, size_t to);
bool nb_j_word_start(uint32_t cp);
nb_status nb_j_replace(nb_jr *r, nb_str s, nb_str from, nb_str to, int64_t max_n, nb_jv *out);
nb_status nb_j_add_escaped(nb_jr *r, nb_str s); /* HTML */

#endif
