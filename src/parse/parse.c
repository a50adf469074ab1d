/* parse.c - the machine that runs a format's table; see parse.h.
 *
 * Each byte is either part of a text that may still become a marker (a row of the
 * state), or text, which goes to the handler of the state.  At most one marker's
 * length is held back, so the work for a byte is bounded. */
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "parse/parse_internal.h"

enum { KEPT_BYTES = 1 << 16 }; /* buffers beyond this are freed after use */

static nb_status handle(nb_parse *a, char c);
static nb_status text(nb_parse *a, char c);

/* ---- events -------------------------------------------------------------- */

static nb_status flush(nb_parse *a)
{
    if (!a->out.n_bytes) return NB_OK;
    const nb_parse_event e = { .kind = a->out_kind,
                               .index = a->n_calls ? a->n_calls - 1 : 0,
                               .text = nb_buf_view(&a->out) };
    const nb_status st = a->fn(a->ctx, &e);
    a->out.n_bytes = 0;
    return st;
}

nb_status nb_parse_emit(nb_parse *a, nb_parse_kind kind, nb_str s)
{
    if (!s.n_bytes) return NB_OK;
    if (a->out_kind != kind) NB_TRY(flush(a));
    a->out_kind = kind;
    if (kind == NB_PARSE_ARGUMENTS) a->n_args_bytes += s.n_bytes;
    return nb_buf_add_str(&a->out, s);
}

static nb_status emit_char(nb_parse *a, nb_parse_kind kind, char c)
{
    return nb_parse_emit(a, kind, (nb_str){ &c, 1 });
}

static nb_status emit_call(nb_parse *a, nb_parse_kind kind)
{
    NB_TRY(flush(a));
    const nb_parse_event e = {
        .kind = kind, .index = a->n_calls - 1, .name = a->name.p, .id = a->id
    };
    return a->fn(a->ctx, &e);
}

static void clear(nb_buf *b)
{
    b->n_bytes = 0;
    if (b->cap_bytes > KEPT_BYTES) {
        const size_t limit = b->limit_bytes;
        nb_buf_deinit(b);
        *b = (nb_buf){ .limit_bytes = limit };
    }
}

static bool is_blank(nb_str s)
{
    return nb_parse_trim(s).n_bytes == 0;
}

nb_str nb_parse_trim(nb_str s)
{
    while (s.n_bytes && nb_parse_is_blank(s.p[0])) s.p++, s.n_bytes--;
    while (s.n_bytes && nb_parse_is_blank(s.p[s.n_bytes - 1])) s.n_bytes--;
    return s;
}

/* Text held in front of or between calls becomes content. */
static nb_status flush_hold(nb_parse *a)
{
    const nb_status st = nb_parse_emit(a, NB_PARSE_CONTENT, nb_buf_view(&a->hold));
    clear(&a->hold);
    return st;
}

/* ---- calls --------------------------------------------------------------- */

/* Kimi: functions.NAME:IDX, and what models make of it. */
static nb_str undecorate(const nb_parse *a, nb_str s)
{
    static const char PREFIX[] = "functions.";
    const size_t n_prefix = sizeof PREFIX - 1;
    size_t n = s.n_bytes;
    while (n && s.p[n - 1] >= '0' && s.p[n - 1] <= '9') n--;
    if (n > 1 && n < s.n_bytes && s.p[n - 1] == ':') s.n_bytes = n - 1;
    if (s.n_bytes > n_prefix && memcmp(s.p, PREFIX, n_prefix) == 0)
        s = (nb_str){ s.p + n_prefix, s.n_bytes - n_prefix };
    if (nb_ptools_find(&a->p->tools, s)) return s;
    for (size_t i = s.n_bytes; i-- > 0;) {
        const nb_str last = { s.p + i + 1, s.n_bytes - i - 1 };
        if (s.p[i] == '.') return nb_ptools_find(&a->p->tools, last) ? last : s;
    }
    for (n = 0; n < s.n_bytes && s.p[n] >= '0' && s.p[n] <= '9'; n++) continue;
    if (n == s.n_bytes && a->p->tools.n_tools == 1) return nb_str_c(a->p->tools.tools[0].name);
    return s;
}

/* Undeclared names reach the client, but prose behind a quoted marker is none. */
static bool is_name(const nb_parse *a, nb_str s)
{
    if (!s.n_bytes || s.n_bytes > NB_PARSE_MAX_NAME_BYTES) return false;
    if (nb_ptools_find(&a->p->tools, s)) return true;
    for (size_t i = 0; i < s.n_bytes; i++)
        if ((unsigned char)s.p[i] <= ' ' || strchr("<>{}\"", s.p[i])) return false;
    return true;
}

static void make_id(nb_parse *a)
{
    const uint64_t k = a->n_calls;
    if (a->p->calls->numbered)
        snprintf(a->id, sizeof a->id, "functions.%s:%zu", a->name.p,
                 a->p->n_history_calls + a->n_calls);
    else
        snprintf(a->id, sizeof a->id, "call_%016llx%08x",
                 (unsigned long long)nb_rng_u64(a->seed, 2 * k),
                 (unsigned)(nb_rng_u64(a->seed, 2 * k + 1) >> 32));
}

nb_status nb_parse_begin(nb_parse *a)
{
    nb_str s = nb_parse_trim(nb_buf_view(&a->name));
    if (a->p->calls->numbered) s = undecorate(a, s);
    if (!is_name(a, s)) return nb_parse_fail(a);
    char name[NB_PARSE_MAX_NAME_BYTES];
    memcpy(name, s.p, s.n_bytes);
    a->name.n_bytes = 0;
    NB_TRY(nb_buf_add(&a->name, name, s.n_bytes));
    a->tool = nb_ptools_find(&a->p->tools, nb_buf_view(&a->name));
    make_id(a);
    a->n_calls++;
    a->in_call = true;
    a->recording = false;
    a->scan = (nb_pscan){ 0 };
    a->args = NB_PG_BEFORE;
    a->n_pend = a->n_params = a->n_args_bytes = 0;
    a->wrapped = false;
    clear(&a->hold);
    return emit_call(a, NB_PARSE_CALL_BEGIN);
}

nb_status nb_parse_end_call(nb_parse *a)
{
    if (!a->in_call) return NB_OK;
    if (!a->cut) {
        if (a->p->calls->style == NB_CALL_TAGGED) NB_TRY(nb_parse_params_end(a));
        if (!a->n_args_bytes) NB_TRY(nb_parse_emit(a, NB_PARSE_ARGUMENTS, nb_str_c("{}")));
    }
    a->in_call = false;
    clear(&a->value);
    return emit_call(a, NB_PARSE_CALL_END);
}

/* Text that an opener took from where it stands. */
static nb_status emit_origin(nb_parse *a, nb_str s)
{
    if (a->origin == NB_PS_DROP) return NB_OK;
    return nb_parse_emit(a, a->origin == NB_PS_THINK ? NB_PARSE_REASONING : NB_PARSE_CONTENT, s);
}

nb_status nb_parse_fail(nb_parse *a)
{
    const nb_call_style style = a->p->calls->style;
    NB_TRY(nb_parse_end_call(a));
    if (!a->recording) { /* behind a call of the same section: dropped */
        a->state = style == NB_CALL_PYTHON ? NB_PS_PYTHON : NB_PS_SECTION;
        a->python = NB_PP_SKIP;
        return NB_OK;
    }
    a->recording = false;
    a->state = a->origin;
    if (a->origin == NB_PS_CONTENT) NB_TRY(flush_hold(a));
    NB_TRY(emit_origin(a, nb_buf_view(&a->raw)));
    clear(&a->raw);
    return NB_OK;
}

static void open_calls(nb_parse *a)
{
    a->origin = a->state == NB_PS_THINK || a->state == NB_PS_THINK_START ? NB_PS_THINK
                : a->state == NB_PS_DROP                                 ? NB_PS_DROP
                                                                         : NB_PS_CONTENT;
    a->recording = true;
    clear(&a->raw);
    nb_parse_object_open(a);
    a->python = NB_PP_BETWEEN;
    a->quote_state = 0;
}

/* ---- markers ------------------------------------------------------------- */

static nb_status record(nb_parse *a, nb_str s)
{
    if (!a->recording) return NB_OK;
    const nb_status st = nb_buf_add_str(&a->raw, s);
    if (st != NB_ERR_LIMIT) return st;
    NB_TRY(nb_parse_fail(a)); /* too long to be held: it is text */
    return emit_origin(a, s);
}

static nb_status act(nb_parse *a, const nb_pmarker *m)
{
    const unsigned act = m->act;
    if (!(act & NB_PA_OPEN)) {
        const bool was = a->recording;
        NB_TRY(record(a, m->text));
        if (was && !a->recording) return NB_OK;
    }
    const bool lost = (act & NB_PA_CLOSE) && a->recording;
    if (lost) NB_TRY(nb_parse_fail(a));
    if (lost && !(act & NB_PA_OPEN)) return NB_OK;
    if (act & NB_PA_END) NB_TRY(nb_parse_end_call(a));
    if (act & NB_PA_FLUSH && !is_blank(nb_buf_view(&a->hold))) NB_TRY(flush_hold(a));
    if (act & (NB_PA_FLUSH | NB_PA_UNHOLD)) clear(&a->hold);
    if (act & NB_PA_OPEN) {
        open_calls(a);
        NB_TRY(record(a, m->text));
    }
    if (act & NB_PA_BEGIN) {
        NB_TRY(nb_parse_begin(a));
        if (!a->in_call) return NB_OK; /* failed, and went elsewhere */
    }
    if (act & NB_PA_END_2) NB_TRY(nb_parse_end_call(a));
    if (act & (NB_PA_KEY | NB_PA_STRING | NB_PA_JSON)) NB_TRY(nb_parse_key_end(a, act));
    if (act & NB_PA_VALUE) NB_TRY(nb_parse_value_end(a));
    a->state = (nb_pstate)m->next;
    if (a->state == NB_PS_NAME) a->name.n_bytes = 0;
    if (a->state == NB_PS_KEY) a->key.n_bytes = 0;
    if (act & NB_PA_KEEP)
        for (size_t i = 0; i < m->text.n_bytes; i++) NB_TRY(handle(a, m->text.p[i]));
    return NB_OK;
}

static nb_pstate lexer_state(const nb_parse *a)
{
    switch (a->state) {
    case NB_PS_ARGS:
    case NB_PS_OBJECT: return a->scan.quoted ? NB_PS_QUOTED : a->state;
    case NB_PS_PYTHON: return a->quote_state && a->quote_state != 2 ? NB_PS_QUOTED : a->state;
    default: return a->state;
    }
}

typedef enum nb_pmatch { NO_MATCH, PREFIX, MATCH } nb_pmatch;

static nb_pmatch match_one(const nb_pmarker *m, const nb_pbyte *q, size_t n)
{
    const size_t n_both = n < m->text.n_bytes ? n : m->text.n_bytes;
    for (size_t i = 0; i < n_both; i++) {
        if (q[i].c != m->text.p[i]) return NO_MATCH;
        if (!m->tok || q[i].cls == NB_CLS_UNKNOWN || i < m->tok_at ||
            i >= (size_t)m->tok_at + m->tok_bytes)
            continue;
        if (q[i].cls != m->tok || q[i].at != i - m->tok_at) return NO_MATCH;
    }
    return n >= m->text.n_bytes ? MATCH : PREFIX;
}

static void shift(nb_parse *a, size_t n)
{
    a->n_q -= n;
    memmove(a->q, a->q + n, a->n_q * sizeof *a->q);
}

/* Takes markers and text off the queue until the rest may become a marker. */
static nb_status drain(nb_parse *a, bool final)
{
    while (a->n_q) {
        const nb_pstate s = lexer_state(a);
        nb_pmatch best = NO_MATCH;
        const nb_pmarker *found = NULL;
        for (size_t i = 0; i < a->p->n_of_state[s] && best != MATCH; i++) {
            const nb_pmarker *m = &a->p->rows[a->p->of_state[s][i]];
            const nb_pmatch r = match_one(m, a->q, a->n_q);
            if (r > best) {
                best = r;
                found = m;
            }
        }
        if (best == PREFIX && !final) return NB_OK;
        if (best == MATCH) {
            shift(a, found->text.n_bytes);
            NB_TRY(act(a, found));
        } else {
            const char c = a->q[0].c;
            shift(a, 1);
            NB_TRY(text(a, c));
        }
    }
    return NB_OK;
}

/* ---- text ---------------------------------------------------------------- */

static nb_status hold(nb_parse *a, char c)
{
    const nb_status st = nb_buf_add_ch(&a->hold, c);
    if (st != NB_ERR_LIMIT) return st;
    NB_TRY(flush_hold(a));
    a->state = NB_PS_CONTENT;
    return emit_char(a, NB_PARSE_CONTENT, c);
}

static nb_status name_text(nb_parse *a, char c)
{
    if (a->name.n_bytes < NB_PARSE_MAX_NAME_BYTES + 64) return nb_buf_add_ch(&a->name, c);
    return nb_parse_fail(a);
}

static nb_status key_text(nb_parse *a, char c)
{
    const nb_status st = nb_buf_add_ch(&a->key, c);
    return st == NB_ERR_LIMIT ? NB_OK : st; /* the rest of an endless key is lost */
}

static nb_status handle(nb_parse *a, char c)
{
    switch (a->state) {
    case NB_PS_START:
    case NB_PS_BLANK:
        if (nb_parse_is_blank(c)) return hold(a, c);
        NB_TRY(flush_hold(a));
        a->state = NB_PS_CONTENT;
        return emit_char(a, NB_PARSE_CONTENT, c);
    case NB_PS_CONTENT: return emit_char(a, NB_PARSE_CONTENT, c);
    case NB_PS_THINK_START: a->state = NB_PS_THINK; return emit_char(a, NB_PARSE_REASONING, c);
    case NB_PS_THINK: return emit_char(a, NB_PARSE_REASONING, c);
    case NB_PS_NAME: return name_text(a, c);
    case NB_PS_ARGS: return nb_parse_args_text(a, c);
    case NB_PS_OBJECT: return nb_parse_object_text(a, c);
    case NB_PS_AFTER_OBJECT: return c == '}' && !a->hold.n_bytes ? NB_OK : hold(a, c);
    case NB_PS_KEY: return key_text(a, c);
    case NB_PS_VALUE: return nb_parse_value_text(a, c);
    case NB_PS_PYTHON: return nb_parse_python_text(a, c);
    case NB_PS_EAT:
    case NB_PS_EAT_THINK:
        a->state = a->state == NB_PS_EAT ? NB_PS_BLANK : NB_PS_THINK;
        return c == '\n' ? NB_OK : handle(a, c);
    case NB_PS_SECTION:
    case NB_PS_TYPE:
    case NB_PS_PARAMS:
    case NB_PS_DROP:
    case NB_PS_QUOTED:
    case NB_PS_N: break;
    }
    return NB_OK;
}

static nb_status text(nb_parse *a, char c)
{
    if (a->recording) {
        NB_TRY(record(a, (nb_str){ &c, 1 }));
        if (!a->recording) return NB_OK;
    }
    return handle(a, c);
}

static nb_status feed(nb_parse *a, nb_pbyte b)
{
    if (a->state == NB_PS_EAT || a->state == NB_PS_EAT_THINK) {
        a->state = a->state == NB_PS_EAT ? NB_PS_BLANK : NB_PS_THINK;
        if (b.c == '\n') return NB_OK;
    }
    if (!a->n_q && !a->p->first[lexer_state(a)][(unsigned char)b.c]) return text(a, b.c);
    a->q[a->n_q++] = b;
    return drain(a, false);
}

/* ---- public -------------------------------------------------------------- */

nb_status nb_parse_create(const nb_parser *p, uint64_t seed, nb_parse_fn fn, void *ctx,
                          nb_parse **out)
{
    nb_parse *a = calloc(1, sizeof *a);
    if (!a) return NB_ERR_NOMEM;
    a->p = p;
    a->seed = seed;
    a->fn = fn;
    a->ctx = ctx;
    a->state = p->starts_in_thought ? NB_PS_THINK_START : NB_PS_START;
    a->hold.limit_bytes = a->raw.limit_bytes = a->value.limit_bytes = a->key.limit_bytes =
        NB_PARSE_MAX_HELD_BYTES;
    *out = a;
    return NB_OK;
}

void nb_parse_destroy(nb_parse *a)
{
    if (!a) return;
    nb_buf_deinit(&a->out);
    nb_buf_deinit(&a->hold);
    nb_buf_deinit(&a->raw);
    nb_buf_deinit(&a->name);
    nb_buf_deinit(&a->key);
    nb_buf_deinit(&a->value);
    nb_buf_deinit(&a->wrapper);
    free(a);
}

static nb_status push(nb_parse *a, uint32_t id, nb_str s, int tok)
{
    const nb_str marker = tok < 0 ? (nb_str){ "", 0 } : a->p->id_text[tok];
    if (tok >= 0 && s.n_bytes >= marker.n_bytes &&
        memcmp(s.p + s.n_bytes - marker.n_bytes, marker.p, marker.n_bytes) == 0)
        s.n_bytes -= marker.n_bytes;
    const uint8_t cls = id == NB_PARSE_NO_ID ? NB_CLS_UNKNOWN : NB_CLS_PLAIN;
    for (size_t i = 0; i < s.n_bytes; i++) NB_TRY(feed(a, (nb_pbyte){ s.p[i], cls, 0 }));
    for (size_t i = 0; i < marker.n_bytes; i++)
        NB_TRY(feed(a, (nb_pbyte){ marker.p[i], (uint8_t)(NB_CLS_TOKEN + tok), (uint8_t)i }));
    return flush(a);
}

static bool in_thought(const nb_parse *a)
{
    return a->state == NB_PS_THINK || a->state == NB_PS_THINK_START || a->state == NB_PS_EAT_THINK;
}

nb_status nb_parse_push(nb_parse *a, uint32_t id, nb_str s)
{
    if (a->status != NB_OK) return a->status;
    int tok = -1;
    for (size_t i = 0; id != NB_PARSE_NO_ID && i < a->p->n_ids && tok < 0; i++)
        if (a->p->ids[i] == id) tok = (int)i;
    if (in_thought(a) && tok < 0) a->n_reasoning_tokens++;
    return a->status = push(a, id, s, tok);
}

/* Calls that the end interrupts; see T7 and T11 of the rules in parse.h. */
static nb_status finish_calls(nb_parse *a)
{
    if (a->state == NB_PS_NAME && !a->cut) { /* GLM: a call without arguments */
        const nb_str name = nb_parse_trim(nb_buf_view(&a->name));
        if (a->p->calls->style == NB_CALL_TAGGED && nb_ptools_find(&a->p->tools, name))
            NB_TRY(nb_parse_begin(a));
    }
    if (a->state == NB_PS_VALUE && !a->cut) NB_TRY(nb_parse_value_end(a));
    NB_TRY(nb_parse_end_call(a));
    if (!a->recording) return NB_OK;
    if (!a->cut || (a->p->calls->bare && !a->have_name && a->object != NB_PO_NAME))
        return nb_parse_fail(a);
    a->recording = false;
    return NB_OK;
}

static nb_status finish(nb_parse *a)
{
    NB_TRY(drain(a, true));
    if (a->p->calls) NB_TRY(finish_calls(a));
    const bool keep =
        a->state == NB_PS_AFTER_OBJECT ? !is_blank(nb_buf_view(&a->hold)) : a->n_calls == 0;
    if (keep) NB_TRY(flush_hold(a));
    a->hold.n_bytes = 0;
    return flush(a);
}

nb_status nb_parse_finish(nb_parse *a, nb_parse_end end)
{
    if (a->status != NB_OK) return a->status;
    a->cut = end == NB_PARSE_END_LENGTH;
    return a->status = finish(a);
}

nb_parse_phase nb_parse_where(const nb_parse *a)
{
    if (in_thought(a)) return NB_PARSE_IN_REASONING;
    switch (a->state) {
    case NB_PS_START:
    case NB_PS_BLANK:
    case NB_PS_CONTENT:
    case NB_PS_EAT: return NB_PARSE_IN_CONTENT;
    case NB_PS_DROP: return NB_PARSE_AFTER_CALLS;
    default: return NB_PARSE_IN_CALLS;
    }
}

size_t nb_parse_n_calls(const nb_parse *a)
{
    return a->n_calls;
}

size_t nb_parse_n_reasoning_tokens(const nb_parse *a)
{
    return a->n_reasoning_tokens;
}
