/* split.c - a request's output taken apart: detokenizer, parser, stop strings on content.
 *
 * The pieces of one token are collected here and shown together with it (nb_token_event.piece).
 * Stop strings look at content only; what they hold back comes out before a call. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"

enum { TAIL_IDS = 64 }; /* of a prompt, to see whether it leaves a thought open */

/* ---- creating ---- */

static nb_status copy_tools(const nb_request *rq, nb_parse_tool **out, nb_error *err)
{
    nb_parse_tool *t = calloc(rq->n_tools + 1, sizeof *t);
    if (!t) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < rq->n_tools; i++) {
        if (!rq->tools[i].name) {
            free(t);
            return nb_fail(err, NB_ERR_ARG, "tool %zu has no name", i);
        }
        t[i].name = nb_str_c(rq->tools[i].name);
        if (rq->tools[i].parameters) t[i].parameters_json = nb_str_c(rq->tools[i].parameters);
    }
    *out = t;
    return NB_OK;
}

static nb_status in_thought(const nb_engine *e, const nb_request *rq, const nb_thought_format *f,
                            nb_token_lookup tokens, bool *out, nb_error *err)
{
    const size_t n = rq->n_prompt < TAIL_IDS ? rq->n_prompt : TAIL_IDS;
    nb_buf tail = { 0 };
    nb_status st = nb_tokenizer_decode(nb_text_tokenizer(e->text), rq->prompt + rq->n_prompt - n, n,
                                       false, &tail);
    if (st == NB_OK)
        *out = nb_prompt_in_thought(f, tokens, rq->prompt, rq->n_prompt, nb_buf_view(&tail));
    else
        st = nb_fail(err, st, "out of memory");
    nb_buf_deinit(&tail);
    return st;
}

/* What comes next is the end of the thought, before what else is forced. */
static nb_status force_close(const nb_engine *e, nb_run *r, nb_error *err)
{
    const nb_str close = nb_thought_format_close(r->split.thought);
    const size_t n_left = r->n_script - r->at_script;
    uint32_t *ids = NULL;
    size_t n = 0;
    r->split.budget = SIZE_MAX; /* once */
    NB_TRY(nb_tokenizer_encode(nb_text_tokenizer(e->text), close, NB_TOK_PARSE_SPECIAL, &ids, &n,
                               err));
    uint32_t *all = malloc((n + n_left + 1) * sizeof *all);
    if (all && n) memcpy(all, ids, n * sizeof *all);
    if (all && n_left) memcpy(all + n, r->script + r->at_script, n_left * sizeof *all);
    free(ids);
    if (!all) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    free(r->script);
    r->script = all;
    r->n_script = n + n_left;
    r->at_script = 0;
    return NB_OK;
}

static nb_status on_event(void *ctx, const nb_parse_event *ev);

/* For the ids of calls: others in every turn of a conversation, also where its seed is one. */
static uint64_t id_seed(const nb_request *rq)
{
    uint64_t h = rq->sampling.seed ^ 0xcbf29ce484222325;
    for (size_t i = 0; i < rq->n_prompt; i++) h = (h ^ rq->prompt[i]) * 0x100000001b3;
    return h;
}

nb_status nb_split_create(const nb_engine *e, nb_run *r, const nb_request *rq, nb_error *err)
{
    const nb_text_formats *f = e->text ? nb_text_formats_of(e->text) : NULL;
    nb_split *s = &r->split;
    nb_parse_tool *tools = NULL;
    size_t n_keep = 0;
    s->budget = SIZE_MAX;
    if (!rq->split || !f) return NB_OK;
    s->thought = f->thought;
    s->one_call = rq->stop_after_call;
    nb_parser_options o = { .calls = rq->n_tools && !rq->no_calls ? f->calls : NULL,
                            .thought = f->thought,
                            .tokens = nb_text_lookup(e->text),
                            .n_tools = rq->n_tools,
                            .n_history_calls = rq->n_history_calls };
    if (!o.calls && !o.thought) return NB_OK;
    if (o.thought) NB_TRY(in_thought(e, rq, o.thought, o.tokens, &o.starts_in_thought, err));
    NB_TRY(copy_tools(rq, &tools, err));
    o.tools = tools;
    nb_status st = nb_parser_create(&o, &s->parser, err);
    free(tools);
    if (st != NB_OK) return st;
    const uint32_t *keep = nb_parser_marker_ids(s->parser, &n_keep);
    nb_detok_keep(&r->detok, keep, n_keep);
    if (nb_parse_create(s->parser, id_seed(rq), on_event, r, &s->parse) != NB_OK)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    if (rq->limit_thought && s->thought) s->budget = rq->max_thought;
    if (o.starts_in_thought && s->budget == 0) return force_close(e, r, err);
    return NB_OK;
}

void nb_split_deinit(nb_split *s)
{
    nb_parse_destroy(s->parse);
    nb_parser_destroy(s->parser);
    nb_buf_deinit(&s->text);
    free(s->piece);
    free(s->at);
}

/* ---- pieces ---- */

static nb_status add_piece(nb_run *r, nb_piece_kind kind, size_t call, nb_str text)
{
    nb_split *s = &r->split;
    NB_TRY(NB_GROW(s->piece, s->cap_piece, s->n_piece));
    NB_TRY(NB_GROW(s->at, s->cap_at, s->n_piece));
    s->at[s->n_piece] = s->text.n_bytes; /* the buffer may move */
    s->piece[s->n_piece++] = (nb_piece){ .kind = kind, .call = call, .text_bytes = text.n_bytes };
    NB_TRY(nb_buf_add_str(&s->text, text));
    return nb_buf_add_ch(&s->text, 0);
}

/* Content that has passed the stop strings. */
static nb_status show_content(nb_run *r, nb_str text)
{
    if (!text.n_bytes) return NB_OK;
    NB_TRY(nb_buf_add_str(&r->text, text));
    return add_piece(r, NB_PIECE_CONTENT, 0, text);
}

static nb_status add_content(nb_run *r, nb_str text)
{
    nb_str emit = text;
    /* Stop strings do not count before min_tokens, as in vLLM. */
    if (r->out.n_tokens > r->min_tokens) NB_TRY(nb_stop_feed(r->stop, text, &emit));
    NB_TRY(show_content(r, emit));
    r->split.closed = nb_stop_found(r->stop) >= 0;
    return NB_OK;
}

static nb_status begin_call(nb_run *r, const nb_parse_event *ev)
{
    const size_t n_name = strlen(ev->name);
    r->out.n_calls++;
    NB_TRY(add_piece(r, NB_PIECE_CALL, ev->index, (nb_str){ ev->name, n_name }));
    return nb_buf_add(&r->split.text, ev->id, strlen(ev->id) + 1); /* behind the name */
}

static nb_status on_event(void *ctx, const nb_parse_event *ev)
{
    nb_run *r = ctx;
    nb_split *s = &r->split;
    if (s->closed) return NB_OK;
    if (ev->kind == NB_PARSE_CONTENT) return add_content(r, ev->text);
    NB_TRY(show_content(r, nb_stop_flush(r->stop)));
    switch (ev->kind) {
    case NB_PARSE_REASONING: return add_piece(r, NB_PIECE_REASONING, 0, ev->text);
    case NB_PARSE_CALL_BEGIN: return begin_call(r, ev);
    case NB_PARSE_ARGUMENTS: return add_piece(r, NB_PIECE_ARGUMENTS, ev->index, ev->text);
    case NB_PARSE_CALL_END: s->closed = s->ended = s->one_call; break;
    case NB_PARSE_CONTENT: break;
    }
    return add_piece(r, NB_PIECE_CALL_END, ev->index, (nb_str){ "", 0 });
}

/* The pieces' texts lie still now. */
static void place_pieces(nb_split *s)
{
    for (size_t i = 0; i < s->n_piece; i++) {
        nb_piece *p = &s->piece[i];
        p->text = s->text.p + s->at[i];
        if (p->kind != NB_PIECE_CALL) continue;
        p->name = p->text;
        p->id = p->text + p->text_bytes + 1;
        p->text_bytes = 0;
        p->text = "";
    }
}

nb_status nb_split_token(const nb_engine *e, nb_run *r, const uint32_t *id, nb_split_end end,
                         nb_str *content)
{
    nb_split *s = &r->split;
    nb_error err;
    const size_t at = r->text.n_bytes;
    const bool thought = nb_parse_where(s->parse) == NB_PARSE_IN_REASONING;
    s->n_piece = s->text.n_bytes = r->piece.n_bytes = 0;
    if (id) {
        NB_TRY(nb_detok_push(&r->detok, *id, &r->piece));
        NB_TRY(nb_parse_push(s->parse, *id, nb_buf_view(&r->piece)));
    }
    s->in_thought = thought || nb_parse_where(s->parse) == NB_PARSE_IN_REASONING;
    if (end != NB_SPLIT_GOES_ON) {
        r->piece.n_bytes = 0;
        NB_TRY(nb_detok_finish(&r->detok, &r->piece));
        if (r->piece.n_bytes)
            NB_TRY(nb_parse_push(s->parse, NB_PARSE_NO_ID, nb_buf_view(&r->piece)));
        NB_TRY(nb_parse_finish(s->parse, end == NB_SPLIT_STOPS ? NB_PARSE_END_STOP
                                                               : NB_PARSE_END_LENGTH));
        if (!s->closed) NB_TRY(show_content(r, nb_stop_flush(r->stop)));
    }
    r->out.n_reasoning_tok = nb_parse_n_reasoning_tokens(s->parse);
    place_pieces(s);
    *content = (nb_str){ r->text.p + at, r->text.n_bytes - at };
    const bool over = r->out.n_reasoning_tok >= s->budget;
    if (end == NB_SPLIT_GOES_ON && over &&
        nb_parse_where(s->parse) == NB_PARSE_IN_REASONING)
        return force_close(e, r, &err);
    return NB_OK;
}
