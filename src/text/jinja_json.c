/* jinja_json.c - the filters tojson (Python's json.dumps as transformers calls it:
 * no ASCII escapes by default, never HTML escapes) and from_json. */
#include <math.h>
#include <stdio.h>

#include "text/jinja_internal.h"

typedef struct writer {
    nb_jr *r;
    bool ensure_ascii, sort_keys, pretty;
    nb_str indent, item_sep, key_sep;
    unsigned level;
} writer;

static nb_status add_json_str(const writer *w, nb_str s)
{
    nb_jr *r = w->r;
    NB_TRY(nb_j_work(r, s.n_bytes));
    NB_TRY(nb_j_add_ch(r, '"'));
    size_t done = 0;
    for (size_t i = 0, n; i < s.n_bytes; i += n) {
        char t[16];
        const uint32_t cp = nb_j_cp(s, i, &n);
        switch (cp) {
        case '"': memcpy(t, "\\\"", 3); break;
        case '\\': memcpy(t, "\\\\", 3); break;
        case '\n': memcpy(t, "\\n", 3); break;
        case '\r': memcpy(t, "\\r", 3); break;
        case '\t': memcpy(t, "\\t", 3); break;
        case '\f': memcpy(t, "\\f", 3); break;
        case '\b': memcpy(t, "\\b", 3); break;
        default:
            if (cp >= 0x20 && (cp < 0x7F || !w->ensure_ascii)) continue;
            if (cp < 0x10000) snprintf(t, sizeof t, "\\u%04x", cp);
            else
                snprintf(t, sizeof t, "\\u%04x\\u%04x", 0xD7C0 + (cp >> 10), 0xDC00 + (cp & 0x3FF));
        }
        NB_TRY(nb_j_add(r, nb_j_sub(s, done, i)));
        NB_TRY(nb_j_add_c(r, t));
        done = i + n;
    }
    NB_TRY(nb_j_add(r, nb_j_sub(s, done, s.n_bytes)));
    return nb_j_add_ch(r, '"');
}

static nb_status add_json_float(nb_jr *r, double f)
{
    char t[40];
    if (isnan(f)) return nb_j_add_c(r, "NaN");
    if (isinf(f)) return nb_j_add_c(r, f < 0 ? "-Infinity" : "Infinity");
    return nb_j_add(r, (nb_str){ t, nb_j_float_repr(f, t) });
}

static nb_status newline(const writer *w)
{
    if (!w->pretty) return NB_OK;
    NB_TRY(nb_j_add_ch(w->r, '\n'));
    for (unsigned i = 0; i < w->level; i++) NB_TRY(nb_j_add(w->r, w->indent));
    return NB_OK;
}

static nb_status add_json(writer *w, const nb_jv *v);

static nb_status add_json_list(writer *w, const nb_jlist *l)
{
    NB_TRY(nb_j_add_ch(w->r, '['));
    w->level++;
    for (size_t i = 0; i < l->n; i++) {
        if (i) NB_TRY(nb_j_add(w->r, w->item_sep));
        NB_TRY(newline(w));
        NB_TRY(add_json(w, &l->v[i]));
    }
    w->level--;
    if (l->n) NB_TRY(newline(w));
    return nb_j_add_ch(w->r, ']');
}

/* Keys that are not strings become strings of their JSON. */
static nb_status add_json_key(writer *w, const nb_jv *k)
{
    nb_jr *r = w->r;
    if (k->kind == NB_JK_STR) return add_json_str(w, k->u.s);
    if (k->kind != NB_JK_NONE && !nb_jv_is_num(k))
        return NB_J_TYPE_ERROR(r, "keys must be str, int, float, bool or None, not %s",
                               nb_jv_type_name(k));
    NB_TRY(nb_j_add_ch(r, '"'));
    NB_TRY(add_json(w, k));
    return nb_j_add_ch(r, '"');
}

static nb_status add_json_dict(writer *w, const nb_jdict *d)
{
    void *p = NULL, *keys = NULL;
    nb_jr *r = w->r;
    if (w->sort_keys && d->n > 1) {
        NB_TRY(nb_j_alloc(r, d->n * sizeof(nb_jv), &p));
        NB_TRY(nb_j_alloc(r, d->n * sizeof(nb_jv), &keys));
        for (size_t i = 0; i < d->n; i++) {
            ((nb_jv *)keys)[i] = d->e[i].key;
            ((nb_jv *)p)[i] = nb_jv_int((int64_t)i);
        }
        NB_TRY(nb_j_sort(r, keys, p, d->n, false));
    }
    NB_TRY(nb_j_add_ch(r, '{'));
    w->level++;
    for (size_t i = 0; i < d->n; i++) {
        const nb_jentry *e = &d->e[p ? (size_t)((nb_jv *)p)[i].u.i : i];
        if (i) NB_TRY(nb_j_add(r, w->item_sep));
        NB_TRY(newline(w));
        NB_TRY(add_json_key(w, &e->key));
        NB_TRY(nb_j_add(r, w->key_sep));
        NB_TRY(add_json(w, &e->val));
    }
    w->level--;
    if (d->n) NB_TRY(newline(w));
    return nb_j_add_ch(r, '}');
}

static nb_status add_json(writer *w, const nb_jv *v)
{
    nb_jr *r = w->r;
    nb_status st;
    NB_TRY(nb_j_work(r, 1));
    switch (v->kind) {
    case NB_JK_NONE: return nb_j_add_c(r, "null");
    case NB_JK_BOOL: return nb_j_add_c(r, v->u.b ? "true" : "false");
    case NB_JK_INT: return nb_j_add_repr(r, v);
    case NB_JK_FLOAT: return add_json_float(r, v->u.f);
    case NB_JK_STR: return add_json_str(w, v->u.s);
    case NB_JK_LIST: case NB_JK_TUPLE: case NB_JK_DICT:
        NB_TRY(nb_j_enter(r));
        st = v->kind == NB_JK_DICT ? add_json_dict(w, v->u.dict) : add_json_list(w, v->u.list);
        nb_j_leave(r);
        return st;
    default:
        return NB_J_TYPE_ERROR(r, "Object of type %s is not JSON serializable", nb_jv_type_name(v));
    }
}

static nb_status read_options(nb_jr *r, const nb_jv *a, writer *w)
{
    w->ensure_ascii = nb_jv_truth(&a[0]);
    w->item_sep = nb_str_c(", ");
    w->key_sep = nb_str_c(": ");
    if (nb_jv_given(&a[1])) {
        w->pretty = true;
        w->item_sep = nb_str_c(",");
        if (a[1].kind == NB_JK_STR) {
            w->indent = a[1].u.s;
        } else if (nb_jv_is_int(&a[1])) {
            static const char blanks[] = "                                ";
            const int64_t n = nb_jv_as_int(&a[1]);
            if (n > (int64_t)sizeof blanks - 1)
                return nb_j_fail(r, NB_ERR_LIMIT, "tojson: indent above %zu", sizeof blanks - 1);
            w->indent = (nb_str){ blanks, n > 0 ? (size_t)n : 0 };
        } else {
            return NB_J_TYPE_ERROR(r, "tojson: indent must be a number or a string");
        }
    }
    if (nb_jv_given(&a[2])) {
        const nb_jlist *l = a[2].kind == NB_JK_LIST || a[2].kind == NB_JK_TUPLE ? a[2].u.list : NULL;
        if (!l || l->n != 2 || l->v[0].kind != NB_JK_STR || l->v[1].kind != NB_JK_STR)
            return NB_J_TYPE_ERROR(r, "tojson: separators must be a pair of strings");
        w->item_sep = l->v[0].u.s;
        w->key_sep = l->v[1].u.s;
    }
    w->sort_keys = nb_jv_truth(&a[3]);
    return NB_OK;
}

nb_status nb_j_tojson(nb_jr *r, const nb_jv *self, const nb_jv *a, const nb_jargs *raw, nb_jv *out)
{
    (void)raw;
    writer w = { .r = r };
    const bool printed = r->printed_container;
    const size_t mark = nb_j_mark(r);
    NB_TRY(read_options(r, a, &w));
    NB_TRY(add_json(&w, self));
    r->printed_container = printed;
    return nb_j_take(r, mark, out);
}

nb_status nb_j_fromjson(nb_jr *r, const nb_jv *self, const nb_jv *a, const nb_jargs *raw,
                        nb_jv *out)
{
    (void)a, (void)raw;
    json_error_t je;
    if (self->kind == NB_JK_UNDEF) return nb_j_fail_undef(r, self);
    if (self->kind != NB_JK_STR)
        return NB_J_TYPE_ERROR(r, "from_json needs a string, not %s", nb_jv_type_name(self));
    /* jansson makes at most some 100 bytes per byte of text; charged before */
    if (self->u.s.n_bytes > (r->lim.max_value_bytes - r->value_bytes) / 128)
        return nb_j_fail(r, NB_ERR_LIMIT, "from_json: text too long");
    NB_TRY(nb_j_work(r, self->u.s.n_bytes * 16));
    json_t *j = json_loadb(self->u.s.p, self->u.s.n_bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
    if (!j) return NB_J_VALUE_ERROR(r, "from_json: %s at byte %d", je.text, je.position);
    /* the converted strings point into j, which goes */
    nb_jv v;
    nb_status st = nb_j_from_json(r, j, &v);
    if (st == NB_OK) st = nb_jv_own(r, &v);
    json_decref(j);
    if (st == NB_OK) *out = v;
    return st;
}
