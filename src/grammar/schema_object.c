/* schema_object.c - objects: which names a member may have, and what its value then has to satisfy.
 *
 * Each atom says of a name: properties[name] if it is there, and the schemas of all patterns that
 * match; where neither is, additionalProperties.  A declared name's value satisfies all of these of all
 * atoms.  Names that are not declared fall into classes by the set of patterns that match them. */
#include <stdlib.h>
#include <string.h>

#include "grammar/schema.h"
#include "load/json.h"

typedef struct members {
    nb_schema *x;
    const nb_conj *c;
    const char **name; /* [n]: declared, in order */
    size_t n, cap;
    const char *pattern[S_MAX_PATTERNS];
    const nb_re *re[S_MAX_PATTERNS];
    size_t n_pattern;
    nb_conj names;      /* propertyNames */
    bool listed;        /* names come from a list: no others */
    bool refuse_others; /* propertyNames admits no string */
    uint32_t *table, n_table;
} members;

static uint64_t name_hash(const char *s)
{
    uint64_t h = 14695981039346656037u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 1099511628211u;
    return h ^ h >> 29;
}

static bool grow_table(members *m)
{
    const uint32_t n = m->n_table ? 2 * m->n_table : 64;
    uint32_t *t = realloc(m->table, n * sizeof *t);
    if (!t) return nb_g_fail(m->x->g, NB_ERR_NOMEM, "no memory for a schema") == NB_OK;
    memset(t, 0xff, n * sizeof *t);
    m->table = t;
    m->n_table = n;
    for (uint32_t i = 0; i < m->n; i++) {
        uint64_t h = name_hash(m->name[i]) & (n - 1);
        while (t[h] != NB_G_NONE) h = (h + 1) & (n - 1);
        t[h] = i;
    }
    return true;
}

static bool declare(members *m, const char *name)
{
    if (!nb_g_spend(m->x->g, 1)) return false;
    if (2 * m->n >= m->n_table && !grow_table(m)) return false;
    uint64_t h = name_hash(name) & (m->n_table - 1);
    for (; m->table[h] != NB_G_NONE; h = (h + 1) & (m->n_table - 1))
        if (strcmp(m->name[m->table[h]], name) == 0) return true;
    if (NB_GROW(m->name, m->cap, m->n) != NB_OK)
        return nb_g_fail(m->x->g, NB_ERR_NOMEM, "no memory for a schema") == NB_OK;
    m->table[h] = (uint32_t)m->n;
    m->name[m->n++] = name;
    return true;
}

static void *iter(const json_t *o)
{
    return o ? json_object_iter((json_t *)(uintptr_t)o) : NULL;
}
static void *iter_next(const json_t *o, void *it)
{
    return json_object_iter_next((json_t *)(uintptr_t)o, it);
}

static bool add_pattern(members *m, const json_t *s, const char *text)
{
    for (size_t i = 0; i < m->n_pattern; i++)
        if (strcmp(m->pattern[i], text) == 0) return true;
    if (m->n_pattern == S_MAX_PATTERNS)
        return nb_s_fail(m->x, s, "patternProperties", NB_ERR_LIMIT,
                         "more than %d patterns apply to one object", S_MAX_PATTERNS) == NB_OK;
    const nb_re *re = nb_re_parse(m->x->g, nb_str_c(text), true);
    if (!re) {
        const nb_error why = m->x->g->err;
        m->x->g->err = (nb_error){ 0 };
        return nb_s_fail(m->x, s, "patternProperties", why.status, "%.300s", why.msg) == NB_OK;
    }
    m->pattern[m->n_pattern] = text;
    m->re[m->n_pattern++] = re;
    return true;
}

/* Names and patterns of all atoms. */
static bool collect(members *m)
{
    nb_schema *x = m->x;
    for (size_t i = 0; i < m->c->n; i++) {
        const json_t *s = nb_conj_base(x, m->c, i);
        const json_t *props = nb_s_get(s, "properties"), *pats = nb_s_get(s, "patternProperties");
        const json_t *names = nb_s_get(s, "propertyNames");
        for (void *it = iter(props); it; it = iter_next(props, it))
            if (!declare(m, json_object_iter_key(it))) return false;
        for (void *it = iter(pats); it; it = iter_next(pats, it))
            if (!add_pattern(m, s, json_object_iter_key(it))) return false;
        if (names && !nb_conj_add(x, &m->names, names)) return false;
    }
    for (size_t i = 0; i < m->c->n; i++) {
        const json_t *s = nb_conj_base(x, m->c, i), *req = nb_s_get(s, "required");
        for (size_t k = 0; k < json_array_size(req); k++) {
            const json_t *name = json_array_get(req, k);
            if (!json_is_string(name))
                return nb_s_fail(x, s, "required", NB_ERR_FORMAT,
                                 "it contains %s: expected strings",
                                 nb_json_describe(name).s) == NB_OK;
            if (!declare(m, json_string_value(name))) return false;
        }
    }
    return true;
}

/* propertyNames: what it lists becomes declared; branches cannot be counted on names. */
static bool collect_names(members *m)
{
    nb_schema *x = m->x;
    m->refuse_others = m->names.never;
    for (size_t i = 0; i < m->names.n; i++) {
        const json_t *s = nb_conj_base(x, &m->names, i);
        unsigned types;
        if (!s) {
            if (x->relaxed) {
                m->names.n = 0;
                return true;
            }
            return nb_s_fail(x, nb_conj_base(x, m->c, 0), "propertyNames", NB_ERR_UNSUPPORTED,
                             "anyOf and oneOf cannot be enforced on names") == NB_OK;
        }
        if (!nb_s_types(x, s, &types)) return false;
        if (!(types & T_STRING)) m->refuse_others = true;
        const json_t *list = nb_s_get(s, "enum"), *one = nb_s_get(s, "const");
        if (!list && !one) continue;
        m->listed = true;
        for (size_t k = 0; k < json_array_size(list); k++)
            if (json_is_string(json_array_get(list, k)) &&
                !declare(m, json_string_value(json_array_get(list, k))))
                return false;
        if (json_is_string(one) && !declare(m, json_string_value(one))) return false;
    }
    return true;
}

static bool name_allowed(members *m, const char *name)
{
    if (m->names.never) return false;
    json_t *v = m->names.n ? json_string(name) : NULL;
    bool ok = true;
    if (m->names.n && !v) (void)nb_g_fail(m->x->g, NB_ERR_NOMEM, "no memory for a schema");
    for (size_t i = 0; v && i < m->names.n && ok; i++)
        ok = nb_s_valid(m->x, nb_conj_base(m->x, &m->names, i), v);
    json_decref(v);
    return ok;
}

/* The rule of a member's value; matched: bits of the patterns that match its name.  name NULL: it is
 * not declared. */
static uint32_t value_rule(members *m, const char *name, unsigned matched)
{
    nb_schema *x = m->x;
    nb_conj v = { 0 };
    bool ok = true;
    for (size_t i = 0; i < m->c->n && ok; i++) {
        const json_t *s = nb_conj_base(x, m->c, i);
        const json_t *own = name ? json_object_get(nb_s_get(s, "properties"), name) : NULL;
        const json_t *pats = nb_s_get(s, "patternProperties");
        const json_t *more = nb_s_get(s, "additionalProperties");
        bool found = own != NULL;
        if (own) ok = nb_conj_add(x, &v, own);
        for (size_t k = 0; k < m->n_pattern && ok; k++) {
            const json_t *p = matched >> k & 1 ? json_object_get(pats, m->pattern[k]) : NULL;
            if (!p) continue;
            found = true;
            ok = nb_conj_add(x, &v, p);
        }
        if (!found && more && ok) ok = nb_conj_add(x, &v, more);
    }
    const uint32_t rule = ok ? nb_conj_rule(x, &v) : NB_G_NONE;
    nb_conj_deinit(&v);
    return rule;
}

static bool required(const members *m, const char *name)
{
    for (size_t i = 0; i < m->c->n; i++) {
        const json_t *req = nb_s_get(nb_conj_base(m->x, m->c, i), "required");
        for (size_t k = 0; k < json_array_size(req); k++)
            if (strcmp(json_string_value(json_array_get(req, k)), name) == 0) return true;
    }
    return false;
}

/* Marks all at once: asking for each name would take their product. */
static bool mark_required(members *m, nb_gobj *o)
{
    size_t n = 0;
    for (size_t i = 0; i < m->c->n; i++)
        n += json_array_size(nb_s_get(nb_conj_base(m->x, m->c, i), "required"));
    if (n == 0) return true;
    if (n <= 8) {
        for (size_t i = 0; i < m->n; i++) o->prop[i].required = required(m, m->name[i]);
        return true;
    }
    for (size_t i = 0; i < m->c->n; i++) {
        const json_t *req = nb_s_get(nb_conj_base(m->x, m->c, i), "required");
        for (size_t k = 0; k < json_array_size(req); k++) {
            const char *name = json_string_value(json_array_get(req, k));
            uint64_t h = name_hash(name) & (m->n_table - 1);
            while (strcmp(m->name[m->table[h]], name) != 0) h = (h + 1) & (m->n_table - 1);
            o->prop[m->table[h]].required = true;
        }
    }
    return nb_g_spend(m->x->g, n);
}

typedef struct key {
    nb_str text;
    uint32_t index;
} key;

static int by_text(const void *a, const void *b)
{
    return nb_str_order(((const key *)a)->text, ((const key *)b)->text);
}

static bool declared(members *m, nb_gobj *o)
{
    nb_grammar *g = m->x->g;
    key *k = nb_g_alloc(g, m->n, sizeof *k);
    o->prop = nb_g_alloc(g, m->n, sizeof *o->prop);
    o->index = nb_g_alloc(g, m->n, sizeof *o->index);
    o->names.s = nb_g_alloc(g, m->n, sizeof *o->names.s);
    if (!nb_g_ok(g)) return false;
    o->n_prop = o->names.n = m->n;
    for (size_t i = 0; i < m->n; i++) {
        unsigned matched = 0;
        const nb_str name = nb_str_c(m->name[i]);
        for (size_t p = 0; p < m->n_pattern; p++)
            if (nb_re_matches(g, m->re[p], name)) matched |= 1u << p;
        const bool ok = name_allowed(m, m->name[i]);
        o->prop[i] = (nb_gprop){ .rule = ok ? value_rule(m, m->name[i], matched) : NB_G_NONE };
        k[i] = (key){ nb_s_quoted(g, name, true), (uint32_t)i };
        if (!nb_g_ok(g)) return false;
    }
    if (m->n > 1) qsort(k, m->n, sizeof *k, by_text);
    for (size_t i = 0; i < m->n; i++) {
        o->names.s[i] = k[i].text;
        o->index[i] = k[i].index;
    }
    return mark_required(m, o);
}

/* One class of names: those that match exactly the patterns of `matched`, and propertyNames. */
static bool add_class(members *m, nb_gobj *o, unsigned matched, const nb_strspec *names)
{
    nb_grammar *g = m->x->g;
    nb_strspec s = *names;
    const bool plain =
        m->n_pattern == 0 && names->n == 0 && names->min == 0 && names->max == NB_G_INF;
    const uint32_t rule = value_rule(m, NULL, matched);
    if (rule == NB_G_NONE) return nb_g_ok(g);
    nb_gother *t = &o->other[o->n_other];
    *t = (nb_gother){ .dfa = g->name, .rule = rule, .exclude = m->n > 0 };
    if (!plain) {
        s.re = nb_g_alloc(g, names->n + m->n_pattern + 1, sizeof *s.re);
        s.without = nb_g_alloc(g, names->n + m->n_pattern + 1, sizeof *s.without);
        if (!nb_g_ok(g)) return false;
        if (names->n) memcpy(s.re, names->re, names->n * sizeof *s.re);
        if (names->n) memcpy(s.without, names->without, names->n * sizeof *s.without);
        for (size_t p = 0; p < m->n_pattern; p++, s.n++) {
            s.re[s.n] = m->re[p];
            s.without[s.n] = !(matched >> p & 1);
        }
        if (m->n) { /* without the declared ones, so that no way leads to them alone */
            nb_re **list = nb_g_alloc(g, m->n, sizeof *list);
            for (size_t i = 0; list && i < m->n; i++)
                list[i] = nb_re_literal(g, nb_str_c(m->name[i]));
            if (!nb_g_ok(g)) return false;
            s.re[s.n] = nb_re_new(g, R_ALT, list, m->n);
            s.without[s.n++] = true;
        }
        bool empty;
        t->exclude = false;
        t->dfa = nb_s_names(m->x, &s, true, &empty);
        if (empty || !nb_g_ok(g)) return nb_g_ok(g);
    }
    o->n_other++;
    return true;
}

static bool others(members *m, nb_gobj *o)
{
    nb_strspec names;
    if (m->listed || m->refuse_others) return true;
    if (!nb_s_strspec(m->x, &m->names, &names)) return false;
    if (names.min > names.max) return true;
    o->other = nb_g_alloc(m->x->g, (size_t)1 << m->n_pattern, sizeof *o->other);
    for (unsigned t = 0; o->other && t < 1u << m->n_pattern; t++)
        if (!add_class(m, o, t, &names)) return false;
    return nb_g_ok(m->x->g);
}

nb_gid nb_s_object(nb_schema *x, const nb_conj *c, nb_gid next)
{
    members m = { .x = x, .c = c };
    nb_gobj o = { .max = NB_G_INF };
    for (size_t i = 0; i < c->n; i++) {
        const json_t *s = nb_conj_base(x, c, i);
        uint32_t v;
        if (nb_s_count(x, s, "minProperties", &v) && v > o.min) o.min = v;
        if (nb_s_count(x, s, "maxProperties", &v) && v < o.max) o.max = v;
    }
    nb_gid r = NB_G_NONE;
    if (nb_g_ok(x->g) && collect(&m) && collect_names(&m) && declared(&m, &o) && others(&m, &o))
        r = nb_g_object(x->g, &o, next);
    free(m.name);
    free(m.table);
    nb_conj_deinit(&m.names);
    return r;
}
