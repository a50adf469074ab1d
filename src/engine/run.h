/* run.h - a request in the engine: its state, from the calling thread's check to its end. */
#ifndef NB_ENGINE_RUN_H
#define NB_ENGINE_RUN_H
#include "nibble/nibble.h"

#include "base/str.h"
#include "engine/grammars.h"
#include "engine/text_parts.h"
#include "parse/parse.h"
#include "sample/sample.h"
#include "sample/stop.h"
#include "text/detok.h"

/* Where the result of a blocking call goes; on its caller's stack, guarded by `lock`. */
typedef struct nb_waiter {
    bool done;
    nb_status st;
    nb_result res;
    nb_error err;
} nb_waiter;

/* The output taken apart: split.c.  Without a parser it is not. */
typedef struct nb_split {
    nb_parser *parser;
    nb_parse *parse;
    const nb_thought_format *thought;
    size_t budget;  /* most tokens of a thought; SIZE_MAX: no limit */
    bool one_call;  /* the answer ends behind its first call */
    bool closed;    /* what comes is not shown any more */
    bool ended;     /* by one_call */
    bool in_thought; /* the last token belongs to the thought */
    nb_piece *piece; /* of the last token, with their texts at[i] in text */
    size_t *at, n_piece, cap_piece, cap_at;
    nb_buf text;
} nb_split;

/* A request in the engine: created by the calling thread, then owned by the engine's. */
typedef struct nb_run {
    /* guarded by `lock` */
    nb_request_id id;
    struct nb_run *chain;      /* of the table by id                    */
    struct nb_run *queue_next; /* submitted, not taken by the thread    */
    struct nb_run *abort_prev, *abort_next;
    bool aborted; /* in the list of aborts, or was */

    struct nb_run *prev, *next; /* all that the thread has taken         */
    struct nb_run *over_next;   /* ended, result not delivered           */
    bool added;                 /* the scheduler of its shard knows it   */
    size_t shard;
    bool over;
    nb_status st; /* over: NB_OK, or why it failed: err                  */
    nb_error err;

    /* the request */
    uint32_t *prompt; /* [n_prompt]; NULL when nobody will read it again  */
    size_t n_prompt, max_tokens, min_tokens;
    uint32_t *end_id; /* what ends the text: n_eos end-of-text ids, then stop ids */
    size_t n_end, n_eos;
    char *salt;
    int32_t priority;
    nb_request_id after;
    nb_sampler *sampler;
    nb_stop *stop;
    nb_detok detok;
    bool have_detok;
    nb_grammar *grammar; /* or NULL */
    nb_match *match;     /* made with the first token, from here: */
    nb_match_start match_start;
    uint64_t *mask;      /* [nb_vocab_mask_words] of the grammar's, and ends of text */
    nb_split split;
    uint32_t *script; /* [n_script] from at_script on: tokens that come in place of sampled ones */
    size_t n_script, at_script;
    int n_logprobs;
    nb_token_fn *on_token, *on_prompt;
    nb_done_fn *on_done;
    void *ctx;
    int n_prompt_top;
    bool keep_prompt; /* on_prompt and the repetition penalty read it later */

    /* a blocking call */
    nb_waiter *waiter;
    unsigned cancel_seq; /* nb_engine.cancel_seq when it began */
    /* nb_logits: borrowed from its caller, who waits */
    const size_t *want; /* [n_want] ascending positions; the first n_sent were delivered */
    size_t n_want, n_sent;
    nb_logits_fn *sink;
    void *sink_ctx;
    /* nb_engine_forced, beside sink: the whole text, borrowed; what comes after the prompt is
     * pushed token by token. Its one wanted row is the prompt's last. */
    const uint32_t *forced;
    size_t n_forced; /* tokens of the text */

    /* what it has come to */
    nb_result out;
    size_t cap_tokens, n_prompt_seen; /* prompt tokens shown through on_prompt */
    nb_buf piece, text;
    bool admitted; /* at t_admit */
    double t_submit, t_admit, t_first, t_last, deadline;
} nb_run;

/* Logits that a step has to make, and for what. */
typedef enum nb_row_kind { NB_ROW_SAMPLE, NB_ROW_PROMPT, NB_ROW_SINK, NB_ROW_FORCED } nb_row_kind;
typedef struct nb_row {
    nb_run *run;
    size_t place, pos; /* in the step's batch; in the request's text */
    nb_row_kind kind;
} nb_row;

/* ---- request.c: the end ---- */

/* Ends a request: it leaves the engine at the end of the step, or before the next one.
 * reason: its finish_reason; or st and err say why it failed. Only the first call counts. */
void nb_run_end(nb_engine *e, nb_run *r, const char *reason);
void nb_run_fail(nb_engine *e, nb_run *r, nb_status st, const char *msg);

/* ---- rows.c: what a step's logits are for ---- */

size_t nb_rows_plan(nb_engine *e);
/* An error is the device's. */
nb_status nb_rows_run(nb_engine *e, size_t n_row, nb_error *err);

/* ---- constrain.c: a request's grammar ---- */

/* Checks that the grammar belongs to the engine's text and takes a reference. */
nb_status nb_run_constrain(const nb_engine *e, nb_run *r, nb_grammar *g, nb_error *err);
void nb_run_unconstrain(nb_run *r);
/* What may come next; *need false: anything.  NB_ERR_NOT_FOUND: nothing, the text is complete. */
nb_status nb_run_mask(nb_run *r, nb_sample_mask *mask, bool *need);
/* A token was drawn. */
nb_status nb_run_note(nb_run *r, uint32_t id);
/* Whether any token may come next, so that it can be drawn anywhere. */
bool nb_run_is_free(const nb_run *r);
/* ---- split.c ---- */

typedef enum nb_split_end { NB_SPLIT_GOES_ON, NB_SPLIT_STOPS, NB_SPLIT_IS_CUT } nb_split_end;
/* Makes r->split, if rq asks for it and the model's formats are known; r has its detokenizer. */
nb_status nb_split_create(const nb_engine *e, nb_run *r, const nb_request *rq, nb_error *err);
void nb_split_deinit(nb_split *s);
/* One token (id may be NULL), and the end: fills r->split.piece; *content: those of content. */
nb_status nb_split_token(const nb_engine *e, nb_run *r, const uint32_t *id, nb_split_end end,
                         nb_str *content);

/* ---- request.c ---- */

/* Checks and copies a request, in the calling thread. */
nb_status nb_run_create(const nb_engine *e, const nb_request *rq, nb_run **out, nb_error *err);
void nb_run_destroy(nb_run *r);
nb_status nb_engine_check_tokens(const nb_engine *e, const uint32_t *ids, size_t n, nb_error *err);
/* One generated token: recorded, shown; ends the run if it was the last. */
nb_status nb_run_accept(nb_engine *e, nb_run *r, const nb_sample_out *s);
/* One prompt token; s NULL: the first, of which nothing is known. */
void nb_run_show_prompt(nb_engine *e, nb_run *r, uint32_t id, const nb_sample_out *s);
/* The text that is still held back becomes part of the result's. */
nb_status nb_run_flush(const nb_engine *e, nb_run *r);
bool nb_run_cancelled(const nb_engine *e, const nb_run *r);

#endif
