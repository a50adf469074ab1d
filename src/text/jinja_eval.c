/* jinja_eval.c - expressions: names, attributes, subscripts, calls. */
#include "text/jinja_internal.h"

const nb_jdef *nb_j_find_def(const nb_jdef *table, nb_str name)
{
    for (; table->name; table++)
        if (nb_str_eqc(name, table->name)) return table;
    return NULL;
}

const nb_jdef *nb_j_find_filter(nb_str name)
{
    const nb_jdef *d = nb_j_find_def(nb_j_filters_basic, name);
    return d ? d : nb_j_find_def(nb_j_filters_seq, name);
}

static int shown(nb_str s)
{
    return s.n_bytes > 80 ? 80 : (int)s.n_bytes;
}

/* ---- attributes and items ---- */

static const nb_jdef *methods_of(const nb_jv *o)
{
    switch (o->kind) {
    case NB_JK_STR: return nb_j_str_methods;
    case NB_JK_LIST: return nb_j_list_methods;
    case NB_JK_TUPLE: return nb_j_tuple_methods;
    case NB_JK_DICT: return nb_j_dict_methods;
    case NB_JK_LOOP: return nb_j_loop_methods;
    default: return NULL;
    }
}

static nb_status loop_attr(nb_jr *r, nb_jloop *l, nb_str name, nb_jv *out)
{
    const int64_t n = (int64_t)l->n, i = l->index0;
    if (nb_str_eqc(name, "index")) *out = nb_jv_int(i + 1);
    else if (nb_str_eqc(name, "index0")) *out = nb_jv_int(i);
    else if (nb_str_eqc(name, "first")) *out = nb_jv_bool(i == 0);
    else if (nb_str_eqc(name, "last")) *out = nb_jv_bool(i + 1 >= n);
    else if (nb_str_eqc(name, "length")) *out = nb_jv_int(n);
    else if (nb_str_eqc(name, "revindex")) *out = nb_jv_int(n - i);
    else if (nb_str_eqc(name, "revindex0")) *out = nb_jv_int(n - i - 1);
    else if (nb_str_eqc(name, "depth")) *out = nb_jv_int(1); /* recursive loops are refused */
    else if (nb_str_eqc(name, "depth0")) *out = nb_jv_int(0);
    else if (nb_str_eqc(name, "previtem")) {
        *out = l->before.kind != NB_JK_MISSING ? l->before
             : nb_jv_undef(NB_JUNDEF_HINT, nb_str_c("there is no previous item"), NB_JK_MISSING);
    } else if (nb_str_eqc(name, "nextitem")) {
        nb_jiter ahead = l->it;
        bool got;
        if (ahead.kind == NB_JK_GEN) { /* look without consuming */
            got = ahead.gen->pos < ahead.gen->n;
            if (got) *out = ahead.gen->v[ahead.gen->pos];
        } else {
            NB_TRY(nb_j_next(r, &ahead, out, &got));
        }
        if (!got)
            *out = nb_jv_undef(NB_JUNDEF_HINT, nb_str_c("there is no next item"), NB_JK_MISSING);
    } else {
        out->kind = NB_JK_MISSING;
    }
    return NB_OK;
}

/* What Python's getattr finds: MISSING for AttributeError. */
static nb_status plain_attr(nb_jr *r, const nb_jv *o, nb_str name, nb_jv *out)
{
    out->kind = NB_JK_MISSING;
    const nb_jdef *d = methods_of(o);
    if (d) d = nb_j_find_def(d, name);
    if (d) {
        void *p;
        NB_TRY(nb_j_alloc(r, sizeof(nb_jbound), &p));
        nb_jbound *b = p;
        *b = (nb_jbound){ .self = *o, .def = d };
        *out = (nb_jv){ .kind = NB_JK_BOUND, .u.bound = b };
        return NB_OK;
    }
    if (o->kind == NB_JK_LOOP) return loop_attr(r, o->u.loop, name, out);
    if (o->kind == NB_JK_NS) {
        const nb_jv *v = nb_j_dict_get_str(o->u.dict, name);
        NB_TRY(nb_j_work(r, o->u.dict->n));
        if (v) *out = *v;
    } else if (o->kind == NB_JK_MACRO && nb_str_eqc(name, "name")) {
        *out = nb_jv_str(o->u.macro->name);
    }
    return NB_OK;
}

static nb_status dict_item(nb_jr *r, const nb_jv *o, const nb_jv *key, nb_jv *out)
{
    size_t i;
    out->kind = NB_JK_MISSING;
    if (key->kind == NB_JK_LIST || key->kind == NB_JK_DICT || key->kind == NB_JK_SLICE)
        return NB_OK; /* TypeError, which Jinja2 turns into undefined */
    NB_TRY(nb_j_dict_find(r, o->u.dict, key, &i));
    if (i != SIZE_MAX) *out = o->u.dict->e[i].val;
    return NB_OK;
}

static nb_status getattr(nb_jr *r, const nb_jv *o, nb_str name, nb_jv *out)
{
    if (o->kind == NB_JK_UNDEF) return nb_j_fail_undef(r, o);
    NB_TRY(plain_attr(r, o, name, out));
    if (out->kind != NB_JK_MISSING) return NB_OK;
    if (o->kind == NB_JK_DICT) {
        const nb_jv key = nb_jv_str(name);
        NB_TRY(dict_item(r, o, &key, out));
        if (out->kind != NB_JK_MISSING) return NB_OK;
    }
    *out = nb_jv_undef(NB_JUNDEF_ATTR, name, (nb_jkind)o->kind);
    return NB_OK;
}

/* Python's slice.indices(): *start, *step and the number of items. */
static nb_status slice_bounds(nb_jr *r, const nb_jslice *s, size_t n_items, int64_t *start,
                              int64_t *step, size_t *count)
{
    const int64_t n = (int64_t)n_items;
    *step = 1;
    if (s->step.kind != NB_JK_NONE) *step = nb_jv_as_int(&s->step);
    if (*step == 0) return NB_J_VALUE_ERROR(r, "slice step cannot be zero");
    if (*step < -INT64_MAX) *step = -INT64_MAX;
    const int64_t lo = *step > 0 ? 0 : -1, hi = *step > 0 ? n : n - 1;
    int64_t b = *step > 0 ? lo : hi, e = *step > 0 ? hi : lo;
    if (s->start.kind != NB_JK_NONE) {
        b = nb_jv_as_int(&s->start);
        if (b < 0) b = b < -n ? lo : b + n;
        b = b < lo ? lo : b > hi ? hi : b;
    }
    if (s->stop.kind != NB_JK_NONE) {
        e = nb_jv_as_int(&s->stop);
        if (e < 0) e = e < -n ? lo : e + n;
        e = e < lo ? lo : e > hi ? hi : e;
    }
    *start = b;
    *count = 0;
    if (*step > 0 && b < e) *count = (size_t)((e - b - 1) / *step) + 1;
    if (*step < 0 && b > e) *count = (size_t)((b - e - 1) / -*step) + 1;
    return NB_OK;
}

static nb_status slice_str(nb_jr *r, const nb_jv *o, const nb_jslice *s, nb_jv *out)
{
    const nb_str t = o->u.s;
    const size_t n_cp = nb_j_cp_count(t);
    int64_t start, step;
    size_t count;
    NB_TRY(nb_j_work(r, t.n_bytes));
    NB_TRY(slice_bounds(r, s, n_cp, &start, &step, &count));
    if (step == 1 || count == 0) {
        const size_t from = count ? nb_j_cp_offset(t, (size_t)start) : 0;
        const nb_str tail = nb_j_sub(t, from, t.n_bytes);
        *out = nb_jv_str(nb_j_sub(tail, 0, nb_j_cp_offset(tail, count)));
        out->sub = o->sub;
        return NB_OK;
    }
    void *p; /* offsets of all code points, so that any step is one pass */
    NB_TRY(nb_j_alloc(r, (n_cp + 1) * sizeof(uint32_t), &p));
    if (t.n_bytes > UINT32_MAX) return nb_j_fail(r, NB_ERR_LIMIT, "string too long to slice");
    uint32_t *at = p;
    size_t k = 0;
    for (size_t i = 0; i < t.n_bytes; i++)
        if (((unsigned char)t.p[i] & 0xC0) != 0x80) at[k++] = (uint32_t)i;
    at[k] = (uint32_t)t.n_bytes;
    const size_t mark = nb_j_mark(r);
    for (size_t i = 0; i < count; i++, start += i < count ? step : 0)
        NB_TRY(nb_j_add(r, nb_j_sub(t, at[start], at[start + 1])));
    NB_TRY(nb_j_take(r, mark, out));
    out->sub = o->sub;
    return NB_OK;
}

static nb_status slice_range(nb_jr *r, const nb_jrange *g, const nb_jslice *s, nb_jv *out)
{
    int64_t start, step;
    size_t count;
    void *p;
    NB_TRY(slice_bounds(r, s, g->n, &start, &step, &count));
    if (count < 2) step = 1; /* the step then has no meaning, and may be huge */
    NB_TRY(nb_j_alloc(r, sizeof(nb_jrange), &p));
    nb_jrange *part = p;
    part->start = g->start + (count ? start * g->step : 0); /* range() keeps to 61 bits */
    part->step = g->step * step;
    part->stop = part->start + (int64_t)count * part->step;
    part->n = count;
    *out = (nb_jv){ .kind = NB_JK_RANGE, .u.range = part };
    return NB_OK;
}

static nb_status slice_value(nb_jr *r, const nb_jv *o, const nb_jslice *s, nb_jv *out)
{
    const nb_jv *part[3] = { &s->start, &s->stop, &s->step };
    int64_t start, step;
    size_t count;
    for (int i = 0; i < 3; i++)
        if (part[i]->kind != NB_JK_NONE && !nb_jv_is_int(part[i]))
            return NB_J_TYPE_ERROR(r, "slice indices must be integers or None or have an "
                                   "__index__ method");
    if (o->kind == NB_JK_STR) return slice_str(r, o, s, out);
    if (o->kind == NB_JK_RANGE) return slice_range(r, o->u.range, s, out);
    const nb_jlist *l = o->u.list;
    NB_TRY(slice_bounds(r, s, l->n, &start, &step, &count));
    NB_TRY(nb_j_list_new(r, o->kind == NB_JK_TUPLE ? NB_JK_TUPLE : NB_JK_LIST, count, out));
    NB_TRY(nb_j_work(r, count * 8));
    for (size_t i = 0; i < count; i++, start += i < count ? step : 0)
        NB_TRY(nb_j_list_push(r, out->u.list, &l->v[start]));
    return NB_OK;
}

static nb_status index_value(nb_jr *r, const nb_jv *o, int64_t i, nb_jv *out)
{
    const size_t count = o->kind == NB_JK_STR ? nb_j_cp_count(o->u.s)
                       : o->kind == NB_JK_RANGE ? o->u.range->n : o->u.list->n;
    const int64_t n = (int64_t)count;
    out->kind = NB_JK_MISSING;
    if (i < 0) i += n;
    if (i < 0 || i >= n) return NB_OK;
    if (o->kind == NB_JK_STR) {
        NB_TRY(nb_j_work(r, o->u.s.n_bytes));
        const nb_str tail = nb_j_sub(o->u.s, nb_j_cp_offset(o->u.s, (size_t)i), o->u.s.n_bytes);
        *out = nb_jv_str(nb_j_sub(tail, 0, nb_j_cp_offset(tail, 1)));
    } else if (o->kind == NB_JK_RANGE) {
        *out = nb_jv_int(o->u.range->start + i * o->u.range->step);
    } else {
        *out = o->u.list->v[i];
    }
    return NB_OK;
}

nb_status nb_j_getitem(nb_jr *r, const nb_jv *o, const nb_jv *key, nb_jv *out)
{
    if (o->kind == NB_JK_UNDEF) return nb_j_fail_undef(r, o);
    const bool seq = o->kind == NB_JK_STR || o->kind == NB_JK_LIST || o->kind == NB_JK_TUPLE ||
                     o->kind == NB_JK_RANGE;
    out->kind = NB_JK_MISSING;
    if (key->kind == NB_JK_SLICE) { /* plain Python in Jinja2: errors are not undefined */
        if (seq) return slice_value(r, o, key->u.slice, out);
        if (o->kind == NB_JK_DICT) return NB_J_TYPE_ERROR(r, "unhashable type: 'slice'");
        return NB_J_TYPE_ERROR(r, "'%s' object is not subscriptable", nb_jv_type_name(o));
    }
    if (seq && nb_jv_is_int(key)) NB_TRY(index_value(r, o, nb_jv_as_int(key), out));
    else if (o->kind == NB_JK_DICT) NB_TRY(dict_item(r, o, key, out));
    if (out->kind != NB_JK_MISSING) return NB_OK;
    if (key->kind == NB_JK_STR) {
        NB_TRY(plain_attr(r, o, key->u.s, out));
        if (out->kind == NB_JK_MISSING)
            *out = nb_jv_undef(NB_JUNDEF_ATTR, key->u.s, (nb_jkind)o->kind);
        return NB_OK;
    }
    nb_jv text;
    const bool printed = r->printed_container;
    const size_t mark = nb_j_mark(r);
    NB_TRY(nb_j_add_repr(r, key));
    NB_TRY(nb_j_take(r, mark, &text));
    r->printed_container = printed;
    *out = nb_jv_undef(NB_JUNDEF_ITEM, text.u.s, (nb_jkind)o->kind);
    return NB_OK;
}

/* ---- calls ---- */

static size_t param_index(const char *params, nb_str name, size_t *n_params)
{
    size_t found = SIZE_MAX, i = 0;
    for (const char *p = params; *p; i++) {
        const size_t n = strcspn(p, " ");
        if (nb_str_eq((nb_str){ p, n }, name)) found = i;
        p += n;
        while (*p == ' ') p++;
    }
    *n_params = i;
    return found;
}

nb_status nb_j_call_def(nb_jr *r, const nb_jdef *d, const char *what, const nb_jv *self,
                        const nb_jargs *args, nb_jv *out)
{
    nb_jv a[NB_J_MAX_PARAMS] = { 0 }; /* all MISSING */
    size_t n_params;
    if (!d->fn)
        return nb_j_fail(r, NB_ERR_UNSUPPORTED, "%s '%s' is not supported", what, d->name);
    if (*d->params == '*') return d->fn(r, self, NULL, args, out);
    param_index(d->params, (nb_str){ "", 0 }, &n_params);
    if (args->n_pos > n_params)
        return NB_J_TYPE_ERROR(r, "%s() takes at most %zu arguments, %zu given", d->name, n_params,
                               args->n_pos);
    for (size_t i = 0; i < args->n_pos; i++) a[i] = args->pos[i];
    for (size_t i = 0; i < args->n_kw; i++) {
        const size_t k = param_index(d->params, args->kw_name[i], &n_params);
        if (k == SIZE_MAX || a[k].kind != NB_JK_MISSING)
            return NB_J_TYPE_ERROR(r, "%s() got %s argument '%.*s'", d->name,
                                   k == SIZE_MAX ? "an unexpected keyword" : "a second value for",
                                   shown(args->kw_name[i]), args->kw_name[i].p);
        a[k] = args->kw_val[i];
    }
    for (size_t i = 0; i < d->n_required; i++)
        if (a[i].kind == NB_JK_MISSING)
            return NB_J_TYPE_ERROR(r, "%s() needs at least %u argument(s)", d->name, d->n_required);
    return d->fn(r, self, a, args, out);
}

nb_status nb_j_call(nb_jr *r, const nb_jv *fn, const nb_jargs *args, nb_jv *out)
{
    switch (fn->kind) {
    case NB_JK_UNDEF: return nb_j_fail_undef(r, fn);
    case NB_JK_FUNC: return nb_j_call_def(r, fn->u.func, "function", NULL, args, out);
    case NB_JK_BOUND:
        return nb_j_call_def(r, fn->u.bound->def, "method", &fn->u.bound->self, args, out);
    case NB_JK_MACRO: return nb_j_call_macro(r, fn->u.macro, args, out);
    default: return NB_J_TYPE_ERROR(r, "'%s' object is not callable", nb_jv_type_name(fn));
    }
}

nb_status nb_j_eval_args(nb_jr *r, const nb_jcall *c, nb_jargs *out)
{
    void *p;
    NB_TRY(nb_j_alloc(r, ((size_t)c->n_pos + c->n_kw) * sizeof(nb_jv), &p));
    nb_jv *pos = p, *kw = pos + c->n_pos;
    for (size_t i = 0; i < c->n_pos; i++) NB_TRY(nb_j_eval(r, c->pos[i], &pos[i]));
    for (size_t i = 0; i < c->n_kw; i++) NB_TRY(nb_j_eval(r, c->kw[i], &kw[i]));
    *out = (nb_jargs){ pos, c->n_pos, c->kw_name, kw, c->n_kw };
    return NB_OK;
}

static nb_status eval_call(nb_jr *r, const nb_jn *n, nb_jv *out)
{
    nb_jv fn;
    nb_jargs a;
    NB_TRY(nb_j_eval(r, n->a, &fn));
    NB_TRY(nb_j_eval_args(r, n->u.call, &a));
    r->line = n->line;
    return nb_j_call(r, &fn, &a, out);
}

static nb_status eval_filter_or_test(nb_jr *r, const nb_jn *n, nb_jv *out)
{
    nb_jv x = r->filter_operand;
    nb_jargs a;
    const bool filter = n->op == NB_JE_FILTER;
    if (n->a) NB_TRY(nb_j_eval(r, n->a, &x));
    NB_TRY(nb_j_eval_args(r, n->u.call, &a));
    r->line = n->line;
    if (!n->def)
        return nb_j_fail(r, NB_ERR_FORMAT, "TemplateRuntimeError: no %s named '%.*s'",
                         filter ? "filter" : "test", shown(n->name), n->name.p);
    return nb_j_call_def(r, n->def, filter ? "filter" : "test", &x, &a, out);
}

/* ---- the other expressions ---- */

static nb_status eval_items(nb_jr *r, const nb_jn *n, nb_jv *out)
{
    nb_jv k, v;
    if (n->op == NB_JE_DICT) {
        NB_TRY(nb_j_dict_new(r, NB_JK_DICT, out));
        for (uint32_t i = 0; i + 1 < n->n_kid; i += 2) {
            NB_TRY(nb_j_eval(r, n->kid[i], &k));
            NB_TRY(nb_j_eval(r, n->kid[i + 1], &v));
            NB_TRY(nb_j_dict_set(r, out->u.dict, &k, &v));
        }
        return NB_OK;
    }
    NB_TRY(nb_j_list_new(r, n->op == NB_JE_LIST ? NB_JK_LIST : NB_JK_TUPLE, n->n_kid, out));
    for (uint32_t i = 0; i < n->n_kid; i++) {
        NB_TRY(nb_j_eval(r, n->kid[i], &v));
        NB_TRY(nb_j_list_push(r, out->u.list, &v));
    }
    return NB_OK;
}

static nb_status eval_compare(nb_jr *r, const nb_jn *n, nb_jv *out)
{
    nb_jv a, b;
    bool ok = true;
    NB_TRY(nb_j_eval(r, n->kid[0], &a));
    for (uint32_t i = 1; ok && i < n->n_kid; i++) {
        NB_TRY(nb_j_eval(r, n->kid[i], &b));
        NB_TRY(nb_j_compare(r, (nb_jcmp)n->u.ops[i - 1], &a, &b, &ok));
        a = b;
    }
    *out = nb_jv_bool(ok);
    return NB_OK;
}

/* a ~ b: all as text; Markup counts as text here, unlike with +. */
static nb_status eval_concat(nb_jr *r, const nb_jn *n, nb_jv *out)
{
    void *p;
    NB_TRY(nb_j_alloc(r, n->n_kid * sizeof(nb_jv), &p));
    nb_jv *parts = p;
    for (uint32_t i = 0; i < n->n_kid; i++) NB_TRY(nb_j_eval(r, n->kid[i], &parts[i]));
    const size_t mark = nb_j_mark(r);
    for (uint32_t i = 0; i < n->n_kid; i++) NB_TRY(nb_j_add_str(r, &parts[i]));
    return nb_j_take(r, mark, out);
}

static nb_status eval_slice(nb_jr *r, const nb_jn *n, nb_jv *out)
{
    void *p;
    NB_TRY(nb_j_alloc(r, sizeof(nb_jslice), &p));
    nb_jslice *s = p;
    s->start = s->stop = s->step = nb_jv_none();
    if (n->a) NB_TRY(nb_j_eval(r, n->a, &s->start));
    if (n->b) NB_TRY(nb_j_eval(r, n->b, &s->stop));
    if (n->c) NB_TRY(nb_j_eval(r, n->c, &s->step));
    *out = (nb_jv){ .kind = NB_JK_SLICE, .u.slice = s };
    return NB_OK;
}

static nb_status eval_unary(nb_jr *r, const nb_jn *n, nb_jv *out)
{
    nb_jv v;
    NB_TRY(nb_j_eval(r, n->a, &v));
    if (n->op == NB_JE_NOT) {
        *out = nb_jv_bool(!nb_jv_truth(&v));
        return NB_OK;
    }
    r->line = n->line;
    if (v.kind == NB_JK_UNDEF) return nb_j_fail_undef(r, &v);
    if (!nb_jv_is_num(&v))
        return NB_J_TYPE_ERROR(r, "bad operand type for unary %c: '%s'",
                               n->op == NB_JE_NEG ? '-' : '+', nb_jv_type_name(&v));
    if (v.kind == NB_JK_FLOAT) {
        *out = nb_jv_float(n->op == NB_JE_NEG ? -v.u.f : v.u.f);
        return NB_OK;
    }
    const int64_t i = nb_jv_as_int(&v);
    if (n->op == NB_JE_NEG && i == INT64_MIN)
        return nb_j_fail(r, NB_ERR_RANGE, "integer larger than 64 bits");
    *out = nb_jv_int(n->op == NB_JE_NEG ? -i : i);
    return NB_OK;
}

static nb_status eval_logic(nb_jr *r, const nb_jn *n, nb_jv *out)
{
    if (n->op == NB_JE_COND) {
        nb_jv test;
        NB_TRY(nb_j_eval(r, n->a, &test));
        if (nb_jv_truth(&test)) return nb_j_eval(r, n->b, out);
        if (n->c) return nb_j_eval(r, n->c, out);
        *out = nb_jv_undef(NB_JUNDEF_HINT,
                           nb_str_c("the inline if-expression evaluated to false and no else "
                                    "section was defined."),
                           NB_JK_MISSING);
        return NB_OK;
    }
    NB_TRY(nb_j_eval(r, n->a, out));
    if (nb_jv_truth(out) == (n->op == NB_JE_OR)) return NB_OK;
    return nb_j_eval(r, n->b, out);
}

static nb_status eval_binary(nb_jr *r, const nb_jn *n, nb_jv *out)
{
    nb_jv a, b;
    NB_TRY(nb_j_eval(r, n->a, &a));
    if (n->op == NB_JE_ATTR) {
        r->line = n->line;
        return getattr(r, &a, n->name, out);
    }
    NB_TRY(nb_j_eval(r, n->b, &b));
    r->line = n->line;
    if (n->op == NB_JE_ITEM) return nb_j_getitem(r, &a, &b, out);
    return nb_j_binop(r, (nb_jop)n->op, &a, &b, out);
}

static nb_status eval_inner(nb_jr *r, const nb_jn *n, nb_jv *out)
{
    switch (n->op) {
    case NB_JE_TUPLE: case NB_JE_LIST: case NB_JE_DICT: return eval_items(r, n, out);
    case NB_JE_COND: case NB_JE_OR: case NB_JE_AND: return eval_logic(r, n, out);
    case NB_JE_NOT: case NB_JE_NEG: case NB_JE_POS: return eval_unary(r, n, out);
    case NB_JE_CMP: return eval_compare(r, n, out);
    case NB_JE_CONCAT: return eval_concat(r, n, out);
    case NB_JE_SLICE: return eval_slice(r, n, out);
    case NB_JE_CALL: return eval_call(r, n, out);
    case NB_JE_FILTER: case NB_JE_TEST: return eval_filter_or_test(r, n, out);
    default: return eval_binary(r, n, out);
    }
}

nb_status nb_j_eval(nb_jr *r, const nb_jn *n, nb_jv *out)
{
    r->line = n->line;
    NB_TRY(nb_j_work(r, 0));
    if (n->op == NB_JE_CONST) {
        *out = n->u.k;
        return NB_OK;
    }
    if (n->op == NB_JE_NAME) return nb_j_get_var(r, n->id, out);
    NB_TRY(nb_j_enter(r));
    const nb_status st = eval_inner(r, n, out);
    nb_j_leave(r);
    return st;
}
