/* jinja_method.c - methods of lists, tuples, dicts and loop; the global functions
 * (range, namespace, dict, raise_exception, strftime_now, ...).
 *
 * transformers' sandbox refuses methods that modify a list or dict; they are allowed
 * here, because templates written for other engines use them and a template that
 * transformers accepts cannot tell the difference. */
#include "text/jinja_internal.h"

#define METHOD(name)                                                                               \
    static nb_status name(nb_jr *r, const nb_jv *self, const nb_jv *a, const nb_jargs *raw,        \
                          nb_jv *out)
#define UNUSED_ARGS ((void)self, (void)a, (void)raw)

static nb_status want_int(nb_jr *r, const nb_jv *v, int64_t dflt, int64_t *out)
{
    *out = dflt;
    if (v->kind == NB_JK_MISSING) return NB_OK;
    if (!nb_jv_is_int(v))
        return NB_J_TYPE_ERROR(r, "'%s' object cannot be interpreted as an integer",
                               nb_jv_type_name(v));
    *out = nb_jv_as_int(v);
    return NB_OK;
}

/* ---- list ---- */

METHOD(l_append)
{
    (void)raw;
    *out = nb_jv_none();
    return nb_j_list_push(r, self->u.list, &a[0]);
}

METHOD(l_extend)
{
    (void)raw;
    nb_jlist *more;
    *out = nb_jv_none();
    NB_TRY(nb_j_to_list(r, &a[0], &more));
    for (size_t i = 0; i < more->n; i++) NB_TRY(nb_j_list_push(r, self->u.list, &more->v[i]));
    return NB_OK;
}

/* Changes in place work on a copy of the array, so that running loops keep theirs. */
static nb_status fresh_array(nb_jr *r, nb_jlist *l)
{
    void *p;
    NB_TRY(nb_j_alloc(r, (l->n + 1) * sizeof *l->v, &p));
    if (l->n) memcpy(p, l->v, l->n * sizeof *l->v);
    l->v = p;
    l->cap = l->n + 1;
    return nb_j_work(r, l->n * 8);
}

METHOD(l_insert)
{
    (void)raw;
    int64_t i;
    nb_jlist *l = self->u.list;
    NB_TRY(want_int(r, &a[0], 0, &i));
    const int64_t n = (int64_t)l->n;
    if (i < 0) i = i < -n ? 0 : i + n;
    if (i > n) i = n;
    NB_TRY(fresh_array(r, l));
    memmove(l->v + i + 1, l->v + i, (size_t)(n - i) * sizeof *l->v);
    l->v[i] = a[1];
    l->n++;
    *out = nb_jv_none();
    return NB_OK;
}

static nb_status remove_at(nb_jr *r, nb_jlist *l, size_t i)
{
    NB_TRY(fresh_array(r, l));
    memmove(l->v + i, l->v + i + 1, (l->n - i - 1) * sizeof *l->v);
    l->n--;
    return NB_OK;
}

METHOD(l_pop)
{
    (void)raw;
    int64_t i;
    nb_jlist *l = self->u.list;
    NB_TRY(want_int(r, &a[0], -1, &i));
    if (i < 0) i += (int64_t)l->n;
    if (i < 0 || i >= (int64_t)l->n)
        return nb_j_fail(r, NB_ERR_FORMAT, "IndexError: %s",
                         l->n ? "pop index out of range" : "pop from empty list");
    *out = l->v[i];
    return remove_at(r, l, (size_t)i);
}

const nb_jdef nb_j_list_methods[] = {
    { "append", "x", 1, l_append }, { "extend", "x", 1, l_extend },
    { "insert", "i x", 2, l_insert }, { "pop", "i", 0, l_pop },
    NB_J_REFUSED("remove"), NB_J_REFUSED("index"), NB_J_REFUSED("count"), NB_J_REFUSED("reverse"),
    NB_J_REFUSED("copy"), NB_J_REFUSED("clear"), NB_J_REFUSED("sort"),
    { NULL, NULL, 0, NULL },
};
const nb_jdef nb_j_tuple_methods[] = {
    NB_J_REFUSED("index"), NB_J_REFUSED("count"),
    { NULL, NULL, 0, NULL },
};

/* ---- dict ---- */

METHOD(d_get)
{
    (void)raw;
    size_t at;
    NB_TRY(nb_j_dict_find(r, self->u.dict, &a[0], &at));
    if (at != SIZE_MAX) *out = self->u.dict->e[at].val;
    else *out = a[1].kind == NB_JK_MISSING ? nb_jv_none() : a[1];
    return NB_OK;
}

static nb_status view(const nb_jv *self, nb_jview which, nb_jv *out)
{
    *out = (nb_jv){ .kind = NB_JK_VIEW, .sub = (uint8_t)which, .u.dict = self->u.dict };
    return NB_OK;
}

METHOD(d_items) { UNUSED_ARGS; (void)r; return view(self, NB_JVIEW_ITEMS, out); }
METHOD(d_keys) { UNUSED_ARGS; (void)r; return view(self, NB_JVIEW_KEYS, out); }
METHOD(d_values) { UNUSED_ARGS; (void)r; return view(self, NB_JVIEW_VALUES, out); }

/* Entries in place are seen by running loops; removing works on a copy. */
static nb_status fresh_entries(nb_jr *r, nb_jdict *d)
{
    void *p;
    NB_TRY(nb_j_alloc(r, (d->n + 1) * sizeof *d->e, &p));
    if (d->n) memcpy(p, d->e, d->n * sizeof *d->e);
    d->e = p;
    d->cap = d->n + 1;
    return NB_OK;
}

METHOD(d_pop)
{
    (void)raw;
    size_t at;
    nb_jdict *d = self->u.dict;
    NB_TRY(nb_j_dict_find(r, d, &a[0], &at));
    if (at == SIZE_MAX) {
        if (a[1].kind == NB_JK_MISSING)
            return nb_j_fail(r, NB_ERR_FORMAT, "KeyError: pop of a key that the dict lacks");
        *out = a[1];
        return NB_OK;
    }
    *out = d->e[at].val;
    NB_TRY(fresh_entries(r, d));
    return nb_j_dict_remove(r, d, at);
}

/* dict(...), namespace(...), d.update(...): a mapping or pairs, then keywords. */
static nb_status update(nb_jr *r, nb_jdict *d, const nb_jargs *raw)
{
    if (raw->n_pos > 1) return NB_J_TYPE_ERROR(r, "at most 1 argument expected, got %zu", raw->n_pos);
    if (raw->n_pos && (raw->pos[0].kind == NB_JK_DICT)) {
        const nb_jdict *from = raw->pos[0].u.dict;
        for (size_t i = 0, n = from->n; i < n; i++)
            NB_TRY(nb_j_dict_set(r, d, &from->e[i].key, &from->e[i].val));
    } else if (raw->n_pos) {
        nb_jlist *pairs, *pair;
        NB_TRY(nb_j_to_list(r, &raw->pos[0], &pairs));
        for (size_t i = 0; i < pairs->n; i++) {
            NB_TRY(nb_j_to_list(r, &pairs->v[i], &pair));
            if (pair->n != 2)
                return NB_J_VALUE_ERROR(r, "dictionary update sequence element #%zu has length %zu; "
                                        "2 is required", i, pair->n);
            NB_TRY(nb_j_dict_set(r, d, &pair->v[0], &pair->v[1]));
        }
    }
    for (size_t i = 0; i < raw->n_kw; i++) {
        const nb_jv key = nb_jv_str(raw->kw_name[i]);
        NB_TRY(nb_j_dict_set(r, d, &key, &raw->kw_val[i]));
    }
    return NB_OK;
}

METHOD(d_update)
{
    (void)a;
    *out = nb_jv_none();
    return update(r, self->u.dict, raw);
}

const nb_jdef nb_j_dict_methods[] = {
    { "get", "key default", 1, d_get }, { "items", "", 0, d_items }, { "keys", "", 0, d_keys },
    { "values", "", 0, d_values }, { "pop", "key default", 1, d_pop },
    { "update", "*", 0, d_update },
    NB_J_REFUSED("setdefault"), NB_J_REFUSED("copy"), NB_J_REFUSED("clear"),
    NB_J_REFUSED("popitem"), NB_J_REFUSED("fromkeys"),
    { NULL, NULL, 0, NULL },
};

const nb_jdef nb_j_loop_methods[] = {
    NB_J_REFUSED("cycle"), NB_J_REFUSED("changed"),
    { NULL, NULL, 0, NULL },
};

/* ---- global functions ---- */

enum { MAX_RANGE = 100000 }; /* as Jinja2's sandbox */

METHOD(g_range)
{
    (void)self, (void)a;
    int64_t v[3] = { 0, 0, 1 };
    void *p;
    if (raw->n_pos < 1 || raw->n_pos > 3 || raw->n_kw)
        return NB_J_TYPE_ERROR(r, "range expected 1 to 3 arguments");
    for (size_t i = 0; i < raw->n_pos; i++) {
        if (raw->pos[i].kind == NB_JK_UNDEF) return nb_j_fail_undef(r, &raw->pos[i]);
        NB_TRY(want_int(r, &raw->pos[i], 0, &v[raw->n_pos == 1 ? 1 : i]));
    }
    for (int i = 0; i < 3; i++) /* so that start + n * step fits too */
        if (v[i] > INT64_MAX / 4 || v[i] < -(INT64_MAX / 4))
            return nb_j_fail(r, NB_ERR_RANGE, "range() arguments beyond 61 bits");
    if (v[2] == 0) return NB_J_VALUE_ERROR(r, "range() arg 3 must not be zero");
    uint64_t n = 0;
    if (v[2] > 0 && v[0] < v[1]) n = ((uint64_t)v[1] - (uint64_t)v[0] - 1) / (uint64_t)v[2] + 1;
    if (v[2] < 0 && v[0] > v[1])
        n = ((uint64_t)v[0] - (uint64_t)v[1] - 1) / (0 - (uint64_t)v[2]) + 1;
    if (n > MAX_RANGE)
        return nb_j_fail(r, NB_ERR_LIMIT, "OverflowError: range too big, the maximum is %d", MAX_RANGE);
    NB_TRY(nb_j_alloc(r, sizeof(nb_jrange), &p));
    nb_jrange *g = p;
    *g = (nb_jrange){ .start = v[0], .stop = v[1], .step = v[2], .n = (size_t)n };
    *out = (nb_jv){ .kind = NB_JK_RANGE, .u.range = g };
    return NB_OK;
}

METHOD(g_namespace)
{
    (void)self, (void)a;
    NB_TRY(nb_j_dict_new(r, NB_JK_NS, out));
    return update(r, out->u.dict, raw);
}

METHOD(g_dict)
{
    (void)self, (void)a;
    NB_TRY(nb_j_dict_new(r, NB_JK_DICT, out));
    return update(r, out->u.dict, raw);
}

METHOD(g_raise_exception)
{
    (void)self, (void)raw, (void)out;
    nb_jv s;
    NB_TRY(nb_j_to_str(r, &a[0], &s));
    return nb_j_fail(r, NB_ERR_FORMAT, "%.*s",
                     (int)(s.u.s.n_bytes > 800 ? 800 : s.u.s.n_bytes), s.u.s.p);
}

METHOD(g_strftime_now)
{
    (void)self, (void)raw;
    if (a[0].kind != NB_JK_STR)
        return NB_J_TYPE_ERROR(r, "strftime() argument 1 must be str, not %s",
                               nb_jv_type_name(&a[0]));
    return nb_j_strftime(r, a[0].u.s, r->lim.now_s, out);
}

const nb_jdef nb_j_globals[] = {
    { "range", "*", 0, g_range },
    { "namespace", "*", 0, g_namespace },
    { "dict", "*", 0, g_dict },
    { "raise_exception", "message", 1, g_raise_exception },
    { "strftime_now", "format", 1, g_strftime_now },
    NB_J_REFUSED("cycler"), NB_J_REFUSED("joiner"), NB_J_REFUSED("lipsum"),
    { NULL, NULL, 0, NULL },
};
