/* tagged.c - calls whose keys and values stand between tags (GLM, DSML), written
 * as JSON that only grows.  Strings are handed over as they come; the JSON of other
 * values is known at their closing tag, with the schema's help. */
#include "parse/parse_internal.h"

static nb_status emit(nb_parse *a, nb_str s)
{
    return nb_parse_emit(a, NB_PARSE_ARGUMENTS, s);
}

static nb_status emit_quoted(nb_parse *a, nb_str s)
{
    nb_buf b = { 0 };
    if (s.n_bytes == 1 && (unsigned char)*s.p >= ' ' && *s.p != '"' && *s.p != '\\')
        return emit(a, s);
    nb_status st = nb_json_quote(&b, s);
    if (st == NB_OK) st = emit(a, nb_buf_view(&b));
    nb_buf_deinit(&b);
    return st;
}

/* Everything in front of a value: {"key":  or , "key": */
static nb_status emit_key(nb_parse *a, nb_str key)
{
    NB_TRY(emit(a, nb_str_c(a->n_params++ ? ", \"" : "{\"")));
    NB_TRY(emit_quoted(a, key));
    return emit(a, nb_str_c("\": "));
}

static nb_status emit_string(nb_parse *a, nb_str s)
{
    NB_TRY(emit(a, nb_str_c("\"")));
    NB_TRY(emit_quoted(a, s));
    return emit(a, nb_str_c("\""));
}

/* A complete value that is JSON or a string, by the marks of its tag and the schema. */
static nb_status emit_value(nb_parse *a)
{
    const nb_str s = nb_buf_view(&a->value);
    const unsigned type = nb_json_text_type(s);
    const bool any = a->key_act & NB_PA_JSON;
    const bool json = any ? type && a->key_types != NB_PT_STRING : (type & a->key_types) != 0;
    return json ? emit(a, nb_parse_trim(s)) : emit_string(a, s);
}

/* A sole argument that is not declared and holds only declared ones is all of them. */
static bool may_wrap(const nb_parse *a, nb_str key)
{
    return !a->n_params && !a->key_types && a->tool && a->tool->n_properties &&
           (nb_str_eqc(key, "arguments") || nb_str_eqc(key, "input"));
}

/* A first argument that waited for a second one, or for the end. */
static nb_status settle_wrapped(nb_parse *a, bool last)
{
    if (!a->wrapped) return NB_OK;
    a->wrapped = false;
    const nb_str s = nb_buf_view(&a->value);
    if (last && nb_json_text_fits(s, a->tool)) {
        a->n_params = 1;
        const nb_str t = nb_parse_trim(s);
        return emit(a, (nb_str){ t.p, t.n_bytes - 1 }); /* the end adds the brace */
    }
    NB_TRY(emit_key(a, nb_buf_view(&a->wrapper)));
    return emit_value(a);
}

/* Which values need their end before their JSON is known. */
static nb_pvalue mode_of(const nb_parse *a, nb_str key)
{
    if (may_wrap(a, key)) return NB_PV_WRAPPED;
    const unsigned t = a->key_types;
    if (a->key_act & NB_PA_STRING) return t && !(t & NB_PT_STRING) ? NB_PV_HOLD : NB_PV_STREAM;
    if (a->key_act & NB_PA_JSON) return t == NB_PT_STRING ? NB_PV_STREAM : NB_PV_HOLD;
    return !t || t == NB_PT_STRING ? NB_PV_STREAM : NB_PV_HOLD;
}

nb_status nb_parse_key_end(nb_parse *a, unsigned act)
{
    NB_TRY(settle_wrapped(a, false));
    const nb_str key = nb_parse_trim(nb_buf_view(&a->key));
    a->value.n_bytes = 0;
    a->key_act = act;
    a->key_types = nb_ptool_types(a->tool, key);
    a->value_mode = mode_of(a, key);
    if (a->value_mode == NB_PV_WRAPPED) {
        a->wrapper.n_bytes = 0;
        return nb_buf_add_str(&a->wrapper, key);
    }
    NB_TRY(emit_key(a, key));
    return a->value_mode == NB_PV_STREAM ? emit(a, nb_str_c("\"")) : NB_OK;
}

nb_status nb_parse_value_text(nb_parse *a, char c)
{
    if (a->value_mode == NB_PV_STREAM) return emit_quoted(a, (nb_str){ &c, 1 });
    const nb_status st = nb_buf_add_ch(&a->value, c);
    if (st != NB_ERR_LIMIT) return st;
    /* too long to be held: a string from here on */
    if (a->value_mode == NB_PV_WRAPPED) NB_TRY(emit_key(a, nb_buf_view(&a->wrapper)));
    a->value_mode = NB_PV_STREAM;
    NB_TRY(emit(a, nb_str_c("\"")));
    NB_TRY(emit_quoted(a, nb_buf_view(&a->value)));
    a->value.n_bytes = 0;
    return emit_quoted(a, (nb_str){ &c, 1 });
}

nb_status nb_parse_value_end(nb_parse *a)
{
    a->wrapped = a->value_mode == NB_PV_WRAPPED;
    switch (a->value_mode) {
    case NB_PV_STREAM: return emit(a, nb_str_c("\""));
    case NB_PV_HOLD: return emit_value(a);
    case NB_PV_WRAPPED: break;
    }
    return NB_OK;
}

nb_status nb_parse_params_end(nb_parse *a)
{
    NB_TRY(settle_wrapped(a, true));
    return a->n_params ? emit(a, nb_str_c("}")) : NB_OK;
}
