/* tools.c - what the declared tools' schemas say about types, for formats that
 * write values without quotes. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "parse/parse_internal.h"

enum {
    MAX_SCHEMA_BYTES = 1 << 20,
    MAX_TOOLS = 4096,
    MAX_DEPTH = 32,
    MAX_VISITS = 20000 /* nodes looked at for one tool */
};

/* ---- types that a schema admits ------------------------------------------ */

static unsigned type_of(const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_OBJECT: return NB_PT_OBJECT;
    case JSON_ARRAY: return NB_PT_ARRAY;
    case JSON_STRING: return NB_PT_STRING;
    case JSON_INTEGER: return NB_PT_INTEGER;
    case JSON_REAL:
        return json_real_value(v) == floor(json_real_value(v)) ? NB_PT_INTEGER : NB_PT_FRACTION;
    case JSON_TRUE:
    case JSON_FALSE: return NB_PT_BOOLEAN;
    case JSON_NULL: break;
    }
    return NB_PT_NULL;
}

static unsigned type_named(const char *name)
{
    static const struct {
        const char *name;
        unsigned types;
    } TYPES[] = { { "string", NB_PT_STRING },
                  { "integer", NB_PT_INTEGER },
                  { "number", NB_PT_INTEGER | NB_PT_FRACTION },
                  { "boolean", NB_PT_BOOLEAN },
                  { "null", NB_PT_NULL },
                  { "array", NB_PT_ARRAY },
                  { "object", NB_PT_OBJECT } };
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++)
        if (strcmp(TYPES[i].name, name) == 0) return TYPES[i].types;
    return NB_PT_ALL;
}

typedef struct walk {
    const json_t *root;
    size_t n_visits, depth;
} walk;

static unsigned admitted(walk *w, const json_t *schema);

/* The union over an array: of schemas, or of values. */
static unsigned any_of(walk *w, const json_t *list, bool schemas)
{
    unsigned types = 0;
    for (size_t i = 0; i < json_array_size(list) && types != NB_PT_ALL; i++) {
        const json_t *v = json_array_get(list, i);
        if (++w->n_visits > MAX_VISITS) return NB_PT_ALL;
        types |= schemas ? admitted(w, v) : type_of(v);
    }
    return types ? types : NB_PT_ALL;
}

/* A local reference "#/a/b"; NULL: none that we follow. */
static const json_t *resolve(const json_t *root, const char *ref)
{
    if (*ref++ != '#') return NULL;
    while (root && *ref == '/') {
        char name[256];
        size_t n = 0;
        for (ref++; *ref && *ref != '/'; ref++) {
            char c = *ref;
            if (c == '~' && (ref[1] == '0' || ref[1] == '1')) c = *++ref == '0' ? '~' : '/';
            if (n + 1 >= sizeof name) return NULL;
            name[n++] = c;
        }
        name[n] = 0;
        root = json_is_array(root) ? json_array_get(root, (size_t)strtoul(name, NULL, 10))
                                   : json_object_get(root, name);
    }
    return *ref ? NULL : root;
}

static unsigned admitted_here(walk *w, const json_t *s)
{
    const json_t *type = json_object_get(s, "type"), *v;
    unsigned types = NB_PT_ALL, named = 0;
    if (json_is_string(type)) types = type_named(json_string_value(type));
    for (size_t i = 0; i < json_array_size(type) && ++w->n_visits < MAX_VISITS; i++) {
        v = json_array_get(type, i);
        named |= json_is_string(v) ? type_named(json_string_value(v)) : NB_PT_ALL;
    }
    if (named) types = named;
    if (json_is_true(json_object_get(s, "nullable"))) types |= NB_PT_NULL;
    if ((v = json_object_get(s, "enum"))) types &= any_of(w, v, false);
    if ((v = json_object_get(s, "const"))) types &= type_of(v);
    if ((v = json_object_get(s, "anyOf"))) types &= any_of(w, v, true);
    if ((v = json_object_get(s, "oneOf"))) types &= any_of(w, v, true);
    const json_t *all = json_object_get(s, "allOf");
    for (size_t i = 0; i < json_array_size(all); i++) types &= admitted(w, json_array_get(all, i));
    if (json_is_string(v = json_object_get(s, "$ref")))
        types &= admitted(w, resolve(w->root, json_string_value(v)));
    return types ? types : NB_PT_ALL; /* nothing fits: the schema does not help */
}

static unsigned admitted(walk *w, const json_t *schema)
{
    if (!json_is_object(schema) || w->depth >= MAX_DEPTH || ++w->n_visits > MAX_VISITS)
        return NB_PT_ALL;
    w->depth++;
    const unsigned types = admitted_here(w, schema);
    w->depth--;
    return types;
}

/* ---- tools --------------------------------------------------------------- */

static int by_property(const void *a, const void *b)
{
    return strcmp(((const nb_pproperty *)a)->name, ((const nb_pproperty *)b)->name);
}

static int by_tool(const void *a, const void *b)
{
    return strcmp(((const nb_ptool *)a)->name, ((const nb_ptool *)b)->name);
}

static char *copy(nb_str s)
{
    char *p = malloc(s.n_bytes + 1);
    if (!p) return NULL;
    if (s.n_bytes) memcpy(p, s.p, s.n_bytes);
    p[s.n_bytes] = 0;
    return p;
}

static nb_status read_properties(nb_ptool *t, json_t *schema)
{
    json_t *properties = json_object_get(schema, "properties"), *v;
    const char *key;
    walk w = { .root = schema };
    if (!json_object_size(properties)) return NB_OK;
    t->properties = calloc(json_object_size(properties), sizeof *t->properties);
    if (!t->properties) return NB_ERR_NOMEM;
    json_object_foreach(properties, key, v)
    {
        nb_pproperty *p = &t->properties[t->n_properties];
        p->name = copy(nb_str_c(key));
        if (!p->name) return NB_ERR_NOMEM;
        t->n_properties++;
        p->types = admitted(&w, v);
    }
    qsort(t->properties, t->n_properties, sizeof *t->properties, by_property);
    return NB_OK;
}

static nb_status read_tool(const nb_parse_tool *in, nb_ptool *t, nb_error *err)
{
    if (in->name.n_bytes > NB_PARSE_MAX_NAME_BYTES)
        return nb_fail(err, NB_ERR_LIMIT, "a tool's name has %zu bytes, at most %d are accepted",
                       in->name.n_bytes, NB_PARSE_MAX_NAME_BYTES);
    if (in->parameters_json.n_bytes > MAX_SCHEMA_BYTES)
        return nb_fail(err, NB_ERR_LIMIT,
                       "the parameters of tool %.*s have %zu bytes, at most %d are accepted",
                       (int)in->name.n_bytes, in->name.p, in->parameters_json.n_bytes,
                       MAX_SCHEMA_BYTES);
    t->name = copy(in->name);
    if (!t->name) return nb_fail(err, NB_ERR_NOMEM, "out of memory for the declared tools");
    json_t *schema =
        json_loadb(in->parameters_json.p, in->parameters_json.n_bytes, JSON_ALLOW_NUL, NULL);
    const nb_status st = schema ? read_properties(t, schema) : NB_OK;
    json_decref(schema);
    return st == NB_OK ? st : nb_fail(err, st, "out of memory for the declared tools");
}

nb_status nb_ptools_create(const nb_parse_tool *in, size_t n, nb_ptools *out, nb_error *err)
{
    *out = (nb_ptools){ 0 };
    if (n > MAX_TOOLS)
        return nb_fail(err, NB_ERR_LIMIT, "%zu tools, at most %d are accepted", n, MAX_TOOLS);
    if (!n) return NB_OK;
    out->tools = calloc(n, sizeof *out->tools);
    if (!out->tools) return nb_fail(err, NB_ERR_NOMEM, "out of memory for the declared tools");
    nb_status st = NB_OK;
    for (; out->n_tools < n && st == NB_OK; out->n_tools++)
        st = read_tool(&in[out->n_tools], &out->tools[out->n_tools], err);
    if (st != NB_OK) {
        nb_ptools_deinit(out);
        return st;
    }
    qsort(out->tools, n, sizeof *out->tools, by_tool);
    return NB_OK;
}

void nb_ptools_deinit(nb_ptools *t)
{
    for (size_t i = 0; i < t->n_tools; i++) {
        for (size_t k = 0; k < t->tools[i].n_properties; k++) free(t->tools[i].properties[k].name);
        free(t->tools[i].properties);
        free(t->tools[i].name);
    }
    free(t->tools);
    *t = (nb_ptools){ 0 };
}

/* strcmp of a view and a string. */
static int compare(nb_str a, const char *b)
{
    const size_t n = strlen(b);
    const int d = memcmp(a.p, b, a.n_bytes < n ? a.n_bytes : n);
    return d ? d : (a.n_bytes > n) - (a.n_bytes < n);
}

const nb_ptool *nb_ptools_find(const nb_ptools *t, nb_str name)
{
    for (size_t lo = 0, hi = t->n_tools; lo < hi;) {
        const size_t mid = lo + (hi - lo) / 2;
        const int d = compare(name, t->tools[mid].name);
        if (!d) return &t->tools[mid];
        if (d < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

unsigned nb_ptool_types(const nb_ptool *t, nb_str property)
{
    for (size_t lo = 0, hi = t ? t->n_properties : 0; lo < hi;) {
        const size_t mid = lo + (hi - lo) / 2;
        const int d = compare(property, t->properties[mid].name);
        if (!d) return t->properties[mid].types;
        if (d < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return 0;
}

/* ---- values -------------------------------------------------------------- */

static json_t *load(nb_str s)
{
    return json_loadb(s.p, s.n_bytes, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL,
                      NULL);
}

unsigned nb_json_text_type(nb_str s)
{
    json_t *v = load(s);
    const unsigned type = v ? type_of(v) : 0;
    json_decref(v);
    return type;
}

bool nb_json_text_fits(nb_str s, const nb_ptool *t)
{
    json_t *v = load(s), *item;
    const char *key;
    bool fits = json_is_object(v);
    if (fits) {
        json_object_foreach(v, key, item) fits = fits && nb_ptool_types(t, nb_str_c(key));
    }
    json_decref(v);
    return fits;
}
