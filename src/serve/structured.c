/* structured.c - see structured.h. */
#include "serve/structured.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* What was found, before it is compiled. */
typedef struct form {
    const char *param; /* the field that asks for it; NULL: none so far */
    const char *at;    /* the field that is being read */
    nb_grammar_kind kind;
    const json_t *json; /* a schema, or a list of choices */
    const char *text;   /* else its text, terminated */
    bool compact;
    nb_error *err;
} form;

static const json_t *get(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    return json_is_null(v) ? NULL : v;
}

static const char *word(const json_t *o, const char *name)
{
    const char *s = json_string_value(get(o, name));
    return s ? s : "";
}

bool nb_structured_asked(nb_str body)
{
    static const char *const names[] = {
        "\"response_format\"",
        "\"structured_outputs\"",
        "\"guided_",
        "\"grammar\"",
        "\"json_schema\"",
        "\"tool_choice\"",
        "\"strict\"",
        "\"output_format\"",
        "\"output_config\"",
        "\"regex\"",
        "\"ebnf\"",
        "\"format\"",
    };
    for (const char *p = body.p, *end = body.p + body.n_bytes; p < end; p++) {
        p = memchr(p, '"', (size_t)(end - p));
        if (!p) return false;
        for (size_t i = 0; i < NB_COUNT(names); i++) {
            const size_t n = strlen(names[i]);
            if ((size_t)(end - p) >= n && memcmp(p, names[i], n) == 0) return true;
        }
    }
    return false;
}

/* ---- fields that say what the content is ---- */

static nb_status set(form *f, const char *param, nb_grammar_kind kind, const json_t *v, bool text)
{
    f->at = param;
    if (f->param)
        return nb_fail(f->err, NB_ERR_ARG, "%s: %s is there, too: expected one of them", param,
                       f->param);
    f->param = param;
    f->kind = kind;
    f->json = v;
    if (kind == NB_GRAMMAR_JSON_OBJECT) return NB_OK;
    /* A schema may come as its text. */
    if (text || (kind == NB_GRAMMAR_JSON_SCHEMA && json_is_string(v))) {
        f->text = json_string_value(v);
        if (!f->text || strlen(f->text) != json_string_length(v))
            return nb_fail(f->err, NB_ERR_ARG, "%s: expected a string without zero bytes", param);
    } else if (kind == NB_GRAMMAR_JSON_SCHEMA && !json_is_object(v) && !json_is_boolean(v)) {
        return nb_fail(f->err, NB_ERR_ARG, "%s: expected a schema (an object, true or false)",
                       param);
    }
    return NB_OK;
}

/* {type: text | json_object | json_schema, json_schema: {schema} or schema}. */
static nb_status read_format(form *f, const char *param, const json_t *o)
{
    if (!o) return NB_OK;
    f->at = param;
    const char *type = word(o, "type");
    const json_t *inner = get(o, "json_schema"), *schema = get(o, "schema");
    if (strcmp(type, "text") == 0) return NB_OK;
    if (strcmp(type, "json_object") == 0)
        return schema ? set(f, param, NB_GRAMMAR_JSON_SCHEMA, schema, false)
                      : set(f, param, NB_GRAMMAR_JSON_OBJECT, NULL, false);
    if (strcmp(type, "json_schema") != 0)
        return nb_fail(f->err, NB_ERR_ARG,
                       "%s: type \"%.40s\": expected text, json_object or json_schema", param,
                       type);
    if (inner && get(inner, "schema")) schema = get(inner, "schema");
    if (!schema) return nb_fail(f->err, NB_ERR_ARG, "%s: json_schema without a schema", param);
    return set(f, param, NB_GRAMMAR_JSON_SCHEMA, schema, false);
}

/* vLLM's structured_outputs: exactly one of the first five. */
static nb_status read_vllm(form *f, const json_t *o)
{
    static const char param[] = "structured_outputs";
    static const struct {
        const char *name;
        nb_grammar_kind kind;
        bool text;
    } kinds[] = { { "json", NB_GRAMMAR_JSON_SCHEMA, false },
                  { "regex", NB_GRAMMAR_REGEX, true },
                  { "choice", NB_GRAMMAR_CHOICE, false },
                  { "grammar", NB_GRAMMAR_GBNF, true } };
    static const char *const refused[] = { "structural_tag", "whitespace_pattern",
                                           "disable_additional_properties" };
    if (!o) return NB_OK;
    f->at = param;
    if (!json_is_object(o)) return nb_fail(f->err, NB_ERR_ARG, "%s: expected an object", param);
    for (size_t i = 0; i < NB_COUNT(refused); i++)
        if (get(o, refused[i]) && !json_is_false(get(o, refused[i])))
            return nb_fail(f->err, NB_ERR_UNSUPPORTED, "%s: %s is not supported", param,
                           refused[i]);
    for (size_t i = 0; i < NB_COUNT(kinds); i++)
        if (get(o, kinds[i].name))
            NB_TRY(set(f, param, kinds[i].kind, get(o, kinds[i].name), kinds[i].text));
    if (json_is_true(get(o, "json_object")))
        NB_TRY(set(f, param, NB_GRAMMAR_JSON_OBJECT, NULL, false));
    if (!f->param)
        return nb_fail(f->err, NB_ERR_ARG,
                       "%s: expected one of json, regex, choice, grammar, json_object", param);
    f->compact = json_is_true(get(o, "disable_any_whitespace"));
    return NB_OK;
}

static nb_status read_content(form *f, const json_t *doc)
{
    static const struct {
        const char *name;
        nb_grammar_kind kind;
        bool text;
    } plain[] = { { "guided_json", NB_GRAMMAR_JSON_SCHEMA, false },
                  { "guided_regex", NB_GRAMMAR_REGEX, true },
                  { "guided_choice", NB_GRAMMAR_CHOICE, false },
                  { "guided_grammar", NB_GRAMMAR_GBNF, true },
                  { "json_schema", NB_GRAMMAR_JSON_SCHEMA, false },
                  { "regex", NB_GRAMMAR_REGEX, true },
                  { "ebnf", NB_GRAMMAR_GBNF, true },
                  { "grammar", NB_GRAMMAR_GBNF, true } };
    NB_TRY(read_format(f, "response_format", get(doc, "response_format")));
    NB_TRY(read_format(f, "text", get(get(doc, "text"), "format")));
    NB_TRY(read_format(f, "output_config", get(get(doc, "output_config"), "format")));
    NB_TRY(read_format(f, "output_format", get(doc, "output_format")));
    NB_TRY(read_vllm(f, get(doc, "structured_outputs")));
    for (size_t i = 0; i < NB_COUNT(plain); i++)
        if (get(doc, plain[i].name))
            NB_TRY(set(f, plain[i].name, plain[i].kind, get(doc, plain[i].name), plain[i].text));
    return NB_OK;
}

/* ---- tools ---- */

/* What tool_choice asks for: *name NULL, or of the one tool; false: no calls are forced. */
static bool forced(const json_t *doc, const char **name)
{
    const json_t *c = get(doc, "tool_choice");
    const char *s = json_is_string(c) ? json_string_value(c) : word(c, "type");
    *name = json_string_value(get(get(c, "function"), "name"));
    if (!*name) *name = json_string_value(get(c, "name"));
    return strcmp(s, "required") == 0 || strcmp(s, "any") == 0 || strcmp(s, "function") == 0 ||
           strcmp(s, "tool") == 0;
}

static bool one_call(const json_t *doc)
{
    return json_is_false(get(doc, "parallel_tool_calls")) ||
           json_is_true(get(get(doc, "tool_choice"), "disable_parallel_tool_use"));
}

/* [{name, parameters, strict}] of the request's functions; NULL: no memory.  only: NULL, or the one. */
static json_t *functions(const json_t *doc, const char *only, bool *strict)
{
    json_t *out = json_array();
    const json_t *tools = get(doc, "tools");
    for (size_t i = 0; out && i < json_array_size(tools); i++) {
        const json_t *t = json_array_get(tools, i), *f = get(t, "function");
        if (!f) f = t;
        const json_t *name = get(f, "name"), *p = get(f, "parameters");
        if (!p) p = get(f, "input_schema");
        if (!json_is_string(name) || (!p && get(t, "type") && strcmp(word(t, "type"), "function")))
            continue;
        if (only && strcmp(json_string_value(name), only) != 0) continue;
        const bool s = json_is_true(get(f, "strict"));
        *strict |= s;
        json_t *one = json_pack("{s:O,s:b}", "name", name, "strict", s);
        if (!one || (p && json_object_set(one, "parameters", (json_t *)(uintptr_t)p) != 0) ||
            json_array_append_new(out, one) != 0) {
            json_decref(out);
            return NULL;
        }
    }
    return out;
}

static nb_status compile(const nb_structured *s, const form *f, nb_grammar **out)
{
    char *own = NULL;
    nb_grammar_spec spec = { .kind = f->kind,
                             .text = f->text,
                             .compact = f->compact,
                             .thought_open = s->thought_open,
                             .thought_close = s->thought_close };
    if (!s->text) return nb_fail(f->err, NB_ERR_ARG, "%s: the model has no tokenizer", f->param);
    if (!f->text && f->json) {
        own = json_dumps(f->json, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(17));
        if (!own) return nb_fail(f->err, NB_ERR_NOMEM, "out of memory");
        spec.text = own;
    }
    spec.text_bytes = spec.text ? strlen(spec.text) : 0;
    const nb_status st = nb_grammar_compile(s->text, &spec, out, f->err);
    free(own);
    return st == NB_OK ? st : nb_fail_prefix(f->err, st, "%s", f->param);
}

/* Calls, or with `content` an answer of that form. */
static nb_status compile_calls(const nb_structured *s, const json_t *doc, json_t *list, bool must,
                               bool one, const form *content, nb_grammar **out, nb_error *err)
{
    (void)doc;
    json_t *d = json_pack("{s:s,s:s,s:b,s:O}", "format", s->call_format, "calls",
                          must ? "required" : "auto", "one", one, "tools", list);
    int bad = d ? 0 : -1;
    if (d && content && content->json)
        bad = json_object_set(d, "content", (json_t *)(uintptr_t)content->json);
    else if (d && content)
        bad = json_object_set_new(d, "content", json_pack("{s:s}", "type", "object"));
    const form f = { .param = content ? content->param
                              : must  ? "tool_choice"
                                      : "tools",
                     .kind = NB_GRAMMAR_TOOLS,
                     .json = d,
                     .err = err };
    const nb_status st = bad ? nb_fail(err, NB_ERR_NOMEM, "out of memory") : compile(s, &f, out);
    json_decref(d);
    return st;
}

static nb_status read_tools(const json_t *doc, const nb_structured *s, const form *content,
                            nb_grammar **out, const char **param, nb_error *err)
{
    const char *name = NULL;
    bool strict = false;
    const bool must = forced(doc, &name);
    const bool none = strcmp(json_string_value(get(doc, "tool_choice"))
                                 ? json_string_value(get(doc, "tool_choice"))
                                 : word(get(doc, "tool_choice"), "type"),
                             "none") == 0;
    if (none || (!must && !json_array_size(get(doc, "tools")))) return NB_OK;
    *param = must ? "tool_choice" : "tools";
    if (must && !s->call_format)
        return nb_fail(err, NB_ERR_ARG,
                       "tool_choice: the model's format of tool calls is not "
                       "known (--tool-call-parser)");
    json_t *list = functions(doc, must ? name : NULL, &strict);
    if (!list) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    nb_status st = NB_OK;
    if (must && json_array_size(list) == 0)
        st = name ? nb_fail(err, NB_ERR_ARG, "tool_choice: no tool has the name \"%.100s\"", name)
                  : nb_fail(err, NB_ERR_ARG, "tool_choice: there are no tools");
    else if (must)
        st = compile_calls(s, doc, list, true, name || one_call(doc), NULL, out, err);
    else if (json_array_size(list) && s->call_format && (strict || content))
        st = compile_calls(s, doc, list, false, one_call(doc), content, out, err);
    json_decref(list);
    return st;
}

nb_status nb_structured_read(const json_t *doc, const nb_structured *s, nb_grammar **out,
                             const char **param, nb_error *err)
{
    form f = { .err = err };
    nb_grammar *g = NULL;
    *param = NULL;
    nb_status st = read_content(&f, doc);
    *param = st == NB_OK ? f.param : f.at;
    const bool json = f.kind == NB_GRAMMAR_JSON_SCHEMA || f.kind == NB_GRAMMAR_JSON_OBJECT;
    if (st == NB_OK && (!f.param || (json && !f.text)))
        st = read_tools(doc, s, f.param ? &f : NULL, &g, param, err);
    if (st == NB_OK && f.param && !g) {
        *param = f.param;
        st = compile(s, &f, &g);
    }
    if (st != NB_OK) return st;
    *out = g;
    return NB_OK;
}
