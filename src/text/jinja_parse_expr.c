/* jinja_parse_expr.c - expressions of the template language, by recursive descent
 * with Jinja2's precedences: if-else, or, and, not, comparisons, + -, ~, * / // %, unary minus, then subscripts and calls, then filters and tests. */
#include "text/jinja_internal.h"

static nb_status parse_or(nb_jp *p, nb_jn **out);
static nb_status parse_unary(nb_jp *p, bool with_filter, nb_jn **out);

static nb_status parse_condexpr(nb_jp *p, nb_jn **out)
{
    nb_jn *e = NULL, *n = NULL;
    const uint32_t line = p->tok->line;
    NB_TRY(parse_or(p, &e));
    while (nb_jp_skip_name(p, "if")) {
        NB_TRY(nb_jp_node(p, NB_JE_COND, line, &n));
        n->b = e;
        NB_TRY(parse_or(p, &n->a));
        if (nb_jp_skip_name(p, "else")) NB_TRY(nb_jp_expr(p, &n->c));
        e = n;
    }
    *out = e;
    return NB_OK;
}

nb_status nb_jp_expr(nb_jp *p, nb_jn **out)
{
    NB_TRY(nb_jp_enter(p));
    const nb_status st = parse_condexpr(p, out);
    p->depth--;
    return st;
}

static nb_status binary(nb_jp *p, nb_jop op, uint32_t line, nb_jn *left, nb_jn **out)
{
    NB_TRY(nb_jp_node(p, op, line, out));
    (*out)->a = left;
    return NB_OK;
}

static nb_status parse_concat(nb_jp *p, nb_jn **out);

static nb_status parse_math1(nb_jp *p, nb_jn **out)
{
    NB_TRY(parse_concat(p, out));
    while (p->tok->type == NB_JT_ADD || p->tok->type == NB_JT_SUB) {
        NB_TRY(binary(p, p->tok->type == NB_JT_ADD ? NB_JE_ADD : NB_JE_SUB, p->tok->line, *out,
                      out));
        nb_jp_next(p);
        NB_TRY(parse_concat(p, &(*out)->b));
    }
    return NB_OK;
}

/* The comparison at the current token, or -1; consumes it. */
static int take_comparison(nb_jp *p)
{
    switch (p->tok->type) {
    case NB_JT_EQ: nb_jp_next(p); return NB_JC_EQ;
    case NB_JT_NE: nb_jp_next(p); return NB_JC_NE;
    case NB_JT_LT: nb_jp_next(p); return NB_JC_LT;
    case NB_JT_LE: nb_jp_next(p); return NB_JC_LE;
    case NB_JT_GT: nb_jp_next(p); return NB_JC_GT;
    case NB_JT_GE: nb_jp_next(p); return NB_JC_GE;
    default: break;
    }
    if (nb_jp_skip_name(p, "in")) return NB_JC_IN;
    if (nb_jp_is_name(p, "not") && p->tok[1].type == NB_JT_NAME && nb_str_eqc(p->tok[1].s, "in")) {
        nb_jp_next(p);
        nb_jp_next(p);
        return NB_JC_NOTIN;
    }
    return -1;
}

static nb_status parse_compare(nb_jp *p, nb_jn **out)
{
    const uint32_t line = p->tok->line;
    nb_jnodes kids = { 0 };
    uint8_t ops[64];
    nb_jn *e = NULL, *n = NULL;
    NB_TRY(parse_math1(p, &e));
    for (int op; (op = take_comparison(p)) >= 0;) {
        if (!kids.n) NB_TRY(nb_jp_push(p, &kids, e));
        if (kids.n > sizeof ops)
            return nb_jp_fail(p, line, "a chain of more than %zu comparisons", sizeof ops);
        ops[kids.n - 1] = (uint8_t)op;
        NB_TRY(parse_math1(p, &n));
        NB_TRY(nb_jp_push(p, &kids, n));
    }
    *out = e;
    if (!kids.n) return NB_OK;
    NB_TRY(nb_jp_node(p, NB_JE_CMP, line, out));
    (*out)->kid = kids.v;
    (*out)->n_kid = (uint32_t)kids.n;
    uint8_t *copy = nb_arena_alloc(&p->t->arena, kids.n);
    if (!copy) return nb_fail(p->err, NB_ERR_NOMEM, "template: out of memory");
    memcpy(copy, ops, kids.n - 1);
    (*out)->u.ops = copy;
    return NB_OK;
}

static nb_status parse_not(nb_jp *p, nb_jn **out)
{
    if (!nb_jp_is_name(p, "not")) return parse_compare(p, out);
    NB_TRY(nb_jp_enter(p));
    NB_TRY(nb_jp_node(p, NB_JE_NOT, p->tok->line, out));
    nb_jp_next(p);
    NB_TRY(parse_not(p, &(*out)->a));
    p->depth--;
    return NB_OK;
}

static nb_status parse_and(nb_jp *p, nb_jn **out)
{
    NB_TRY(parse_not(p, out));
    while (nb_jp_is_name(p, "and")) {
        NB_TRY(binary(p, NB_JE_AND, p->tok->line, *out, out));
        nb_jp_next(p);
        NB_TRY(parse_not(p, &(*out)->b));
    }
    return NB_OK;
}

static nb_status parse_or(nb_jp *p, nb_jn **out)
{
    NB_TRY(parse_and(p, out));
    while (nb_jp_is_name(p, "or")) {
        NB_TRY(binary(p, NB_JE_OR, p->tok->line, *out, out));
        nb_jp_next(p);
        NB_TRY(parse_and(p, &(*out)->b));
    }
    return NB_OK;
}

static nb_status parse_math2(nb_jp *p, nb_jn **out)
{
    NB_TRY(parse_unary(p, true, out));
    for (;;) {
        nb_jop op;
        switch (p->tok->type) {
        case NB_JT_MUL: op = NB_JE_MUL; break;
        case NB_JT_DIV: op = NB_JE_DIV; break;
        case NB_JT_FLOORDIV: op = NB_JE_FLOORDIV; break;
        case NB_JT_MOD: op = NB_JE_MOD; break;
        case NB_JT_POW: return nb_jp_refuse(p, p->tok->line, "the operator **");
        default: return NB_OK;
        }
        NB_TRY(binary(p, op, p->tok->line, *out, out));
        nb_jp_next(p);
        NB_TRY(parse_unary(p, true, &(*out)->b));
    }
}

static nb_status parse_concat(nb_jp *p, nb_jn **out)
{
    const uint32_t line = p->tok->line;
    nb_jnodes kids = { 0 };
    nb_jn *n = NULL;
    NB_TRY(parse_math2(p, out));
    while (p->tok->type == NB_JT_TILDE) {
        if (!kids.n) NB_TRY(nb_jp_push(p, &kids, *out));
        nb_jp_next(p);
        NB_TRY(parse_math2(p, &n));
        NB_TRY(nb_jp_push(p, &kids, n));
    }
    if (!kids.n) return NB_OK;
    NB_TRY(nb_jp_node(p, NB_JE_CONCAT, line, out));
    (*out)->kid = kids.v;
    (*out)->n_kid = (uint32_t)kids.n;
    return NB_OK;
}

static nb_status parse_list(nb_jp *p, nb_jop op, nb_jtok close, nb_jn **out)
{
    nb_jnodes kids = { 0 };
    nb_jn *n = NULL;
    NB_TRY(nb_jp_node(p, op, p->tok->line, out));
    nb_jp_next(p);
    while (p->tok->type != close) {
        if (kids.n) NB_TRY(nb_jp_expect(p, NB_JT_COMMA, "\",\""));
        if (p->tok->type == close) break;
        NB_TRY(nb_jp_expr(p, &n));
        NB_TRY(nb_jp_push(p, &kids, n));
        if (op != NB_JE_DICT) continue;
        NB_TRY(nb_jp_expect(p, NB_JT_COLON, "\":\""));
        NB_TRY(nb_jp_expr(p, &n));
        NB_TRY(nb_jp_push(p, &kids, n));
    }
    nb_jp_next(p);
    (*out)->kid = kids.v;
    (*out)->n_kid = (uint32_t)kids.n;
    return NB_OK;
}

/* Adjacent string literals are one string. */
static nb_status parse_string(nb_jp *p, nb_jn **out)
{
    NB_TRY(nb_jp_node(p, NB_JE_CONST, p->tok->line, out));
    nb_str s = p->tok->s;
    nb_jp_next(p);
    if (p->tok->type == NB_JT_STRING) {
        size_t n_bytes = s.n_bytes, n = 0;
        while (p->tok[n].type == NB_JT_STRING) n_bytes += p->tok[n++].s.n_bytes;
        char *c = nb_arena_alloc(&p->t->arena, n_bytes + 1);
        if (!c) return nb_fail(p->err, NB_ERR_NOMEM, "template: out of memory");
        if (s.n_bytes) memcpy(c, s.p, s.n_bytes);
        size_t at = s.n_bytes;
        for (; p->tok->type == NB_JT_STRING; nb_jp_next(p)) {
            if (p->tok->s.n_bytes) memcpy(c + at, p->tok->s.p, p->tok->s.n_bytes);
            at += p->tok->s.n_bytes;
        }
        s = (nb_str){ c, n_bytes };
    }
    (*out)->u.k = nb_jv_str(s);
    return NB_OK;
}

static nb_status parse_name(nb_jp *p, bool with_namespace, nb_jn **out)
{
    const nb_str s = p->tok->s;
    const uint32_t line = p->tok->line;
    nb_jp_next(p);
    NB_TRY(nb_jp_node(p, NB_JE_CONST, line, out));
    nb_jn *n = *out;
    if (nb_str_eqc(s, "true") || nb_str_eqc(s, "True")) {
        n->u.k = nb_jv_bool(true);
    } else if (nb_str_eqc(s, "false") || nb_str_eqc(s, "False")) {
        n->u.k = nb_jv_bool(false);
    } else if (nb_str_eqc(s, "none") || nb_str_eqc(s, "None")) {
        n->u.k = nb_jv_none();
    } else {
        n->op = NB_JE_NAME;
        n->name = s;
        NB_TRY(nb_jp_intern(p, s, &n->id));
        if (p->sig) p->sig->uses_caller |= n->id == NB_JID_CALLER;
        static const char *const implied[] = { "kwargs", "varargs" };
        for (size_t i = 0; p->sig && i < NB_COUNT(implied); i++)
            if (nb_str_eqc(s, implied[i])) return nb_jp_refuse(p, line, implied[i]);
        if (with_namespace && p->tok->type == NB_JT_DOT) {
            nb_jp_next(p);
            n->op = NB_JE_NSREF;
            n->name = p->tok->s;
            NB_TRY(nb_jp_expect(p, NB_JT_NAME, "a name"));
        }
    }
    return NB_OK;
}

static const char *const token_names[] = {
    "the end of the template", "text", "\"{{\"", "\"}}\"", "\"{%\"", "\"%}\"", "a name", "a string",
    "a number", "a number", "\"+\"", "\"-\"", "\"*\"", "\"/\"", "\"//\"", "\"%\"", "\"**\"",
    "\"~\"", "\"(\"", "\")\"", "\"[\"", "\"]\"", "\"{\"", "\"}\"", "\"==\"", "\"!=\"", "\"<\"",
    "\"<=\"", "\">\"", "\">=\"", "\"=\"", "\".\"", "\":\"", "\"|\"", "\",\"", "\";\"",
};

nb_status nb_jp_expect(nb_jp *p, nb_jtok type, const char *what)
{
    if (p->tok->type == type) {
        nb_jp_next(p);
        return NB_OK;
    }
    if (p->tok->type == NB_JT_NAME)
        return nb_jp_fail(p, p->tok->line, "expected %s, got \"%.*s\"", what,
                          (int)(p->tok->s.n_bytes > 60 ? 60 : p->tok->s.n_bytes), p->tok->s.p);
    return nb_jp_fail(p, p->tok->line, "expected %s, got %s", what, token_names[p->tok->type]);
}

static nb_status parse_primary(nb_jp *p, bool with_namespace, nb_jn **out)
{
    const nb_jtoken *t = p->tok;
    switch (t->type) {
    case NB_JT_NAME: return parse_name(p, with_namespace, out);
    case NB_JT_STRING: return parse_string(p, out);
    case NB_JT_INT:
    case NB_JT_FLOAT:
        NB_TRY(nb_jp_node(p, NB_JE_CONST, t->line, out));
        (*out)->u.k = t->type == NB_JT_INT ? nb_jv_int(t->num.i) : nb_jv_float(t->num.f);
        nb_jp_next(p);
        return NB_OK;
    case NB_JT_LPAREN:
        nb_jp_next(p);
        NB_TRY(nb_jp_tuple(p, (nb_jtuple_opts){ .explicit_parens = true }, out));
        return nb_jp_expect(p, NB_JT_RPAREN, "\")\"");
    case NB_JT_LBRACKET: return parse_list(p, NB_JE_LIST, NB_JT_RBRACKET, out);
    case NB_JT_LBRACE: return parse_list(p, NB_JE_DICT, NB_JT_RBRACE, out);
    default: return nb_jp_expect(p, NB_JT_NAME, "an expression");
    }
}

static bool tuple_ends(const nb_jp *p, const char *end_name)
{
    const uint8_t t = p->tok->type;
    return t == NB_JT_VAR_END || t == NB_JT_BLOCK_END || t == NB_JT_RPAREN ||
           (end_name && nb_jp_is_name(p, end_name));
}

nb_status nb_jp_tuple(nb_jp *p, nb_jtuple_opts o, nb_jn **out)
{
    const uint32_t line = p->tok->line;
    nb_jnodes kids = { 0 };
    bool is_tuple = false;
    NB_TRY(nb_jp_enter(p));
    for (;;) {
        nb_jn *n = NULL;
        if (kids.n) NB_TRY(nb_jp_expect(p, NB_JT_COMMA, "\",\""));
        if (tuple_ends(p, o.end_name)) break;
        if (o.simplified) NB_TRY(parse_primary(p, o.with_namespace, &n));
        else if (o.no_condexpr) NB_TRY(parse_or(p, &n));
        else NB_TRY(nb_jp_expr(p, &n));
        NB_TRY(nb_jp_push(p, &kids, n));
        if (p->tok->type != NB_JT_COMMA) break;
        is_tuple = true;
    }
    p->depth--;
    if (!is_tuple && kids.n) {
        *out = kids.v[0];
        return NB_OK;
    }
    if (!is_tuple && !o.explicit_parens)
        return nb_jp_fail(p, p->tok->line, "expected an expression, got %s",
                          token_names[p->tok->type]);
    NB_TRY(nb_jp_node(p, NB_JE_TUPLE, line, out));
    (*out)->kid = kids.v;
    (*out)->n_kid = (uint32_t)kids.n;
    return NB_OK;
}

static nb_status parse_subscribed(nb_jp *p, nb_jn **out)
{
    const uint32_t line = p->tok->line;
    nb_jn *start = NULL, *n;
    if (p->tok->type != NB_JT_COLON) {
        NB_TRY(nb_jp_expr(p, &start));
        if (p->tok->type != NB_JT_COLON) {
            *out = start;
            return NB_OK;
        }
    }
    nb_jp_next(p);
    NB_TRY(nb_jp_node(p, NB_JE_SLICE, line, &n));
    n->a = start;
    if (p->tok->type != NB_JT_COLON && p->tok->type != NB_JT_RBRACKET &&
        p->tok->type != NB_JT_COMMA)
        NB_TRY(nb_jp_expr(p, &n->b));
    if (p->tok->type == NB_JT_COLON) {
        nb_jp_next(p);
        if (p->tok->type != NB_JT_RBRACKET && p->tok->type != NB_JT_COMMA)
            NB_TRY(nb_jp_expr(p, &n->c));
    }
    *out = n;
    return NB_OK;
}

static nb_status parse_subscript(nb_jp *p, nb_jn **e)
{
    nb_jn *n = NULL;
    const uint32_t line = p->tok->line;
    if (p->tok->type == NB_JT_DOT) {
        nb_jp_next(p);
        const bool is_int = p->tok->type == NB_JT_INT;
        NB_TRY(nb_jp_node(p, is_int ? NB_JE_ITEM : NB_JE_ATTR, line, &n));
        n->a = *e;
        n->name = p->tok->s;
        *e = n;
        if (!is_int) return nb_jp_expect(p, NB_JT_NAME, "a name or number after \".\"");
        NB_TRY(nb_jp_node(p, NB_JE_CONST, line, &n->b));
        n->b->u.k = nb_jv_int(p->tok->num.i);
        nb_jp_next(p);
        return NB_OK;
    }
    nb_jnodes kids = { 0 };
    nb_jp_next(p);
    NB_TRY(nb_jp_node(p, NB_JE_ITEM, line, &n));
    n->a = *e;
    while (p->tok->type != NB_JT_RBRACKET) {
        nb_jn *k = NULL;
        if (kids.n) NB_TRY(nb_jp_expect(p, NB_JT_COMMA, "\",\""));
        NB_TRY(parse_subscribed(p, &k));
        NB_TRY(nb_jp_push(p, &kids, k));
    }
    nb_jp_next(p);
    if (kids.n == 1) {
        n->b = kids.v[0];
    } else {
        NB_TRY(nb_jp_node(p, NB_JE_TUPLE, line, &n->b));
        n->b->kid = kids.v;
        n->b->n_kid = (uint32_t)kids.n;
    }
    *e = n;
    return NB_OK;
}

static nb_status push_keyword(nb_jp *p, nb_jcall *c, size_t *cap, nb_jnodes *kw)
{
    if (kw->n == *cap) {
        *cap = *cap ? 2 * *cap : 4;
        nb_str *names = nb_arena_array(&p->t->arena, *cap, sizeof *names);
        if (!names) return nb_fail(p->err, NB_ERR_NOMEM, "template: out of memory");
        if (kw->n) memcpy(names, c->kw_name, kw->n * sizeof *names);
        c->kw_name = names;
    }
    for (size_t i = 0; i < kw->n; i++)
        if (nb_str_eq(c->kw_name[i], p->tok->s))
            return nb_jp_fail(p, p->tok->line, "keyword argument \"%.*s\" repeated",
                              (int)(p->tok->s.n_bytes > 60 ? 60 : p->tok->s.n_bytes), p->tok->s.p);
    c->kw_name[kw->n] = p->tok->s;
    nb_jp_next(p);
    nb_jp_next(p);
    nb_jn *v;
    NB_TRY(nb_jp_expr(p, &v));
    return nb_jp_push(p, kw, v);
}

static nb_status parse_call_args(nb_jp *p, const nb_jcall **out)
{
    nb_jcall *c = nb_arena_alloc(&p->t->arena, sizeof *c);
    if (!c) return nb_fail(p->err, NB_ERR_NOMEM, "template: out of memory");
    nb_jnodes pos = { 0 }, kw = { 0 };
    size_t cap = 0;
    bool comma = false;
    const uint32_t line = p->tok->line;
    NB_TRY(nb_jp_expect(p, NB_JT_LPAREN, "\"(\""));
    while (p->tok->type != NB_JT_RPAREN) {
        if (comma) NB_TRY(nb_jp_expect(p, NB_JT_COMMA, "\",\" or \")\""));
        if (comma && p->tok->type == NB_JT_RPAREN) break;
        comma = true;
        if (p->tok->type == NB_JT_MUL || p->tok->type == NB_JT_POW)
            return nb_jp_refuse(p, line, "an argument list after * or **");
        if (p->tok->type == NB_JT_NAME && p->tok[1].type == NB_JT_ASSIGN) {
            NB_TRY(push_keyword(p, c, &cap, &kw));
        } else {
            nb_jn *n = NULL;
            if (kw.n) return nb_jp_fail(p, line, "invalid order of arguments in a call");
            NB_TRY(nb_jp_expr(p, &n));
            NB_TRY(nb_jp_push(p, &pos, n));
        }
    }
    nb_jp_next(p);
    c->pos = pos.v;
    c->n_pos = (uint32_t)pos.n;
    c->kw = kw.v;
    c->n_kw = (uint32_t)kw.n;
    *out = c;
    return NB_OK;
}

static const nb_jcall no_args;

static nb_status parse_call(nb_jp *p, nb_jn **e)
{
    nb_jn *n = NULL;
    NB_TRY(nb_jp_node(p, NB_JE_CALL, p->tok->line, &n));
    n->a = *e;
    NB_TRY(parse_call_args(p, &n->u.call));
    *e = n;
    return NB_OK;
}

static nb_status parse_postfix(nb_jp *p, nb_jn **e)
{
    for (;;) {
        if (p->tok->type == NB_JT_DOT || p->tok->type == NB_JT_LBRACKET)
            NB_TRY(parse_subscript(p, e));
        else if (p->tok->type == NB_JT_LPAREN) NB_TRY(parse_call(p, e));
        else return NB_OK;
    }
}

/* The name of a filter or test; dotted names exist in Jinja2 but none is known. */
static nb_status parse_dotted(nb_jp *p, nb_str *out)
{
    *out = p->tok->s;
    NB_TRY(nb_jp_expect(p, NB_JT_NAME, "the name of a filter or test"));
    if (p->tok->type == NB_JT_DOT)
        return nb_jp_fail(p, p->tok->line, "no filter or test has a dot in its name");
    return NB_OK;
}

nb_status nb_jp_filters(nb_jp *p, nb_jn *operand, nb_jn **out)
{
    *out = operand;
    while (p->tok->type == NB_JT_PIPE) {
        nb_jn *n = NULL;
        nb_jp_next(p);
        NB_TRY(nb_jp_node(p, NB_JE_FILTER, p->tok->line, &n));
        n->a = *out;
        NB_TRY(parse_dotted(p, &n->name));
        n->def = nb_j_find_filter(n->name);
        n->u.call = &no_args;
        if (p->tok->type == NB_JT_LPAREN) NB_TRY(parse_call_args(p, &n->u.call));
        *out = n;
    }
    return NB_OK;
}

static nb_status parse_test(nb_jp *p, nb_jn **e)
{
    nb_jn *n, *arg;
    const uint32_t line = p->tok->line;
    nb_jp_next(p);
    const bool negated = nb_jp_skip_name(p, "not");
    NB_TRY(nb_jp_node(p, NB_JE_TEST, line, &n));
    n->a = *e;
    NB_TRY(parse_dotted(p, &n->name));
    n->def = nb_j_find_def(nb_j_tests, n->name);
    n->u.call = &no_args;
    const uint8_t t = p->tok->type;
    if (t == NB_JT_LPAREN) {
        NB_TRY(parse_call_args(p, &n->u.call));
    } else if ((t == NB_JT_NAME && !nb_jp_is_name(p, "else") && !nb_jp_is_name(p, "or") &&
                !nb_jp_is_name(p, "and")) ||
               t == NB_JT_STRING || t == NB_JT_INT || t == NB_JT_FLOAT || t == NB_JT_LBRACKET ||
               t == NB_JT_LBRACE) {
        if (nb_jp_is_name(p, "is")) return nb_jp_fail(p, line, "tests cannot be chained with \"is\"");
        NB_TRY(parse_primary(p, false, &arg));
        NB_TRY(parse_postfix(p, &arg));
        nb_jcall *c = nb_arena_alloc(&p->t->arena, sizeof *c);
        nb_jnodes pos = { 0 };
        if (!c) return nb_fail(p->err, NB_ERR_NOMEM, "template: out of memory");
        NB_TRY(nb_jp_push(p, &pos, arg));
        c->pos = pos.v;
        c->n_pos = 1;
        n->u.call = c;
    }
    *e = n;
    if (!negated) return NB_OK;
    NB_TRY(nb_jp_node(p, NB_JE_NOT, line, e));
    (*e)->a = n;
    return NB_OK;
}

static nb_status parse_unary(nb_jp *p, bool with_filter, nb_jn **out)
{
    const uint8_t t = p->tok->type;
    NB_TRY(nb_jp_enter(p));
    if (t == NB_JT_SUB || t == NB_JT_ADD) {
        nb_jn *n = NULL;
        NB_TRY(nb_jp_node(p, t == NB_JT_SUB ? NB_JE_NEG : NB_JE_POS, p->tok->line, &n));
        nb_jp_next(p);
        NB_TRY(parse_unary(p, false, &n->a));
        *out = n;
    } else {
        NB_TRY(parse_primary(p, false, out));
    }
    NB_TRY(parse_postfix(p, out));
    while (with_filter) {
        if (p->tok->type == NB_JT_PIPE) NB_TRY(nb_jp_filters(p, *out, out));
        else if (nb_jp_is_name(p, "is")) NB_TRY(parse_test(p, out));
        else if (p->tok->type == NB_JT_LPAREN) NB_TRY(parse_call(p, out));
        else break;
    }
    p->depth--;
    return NB_OK;
}
