/* jinja_parse.c - statements of the template language; nb_jinja_parse.
 *
 * Names of variables become small numbers (ids) here, so that rendering compares
 * numbers.  While parsing, loops over a message's content are noticed for
 * nb_jinja_iterates_content. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/utf8.h"
#include "text/jinja_internal.h"

nb_status nb_jp_fail(nb_jp *p, uint32_t line, const char *fmt, ...)
{
    char msg[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return nb_fail(p->err, NB_ERR_FORMAT, "template line %u: %s", line, msg);
}

static nb_status out_of_memory(nb_jp *p)
{
    return nb_fail(p->err, NB_ERR_NOMEM, "template line %u: out of memory", p->tok->line);
}

nb_status nb_jp_enter(nb_jp *p)
{
    if (p->depth >= NB_J_MAX_PARSE_DEPTH)
        return nb_fail(p->err, NB_ERR_LIMIT, "template line %u: nested more than %d levels deep",
                       p->tok->line, NB_J_MAX_PARSE_DEPTH);
    p->depth++;
    return NB_OK;
}

nb_status nb_jp_node(nb_jp *p, nb_jop op, uint32_t line, nb_jn **out)
{
    nb_jn *n = nb_arena_alloc(&p->t->arena, sizeof *n);
    if (!n) return out_of_memory(p);
    n->op = (uint8_t)op;
    n->line = line;
    *out = n;
    return NB_OK;
}

nb_status nb_jp_push(nb_jp *p, nb_jnodes *l, nb_jn *n)
{
    if (l->n == l->cap) {
        const size_t cap = l->cap ? 2 * l->cap : 4;
        nb_jn **v = nb_arena_array(&p->t->arena, cap, sizeof *v);
        if (!v) return out_of_memory(p);
        if (l->n) memcpy(v, l->v, l->n * sizeof *v);
        l->v = v;
        l->cap = cap;
    }
    l->v[l->n++] = n;
    return NB_OK;
}

void nb_jp_next(nb_jp *p)
{
    if (p->tok->type != NB_JT_EOF) p->tok++;
}

bool nb_jp_is_name(const nb_jp *p, const char *name)
{
    return p->tok->type == NB_JT_NAME && nb_str_eqc(p->tok->s, name);
}

bool nb_jp_skip_name(nb_jp *p, const char *name)
{
    if (!nb_jp_is_name(p, name)) return false;
    nb_jp_next(p);
    return true;
}

/* ---- names ---- */

static nb_status grow_names(nb_jp *p)
{
    nb_jinja *t = p->t;
    const size_t cap = p->name_cap ? 2 * p->name_cap : 64, icap = 4 * cap;
    nb_str *names = nb_arena_array(&t->arena, cap, sizeof *names);
    uint32_t *index = nb_arena_array(&t->arena, icap, sizeof *index);
    uint8_t *alias = nb_arena_alloc(&t->arena, cap);
    if (!names || !index || !alias) return out_of_memory(p);
    for (uint32_t i = 0; i < t->n_names; i++) {
        names[i] = t->names[i];
        alias[i] = p->content_alias[i];
        size_t h = (size_t)nb_hash_bytes(names[i].p, names[i].n_bytes, 0) & (icap - 1);
        while (index[h]) h = (h + 1) & (icap - 1);
        index[h] = i + 1;
    }
    t->names = names;
    p->name_cap = cap;
    p->name_index = index;
    p->name_index_cap = icap;
    p->content_alias = alias;
    return NB_OK;
}

nb_status nb_jp_intern(nb_jp *p, nb_str name, uint32_t *id)
{
    nb_jinja *t = p->t;
    if (t->n_names == p->name_cap) NB_TRY(grow_names(p));
    size_t h = (size_t)nb_hash_bytes(name.p, name.n_bytes, 0) & (p->name_index_cap - 1);
    for (; p->name_index[h]; h = (h + 1) & (p->name_index_cap - 1)) {
        *id = p->name_index[h] - 1;
        if (nb_str_eq(t->names[*id], name)) return NB_OK;
    }
    const char *copy = nb_arena_strdup(&t->arena, name); /* terminated, for jansson */
    if (!copy) return out_of_memory(p);
    *id = t->n_names;
    p->content_alias[t->n_names] = nb_str_eqc(name, "content");
    t->names[t->n_names++] = (nb_str){ copy, name.n_bytes };
    p->name_index[h] = t->n_names;
    return NB_OK;
}

/* ---- loops over content ---- */

static bool keeps_parts(nb_str filter)
{
    static const char *const names[] = { "select", "reject", "selectattr", "rejectattr", "list",
                                         "reverse" };
    for (size_t i = 0; i < NB_COUNT(names); i++)
        if (nb_str_eqc(filter, names[i])) return true;
    return false;
}

static bool is_content(const nb_jp *p, const nb_jn *n)
{
    for (int hops = 0; n && hops < 16; hops++) {
        switch (n->op) {
        case NB_JE_NAME: return p->content_alias[n->id];
        case NB_JE_ATTR: return nb_str_eqc(n->name, "content");
        case NB_JE_ITEM:
            if (n->b->op == NB_JE_CONST)
                return n->b->u.k.kind == NB_JK_STR && nb_str_eqc(n->b->u.k.u.s, "content");
            if (n->b->op != NB_JE_SLICE) return false;
            n = n->a;
            break;
        case NB_JE_FILTER:
            if (!keeps_parts(n->name)) return false;
            n = n->a;
            break;
        case NB_JE_COND:
            if (is_content(p, n->b)) return true;
            n = n->c;
            break;
        default: return false;
        }
    }
    return false;
}

/* ---- statements ---- */

/* Bodies end at one of these names after "{%"; the list ends with NULL. */
static nb_status parse_until(nb_jp *p, const char *const *ends, nb_jn **out);

static nb_status parse_body(nb_jp *p, const char *const *ends, nb_jn **out)
{
    if (p->tok->type == NB_JT_COLON) nb_jp_next(p);
    NB_TRY(nb_jp_expect(p, NB_JT_BLOCK_END, "\"%}\""));
    return parse_until(p, ends, out);
}

/* A body with a single end tag, which is consumed; becomes n->kid[0]. */
static nb_status parse_only_body(nb_jp *p, nb_jn *n, const char *end)
{
    nb_jnodes kids = { 0 };
    nb_jn *body;
    NB_TRY(parse_body(p, (const char *const[]){ end, NULL }, &body));
    nb_jp_next(p);
    NB_TRY(nb_jp_push(p, &kids, body));
    n->kid = kids.v;
    n->n_kid = 1;
    return NB_OK;
}

static nb_status check_target(nb_jp *p, const nb_jn *n)
{
    if (n->op == NB_JE_NAME || n->op == NB_JE_NSREF) return NB_OK;
    if (n->op != NB_JE_TUPLE) return nb_jp_fail(p, n->line, "cannot assign to this expression");
    NB_TRY(nb_jp_enter(p));
    for (uint32_t i = 0; i < n->n_kid; i++) NB_TRY(check_target(p, n->kid[i]));
    p->depth--;
    return NB_OK;
}

static nb_status parse_target(nb_jp *p, const char *end_name, bool with_namespace, nb_jn **out)
{
    const nb_jtuple_opts o = { .simplified = true, .end_name = end_name,
                               .with_namespace = with_namespace };
    NB_TRY(nb_jp_tuple(p, o, out));
    return check_target(p, *out);
}

static nb_status parse_target_name(nb_jp *p, nb_str *name, uint32_t *id)
{
    *name = p->tok->s;
    NB_TRY(nb_jp_expect(p, NB_JT_NAME, "a name"));
    return nb_jp_intern(p, *name, id);
}

static nb_status parse_set(nb_jp *p, uint32_t line, nb_jn **out)
{
    nb_jn *n = NULL;
    NB_TRY(nb_jp_node(p, NB_JS_SET, line, &n));
    *out = n;
    NB_TRY(parse_target(p, NULL, true, &n->a));
    if (p->tok->type == NB_JT_ASSIGN) {
        nb_jp_next(p);
        NB_TRY(nb_jp_tuple(p, (nb_jtuple_opts){ 0 }, &n->b));
        if (n->a->op == NB_JE_NAME && is_content(p, n->b)) p->content_alias[n->a->id] = 1;
        return NB_OK;
    }
    n->op = NB_JS_SETBLOCK;
    NB_TRY(nb_jp_filters(p, NULL, &n->b));
    return parse_only_body(p, n, "endset");
}

static nb_status parse_for(nb_jp *p, uint32_t line, nb_jn **out)
{
    static const char *const ends[] = { "endfor", "else", NULL };
    nb_jn *n = NULL, *body = NULL;
    nb_jnodes kids = { 0 };
    NB_TRY(nb_jp_node(p, NB_JS_FOR, line, &n));
    *out = n;
    NB_TRY(parse_target(p, "in", false, &n->a));
    if (!nb_jp_skip_name(p, "in")) return nb_jp_fail(p, p->tok->line, "expected \"in\" after for");
    NB_TRY(nb_jp_tuple(p, (nb_jtuple_opts){ .no_condexpr = true, .end_name = "recursive" }, &n->b));
    if (is_content(p, n->b)) p->t->iterates_content = true;
    if (nb_jp_skip_name(p, "if")) NB_TRY(nb_jp_expr(p, &n->c));
    if (nb_jp_is_name(p, "recursive")) return nb_jp_refuse(p, line, "a recursive loop");
    p->loop_depth++;
    NB_TRY(parse_body(p, ends, &body));
    p->loop_depth--;
    NB_TRY(nb_jp_push(p, &kids, body));
    const bool has_else = nb_jp_is_name(p, "else");
    nb_jp_next(p);
    if (has_else) {
        NB_TRY(parse_body(p, (const char *const[]){ "endfor", NULL }, &body));
        nb_jp_next(p);
        NB_TRY(nb_jp_push(p, &kids, body));
    }
    n->kid = kids.v;
    n->n_kid = (uint32_t)kids.n;
    return NB_OK;
}

static nb_status parse_if(nb_jp *p, uint32_t line, nb_jn **out)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    nb_jnodes kids = { 0 };
    nb_jn *k = NULL;
    NB_TRY(nb_jp_node(p, NB_JS_IF, line, out));
    for (;;) {
        NB_TRY(nb_jp_tuple(p, (nb_jtuple_opts){ .no_condexpr = true }, &k));
        NB_TRY(nb_jp_push(p, &kids, k));
        NB_TRY(parse_body(p, ends, &k));
        NB_TRY(nb_jp_push(p, &kids, k));
        if (nb_jp_skip_name(p, "elif")) continue;
        if (nb_jp_skip_name(p, "else")) {
            NB_TRY(parse_body(p, (const char *const[]){ "endif", NULL }, &k));
            NB_TRY(nb_jp_push(p, &kids, k));
        }
        nb_jp_next(p);
        break;
    }
    (*out)->kid = kids.v;
    (*out)->n_kid = (uint32_t)kids.n;
    return NB_OK;
}

static nb_status parse_signature(nb_jp *p, nb_jsig *sig)
{
    nb_jnodes dflt = { 0 };
    size_t cap = 0;
    NB_TRY(nb_jp_expect(p, NB_JT_LPAREN, "\"(\""));
    while (p->tok->type != NB_JT_RPAREN) {
        nb_str name;
        uint32_t id;
        nb_jn *d;
        if (sig->n_param) NB_TRY(nb_jp_expect(p, NB_JT_COMMA, "\",\""));
        NB_TRY(parse_target_name(p, &name, &id));
        if (sig->n_param == cap) {
            cap = cap ? 2 * cap : 8;
            uint32_t *v = nb_arena_array(&p->t->arena, cap, sizeof *v);
            if (!v) return out_of_memory(p);
            if (sig->n_param) memcpy(v, sig->param, sig->n_param * sizeof *v);
            sig->param = v;
        }
        sig->param[sig->n_param++] = id;
        if (p->tok->type == NB_JT_ASSIGN) {
            nb_jp_next(p);
            NB_TRY(nb_jp_expr(p, &d));
            NB_TRY(nb_jp_push(p, &dflt, d));
        } else if (dflt.n) {
            return nb_jp_fail(p, p->tok->line, "a parameter without default follows one with");
        }
    }
    nb_jp_next(p);
    sig->dflt = dflt.v;
    sig->n_dflt = (uint32_t)dflt.n;
    return NB_OK;
}

/* A macro's or call block's parameters and body.  A use of caller counts for the enclosing macro
 * too, as in Jinja2. */
static nb_status parse_callable(nb_jp *p, nb_jn *n, bool is_macro)
{
    nb_jsig *sig = nb_arena_alloc(&p->t->arena, sizeof *sig), *outer = p->sig;
    if (!sig) return out_of_memory(p);
    if (is_macro || p->tok->type == NB_JT_LPAREN) NB_TRY(parse_signature(p, sig));
    if (!is_macro) {
        NB_TRY(nb_jp_expr(p, &n->a));
        if (n->a->op != NB_JE_CALL) return nb_jp_fail(p, n->line, "expected a call after \"call\"");
    }
    n->u.sig = sig;
    const unsigned loops = p->loop_depth;
    p->loop_depth = 0;
    p->sig = sig;
    NB_TRY(parse_only_body(p, n, is_macro ? "endmacro" : "endcall"));
    p->sig = outer;
    p->loop_depth = loops;
    if (outer) outer->uses_caller |= sig->uses_caller;
    return NB_OK;
}

static nb_status parse_macro(nb_jp *p, uint32_t line, nb_jn **out)
{
    NB_TRY(nb_jp_node(p, NB_JS_MACRO, line, out));
    NB_TRY(parse_target_name(p, &(*out)->name, &(*out)->id));
    return parse_callable(p, *out, true);
}

static nb_status parse_call_block(nb_jp *p, uint32_t line, nb_jn **out)
{
    NB_TRY(nb_jp_node(p, NB_JS_CALL, line, out));
    return parse_callable(p, *out, false);
}

/* transformers marks what the assistant generated; the text passes unchanged. */
static nb_status parse_generation(nb_jp *p, uint32_t line, nb_jn **out)
{
    const unsigned loops = p->loop_depth;
    p->loop_depth = 0;
    NB_TRY(nb_jp_node(p, NB_JS_SCOPE, line, out));
    NB_TRY(parse_only_body(p, *out, "endgeneration"));
    p->loop_depth = loops;
    return NB_OK;
}

static nb_status parse_break(nb_jp *p, uint32_t line, nb_jn **out)
{
    if (!p->loop_depth) return nb_jp_fail(p, line, "\"break\" outside of a loop");
    return nb_jp_node(p, NB_JS_BREAK, line, out);
}

static nb_status parse_continue(nb_jp *p, uint32_t line, nb_jn **out)
{
    if (!p->loop_depth) return nb_jp_fail(p, line, "\"continue\" outside of a loop");
    return nb_jp_node(p, NB_JS_CONTINUE, line, out);
}

nb_status nb_jp_refuse(nb_jp *p, uint32_t line, const char *what)
{
    return nb_fail(p->err, NB_ERR_UNSUPPORTED,
                   "template line %u: %s is not supported in chat templates", line, what);
}

static nb_status refuse(nb_jp *p, uint32_t line, nb_jn **out)
{
    char what[32];
    (void)out;
    (void)snprintf(what, sizeof what, "the tag \"%.*s\"", (int)p->tok[-1].s.n_bytes, p->tok[-1].s.p);
    return nb_jp_refuse(p, line, what);
}

static const struct {
    const char *name;
    nb_status (*fn)(nb_jp *p, uint32_t line, nb_jn **out);
} statements[] = {
    { "if", parse_if }, { "for", parse_for }, { "set", parse_set }, { "macro", parse_macro },
    { "generation", parse_generation }, { "break", parse_break }, { "continue", parse_continue },
    { "call", parse_call_block },
    { "block", refuse }, { "extends", refuse }, { "include", refuse }, { "import", refuse },
    { "from", refuse }, { "autoescape", refuse }, { "filter", refuse }, { "with", refuse },
    { "print", refuse },
};

static nb_status parse_statement(nb_jp *p, nb_jn **out)
{
    const nb_jtoken *t = p->tok;
    NB_TRY(nb_jp_expect(p, NB_JT_NAME, "the name of a tag"));
    for (size_t i = 0; i < NB_COUNT(statements); i++) {
        if (!nb_str_eqc(t->s, statements[i].name)) continue;
        NB_TRY(nb_jp_enter(p));
        NB_TRY(statements[i].fn(p, t->line, out));
        p->depth--;
        return nb_jp_expect(p, NB_JT_BLOCK_END, "\"%}\"");
    }
    return nb_jp_fail(p, t->line, "unknown tag \"%.*s\"",
                      (int)(t->s.n_bytes > 60 ? 60 : t->s.n_bytes), t->s.p);
}

static bool at_end_tag(const nb_jp *p, const char *const *ends)
{
    for (; ends && *ends; ends++)
        if (nb_jp_is_name(p, *ends)) return true;
    return false;
}

static nb_status parse_until(nb_jp *p, const char *const *ends, nb_jn **out)
{
    nb_jnodes kids = { 0 };
    const uint32_t line = p->tok->line;
    for (;;) {
        nb_jn *n = NULL;
        const nb_jtoken *t = p->tok;
        if (t->type == NB_JT_EOF) {
            if (ends)
                return nb_jp_fail(p, t->line, "unexpected end of the template, expected \"%s\" for "
                                  "the tag of line %u", ends[0], line);
            break;
        }
        nb_jp_next(p);
        if (t->type == NB_JT_DATA) {
            NB_TRY(nb_jp_node(p, NB_JS_DATA, t->line, &n));
            n->name = t->s;
        } else if (t->type == NB_JT_VAR_BEGIN) {
            NB_TRY(nb_jp_node(p, NB_JS_OUT, t->line, &n));
            NB_TRY(nb_jp_tuple(p, (nb_jtuple_opts){ 0 }, &n->a));
            NB_TRY(nb_jp_expect(p, NB_JT_VAR_END, "\"}}\""));
        } else {
            if (at_end_tag(p, ends)) break;
            NB_TRY(parse_statement(p, &n));
        }
        NB_TRY(nb_jp_push(p, &kids, n));
    }
    NB_TRY(nb_jp_node(p, NB_JS_BODY, line, out));
    (*out)->kid = kids.v;
    (*out)->n_kid = (uint32_t)kids.n;
    return NB_OK;
}

static nb_status parse_template(nb_jinja *t, nb_str source, nb_error *err)
{
    nb_jp p = { .t = t, .err = err };
    nb_jtoken *tokens;
    size_t n_tokens;
    uint32_t id;
    NB_TRY(nb_j_lex(&t->arena, source, &tokens, &n_tokens, err));
    p.tok = t->tokens = tokens;
    t->n_tokens = n_tokens;
    NB_TRY(nb_jp_intern(&p, nb_str_c("loop"), &id)); /* NB_JID_LOOP */
    NB_TRY(nb_jp_intern(&p, nb_str_c("caller"), &id)); /* NB_JID_CALLER */
    return parse_until(&p, NULL, &t->root);
}

nb_status nb_jinja_parse(nb_str source, nb_jinja **out, nb_error *err)
{
    if (source.n_bytes > NB_JINJA_MAX_SOURCE_BYTES)
        return nb_fail(err, NB_ERR_LIMIT, "template: %zu bytes, at most %d are accepted",
                       source.n_bytes, NB_JINJA_MAX_SOURCE_BYTES);
    if (!nb_utf8_valid(source)) return nb_fail(err, NB_ERR_FORMAT, "template: not valid UTF-8");
    nb_jinja *t = calloc(1, sizeof *t);
    if (!t) return nb_fail(err, NB_ERR_NOMEM, "template: out of memory");
    const nb_status st = parse_template(t, source, err);
    if (st != NB_OK) {
        nb_jinja_destroy(t);
        return st;
    }
    *out = t;
    return NB_OK;
}

void nb_jinja_destroy(nb_jinja *t)
{
    if (!t) return;
    nb_arena_deinit(&t->arena);
    free(t);
}

bool nb_jinja_iterates_content(const nb_jinja *t)
{
    return t->iterates_content;
}

bool nb_jinja_mentions(const nb_jinja *t, nb_str word)
{
    for (size_t i = 0; i < t->n_tokens; i++) {
        const nb_jtoken *k = &t->tokens[i];
        if ((k->type == NB_JT_NAME || k->type == NB_JT_STRING) && nb_str_eq(k->s, word)) return true;
    }
    return false;
}
