/* json.c - calls whose arguments are JSON: between markers (ARGS), or as one object
 * with the name (OBJECT).  JSON is scanned by brackets and quotes only, so that
 * text which is no valid JSON passes, and markers inside strings are data. */
#include "base/utf8.h"
#include "parse/parse_internal.h"

enum { LONGEST_KEY_BYTES = 16 }; /* longer keys are none that we look for */

void nb_pscan_push(nb_pscan *s, char c)
{
    if (s->quoted) {
        if (s->esc)
            s->esc = false;
        else if (c == '\\')
            s->esc = true;
        else if (c == '"')
            s->quoted = false;
    } else if (c == '"') {
        s->quoted = true;
    } else if (c == '{' || c == '[') {
        s->depth++;
    } else if ((c == '}' || c == ']') && s->depth) {
        s->depth--;
    }
}

nb_status nb_json_quote(nb_buf *out, nb_str s)
{
    static const char SHORT[] = "\b\t\n\f\r\"\\", LETTER[] = "btnfr\"\\";
    for (size_t i = 0, from = 0; i <= s.n_bytes; i++) {
        const bool end = i == s.n_bytes;
        const unsigned char c = end ? 0 : (unsigned char)s.p[i];
        if (!end && c >= ' ' && c != '"' && c != '\\') continue;
        NB_TRY(nb_buf_add(out, s.p + from, i - from));
        from = i + 1;
        if (end) break;
        const char *hit = c ? strchr(SHORT, c) : NULL;
        if (hit)
            NB_TRY(nb_buf_printf(out, "\\%c", LETTER[hit - SHORT]));
        else
            NB_TRY(nb_buf_printf(out, "\\u%04x", c));
    }
    return NB_OK;
}

/* ---- strings ------------------------------------------------------------- */

static size_t put(uint32_t cp, char *out)
{
    const int n = nb_utf8_encode(cp, out);
    return n ? (size_t)n : (size_t)nb_utf8_encode(0xfffd, out);
}

/* A \u escape is complete. */
static size_t put_unit(nb_pstring *s, char *out)
{
    const uint16_t u = s->hex, high = s->high;
    size_t n = 0;
    s->high = 0;
    if (high && u >= 0xdc00 && u < 0xe000)
        return put(0x10000 + ((uint32_t)(high - 0xd800) << 10) + (u - 0xdc00u), out);
    if (high) n = put(0xfffd, out);
    if (u >= 0xd800 && u < 0xdc00)
        s->high = u;
    else
        n += put(u, out + n);
    return n;
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

bool nb_pstring_push(nb_pstring *s, char c, char out[8], size_t *n)
{
    static const char LETTER[] = "bfnrt", VALUE[] = "\b\f\n\r\t";
    *n = 0;
    if (s->esc >= 2) {
        const int d = hex(c);
        if (d >= 0) {
            s->hex = (uint16_t)(s->hex << 4 | d);
            if (s->esc++ < 5) return false;
            s->esc = 0;
            *n = put_unit(s, out);
            return false;
        }
        s->esc = 0; /* no escape after all: the digits are lost */
        *n = put(0xfffd, out);
    }
    if (s->esc == 1 && c == 'u') {
        s->esc = 2;
        s->hex = 0;
        return false;
    }
    if (s->esc == 0 && c == '\\') {
        s->esc = 1;
        return false;
    }
    if (s->high) *n += put(0xfffd, out + *n);
    s->high = 0;
    if (s->esc == 0 && c == '"') return true;
    const char *hit = s->esc && c ? strchr(LETTER, c) : NULL;
    out[(*n)++] = hit ? VALUE[hit - LETTER] : c;
    s->esc = 0;
    return false;
}

/* ---- JSON between markers ------------------------------------------------ */

static nb_status emit(nb_parse *a, char c)
{
    return nb_parse_emit(a, NB_PARSE_ARGUMENTS, (nb_str){ &c, 1 });
}

/* Text that is no object: blanks and a closing fence at its end are not part of it. */
static nb_status raw_text(nb_parse *a, char c)
{
    if (!a->scan.quoted && (nb_parse_is_blank(c) || c == '`') && a->n_pend < sizeof a->pend) {
        a->pend[a->n_pend++] = c;
        return NB_OK;
    }
    NB_TRY(nb_parse_emit(a, NB_PARSE_ARGUMENTS, (nb_str){ a->pend, a->n_pend }));
    a->n_pend = 0;
    if (a->scalar) nb_pscan_push(&a->scan, c);
    return emit(a, c);
}

nb_status nb_parse_args_text(nb_parse *a, char c)
{
    switch (a->args) {
    case NB_PG_FENCE:
        if (c == '\n') a->args = NB_PG_BEFORE;
        if (c != '{' && c != '[') return NB_OK;
        break;
    case NB_PG_BEFORE:
        if (c == '`') a->args = NB_PG_FENCE;
        if (c == '`' || nb_parse_is_blank(c)) return NB_OK;
        break;
    case NB_PG_INSIDE:
        nb_pscan_push(&a->scan, c);
        if (!a->scan.depth && !a->scan.quoted) a->args = NB_PG_DONE;
        return emit(a, c);
    case NB_PG_RAW: return raw_text(a, c);
    case NB_PG_DONE: return NB_OK;
    }
    a->args = c == '{' || c == '[' ? NB_PG_INSIDE : NB_PG_RAW;
    a->scalar = c == '"'; /* a string: its quotes count, else quotes are any characters */
    if (a->args == NB_PG_RAW) return raw_text(a, c);
    nb_pscan_push(&a->scan, c);
    return emit(a, c);
}

/* ---- one object ---------------------------------------------------------- */

void nb_parse_object_open(nb_parse *a)
{
    a->object = NB_PO_START;
    a->scan = (nb_pscan){ 0 };
    a->have_name = a->have_args = a->in_args = false;
    a->name.n_bytes = a->key.n_bytes = 0;
}

static bool key_is(const nb_parse *a, const char *s)
{
    return nb_str_eqc(nb_buf_view(&a->key), s);
}

/* A piece of the arguments: handed over, or in raw until the name is known.  A
 * number or word waits for its end, as null means that there are none. */
static nb_status arg_text(nb_parse *a, nb_str s)
{
    if (!a->in_call) return NB_OK;
    if (!a->scalar || a->args_are_string) return nb_parse_emit(a, NB_PARSE_ARGUMENTS, s);
    const nb_status st = nb_buf_add_str(&a->value, s);
    return st == NB_ERR_LIMIT ? NB_OK : st;
}

/* Arguments that stood in front of the name. */
static nb_status emit_kept_args(nb_parse *a)
{
    nb_pstring str = { 0 };
    char out[8];
    size_t n;
    const nb_str s = { a->raw.p + a->args_from, a->args_to - a->args_from };
    if (!a->args_are_string)
        return nb_str_eqc(s, "null") ? NB_OK : nb_parse_emit(a, NB_PARSE_ARGUMENTS, s);
    for (size_t i = 0; i < s.n_bytes; i++) {
        nb_pstring_push(&str, s.p[i], out, &n);
        NB_TRY(nb_parse_emit(a, NB_PARSE_ARGUMENTS, (nb_str){ out, n }));
    }
    return NB_OK;
}

/* The call begins as soon as it is certain to be one. */
static nb_status begin_object(nb_parse *a)
{
    const nb_pscan scan = a->scan; /* begin starts another one */
    NB_TRY(nb_parse_begin(a));
    a->scan = scan;
    if (a->in_call && a->have_args) NB_TRY(emit_kept_args(a));
    return NB_OK;
}

static nb_status object_end(nb_parse *a)
{
    if (!a->in_call) {
        const bool declared = nb_ptools_find(&a->p->tools, nb_buf_view(&a->name)) != NULL;
        if (!a->have_name || (a->p->calls->bare && !a->have_args && !declared))
            return nb_parse_fail(a);
        NB_TRY(begin_object(a));
        if (!a->in_call) return NB_OK;
    }
    NB_TRY(nb_parse_end_call(a));
    a->state = a->p->calls->bare ? NB_PS_BLANK : NB_PS_AFTER_OBJECT;
    return NB_OK;
}

static nb_status value_end(nb_parse *a, size_t to)
{
    a->object = NB_PO_KEY;
    if (!a->in_args) return NB_OK;
    a->in_args = false;
    a->have_args = true;
    a->args_to = to;
    if (!a->in_call) return a->have_name ? begin_object(a) : NB_OK;
    const nb_str scalar = nb_parse_trim(nb_buf_view(&a->value));
    if (!nb_str_eqc(scalar, "null")) NB_TRY(nb_parse_emit(a, NB_PARSE_ARGUMENTS, scalar));
    a->value.n_bytes = 0;
    return NB_OK;
}

/* The first byte of a value. */
static nb_status value_start(nb_parse *a, char c)
{
    a->value.n_bytes = 0;
    const bool args = key_is(a, "arguments") || key_is(a, "parameters");
    const bool known = args || key_is(a, "name") || key_is(a, "type") || key_is(a, "id");
    a->string = (nb_pstring){ 0 };
    if (key_is(a, "name") && !a->have_name) {
        if (c != '"') return nb_parse_fail(a);
        a->scan.quoted = true;
        a->object = NB_PO_NAME;
        return NB_OK;
    }
    if (a->p->calls->bare && !known && !a->in_call) return nb_parse_fail(a);
    a->in_args = args && !a->have_args;
    const bool is_string = a->in_args && c == '"';
    a->scalar = c != '{' && c != '[';
    if (a->in_args) {
        a->args_are_string = is_string;
        a->args_from = a->raw.n_bytes - !is_string;
    }
    if (a->in_args && a->have_name && !a->in_call && !a->scalar) {
        NB_TRY(begin_object(a));
        if (!a->in_call) return NB_OK;
    }
    nb_pscan_push(&a->scan, c);
    a->object = is_string ? NB_PO_ARGS_STRING : NB_PO_RAW;
    return a->in_args && !is_string ? arg_text(a, (nb_str){ &c, 1 }) : NB_OK;
}

static nb_status key_string(nb_parse *a, char c)
{
    char out[8];
    size_t n;
    const bool end = nb_pstring_push(&a->string, c, out, &n);
    if (a->key.n_bytes <= LONGEST_KEY_BYTES) NB_TRY(nb_buf_add(&a->key, out, n));
    if (!end) return NB_OK;
    a->scan.quoted = false;
    a->object = NB_PO_COLON;
    return NB_OK;
}

static nb_status name_string(nb_parse *a, char c)
{
    char out[8];
    size_t n;
    const bool end = nb_pstring_push(&a->string, c, out, &n);
    if (a->name.n_bytes > NB_PARSE_MAX_NAME_BYTES) return nb_parse_fail(a);
    NB_TRY(nb_buf_add(&a->name, out, n));
    if (!end) return NB_OK;
    a->scan.quoted = false;
    a->object = NB_PO_KEY;
    a->have_name = true;
    return a->p->calls->bare && !a->have_args ? NB_OK : begin_object(a);
}

static nb_status args_string(nb_parse *a, char c)
{
    char out[8];
    size_t n;
    const bool end = nb_pstring_push(&a->string, c, out, &n);
    NB_TRY(arg_text(a, (nb_str){ out, n }));
    if (!end) return NB_OK;
    a->scan.quoted = false;
    return value_end(a, a->raw.n_bytes - 1);
}

/* Inside a value whose text passes as it is.  A number or word ends at a comma or
 * bracket, which belongs to the object. */
static nb_status raw_value(nb_parse *a, char c)
{
    if (a->scalar && !a->scan.quoted && (c == ',' || c == '}' || c == ']')) {
        NB_TRY(value_end(a, a->raw.n_bytes - 1));
        return a->state == NB_PS_OBJECT ? nb_parse_object_text(a, c) : NB_OK;
    }
    nb_pscan_push(&a->scan, c);
    if (a->in_args) NB_TRY(arg_text(a, (nb_str){ &c, 1 }));
    return a->scalar || a->scan.depth || a->scan.quoted ? NB_OK : value_end(a, a->raw.n_bytes);
}

nb_status nb_parse_object_text(nb_parse *a, char c)
{
    const bool blank = nb_parse_is_blank(c);
    switch (a->object) {
    case NB_PO_KEY_STRING: return key_string(a, c);
    case NB_PO_NAME: return name_string(a, c);
    case NB_PO_ARGS_STRING: return args_string(a, c);
    case NB_PO_RAW: return raw_value(a, c);
    case NB_PO_START:
        if (blank) return NB_OK;
        a->object = NB_PO_KEY;
        return c == '{' ? NB_OK : nb_parse_fail(a);
    case NB_PO_KEY:
        if (blank || c == ',') return NB_OK;
        if (c == '}') return object_end(a);
        if (c != '"') break;
        a->key.n_bytes = 0;
        a->string = (nb_pstring){ 0 };
        a->scan.quoted = true;
        a->object = NB_PO_KEY_STRING;
        return NB_OK;
    case NB_PO_COLON:
        if (c == ':') a->object = NB_PO_VALUE;
        if (blank || c == ':') return NB_OK;
        break;
    case NB_PO_VALUE: return blank ? NB_OK : value_start(a, c);
    }
    return a->in_call ? NB_OK : nb_parse_fail(a); /* behind the arguments nothing matters */
}
