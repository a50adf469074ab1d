/* jinja_exec.c - statements, scopes, macros.
 *
 * Scopes follow Jinja2: the template, each iteration of a loop, a macro's call, and
 * the bodies of set, call and generation blocks have their own; if does not.  An assignment always goes to the innermost scope; reading walks
 * outwards and ends at the variables of the rendering and the global functions.
 * A loop's scope is emptied and used again for the next iteration, unless a macro
 * made in it still refers to it. */
#include "text/jinja_internal.h"

nb_status nb_j_push_scope(nb_jr *r, nb_jscope *parent, nb_jscope **out)
{
    void *p;
    NB_TRY(nb_j_alloc(r, sizeof(nb_jscope), &p));
    *out = p;
    (*out)->parent = parent;
    return NB_OK;
}

static nb_jvar *find_var(nb_jscope *s, uint32_t id)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->var[i].id == id) return &s->var[i];
    return NULL;
}

nb_status nb_j_set_var(nb_jr *r, nb_jscope *s, uint32_t id, const nb_jv *v)
{
    nb_jvar *var = find_var(s, id);
    NB_TRY(nb_j_work(r, s->n));
    if (!var) {
        if (s->n == s->cap) {
            void *p;
            const uint32_t cap = s->cap ? 2 * s->cap : 4;
            NB_TRY(nb_j_alloc(r, cap * sizeof *s->var, &p));
            if (s->n) memcpy(p, s->var, s->n * sizeof *s->var);
            s->var = p;
            s->cap = cap;
        }
        var = &s->var[s->n++];
        var->id = id;
    }
    var->v = *v;
    return NB_OK;
}

nb_status nb_j_get_var(nb_jr *r, uint32_t id, nb_jv *out)
{
    for (nb_jscope *s = r->scope; s; s = s->parent) {
        const nb_jvar *var = find_var(s, id);
        r->n_steps += s->n / 16;
        if (!var || var->v.kind == NB_JK_MISSING) continue;
        *out = var->v;
        return NB_OK;
    }
    nb_jv *c = &r->context[id];
    if (c->kind == NB_JK_MISSING) {
        const nb_str name = r->t->names[id];
        const json_t *j = r->vars ? json_object_get(r->vars, name.p) : NULL;
        const nb_jdef *d = j ? NULL : nb_j_find_def(nb_j_globals, name);
        if (j) NB_TRY(nb_j_from_json(r, j, c));
        else if (d) *c = (nb_jv){ .kind = NB_JK_FUNC, .u.func = d };
        else *c = nb_jv_undef(NB_JUNDEF_NAME, name, NB_JK_MISSING);
    }
    *out = *c;
    return NB_OK;
}

/* ---- assignment ---- */

static nb_status assign(nb_jr *r, const nb_jn *target, const nb_jv *v);

static nb_status unpack(nb_jr *r, const nb_jn *target, const nb_jv *v)
{
    nb_jiter it;
    nb_jv x;
    bool got;
    if (v->kind == NB_JK_NONE || nb_jv_is_num(v))
        return NB_J_TYPE_ERROR(r, "cannot unpack non-iterable %s object", nb_jv_type_name(v));
    NB_TRY(nb_j_iter(r, v, &it));
    if (it.n < target->n_kid)
        return NB_J_VALUE_ERROR(r, "not enough values to unpack (expected %u, got %zu)",
                                target->n_kid, it.n);
    if (it.n > target->n_kid)
        return NB_J_VALUE_ERROR(r, "too many values to unpack (expected %u)", target->n_kid);
    for (uint32_t i = 0; i < target->n_kid; i++) {
        NB_TRY(nb_j_next(r, &it, &x, &got));
        NB_TRY(assign(r, target->kid[i], &x));
    }
    return NB_OK;
}

static nb_status assign(nb_jr *r, const nb_jn *target, const nb_jv *v)
{
    nb_jv ns;
    switch (target->op) {
    case NB_JE_NAME: return nb_j_set_var(r, r->scope, target->id, v);
    case NB_JE_TUPLE: {
        NB_TRY(nb_j_enter(r));
        const nb_status st = unpack(r, target, v);
        nb_j_leave(r);
        return st;
    }
    default: break;
    }
    NB_TRY(nb_j_get_var(r, target->id, &ns));
    if (ns.kind != NB_JK_NS)
        return nb_j_fail(r, NB_ERR_FORMAT, "cannot assign attribute on non-namespace object");
    const nb_jv key = nb_jv_str(target->name);
    return nb_j_dict_set(r, ns.u.dict, &key, v);
}

static void capture_scopes(nb_jscope *s)
{
    for (; s && !s->captured; s = s->parent) s->captured = true;
}

/* Runs a body in a scope of its own; its text goes where text goes. */
static nb_status exec_scoped(nb_jr *r, const nb_jn *body)
{
    nb_jscope *outer = r->scope;
    NB_TRY(nb_j_push_scope(r, outer, &r->scope));
    NB_TRY(nb_j_exec(r, body));
    r->scope = outer;
    return NB_OK;
}

static nb_status exec_captured(nb_jr *r, const nb_jn *body, nb_jv *out)
{
    const size_t mark = nb_j_mark(r);
    NB_TRY(exec_scoped(r, body));
    return nb_j_take(r, mark, out);
}

/* ---- loops ---- */

/* The items that pass the loop's condition, as a list. */
static nb_status filter_items(nb_jr *r, const nb_jn *n, const nb_jv *iterable, nb_jv *out)
{
    nb_jiter it;
    nb_jv x, keep;
    bool got;
    nb_jscope *outer = r->scope;
    NB_TRY(nb_j_iter(r, iterable, &it));
    NB_TRY(nb_j_list_new(r, NB_JK_LIST, 0, out));
    NB_TRY(nb_j_push_scope(r, outer, &r->scope));
    for (;;) {
        NB_TRY(nb_j_next(r, &it, &x, &got));
        if (!got) break;
        NB_TRY(assign(r, n->a, &x));
        NB_TRY(nb_j_eval(r, n->c, &keep));
        if (nb_jv_truth(&keep)) NB_TRY(nb_j_list_push(r, out->u.list, &x));
    }
    r->scope = outer;
    return NB_OK;
}

static nb_status new_loop(nb_jr *r, const nb_jv *iterable, nb_jloop **out)
{
    void *p;
    NB_TRY(nb_j_alloc(r, sizeof(nb_jloop), &p));
    nb_jloop *l = p;
    l->index0 = -1;
    NB_TRY(nb_j_iter(r, iterable, &l->it));
    l->n = l->it.n;
    *out = l;
    return NB_OK;
}

static nb_status exec_for(nb_jr *r, const nb_jn *n)
{
    nb_jscope *outer = r->scope;
    nb_jloop *l;
    nb_jv iterable, items, x;
    bool completed = false; /* as in Jinja2, else runs unless one iteration reached its end */
    NB_TRY(nb_j_eval(r, n->b, &iterable));
    r->line = n->line;
    items = iterable;
    if (n->c) NB_TRY(filter_items(r, n, &iterable, &items));
    NB_TRY(new_loop(r, &items, &l));
    NB_TRY(nb_j_push_scope(r, outer, &r->scope));
    for (;;) {
        bool got;
        NB_TRY(nb_j_next(r, &l->it, &x, &got));
        if (!got) break;
        l->index0++;
        l->before = l->current;
        l->current = x;
        if (r->scope->captured) NB_TRY(nb_j_push_scope(r, outer, &r->scope));
        r->scope->n = 0;
        const nb_jv loop = { .kind = NB_JK_LOOP, .u.loop = l };
        NB_TRY(nb_j_set_var(r, r->scope, NB_JID_LOOP, &loop));
        NB_TRY(assign(r, n->a, &x));
        NB_TRY(nb_j_exec(r, n->kid[0]));
        const nb_jflow flow = r->flow;
        r->flow = NB_JFLOW_NONE;
        if (flow == NB_JFLOW_BREAK) break;
        completed |= flow == NB_JFLOW_NONE;
    }
    r->scope = outer;
    if (!completed && n->n_kid > 1) return nb_j_exec(r, n->kid[1]);
    return NB_OK;
}

/* ---- macros ---- */

static size_t find_keyword(const nb_jr *r, const nb_jargs *a, uint32_t id)
{
    for (size_t i = 0; i < a->n_kw; i++)
        if (nb_str_eq(a->kw_name[i], r->t->names[id])) return i;
    return SIZE_MAX;
}

static int shown(nb_str s)
{
    return s.n_bytes > 60 ? 60 : (int)s.n_bytes;
}

static nb_status bind_params(nb_jr *r, const nb_jmacro *m, const nb_jargs *a)
{
    const nb_jsig *sig = m->sig;
    void *p;
    NB_TRY(nb_j_alloc(r, a->n_kw + 1, &p));
    bool *taken = p;
    for (uint32_t i = 0; i < sig->n_param; i++) {
        nb_jv v = { .kind = NB_JK_MISSING };
        if (i < a->n_pos) {
            v = a->pos[i];
        } else {
            const size_t k = find_keyword(r, a, sig->param[i]);
            if (k != SIZE_MAX) {
                v = a->kw_val[k];
                taken[k] = true;
            }
        }
        NB_TRY(nb_j_set_var(r, r->scope, sig->param[i], &v));
    }
    if (sig->uses_caller && !find_var(r->scope, NB_JID_CALLER)) {
        const size_t k = find_keyword(r, a, NB_JID_CALLER);
        nb_jv caller = nb_jv_undef(NB_JUNDEF_HINT, nb_str_c("No caller defined"), NB_JK_MISSING);
        if (k != SIZE_MAX) {
            caller = a->kw_val[k];
            taken[k] = true;
        }
        NB_TRY(nb_j_set_var(r, r->scope, NB_JID_CALLER, &caller));
    }
    for (size_t i = 0; i < a->n_kw; i++)
        if (!taken[i])
            return NB_J_TYPE_ERROR(r, "macro '%.*s' takes no keyword argument '%.*s'",
                                   shown(m->name), m->name.p, shown(a->kw_name[i]),
                                   a->kw_name[i].p);
    if (a->n_pos > sig->n_param)
        return NB_J_TYPE_ERROR(r, "macro '%.*s' takes not more than %u argument(s)",
                               shown(m->name), m->name.p, sig->n_param);
    for (uint32_t i = 0; i < sig->n_param; i++) { /* defaults see the parameters before them */
        nb_jvar *var = find_var(r->scope, sig->param[i]);
        nb_jv v;
        if (!var || var->v.kind != NB_JK_MISSING) continue;
        if (i + sig->n_dflt >= sig->n_param) {
            NB_TRY(nb_j_eval(r, sig->dflt[i + sig->n_dflt - sig->n_param], &v));
        } else {
            v = nb_jv_undef(NB_JUNDEF_NAME, r->t->names[sig->param[i]], NB_JK_MISSING);
        }
        NB_TRY(nb_j_set_var(r, r->scope, sig->param[i], &v));
    }
    return NB_OK;
}

nb_status nb_j_call_macro(nb_jr *r, const nb_jmacro *m, const nb_jargs *args, nb_jv *out)
{
    nb_jscope *outer = r->scope;
    const uint32_t line = r->line;
    const size_t mark = nb_j_mark(r);
    NB_TRY(nb_j_enter(r));
    NB_TRY(nb_j_push_scope(r, m->closure, &r->scope));
    NB_TRY(bind_params(r, m, args));
    NB_TRY(nb_j_exec(r, m->node->kid[0]));
    NB_TRY(nb_j_take(r, mark, out));
    nb_j_leave(r);
    r->scope = outer;
    r->line = line;
    return NB_OK;
}

static nb_status new_macro(nb_jr *r, const nb_jn *n, nb_str name, nb_jv *out)
{
    void *p;
    NB_TRY(nb_j_alloc(r, sizeof(nb_jmacro), &p));
    nb_jmacro *m = p;
    *m = (nb_jmacro){ .node = n, .sig = n->u.sig, .closure = r->scope, .name = name };
    capture_scopes(r->scope);
    *out = (nb_jv){ .kind = NB_JK_MACRO, .u.macro = m };
    return NB_OK;
}

static nb_status exec_call_block(nb_jr *r, const nb_jn *n)
{
    nb_jv fn, caller, out;
    nb_jargs a;
    void *names, *vals;
    NB_TRY(nb_j_eval(r, n->a->a, &fn));
    NB_TRY(nb_j_eval_args(r, n->a->u.call, &a));
    NB_TRY(new_macro(r, n, nb_str_c("caller"), &caller));
    NB_TRY(nb_j_alloc(r, (a.n_kw + 1) * sizeof(nb_str), &names));
    NB_TRY(nb_j_alloc(r, (a.n_kw + 1) * sizeof(nb_jv), &vals));
    if (a.n_kw) memcpy(names, a.kw_name, a.n_kw * sizeof(nb_str));
    if (a.n_kw) memcpy(vals, a.kw_val, a.n_kw * sizeof(nb_jv));
    ((nb_str *)names)[a.n_kw] = r->t->names[NB_JID_CALLER];
    ((nb_jv *)vals)[a.n_kw] = caller;
    a.kw_name = names;
    a.kw_val = vals;
    a.n_kw++;
    r->line = n->line;
    NB_TRY(nb_j_call(r, &fn, &a, &out));
    return nb_j_add_str(r, &out);
}

/* ---- the other statements ---- */

static nb_status exec_body(nb_jr *r, const nb_jn *n)
{
    for (uint32_t i = 0; i < n->n_kid && r->flow == NB_JFLOW_NONE; i++) {
        const nb_jn *k = n->kid[i];
        if (k->op == NB_JS_DATA) {
            NB_TRY(nb_j_work(r, 0));
            NB_TRY(nb_j_add(r, k->name));
        } else {
            NB_TRY(nb_j_exec(r, k));
        }
    }
    return NB_OK;
}

static nb_status exec_out(nb_jr *r, const nb_jn *n)
{
    nb_jv v;
    NB_TRY(nb_j_eval(r, n->a, &v));
    r->line = n->line;
    return nb_j_add_str(r, &v);
}

static nb_status exec_if(nb_jr *r, const nb_jn *n)
{
    uint32_t i = 0;
    for (; i + 1 < n->n_kid; i += 2) {
        nb_jv v;
        NB_TRY(nb_j_eval(r, n->kid[i], &v));
        if (nb_jv_truth(&v)) return nb_j_exec(r, n->kid[i + 1]);
    }
    return i < n->n_kid ? nb_j_exec(r, n->kid[i]) : NB_OK;
}

/* {% set x | filter %}: the text of the block, filtered. */
static nb_status exec_set_block(nb_jr *r, const nb_jn *n)
{
    nb_jv v;
    const size_t mark = nb_j_mark(r);
    NB_TRY(exec_captured(r, n->kid[0], &v));
    if (r->flow != NB_JFLOW_NONE) { /* break or continue inside: the text is lost */
        nb_j_drop(r, mark);
        return NB_OK;
    }
    r->line = n->line;
    if (n->b) {
        r->filter_operand = v;
        NB_TRY(nb_j_eval(r, n->b, &v));
    }
    return assign(r, n->a, &v);
}

static nb_status exec_set(nb_jr *r, const nb_jn *n)
{
    nb_jv v;
    NB_TRY(nb_j_eval(r, n->b, &v));
    r->line = n->line;
    return assign(r, n->a, &v);
}

static nb_status exec_macro(nb_jr *r, const nb_jn *n)
{
    nb_jv v;
    NB_TRY(new_macro(r, n, n->name, &v));
    return nb_j_set_var(r, r->scope, n->id, &v);
}

static nb_status exec_inner(nb_jr *r, const nb_jn *n)
{
    switch (n->op) {
    case NB_JS_BODY: return exec_body(r, n);
    case NB_JS_OUT: return exec_out(r, n);
    case NB_JS_IF: return exec_if(r, n);
    case NB_JS_FOR: return exec_for(r, n);
    case NB_JS_SET: return exec_set(r, n);
    case NB_JS_SETBLOCK: return exec_set_block(r, n);
    case NB_JS_MACRO: return exec_macro(r, n);
    case NB_JS_CALL: return exec_call_block(r, n);
    case NB_JS_BREAK: r->flow = NB_JFLOW_BREAK; return NB_OK;
    case NB_JS_CONTINUE: r->flow = NB_JFLOW_CONTINUE; return NB_OK;
    case NB_JS_SCOPE: return exec_scoped(r, n->kid[0]);
    default: return nb_j_add(r, n->name);
    }
}

nb_status nb_j_exec(nb_jr *r, const nb_jn *n)
{
    r->line = n->line;
    NB_TRY(nb_j_work(r, 0));
    NB_TRY(nb_j_enter(r));
    const nb_status st = exec_inner(r, n);
    nb_j_leave(r);
    return st;
}
