/* schema_valid.c - whether a value satisfies a schema, and whether two schemas exclude each other. */
#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "grammar/schema.h"

static unsigned type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL: return T_NULL;
    case JSON_TRUE:
    case JSON_FALSE: return T_BOOLEAN;
    case JSON_INTEGER: return T_INTEGER;
    case JSON_REAL: return json_real_value(v) == floor(json_real_value(v)) ? T_INTEGER : T_NUMBER;
    case JSON_STRING: return T_STRING;
    case JSON_ARRAY: return T_ARRAY;
    case JSON_OBJECT: return T_OBJECT;
    }
    return 0;
}

/* Equal as JSON Schema understands it: numbers by value. */
static bool equal(nb_schema *x, const json_t *a, const json_t *b)
{
    if (!nb_g_spend(x->g, 1)) return false;
    if (json_is_number(a) && json_is_number(b)) return nb_num_compare(a, b) == 0;
    if (json_typeof(a) != json_typeof(b)) return false;
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        for (size_t i = 0; i < json_array_size(a); i++)
            if (!equal(x, json_array_get(a, i), json_array_get(b, i))) return false;
        return true;
    }
    if (json_is_object(a)) {
        if (json_object_size(a) != json_object_size(b)) return false;
        for (void *it = json_object_iter((json_t *)(uintptr_t)a); it;
             it = json_object_iter_next((json_t *)(uintptr_t)a, it)) {
            const json_t *o = json_object_get(b, json_object_iter_key(it));
            if (!o || !equal(x, json_object_iter_value(it), o)) return false;
        }
        return true;
    }
    return json_equal(a, b) != 0;
}

static bool in_list(nb_schema *x, const json_t *list, const json_t *v)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        if (equal(x, json_array_get(list, i), v)) return true;
    return false;
}

static bool number_ok(const json_t *s, const json_t *v)
{
    const json_t *a = nb_s_get(s, "minimum"), *b = nb_s_get(s, "maximum");
    const json_t *c = nb_s_get(s, "exclusiveMinimum"), *d = nb_s_get(s, "exclusiveMaximum");
    const json_t *m = nb_s_get(s, "multipleOf");
    if (a && nb_num_compare(v, a) < 0) return false;
    if (b && nb_num_compare(v, b) > 0) return false;
    if (c && nb_num_compare(v, c) <= 0) return false;
    if (d && nb_num_compare(v, d) >= 0) return false;
    if (!m) return true;
    const double q = json_number_value(v) / json_number_value(m);
    return fabs(q - nearbyint(q)) < 1e-9 * fmax(1, fabs(q));
}

static bool string_ok(nb_schema *x, const json_t *s, const json_t *v)
{
    const nb_str text = { json_string_value(v), json_string_length(v) };
    const json_t *p = nb_s_get(s, "pattern"), *f = nb_s_get(s, "format");
    uint32_t n = 0, k;
    for (size_t i = 0; i < text.n_bytes; i++) n += ((unsigned char)text.p[i] & 0xc0) != 0x80;
    if (nb_s_count(x, s, "minLength", &k) && n < k) return false;
    if (nb_s_count(x, s, "maxLength", &k) && n > k) return false;
    if (p) {
        const nb_re *re = nb_re_parse(x->g, nb_str_c(json_string_value(p)), true);
        if (!re || !nb_re_matches(x->g, re, text)) return false;
    }
    if (f) {
        const nb_re *without, *re = nb_s_format(x, s, json_string_value(f), &without);
        if (re && !nb_re_matches(x->g, re, text)) return false;
        if (without && nb_re_matches(x->g, without, text)) return false;
    }
    return nb_g_ok(x->g);
}

static bool array_ok(nb_schema *x, const json_t *s, const json_t *v)
{
    const json_t *prefix = nb_s_get(s, "prefixItems"), *items = nb_s_get(s, "items");
    const size_t n = json_array_size(v);
    uint32_t k;
    if (nb_s_count(x, s, "minItems", &k) && n < k) return false;
    if (nb_s_count(x, s, "maxItems", &k) && n > k) return false;
    if (json_is_array(items)) {
        if (!prefix) prefix = items;
        items = nb_s_get(s, "additionalItems");
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *is = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (is && !nb_s_valid(x, is, json_array_get(v, i))) return false;
    }
    return true;
}

static bool member_ok(nb_schema *x, const json_t *s, const char *name, const json_t *v)
{
    const json_t *own = json_object_get(nb_s_get(s, "properties"), name);
    const json_t *pats = nb_s_get(s, "patternProperties");
    const json_t *more = nb_s_get(s, "additionalProperties"), *names = nb_s_get(s, "propertyNames");
    bool found = own != NULL;
    if (own && !nb_s_valid(x, own, v)) return false;
    if (names) {
        json_t *n = json_string(name);
        const bool ok = n && nb_s_valid(x, names, n);
        json_decref(n);
        if (!ok) return false;
    }
    for (void *it = pats ? json_object_iter((json_t *)(uintptr_t)pats) : NULL; it;
         it = json_object_iter_next((json_t *)(uintptr_t)pats, it)) {
        const nb_re *re = nb_re_parse(x->g, nb_str_c(json_object_iter_key(it)), true);
        if (!re) return false;
        if (!nb_re_matches(x->g, re, nb_str_c(name))) continue;
        found = true;
        if (!nb_s_valid(x, json_object_iter_value(it), v)) return false;
    }
    return found || !more || nb_s_valid(x, more, v);
}

static bool object_ok(nb_schema *x, const json_t *s, const json_t *v)
{
    const json_t *req = nb_s_get(s, "required");
    const size_t n = json_object_size(v);
    uint32_t k;
    if (nb_s_count(x, s, "minProperties", &k) && n < k) return false;
    if (nb_s_count(x, s, "maxProperties", &k) && n > k) return false;
    for (size_t i = 0; i < json_array_size(req); i++) {
        const json_t *name = json_array_get(req, i);
        if (json_is_string(name) && !json_object_get(v, json_string_value(name))) return false;
    }
    for (void *it = json_object_iter((json_t *)(uintptr_t)v); it;
         it = json_object_iter_next((json_t *)(uintptr_t)v, it))
        if (!member_ok(x, s, json_object_iter_key(it), json_object_iter_value(it))) return false;
    return true;
}

/* anyOf, oneOf, allOf, $ref. */
static bool parts_ok(nb_schema *x, const json_t *s, const json_t *v)
{
    const json_t *any = nb_s_get(s, "anyOf"), *one = nb_s_get(s, "oneOf");
    const json_t *all = nb_s_get(s, "allOf"), *ref = nb_s_get(s, "$ref");
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(any) && n == 0; i++)
        n = nb_s_valid(x, json_array_get(any, i), v);
    if (any && n == 0) return false;
    n = 0;
    for (size_t i = 0; i < json_array_size(one); i++) n += nb_s_valid(x, json_array_get(one, i), v);
    if (one && (x->relaxed ? n == 0 : n != 1)) return false;
    for (size_t i = 0; i < json_array_size(all); i++)
        if (!nb_s_valid(x, json_array_get(all, i), v)) return false;
    if (!ref) return true;
    const json_t *to = nb_s_resolve(x, s, json_string_value(ref));
    return to && nb_s_valid(x, to, v);
}

bool nb_s_own_valid(nb_schema *x, const json_t *s, const json_t *v, bool listed)
{
    const unsigned t = type_of(v);
    unsigned types;
    if (!nb_s_check(x, s) || !nb_s_types(x, s, &types)) return false;
    if (!(types & t)) return false;
    const json_t *one = nb_s_get(s, "const"), *list = nb_s_get(s, "enum");
    if (one && !listed && !equal(x, one, v)) return false;
    if (list && !listed && !in_list(x, list, v)) return false;
    if ((t & (T_INTEGER | T_NUMBER)) && !number_ok(s, v)) return false;
    if (t == T_STRING && !string_ok(x, s, v)) return false;
    if (t == T_ARRAY && !array_ok(x, s, v)) return false;
    return t != T_OBJECT || object_ok(x, s, v);
}

bool nb_s_valid(nb_schema *x, const json_t *s, const json_t *v)
{
    if (!nb_g_spend(x->g, 1) || json_is_false(s)) return false;
    if (!json_is_object(s)) return true;
    if (x->depth > 4 * S_MAX_DEPTH) {
        (void)nb_s_fail(x, s, NULL, NB_ERR_LIMIT, "a value is checked through too many references");
        return false;
    }
    x->depth++;
    const bool ok = nb_s_own_valid(x, s, v, false) && parts_ok(x, s, v);
    x->depth--;
    return ok && nb_g_ok(x->g);
}

/* ---- exclusive branches ---- */

/* What a schema says of itself and through $ref, allOf. */
static bool flatten(nb_schema *x, const json_t *s, nb_conj *c)
{
    return nb_conj_add(x, c, s);
}

static unsigned types_of(nb_schema *x, const nb_conj *c)
{
    unsigned all = T_ALL;
    for (size_t i = 0; i < c->n; i++) {
        const json_t *s = nb_conj_base(x, c, i);
        unsigned t = T_ALL;
        if (!s || !nb_s_types(x, s, &t)) continue;
        all &= t;
        const json_t *one = nb_s_get(s, "const"), *list = nb_s_get(s, "enum");
        unsigned listed = one ? type_of(one) : 0;
        for (size_t k = 0; k < json_array_size(list); k++)
            listed |= type_of(json_array_get(list, k));
        if (one || list) all &= listed;
    }
    return all;
}

/* The values that one of the atoms lists. */
static const json_t *list_of(const nb_schema *x, const nb_conj *c, bool *one)
{
    for (size_t i = 0; i < c->n; i++) {
        const json_t *s = nb_conj_base(x, c, i);
        if (!s) continue;
        const json_t *v = nb_s_get(s, "const"), *list = nb_s_get(s, "enum");
        *one = v != NULL;
        if (v || list) return v ? v : list;
    }
    return NULL;
}

/* No value of a's list is in b's. */
static bool lists_differ(nb_schema *x, const nb_conj *a, const nb_conj *b)
{
    bool one_a, one_b;
    const json_t *la = list_of(x, a, &one_a), *lb = list_of(x, b, &one_b);
    if (!la || !lb) return false;
    const size_t n = one_a ? 1 : json_array_size(la);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = one_a ? la : json_array_get(la, i);
        if (one_b ? equal(x, lb, v) : in_list(x, lb, v)) return false;
    }
    return nb_g_ok(x->g);
}

static bool requires(const nb_schema *x, const nb_conj *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++) {
        const json_t *s = nb_conj_base(x, c, i), *req = s ? nb_s_get(s, "required") : NULL;
        for (size_t k = 0; k < json_array_size(req); k++)
            if (json_is_string(json_array_get(req, k)) &&
                strcmp(json_string_value(json_array_get(req, k)), name) == 0)
                return true;
    }
    return false;
}

static const json_t *property(const nb_schema *x, const nb_conj *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++) {
        const json_t *s = nb_conj_base(x, c, i);
        const json_t *p = s ? json_object_get(nb_s_get(s, "properties"), name) : NULL;
        if (p) return p;
    }
    return NULL;
}

/* No object has this member: additionalProperties is false, and no pattern is there. */
static bool forbids(const nb_schema *x, const nb_conj *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++) {
        const json_t *s = nb_conj_base(x, c, i);
        if (!s) continue;
        const json_t *p = json_object_get(nb_s_get(s, "properties"), name);
        if (json_is_false(p)) return true;
        if (!p && !nb_s_get(s, "patternProperties") &&
            json_is_false(nb_s_get(s, "additionalProperties")))
            return true;
    }
    return false;
}

/* A member that a requires tells the two apart. */
static bool members_differ(nb_schema *x, const nb_conj *a, const nb_conj *b)
{
    for (size_t i = 0; i < a->n; i++) {
        const json_t *s = nb_conj_base(x, a, i), *req = s ? nb_s_get(s, "required") : NULL;
        for (size_t k = 0; k < json_array_size(req) && nb_g_ok(x->g); k++) {
            const json_t *name = json_array_get(req, k);
            if (!json_is_string(name)) continue;
            const char *key = json_string_value(name);
            if (forbids(x, b, key)) return true;
            const json_t *pa = property(x, a, key), *pb = property(x, b, key);
            if (!pa || !pb || !requires(x, b, key)) continue;
            if (nb_s_exclusive(x, pa, pb)) return true;
        }
    }
    return false;
}

bool nb_s_exclusive(nb_schema *x, const json_t *a, const json_t *b)
{
    nb_conj ca = { 0 }, cb = { 0 };
    bool yes = false;
    if (++x->depth < 2 * S_MAX_DEPTH && nb_g_spend(x->g, 1) && flatten(x, a, &ca) &&
        flatten(x, b, &cb)) {
        const unsigned both = types_of(x, &ca) & types_of(x, &cb);
        yes = ca.never || cb.never || both == 0 || lists_differ(x, &ca, &cb) ||
              (both == T_OBJECT && (members_differ(x, &ca, &cb) || members_differ(x, &cb, &ca)));
    }
    x->depth--;
    nb_conj_deinit(&ca);
    nb_conj_deinit(&cb);
    return yes && nb_g_ok(x->g);
}
