/* jinja_filter_seq.c - filters on sequences and mappings.  Those that Jinja2 makes
 * generators return an iterator that can be consumed once, filled at once. */
#include "text/jinja_internal.h"

#define FILTER(name)                                                                               \
    static nb_status name(nb_jr *r, const nb_jv *self, const nb_jv *a, const nb_jargs *raw,        \
                          nb_jv *out)
#define UNUSED_ARGS ((void)a, (void)raw)

static nb_jv as_list(nb_jlist *l)
{
    return (nb_jv){ .kind = NB_JK_LIST, .u.list = l };
}

FILTER(f_length)
{
    UNUSED_ARGS;
    size_t n = 0;
    switch (self->kind) {
    case NB_JK_UNDEF: break;
    case NB_JK_STR: n = nb_j_cp_count(self->u.s); break;
    case NB_JK_LIST: case NB_JK_TUPLE: n = self->u.list->n; break;
    case NB_JK_DICT: case NB_JK_VIEW: n = self->u.dict->n; break;
    case NB_JK_RANGE: n = self->u.range->n; break;
    case NB_JK_LOOP: n = self->u.loop->n; break;
    default: return NB_J_TYPE_ERROR(r, "object of type '%s' has no len()", nb_jv_type_name(self));
    }
    *out = nb_jv_int((int64_t)n);
    return nb_j_work(r, self->kind == NB_JK_STR ? self->u.s.n_bytes : 0);
}

FILTER(f_list)
{
    UNUSED_ARGS;
    nb_jlist *l;
    NB_TRY(nb_j_to_list(r, self, &l));
    *out = as_list(l);
    return NB_OK;
}

static nb_jv no_item(const char *what)
{
    return nb_jv_undef(NB_JUNDEF_HINT, nb_str_c(what), NB_JK_MISSING);
}

FILTER(f_first)
{
    UNUSED_ARGS;
    nb_jiter it;
    bool got;
    NB_TRY(nb_j_iter(r, self, &it));
    NB_TRY(nb_j_next(r, &it, out, &got));
    if (!got) *out = no_item("No first item, sequence was empty.");
    return NB_OK;
}

FILTER(f_last)
{
    UNUSED_ARGS;
    nb_jlist *l;
    if (self->kind == NB_JK_GEN)
        return NB_J_TYPE_ERROR(r, "'%s' object is not reversible", nb_jv_type_name(self));
    NB_TRY(nb_j_to_list(r, self, &l));
    *out = l->n ? l->v[l->n - 1] : no_item("No last item, sequence was empty.");
    return NB_OK;
}

FILTER(f_reverse)
{
    UNUSED_ARGS;
    nb_jlist *l;
    NB_TRY(nb_j_to_list(r, self, &l));
    for (size_t i = 0, j = l->n; i + 1 < j; i++) {
        const nb_jv t = l->v[i];
        l->v[i] = l->v[--j];
        l->v[j] = t;
    }
    if (self->kind == NB_JK_STR) {
        const size_t mark = nb_j_mark(r);
        for (size_t i = 0; i < l->n; i++) NB_TRY(nb_j_add(r, l->v[i].u.s));
        NB_TRY(nb_j_take(r, mark, out));
        out->sub = self->sub;
        return NB_OK;
    }
    if (self->kind == NB_JK_GEN) {
        *out = as_list(l);
        return NB_OK;
    }
    return nb_j_gen_new(r, l, self->kind == NB_JK_LIST ? "list_reverseiterator" : "reversed", out);
}

/* ---- attribute paths: "a.b.0", or a number ---- */

static nb_status get_path(nb_jr *r, const nb_jv *item, const nb_jv *path, const nb_jv *dflt,
                          nb_jv *out)
{
    *out = *item;
    if (!nb_jv_given(path)) return NB_OK;
    nb_str rest = path->kind == NB_JK_STR ? path->u.s : (nb_str){ "", 0 };
    for (;;) {
        nb_jv key = *path, next;
        size_t dot = rest.n_bytes;
        if (path->kind == NB_JK_STR) {
            dot = nb_j_find(rest, (nb_str){ ".", 1 }, 0);
            if (dot == SIZE_MAX) dot = rest.n_bytes;
            key = nb_jv_str(nb_j_sub(rest, 0, dot));
            int64_t i = 0;
            size_t k = 0;
            for (; k < dot && k < 10 && rest.p[k] >= '0' && rest.p[k] <= '9'; k++)
                i = i * 10 + (rest.p[k] - '0');
            if (k > 0 && k == dot && k < 10) key = nb_jv_int(i);
        }
        NB_TRY(nb_j_getitem(r, out, &key, &next));
        if (next.kind == NB_JK_UNDEF && dflt && nb_jv_given(dflt)) next = *dflt;
        *out = next;
        if (dot >= rest.n_bytes) return NB_OK;
        rest = nb_j_sub(rest, dot + 1, rest.n_bytes);
    }
}

static nb_status ignore_case(nb_jr *r, nb_jv *v)
{
    if (v->kind != NB_JK_STR) return NB_OK;
    const size_t mark = nb_j_mark(r);
    NB_TRY(nb_j_add_case(r, v->u.s, NB_JCASE_LOWER));
    return nb_j_take(r, mark, v);
}

/* The sort key of an item; attribute "a,b" gives a list of keys. */
static nb_status sort_key(nb_jr *r, const nb_jv *item, const nb_jv *attribute, bool fold, nb_jv *out)
{
    if (attribute->kind != NB_JK_STR || !memchr(attribute->u.s.p, ',', attribute->u.s.n_bytes)) {
        NB_TRY(get_path(r, item, attribute, NULL, out));
        return fold ? ignore_case(r, out) : NB_OK;
    }
    nb_str rest = attribute->u.s;
    NB_TRY(nb_j_list_new(r, NB_JK_LIST, 2, out));
    for (;;) {
        size_t comma = nb_j_find(rest, (nb_str){ ",", 1 }, 0);
        if (comma == SIZE_MAX) comma = rest.n_bytes;
        const nb_jv path = nb_jv_str(nb_j_sub(rest, 0, comma));
        nb_jv v;
        NB_TRY(get_path(r, item, &path, NULL, &v));
        if (fold) NB_TRY(ignore_case(r, &v));
        NB_TRY(nb_j_list_push(r, out->u.list, &v));
        if (comma >= rest.n_bytes) return NB_OK;
        rest = nb_j_sub(rest, comma + 1, rest.n_bytes);
    }
}

static nb_status sorted(nb_jr *r, const nb_jv *v, const nb_jv *attribute, bool fold, bool reverse,
                        nb_jlist **out)
{
    nb_jv keys;
    NB_TRY(nb_j_to_list(r, v, out));
    NB_TRY(nb_j_list_new(r, NB_JK_LIST, (*out)->n, &keys));
    for (size_t i = 0; i < (*out)->n; i++) {
        nb_jv k;
        NB_TRY(sort_key(r, &(*out)->v[i], attribute, fold, &k));
        NB_TRY(nb_j_list_push(r, keys.u.list, &k));
    }
    NB_TRY(nb_j_sort(r, keys.u.list->v, (*out)->v, (*out)->n, reverse));
    return NB_OK;
}

FILTER(f_sort)
{
    (void)raw;
    nb_jlist *l;
    NB_TRY(sorted(r, self, &a[2], !nb_jv_truth(&a[1]), nb_jv_truth(&a[0]), &l));
    *out = as_list(l);
    return NB_OK;
}

FILTER(f_dictsort)
{
    (void)raw;
    nb_jv items, by = nb_jv_int(0);
    if (self->kind == NB_JK_UNDEF) return nb_j_fail_undef(r, self);
    if (self->kind != NB_JK_DICT)
        return NB_J_TYPE_ERROR(r, "dictsort needs a mapping, not %s", nb_jv_type_name(self));
    if (a[1].kind == NB_JK_STR && nb_str_eqc(a[1].u.s, "value")) by = nb_jv_int(1);
    else if (nb_jv_given(&a[1]) && !(a[1].kind == NB_JK_STR && nb_str_eqc(a[1].u.s, "key")))
        return nb_j_fail(r, NB_ERR_FORMAT,
                         "FilterArgumentError: You can only sort by either \"key\" or \"value\"");
    items = (nb_jv){ .kind = NB_JK_VIEW, .sub = NB_JVIEW_ITEMS, .u.dict = self->u.dict };
    nb_jlist *l;
    NB_TRY(sorted(r, &items, &by, !nb_jv_truth(&a[0]), nb_jv_truth(&a[2]), &l));
    *out = as_list(l);
    return NB_OK;
}

FILTER(f_join)
{
    (void)raw;
    nb_jiter it;
    nb_jv x, k, sep = nb_jv_str((nb_str){ "", 0 });
    if (a[0].kind != NB_JK_MISSING) NB_TRY(nb_j_to_str(r, &a[0], &sep));
    const size_t mark = nb_j_mark(r);
    NB_TRY(nb_j_iter(r, self, &it));
    for (bool first = true;; first = false) {
        bool got;
        NB_TRY(nb_j_next(r, &it, &x, &got));
        if (!got) break;
        NB_TRY(get_path(r, &x, &a[1], NULL, &k));
        if (!first) NB_TRY(nb_j_add(r, sep.u.s));
        NB_TRY(nb_j_add_str(r, &k));
    }
    return nb_j_take(r, mark, out);
}

FILTER(f_items)
{
    UNUSED_ARGS;
    nb_jlist *l;
    nb_jv view = *self;
    if (self->kind != NB_JK_UNDEF) {
        if (self->kind != NB_JK_DICT) return NB_J_TYPE_ERROR(r, "Can only get item pairs from a mapping.");
        view = (nb_jv){ .kind = NB_JK_VIEW, .sub = NB_JVIEW_ITEMS, .u.dict = self->u.dict };
    }
    NB_TRY(nb_j_to_list(r, &view, &l));
    return nb_j_gen_new(r, l, "generator", out);
}

/* ---- map, select, reject ---- */

typedef struct mapper {
    const nb_jdef *def; /* NULL: by attribute, or by truth */
    nb_jargs args;
    const nb_jv *path, *dflt;
} mapper;

static nb_status find_named(nb_jr *r, const nb_jv *name, bool filter, const nb_jdef **out)
{
    *out = NULL;
    if (name->kind == NB_JK_STR)
        *out = filter ? nb_j_find_filter(name->u.s) : nb_j_find_def(nb_j_tests, name->u.s);
    if (*out) return NB_OK;
    return nb_j_fail(r, NB_ERR_FORMAT, "TemplateRuntimeError: no %s named '%.*s'",
                     filter ? "filter" : "test",
                     name->kind == NB_JK_STR ? (int)(name->u.s.n_bytes > 60 ? 60 : name->u.s.n_bytes)
                                             : 0,
                     name->kind == NB_JK_STR ? name->u.s.p : "");
}

static nb_status prepare_map(nb_jr *r, const nb_jargs *raw, mapper *m)
{
    *m = (mapper){ 0 };
    if (!raw->n_pos) {
        for (size_t i = 0; i < raw->n_kw; i++) {
            if (nb_str_eqc(raw->kw_name[i], "attribute")) m->path = &raw->kw_val[i];
            else if (nb_str_eqc(raw->kw_name[i], "default")) m->dflt = &raw->kw_val[i];
            else return nb_j_fail(r, NB_ERR_FORMAT, "FilterArgumentError: unexpected keyword of map");
        }
        if (m->path) return NB_OK;
        return nb_j_fail(r, NB_ERR_FORMAT, "FilterArgumentError: map requires a filter argument");
    }
    m->args = *raw;
    m->args.pos++;
    m->args.n_pos--;
    return find_named(r, &raw->pos[0], true, &m->def);
}

FILTER(f_map)
{
    (void)a;
    nb_jiter it;
    nb_jv l, x, y;
    mapper m;
    NB_TRY(nb_j_list_new(r, NB_JK_LIST, 0, &l));
    if (nb_jv_truth(self)) {
        NB_TRY(prepare_map(r, raw, &m));
        NB_TRY(nb_j_iter(r, self, &it));
        for (bool got;;) {
            NB_TRY(nb_j_next(r, &it, &x, &got));
            if (!got) break;
            if (m.def) NB_TRY(nb_j_call_def(r, m.def, "filter", &x, &m.args, &y));
            else NB_TRY(get_path(r, &x, m.path, m.dflt, &y));
            NB_TRY(nb_j_list_push(r, l.u.list, &y));
        }
    }
    return nb_j_gen_new(r, l.u.list, "generator", out);
}

static nb_status select_items(nb_jr *r, const nb_jv *self, const nb_jargs *raw, bool attr,
                              bool want, nb_jv *out)
{
    nb_jiter it;
    nb_jv l, x, y, t;
    mapper m = { .args = *raw };
    NB_TRY(nb_j_list_new(r, NB_JK_LIST, 0, &l));
    if (!nb_jv_truth(self)) return nb_j_gen_new(r, l.u.list, "generator", out);
    if (attr) {
        if (!raw->n_pos)
            return nb_j_fail(r, NB_ERR_FORMAT,
                             "FilterArgumentError: Missing parameter for attribute name");
        m.path = m.args.pos++;
        m.args.n_pos--;
    }
    if (m.args.n_pos) {
        NB_TRY(find_named(r, m.args.pos, false, &m.def));
        m.args.pos++;
        m.args.n_pos--;
    }
    NB_TRY(nb_j_iter(r, self, &it));
    for (bool got;;) {
        NB_TRY(nb_j_next(r, &it, &x, &got));
        if (!got) break;
        y = x;
        if (attr) NB_TRY(get_path(r, &x, m.path, NULL, &y));
        t = y;
        if (m.def) NB_TRY(nb_j_call_def(r, m.def, "test", &y, &m.args, &t));
        if (nb_jv_truth(&t) == want) NB_TRY(nb_j_list_push(r, l.u.list, &x));
    }
    return nb_j_gen_new(r, l.u.list, "generator", out);
}

FILTER(f_select) { (void)a; return select_items(r, self, raw, false, true, out); }
FILTER(f_reject) { (void)a; return select_items(r, self, raw, false, false, out); }
FILTER(f_selectattr) { (void)a; return select_items(r, self, raw, true, true, out); }
FILTER(f_rejectattr) { (void)a; return select_items(r, self, raw, true, false, out); }

const nb_jdef nb_j_filters_seq[] = {
    { "length", "", 0, f_length },
    { "count", "", 0, f_length },
    { "list", "", 0, f_list },
    { "items", "", 0, f_items },
    { "join", "d attribute", 0, f_join },
    { "first", "", 0, f_first },
    { "last", "", 0, f_last },
    { "map", "*", 0, f_map },
    { "select", "*", 0, f_select },
    { "reject", "*", 0, f_reject },
    { "selectattr", "*", 0, f_selectattr },
    { "rejectattr", "*", 0, f_rejectattr },
    { "reverse", "", 0, f_reverse },
    { "sort", "reverse case_sensitive attribute", 0, f_sort },
    { "dictsort", "case_sensitive by reverse", 0, f_dictsort },
    NB_J_REFUSED("groupby"), NB_J_REFUSED("unique"), NB_J_REFUSED("min"), NB_J_REFUSED("max"),
    NB_J_REFUSED("sum"), NB_J_REFUSED("batch"), NB_J_REFUSED("slice"), NB_J_REFUSED("random"),
    { NULL, NULL, 0, NULL },
};
