/* jinja_value.c - Python's lists, dicts, truth, equality, order and iteration.
 *
 * Lists and dicts live in the rendering's arena: growing copies the array and
 * leaves the old one in place, so an iterator over the old array stays valid
 * while its list changes (it sees a snapshot).
 * Dicts keep insertion order; lookup is linear up to SMALL_DICT entries, then by
 * an open-addressing index.  Work proportional to a value's length is charged as
 * steps, so that hostile sizes end in an error line and not in a long wait. */
#include <math.h>

#include "base/hash.h"
#include "text/jinja_internal.h"

enum { SMALL_DICT = 8 };

nb_jv nb_jv_undef(nb_jundef why, nb_str s, nb_jkind of)
{
    return (nb_jv){ .kind = NB_JK_UNDEF, .sub = (uint8_t)why, .aux = (uint32_t)of, .u.s = s };
}

nb_status nb_jv_copy_str(nb_jr *r, nb_str s, nb_jv *out)
{
    void *p;
    NB_TRY(nb_j_alloc(r, s.n_bytes + 1, &p));
    if (s.n_bytes) memcpy(p, s.p, s.n_bytes);
    *out = nb_jv_str((nb_str){ p, s.n_bytes });
    return NB_OK;
}

nb_status nb_jv_own(nb_jr *r, nb_jv *v)
{
    if (v->kind == NB_JK_STR) return nb_jv_copy_str(r, v->u.s, v);
    if (v->kind != NB_JK_LIST && v->kind != NB_JK_DICT) return NB_OK;
    NB_TRY(nb_j_enter(r));
    for (size_t i = 0; v->kind == NB_JK_LIST && i < v->u.list->n; i++)
        NB_TRY(nb_jv_own(r, &v->u.list->v[i]));
    for (size_t i = 0; v->kind == NB_JK_DICT && i < v->u.dict->n; i++) {
        NB_TRY(nb_jv_own(r, &v->u.dict->e[i].key));
        NB_TRY(nb_jv_own(r, &v->u.dict->e[i].val));
    }
    nb_j_leave(r);
    return NB_OK;
}

bool nb_jv_truth(const nb_jv *v)
{
    switch (v->kind) {
    case NB_JK_MISSING: case NB_JK_UNDEF: case NB_JK_NONE: return false;
    case NB_JK_BOOL: return v->u.b;
    case NB_JK_INT: return v->u.i != 0;
    case NB_JK_FLOAT: return v->u.f != 0;
    case NB_JK_STR: return v->u.s.n_bytes != 0;
    case NB_JK_LIST: case NB_JK_TUPLE: return v->u.list->n != 0;
    case NB_JK_DICT: case NB_JK_VIEW: return v->u.dict->n != 0;
    case NB_JK_RANGE: return v->u.range->n != 0;
    case NB_JK_LOOP: return v->u.loop->n != 0;
    default: return true;
    }
}

const char *nb_jv_type_name(const nb_jv *v)
{
    static const char *const names[] = {
        "missing", "Undefined", "NoneType", "bool", "int", "float", "str", "list", "tuple", "dict",
        "Namespace", "range", "", "", "slice", "function", "builtin_function_or_method", "Macro",
        "LoopContext", "Cycler", "Joiner",
    };
    static const char *const views[] = { "dict_keys", "dict_values", "dict_items" };
    if (v->kind == NB_JK_VIEW) return views[v->sub];
    if (v->kind == NB_JK_GEN) return v->u.gen->type_name;
    if (v->kind == NB_JK_STR && v->sub) return "Markup";
    return names[v->kind];
}

/* ---- equality and order ---- */

static nb_status equal_lists(nb_jr *r, const nb_jlist *a, const nb_jlist *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n && i < b->n; i++)
        NB_TRY(nb_jv_equal(r, &a->v[i], &b->v[i], out));
    return NB_OK;
}

static nb_status equal_dicts(nb_jr *r, const nb_jdict *a, const nb_jdict *b, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; *out && i < a->n; i++) {
        size_t k;
        NB_TRY(nb_j_dict_find(r, b, &a->e[i].key, &k));
        *out = k != SIZE_MAX;
        if (*out) NB_TRY(nb_jv_equal(r, &a->e[i].val, &b->e[k].val, out));
    }
    return NB_OK;
}

static bool equal_numbers(const nb_jv *a, const nb_jv *b)
{
    if (nb_jv_is_int(a) && nb_jv_is_int(b)) return nb_jv_as_int(a) == nb_jv_as_int(b);
    return nb_jv_as_float(a) == nb_jv_as_float(b);
}

static nb_status equal_same_kind(nb_jr *r, const nb_jv *a, const nb_jv *b, bool *out)
{
    switch (a->kind) {
    case NB_JK_UNDEF: case NB_JK_NONE: *out = true; return NB_OK;
    case NB_JK_STR:
        *out = nb_str_eq(a->u.s, b->u.s);
        return nb_j_work(r, a->u.s.n_bytes);
    case NB_JK_LIST: case NB_JK_TUPLE: return equal_lists(r, a->u.list, b->u.list, out);
    case NB_JK_DICT: return equal_dicts(r, a->u.dict, b->u.dict, out);
    case NB_JK_RANGE:
        *out = a->u.range->n == b->u.range->n &&
               (!a->u.range->n || (a->u.range->start == b->u.range->start &&
                                   (a->u.range->n == 1 || a->u.range->step == b->u.range->step)));
        return NB_OK;
    default: *out = a->u.func == b->u.func; return NB_OK; /* identity: all are pointers */
    }
}

nb_status nb_jv_equal(nb_jr *r, const nb_jv *a, const nb_jv *b, bool *out)
{
    NB_TRY(nb_j_work(r, 1));
    if (nb_jv_is_num(a) && nb_jv_is_num(b)) {
        *out = equal_numbers(a, b);
        return NB_OK;
    }
    if (a->kind != b->kind) {
        *out = false;
        return NB_OK;
    }
    NB_TRY(nb_j_enter(r));
    const nb_status st = equal_same_kind(r, a, b, out);
    nb_j_leave(r);
    return st;
}

static int order_str(nb_str a, nb_str b)
{
    const size_t n = a.n_bytes < b.n_bytes ? a.n_bytes : b.n_bytes;
    const int c = n ? memcmp(a.p, b.p, n) : 0; /* UTF-8 sorts as code points do */
    if (c) return c < 0 ? -1 : 1;
    return a.n_bytes == b.n_bytes ? 0 : a.n_bytes < b.n_bytes ? -1 : 1;
}

nb_status nb_jv_order(nb_jr *r, const nb_jv *a, const nb_jv *b, const char *op_name, int *out)
{
    NB_TRY(nb_j_work(r, 1));
    if (a->kind == NB_JK_UNDEF) return nb_j_fail_undef(r, a);
    if (b->kind == NB_JK_UNDEF) return nb_j_fail_undef(r, b);
    if (nb_jv_is_int(a) && nb_jv_is_int(b)) {
        const int64_t x = nb_jv_as_int(a), y = nb_jv_as_int(b);
        *out = x < y ? -1 : x > y;
        return NB_OK;
    }
    if (nb_jv_is_num(a) && nb_jv_is_num(b)) {
        const double x = nb_jv_as_float(a), y = nb_jv_as_float(b);
        *out = x < y ? -1 : x > y ? 1 : x == y ? 0 : 2; /* 2: a NaN, no order holds */
        return NB_OK;
    }
    if (a->kind == NB_JK_STR && b->kind == NB_JK_STR) {
        *out = order_str(a->u.s, b->u.s);
        return nb_j_work(r, a->u.s.n_bytes);
    }
    if (a->kind != b->kind || (a->kind != NB_JK_LIST && a->kind != NB_JK_TUPLE))
        return NB_J_TYPE_ERROR(r, "'%s' not supported between instances of '%s' and '%s'", op_name,
                               nb_jv_type_name(a), nb_jv_type_name(b));
    const nb_jlist *x = a->u.list, *y = b->u.list;
    NB_TRY(nb_j_enter(r));
    for (size_t i = 0; i < x->n && i < y->n; i++) {
        bool same;
        NB_TRY(nb_jv_equal(r, &x->v[i], &y->v[i], &same));
        if (same) continue;
        NB_TRY(nb_jv_order(r, &x->v[i], &y->v[i], op_name, out));
        nb_j_leave(r);
        return NB_OK;
    }
    nb_j_leave(r);
    *out = x->n < y->n ? -1 : x->n > y->n;
    return NB_OK;
}

/* ---- lists ---- */

static nb_status grow(nb_jr *r, void **items, size_t *cap, size_t n, size_t item_bytes)
{
    void *p;
    const size_t want = *cap ? 2 * *cap : 4;
    if (want > SIZE_MAX / 4 / item_bytes) return nb_j_fail(r, NB_ERR_LIMIT, "value too large");
    NB_TRY(nb_j_alloc(r, want * item_bytes, &p));
    if (n) memcpy(p, *items, n * item_bytes);
    *items = p;
    *cap = want;
    return NB_OK;
}

nb_status nb_j_list_new(nb_jr *r, nb_jkind kind, size_t cap, nb_jv *out)
{
    void *p, *v = NULL;
    NB_TRY(nb_j_alloc(r, sizeof(nb_jlist), &p));
    if (cap > SIZE_MAX / 4 / sizeof(nb_jv)) return nb_j_fail(r, NB_ERR_LIMIT, "value too large");
    if (cap) NB_TRY(nb_j_alloc(r, cap * sizeof(nb_jv), &v));
    nb_jlist *l = p;
    *l = (nb_jlist){ .v = v, .cap = cap };
    *out = (nb_jv){ .kind = (uint8_t)kind, .u.list = l };
    return NB_OK;
}

nb_status nb_j_list_push(nb_jr *r, nb_jlist *l, const nb_jv *v)
{
    const nb_jv copy = *v;
    if (l->n == l->cap) NB_TRY(grow(r, (void **)&l->v, &l->cap, l->n, sizeof *l->v));
    l->v[l->n++] = copy;
    return NB_OK;
}

static nb_status pair(nb_jr *r, const nb_jv *a, const nb_jv *b, nb_jv *out)
{
    NB_TRY(nb_j_list_new(r, NB_JK_TUPLE, 2, out));
    NB_TRY(nb_j_list_push(r, out->u.list, a));
    return nb_j_list_push(r, out->u.list, b);
}

nb_status nb_j_gen_new(nb_jr *r, const nb_jlist *items, const char *type_name, nb_jv *out)
{
    void *p;
    NB_TRY(nb_j_alloc(r, sizeof(nb_jgen), &p));
    nb_jgen *g = p;
    *g = (nb_jgen){ .v = items->v, .n = items->n, .type_name = type_name };
    *out = (nb_jv){ .kind = NB_JK_GEN, .u.gen = g };
    return NB_OK;
}

/* ---- dicts ---- */

static nb_status hash_value(nb_jr *r, const nb_jv *v, uint64_t *out)
{
    const uint64_t seed = 0x6a696e6a61u;
    switch (v->kind) {
    case NB_JK_STR:
        *out = nb_hash_bytes(v->u.s.p, v->u.s.n_bytes, seed);
        return nb_j_work(r, v->u.s.n_bytes);
    case NB_JK_BOOL: case NB_JK_INT: *out = nb_mix64(seed + (uint64_t)nb_jv_as_int(v)); return NB_OK;
    case NB_JK_FLOAT: /* 2.0 and 2 are the same key */
        if (v->u.f == floor(v->u.f) && fabs(v->u.f) < 0x1p62) {
            *out = nb_mix64(seed + (uint64_t)(int64_t)v->u.f);
        } else {
            *out = nb_hash_bytes(&v->u.f, sizeof v->u.f, seed);
        }
        return NB_OK;
    case NB_JK_TUPLE:
        *out = seed;
        NB_TRY(nb_j_enter(r));
        for (size_t i = 0; i < v->u.list->n; i++) {
            uint64_t h;
            NB_TRY(nb_j_work(r, 1));
            NB_TRY(hash_value(r, &v->u.list->v[i], &h));
            *out = nb_mix64(*out ^ h);
        }
        nb_j_leave(r);
        return NB_OK;
    case NB_JK_LIST: case NB_JK_DICT: case NB_JK_SLICE:
        return NB_J_TYPE_ERROR(r, "unhashable type: '%s'", nb_jv_type_name(v));
    default: *out = seed + v->kind; return NB_OK;
    }
}

nb_status nb_j_dict_new(nb_jr *r, nb_jkind kind, nb_jv *out)
{
    void *p;
    NB_TRY(nb_j_alloc(r, sizeof(nb_jdict), &p));
    *out = (nb_jv){ .kind = (uint8_t)kind, .u.dict = p };
    return NB_OK;
}

static nb_status find_hashed(nb_jr *r, const nb_jdict *d, const nb_jv *key, uint64_t h, size_t *at)
{
    bool same = false;
    *at = SIZE_MAX;
    if (!d->index) {
        for (size_t i = 0; i < d->n; i++) {
            if (d->e[i].hash != h) continue;
            NB_TRY(nb_jv_equal(r, &d->e[i].key, key, &same));
            if (same) *at = i;
            if (same) break;
        }
        return NB_OK;
    }
    for (size_t k = (size_t)h & (d->index_cap - 1); d->index[k]; k = (k + 1) & (d->index_cap - 1)) {
        const size_t i = d->index[k] - 1;
        NB_TRY(nb_j_work(r, 1));
        if (d->e[i].hash != h) continue;
        NB_TRY(nb_jv_equal(r, &d->e[i].key, key, &same));
        if (same) *at = i;
        if (same) break;
    }
    return NB_OK;
}

nb_status nb_j_dict_find(nb_jr *r, const nb_jdict *d, const nb_jv *key, size_t *index)
{
    uint64_t h = 0;
    NB_TRY(hash_value(r, key, &h));
    return find_hashed(r, d, key, h, index);
}

/* Without charging steps: for the fixed names that the engine itself looks up. */
const nb_jv *nb_j_dict_get_str(const nb_jdict *d, nb_str key)
{
    for (size_t i = 0; i < d->n; i++)
        if (d->e[i].key.kind == NB_JK_STR && nb_str_eq(d->e[i].key.u.s, key)) return &d->e[i].val;
    return NULL;
}

static void index_put(nb_jdict *d, size_t i)
{
    size_t k = (size_t)d->e[i].hash & (d->index_cap - 1);
    while (d->index[k]) k = (k + 1) & (d->index_cap - 1);
    d->index[k] = (uint32_t)i + 1;
}

static nb_status reindex(nb_jr *r, nb_jdict *d)
{
    if (d->n < SMALL_DICT) {
        d->index = NULL;
        return NB_OK;
    }
    if (!d->index || 2 * (d->n + 1) > d->index_cap) {
        void *p;
        size_t cap = 4 * SMALL_DICT;
        while (cap < 4 * (d->n + 1)) cap *= 2;
        NB_TRY(nb_j_alloc(r, cap * sizeof *d->index, &p));
        d->index = p;
        d->index_cap = cap;
    } else {
        memset(d->index, 0, d->index_cap * sizeof *d->index);
    }
    NB_TRY(nb_j_work(r, d->n * 8));
    for (size_t i = 0; i < d->n; i++) index_put(d, i);
    return NB_OK;
}

nb_status nb_j_dict_set(nb_jr *r, nb_jdict *d, const nb_jv *key, const nb_jv *val)
{
    uint64_t h;
    size_t at;
    NB_TRY(hash_value(r, key, &h));
    NB_TRY(find_hashed(r, d, key, h, &at));
    if (at != SIZE_MAX) {
        d->e[at].val = *val;
        return NB_OK;
    }
    if (d->n >= UINT32_MAX / 8) return nb_j_fail(r, NB_ERR_LIMIT, "value too large");
    if (d->n == d->cap) NB_TRY(grow(r, (void **)&d->e, &d->cap, d->n, sizeof *d->e));
    d->e[d->n++] = (nb_jentry){ .key = *key, .val = *val, .hash = h };
    if (!d->index || 2 * (d->n + 1) > d->index_cap) return reindex(r, d);
    index_put(d, d->n - 1);
    return NB_OK;
}

nb_status nb_j_dict_remove(nb_jr *r, nb_jdict *d, size_t index)
{
    NB_TRY(nb_j_work(r, d->n * sizeof *d->e));
    memmove(d->e + index, d->e + index + 1, (d->n - index - 1) * sizeof *d->e);
    d->n--;
    return reindex(r, d);
}

/* ---- iteration ---- */

nb_status nb_j_iter(nb_jr *r, const nb_jv *v, nb_jiter *it)
{
    *it = (nb_jiter){ .kind = v->kind, .sub = v->sub };
    switch (v->kind) {
    case NB_JK_UNDEF: break;
    case NB_JK_LIST: case NB_JK_TUPLE:
        it->v = v->u.list->v;
        it->n = v->u.list->n;
        break;
    case NB_JK_DICT: case NB_JK_VIEW:
        it->e = v->u.dict->e;
        it->n = v->u.dict->n;
        if (v->kind == NB_JK_DICT) it->sub = NB_JVIEW_KEYS;
        break;
    case NB_JK_STR:
        it->s = v->u.s;
        it->n = nb_j_cp_count(v->u.s);
        break;
    case NB_JK_GEN:
        it->gen = v->u.gen;
        it->n = v->u.gen->n - v->u.gen->pos;
        break;
    case NB_JK_RANGE:
        it->at = v->u.range->start;
        it->step = v->u.range->step;
        it->n = v->u.range->n;
        break;
    default: return NB_J_TYPE_ERROR(r, "'%s' object is not iterable", nb_jv_type_name(v));
    }
    return NB_OK;
}

static nb_status next_entry(nb_jr *r, const nb_jiter *it, nb_jv *out)
{
    const nb_jentry *e = &it->e[it->i];
    if (it->sub == NB_JVIEW_ITEMS) return pair(r, &e->key, &e->val, out);
    *out = it->sub == NB_JVIEW_KEYS ? e->key : e->val;
    return NB_OK;
}

nb_status nb_j_next(nb_jr *r, nb_jiter *it, nb_jv *out, bool *got)
{
    NB_TRY(nb_j_work(r, 1));
    if (it->kind == NB_JK_GEN) { /* others may consume it meanwhile */
        *got = it->gen->pos < it->gen->n;
        if (*got) *out = it->gen->v[it->gen->pos++];
        return NB_OK;
    }
    *got = it->i < it->n;
    if (!*got) return NB_OK;
    if (it->v) {
        *out = it->v[it->i];
    } else if (it->e) {
        NB_TRY(next_entry(r, it, out));
    } else if (it->kind == NB_JK_STR) {
        size_t n;
        nb_j_cp(it->s, 0, &n);
        *out = nb_jv_str(nb_j_sub(it->s, 0, n));
        it->s = nb_j_sub(it->s, n, it->s.n_bytes);
    } else {
        *out = nb_jv_int(it->at);
        if (it->i + 1 < it->n) it->at += it->step;
    }
    it->i++;
    return NB_OK;
}

nb_status nb_j_to_list(nb_jr *r, const nb_jv *v, nb_jlist **out)
{
    nb_jiter it;
    nb_jv l = { 0 }, x;
    bool got;
    NB_TRY(nb_j_iter(r, v, &it));
    NB_TRY(nb_j_list_new(r, NB_JK_LIST, it.n, &l));
    for (;;) {
        NB_TRY(nb_j_next(r, &it, &x, &got));
        if (!got) break;
        NB_TRY(nb_j_list_push(r, l.u.list, &x));
    }
    *out = l.u.list;
    return NB_OK;
}

/* Merge sort: stable, and it only asks `b < a` as Python's does. */
static nb_status merge(nb_jr *r, uint32_t *idx, uint32_t *tmp, const nb_jv *keys, size_t n,
                       bool reverse)
{
    for (size_t w = 1; w < n; w *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * w) {
            const size_t mid = lo + w < n ? lo + w : n, hi = lo + 2 * w < n ? lo + 2 * w : n;
            size_t i = lo, j = mid, k = lo;
            while (i < mid && j < hi) {
                int c;
                const nb_jv *a = &keys[idx[i]], *b = &keys[idx[j]];
                if (reverse) NB_TRY(nb_jv_order(r, a, b, "<", &c));
                else NB_TRY(nb_jv_order(r, b, a, "<", &c));
                tmp[k++] = c == -1 ? idx[j++] : idx[i++];
            }
            while (i < mid) tmp[k++] = idx[i++];
            while (j < hi) tmp[k++] = idx[j++];
        }
        memcpy(idx, tmp, n * sizeof *idx);
    }
    return NB_OK;
}

nb_status nb_j_sort(nb_jr *r, nb_jv *keys, nb_jv *items, size_t n, bool reverse)
{
    void *p, *q, *copy;
    if (n < 2) return NB_OK;
    if (n > UINT32_MAX / 64) return nb_j_fail(r, NB_ERR_LIMIT, "list too long to sort");
    NB_TRY(nb_j_alloc(r, n * sizeof(uint32_t), &p));
    NB_TRY(nb_j_alloc(r, n * sizeof(uint32_t), &q));
    NB_TRY(nb_j_alloc(r, n * sizeof *items, &copy));
    uint32_t *idx = p;
    for (size_t i = 0; i < n; i++) idx[i] = (uint32_t)i;
    NB_TRY(merge(r, idx, q, keys, n, reverse));
    memcpy(copy, items, n * sizeof *items);
    for (size_t i = 0; i < n; i++) items[i] = ((nb_jv *)copy)[idx[i]];
    return NB_OK;
}
