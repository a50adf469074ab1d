/* jinja_render.c - one rendering: limits, memory, text under construction, the
 * variables that come from JSON; nb_jinja_render. */
#include <stdarg.h>
#include <stdio.h>

#include "text/jinja_internal.h"

enum { BLOCK_BYTES = 16 * 1024 };

static const nb_jinja_limits default_limits = {
    .max_steps = 50 * 1000 * 1000,
    .max_output_bytes = (size_t)64 << 20,
    .max_value_bytes = (size_t)256 << 20,
    .max_depth = 400,
};

nb_status nb_j_fail(nb_jr *r, nb_status st, const char *fmt, ...)
{
    char msg[NB_ERROR_MSG_BYTES - 64];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    return nb_fail(r->err, st, "template line %u: %s", r->line, msg);
}

/* The type of an undefined value's object as Jinja2 words it. */
static const char *object_name(uint32_t kind)
{
    switch (kind) {
    case NB_JK_NONE: return "None";
    case NB_JK_NS: return "jinja2.utils.Namespace object";
    case NB_JK_LOOP: return "jinja2.runtime.LoopContext object";
    case NB_JK_MACRO: return "jinja2.runtime.Macro object";
    case NB_JK_BOOL: return "bool object";
    case NB_JK_INT: return "int object";
    case NB_JK_FLOAT: return "float object";
    case NB_JK_STR: return "str object";
    case NB_JK_LIST: return "list object";
    case NB_JK_TUPLE: return "tuple object";
    case NB_JK_DICT: return "dict object";
    case NB_JK_RANGE: return "range object";
    case NB_JK_GEN: return "generator object";
    default: return "object";
    }
}

nb_status nb_j_fail_undef(nb_jr *r, const nb_jv *u)
{
    const int n = u->u.s.n_bytes > 200 ? 200 : (int)u->u.s.n_bytes;
    const char *s = u->u.s.p;
    switch (u->sub) {
    case NB_JUNDEF_NAME:
        return nb_j_fail(r, NB_ERR_FORMAT, "UndefinedError: '%.*s' is undefined", n, s);
    case NB_JUNDEF_ATTR:
        return nb_j_fail(r, NB_ERR_FORMAT, "UndefinedError: '%s' has no attribute '%.*s'",
                         object_name(u->aux), n, s);
    case NB_JUNDEF_ITEM:
        return nb_j_fail(r, NB_ERR_FORMAT, "UndefinedError: %s has no element %.*s",
                         object_name(u->aux), n, s);
    default: return nb_j_fail(r, NB_ERR_FORMAT, "UndefinedError: %.*s", n, s);
    }
}

nb_status nb_j_enter(nb_jr *r)
{
    if (r->depth >= r->lim.max_depth)
        return nb_j_fail(r, NB_ERR_LIMIT, "nested more than %u levels deep while rendering",
                         r->lim.max_depth);
    r->depth++;
    return NB_OK;
}

nb_status nb_j_work(nb_jr *r, size_t bytes)
{
    r->n_steps += 1 + bytes / 16;
    if (r->n_steps > r->lim.max_steps)
        return nb_j_fail(r, NB_ERR_LIMIT, "rendering takes more than %llu steps",
                         (unsigned long long)r->lim.max_steps);
    return NB_OK;
}

nb_status nb_j_alloc(nb_jr *r, size_t bytes, void **out)
{
    const size_t need = bytes > SIZE_MAX - 64 ? SIZE_MAX : (bytes + 7) / 8 * 8;
    if (need > r->lim.max_value_bytes - r->value_bytes)
        return nb_j_fail(r, NB_ERR_LIMIT, "rendering needs more than %zu bytes for values",
                         r->lim.max_value_bytes);
    char *p;
    if (need > BLOCK_BYTES / 4) {
        p = nb_arena_alloc(&r->arena, need);
    } else {
        if (need > r->bump_left) {
            r->bump = nb_arena_alloc(&r->arena, BLOCK_BYTES);
            r->bump_left = r->bump ? BLOCK_BYTES : 0;
        }
        p = r->bump;
        if (p) {
            r->bump += need;
            r->bump_left -= need;
        }
    }
    if (!p) return nb_j_fail(r, NB_ERR_NOMEM, "out of memory");
    r->value_bytes += need;
    *out = p;
    return NB_OK;
}

nb_status nb_j_add(nb_jr *r, nb_str s)
{
    const nb_status st = nb_buf_add(&r->buf, s.p, s.n_bytes);
    if (st == NB_ERR_LIMIT)
        return nb_j_fail(r, st, "rendering makes more than %zu bytes of text",
                         r->lim.max_output_bytes);
    if (st != NB_OK) return nb_j_fail(r, st, "out of memory");
    return s.n_bytes < 64 ? NB_OK : nb_j_work(r, s.n_bytes / 4);
}

nb_status nb_j_add_c(nb_jr *r, const char *s)
{
    return nb_j_add(r, nb_str_c(s));
}

nb_status nb_j_add_ch(nb_jr *r, char c)
{
    return nb_j_add(r, (nb_str){ &c, 1 });
}

void nb_j_drop(nb_jr *r, size_t mark)
{
    if (mark >= r->buf.n_bytes) return;
    r->buf.n_bytes = mark;
    r->buf.p[mark] = 0;
}

nb_status nb_j_take(nb_jr *r, size_t mark, nb_jv *out)
{
    const nb_str s = nb_j_sub(nb_buf_view(&r->buf), mark, r->buf.n_bytes);
    NB_TRY(nb_jv_copy_str(r, s, out));
    nb_j_drop(r, mark);
    return NB_OK;
}

/* ---- JSON to values; strings are borrowed from the JSON ---- */

static nb_status from_object(nb_jr *r, const json_t *j, nb_jv *out)
{
    json_t *o = (json_t *)(uintptr_t)j; /* jansson's iterators want it so; only read */
    NB_TRY(nb_j_dict_new(r, NB_JK_DICT, out));
    for (void *it = json_object_iter(o); it; it = json_object_iter_next(o, it)) {
        const nb_jv key = nb_jv_str(nb_str_c(json_object_iter_key(it)));
        nb_jv val;
        NB_TRY(nb_j_from_json(r, json_object_iter_value(it), &val));
        NB_TRY(nb_j_dict_set(r, out->u.dict, &key, &val));
    }
    return NB_OK;
}

static nb_status from_array(nb_jr *r, const json_t *j, nb_jv *out)
{
    const size_t n = json_array_size(j);
    NB_TRY(nb_j_list_new(r, NB_JK_LIST, n, out));
    for (size_t i = 0; i < n; i++) {
        nb_jv val;
        NB_TRY(nb_j_from_json(r, json_array_get(j, i), &val));
        NB_TRY(nb_j_list_push(r, out->u.list, &val));
    }
    return NB_OK;
}

nb_status nb_j_from_json(nb_jr *r, const json_t *j, nb_jv *out)
{
    nb_status st;
    NB_TRY(nb_j_work(r, 1));
    switch (json_typeof(j)) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        NB_TRY(nb_j_enter(r));
        st = json_is_object(j) ? from_object(r, j, out) : from_array(r, j, out);
        nb_j_leave(r);
        return st;
    case JSON_STRING:
        *out = nb_jv_str((nb_str){ json_string_value(j), json_string_length(j) });
        break;
    case JSON_INTEGER: *out = nb_jv_int(json_integer_value(j)); break;
    case JSON_REAL: *out = nb_jv_float(json_real_value(j)); break;
    case JSON_TRUE: *out = nb_jv_bool(true); break;
    case JSON_FALSE: *out = nb_jv_bool(false); break;
    default: *out = nb_jv_none(); break;
    }
    return NB_OK;
}

/* ---- entry ---- */

static nb_status render(nb_jr *r)
{
    void *p;
    NB_TRY(nb_j_alloc(r, (r->t->n_names + 1) * sizeof *r->context, &p));
    r->context = p;
    NB_TRY(nb_j_push_scope(r, NULL, &r->scope));
    return nb_j_exec(r, r->t->root);
}

nb_status nb_jinja_render_stats(const nb_jinja *t, const json_t *vars,
                                const nb_jinja_limits *limits, nb_buf *out, nb_jinja_stats *stats,
                                nb_error *err)
{
    nb_jr r = { .t = t, .vars = vars, .lim = limits ? *limits : default_limits, .line = 1,
                .err = err };
    if (vars && !json_is_object(vars))
        return nb_fail(err, NB_ERR_ARG, "template: the variables must be a JSON object");
    if (!r.lim.max_steps) r.lim.max_steps = default_limits.max_steps;
    if (!r.lim.max_output_bytes) r.lim.max_output_bytes = default_limits.max_output_bytes;
    if (!r.lim.max_value_bytes) r.lim.max_value_bytes = default_limits.max_value_bytes;
    if (!r.lim.max_depth) r.lim.max_depth = default_limits.max_depth;
    r.buf.limit_bytes = r.lim.max_output_bytes;
    nb_status st = render(&r);
    if (st == NB_OK) {
        st = nb_buf_add_str(out, nb_buf_view(&r.buf));
        if (st != NB_OK) nb_fail(err, st, "template: the rendered text does not fit");
    }
    if (stats)
        *stats = (nb_jinja_stats){ .n_steps = r.n_steps, .value_bytes = r.value_bytes,
                                   .printed_container = r.printed_container };
    nb_buf_deinit(&r.buf);
    nb_arena_deinit(&r.arena);
    return st;
}

nb_status nb_jinja_render(const nb_jinja *t, const json_t *vars, const nb_jinja_limits *limits,
                          nb_buf *out, nb_error *err)
{
    return nb_jinja_render_stats(t, vars, limits, out, NULL, err);
}
