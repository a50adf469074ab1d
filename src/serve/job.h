/* job.h - a request between its exchange and the engine.
 *
 * A job has one or more prompts and `n` choices of each; a choice is one request of the engine.
 * The engine's thread turns its callbacks into events and pushes them onto one list of the
 * server (lock-free, many producers, one consumer); the first one wakes the loop, which
 * takes the whole list, formats and writes: a step of 64 tokens costs one wake-up and one
 * write per client.  A job is freed when its exchange is over and the last event of its last
 * choice has come.
 *
 * Before that its body is parsed, rendered and tokenised (`prepare`): small ones at once, large ones
 * on a helper thread, so that one long prompt does not hold up the streams of the others.  The
 * same thread writes large answers that are no streams. */
#ifndef NB_SERVE_JOB_H
#define NB_SERVE_JOB_H
#include <stdatomic.h>

#include "serve/api_write.h"
#include "serve/parse_request.h"
#include "serve/serve_internal.h"

typedef struct nb_job nb_job;
typedef struct nb_choice nb_choice;
typedef struct nb_event nb_event;

/* A token (of the prompt or generated), or the end of a choice. */
struct nb_event {
    nb_event *next;
    nb_choice *choice;
    enum { NB_EVENT_PROMPT, NB_EVENT_TOKEN, NB_EVENT_DONE } kind;
    uint32_t id;
    float logprob;
    double t; /* nb_clock_s */
    const nb_token_logprob *top;
    size_t n_top;
    nb_str text;           /* content */
    const nb_piece *piece; /* what is shown: content, reasoning, calls */
    size_t n_piece;
    bool in_thought; /* the token belongs to the reasoning */
};

/* A part of a whole answer; CALL: text is the arguments. */
typedef struct nb_block {
    nb_piece_kind kind; /* CONTENT, REASONING or CALL */
    nb_buf text;
    char *name, *id;
} nb_block;

typedef struct nb_event_list {
    nb_event *head, *tail;
    size_t n;
} nb_event_list;

typedef struct nb_prompt {
    uint32_t *ids; /* nb_free when owned, else of the job's memory */
    size_t n_ids;
    bool owned;
    nb_str text; /* echo: what the prompt says; nb_free'd with it when text_owned */
    bool text_owned;
    size_t max_tokens; /* of each of its choices */
    size_t cut_from;   /* 0, or what was asked for: max_tokens was cut to the context's room */
} nb_prompt;

typedef enum nb_end_reason {
    NB_END_STOP,
    NB_END_LENGTH,
    NB_END_CANCELLED,
    NB_END_TIMEOUT
} nb_end_reason;

struct nb_choice {
    nb_job *job;
    size_t index; /* in the answer */
    nb_prompt *prompt;
    bool first; /* choice of its prompt */
    nb_request_id id;
    /* written by the engine's thread, read by the loop after the done event */
    nb_event done;
    size_t seen_bytes; /* of text, in token events */
    bool lost;         /* no memory for an event */
    nb_status st;
    char *why; /* malloc'd line, or NULL */
    nb_end_reason reason;
    int stop_index;
    int64_t stop_token;
    size_t n_cached, n_preempted, n_calls, n_reasoning_tok;
    double queue_s, prefill_s, decode_s;
    char *tail; /* text that no token event had */
    size_t tail_bytes;
    /* the loop's */
    bool open;    /* submitted, no done event yet */
    bool started; /* something of it was written  */
    size_t n_gen, n_queued_tok;
    double t_first, t_last;
    nb_event *held; /* a token that is written with what comes next */
    nb_buf text;    /* whole completions: all of it                 */
    nb_block *block; /* whole chats: its parts in order              */
    size_t n_block, cap_block, shown_bytes;
    nb_piece_kind open_kind; /* streams with items: what is open, if is_open */
    bool is_open;
    size_t n_item;           /* streams with items: begun so far */
    uint32_t *ids;  /* [n_gen], whole answers                       */
    size_t cap_ids;
    nb_event_list kept, prompt_kept; /* where log-probabilities are shown */
    size_t text_offset;              /* completions: characters so far    */
};

/* An endpoint.  Writers append to j->out. */
typedef struct nb_api {
    const char *path;      /* for logs           */
    const char *id_prefix; /* "chatcmpl-"        */
    nb_ask_kind kind;
    bool uses_engine;  /* else prepare and answer are all */
    bool clamp;        /* max_tokens beyond the context is cut, else refused */
    size_t max_tokens; /* where the request does not say; at most the model's own default */
    /* Any thread: reads j->ask (the body is parsed) and fills j->prompt; touches nothing of
     * j->s that changes.  Failures are in j->ask.err. */
    nb_status (*prepare)(nb_job *j);
    /* Streams.  A chunk for token ev of c; ev NULL: for its end alone.  last: c has ended (with its
     * reason, and with c->tail to show). */
    void (*chunk)(nb_job *j, nb_choice *c, const nb_event *ev, bool last);
    void (*close)(nb_job *j); /* after the last choice */
    void (*error)(nb_job *j, int status, const char *message);
    /* Not a stream: everything.  Any thread, when no event comes any more; not of j->ex. */
    void (*answer)(nb_job *j);
} nb_api;

struct nb_job {
    nb_serve *s;
    nb_http_ex *ex; /* NULL: over */
    const nb_api *api;
    nb_ask ask;
    nb_str body; /* of the exchange, or body_copy */
    char *body_copy;
    bool large; /* the body: its memory goes back to the system */
    nb_status prepared;
    bool answering;   /* the helper thread writes, or wrote, its answer */
    nb_job *next;     /* lists of the helper thread */
    char *request_id; /* of the answer, with prefix */
    int64_t created;
    double t0;
    nb_prompt *prompt;
    size_t n_prompt;
    nb_choice *choice;
    size_t n_choice, n_open, n_admitted;
    atomic_bool gone; /* tells the engine's thread that nobody listens */
    bool begun;       /* headers of a stream are out */
    bool dirty;
    nb_job *next_dirty;
    int status;
    nb_writer out;
    uint64_t n_event; /* streams with numbered events */
    nb_writer head; /* streams: what every chunk begins with */
};

/* What a handler does: everything else follows. */
void nb_job_start(nb_serve *s, nb_http_ex *ex, const nb_api *api);

/* ---- for prepare ---- */
/* Room for n prompts in j->prompt, all empty; ask.n is known. */
nb_status nb_job_prompts(nb_job *j, size_t n);
void nb_prompt_cut(nb_prompt *p, size_t keep); /* to its last tokens; 0: not */
/* Renders a chat (chat_map.h, changed); ids are cut as ask.truncate says. */
nb_status nb_render_chat(const nb_serve *s, nb_ask *a, json_t *chat, nb_prompt *out);
/* The one prompt of a chat: j's body in the common form, rendered. */
nb_status nb_job_chat(nb_job *j, nb_status (*map)(nb_ask *a, json_t **out));

/* ---- between job_open.c and job.c ---- */
void nb_job_submit(nb_job *j); /* gives its prompts to the engine; then it lives on its own */
void nb_job_free(nb_job *j);
void nb_job_answer(nb_job *j);   /* writes j->out, here or aside, then: */
void nb_job_answered(nb_job *j); /* sends it; the end of the job */
void nb_jobs_trim(nb_serve *s);  /* gives memory back to the system, aside */
nb_http_task_fn nb_job_client_gone;

/* ---- job_blocks.c ---- */
size_t nb_pieces_bytes(const nb_token_event *ev); /* of their texts */
/* Copies the pieces (at least 1 place) and their texts; how many there are. */
size_t nb_pieces_copy(const nb_token_event *ev, nb_piece *to, char *text);
nb_status nb_blocks_add(nb_choice *c, const nb_piece *p);
void nb_blocks_free(nb_choice *c);
bool nb_blocks_have(const nb_choice *c, nb_piece_kind kind);
/* The texts of one kind as one JSON string. */
void nb_w_blocks(nb_writer *w, const nb_choice *c, nb_piece_kind kind);
/* The tools of a chat (chat_map.h) and its calls so far, as memory of a. */
nb_status nb_ask_take_tools(nb_ask *a, const json_t *chat);

/* ---- for the writers of answers ---- */
/* Pieces are shown but for reasoning where the request hides it. */
static inline bool nb_shows(const nb_job *j, const nb_piece *p)
{
    return p->kind != NB_PIECE_REASONING || !j->ask.hide_reasoning;
}
/* What is shown at the end of a choice behind its last token: content; n_piece is 0 or 1. */
static inline nb_piece nb_tail_piece(const nb_choice *c)
{
    return (nb_piece){ .kind = NB_PIECE_CONTENT, .text = c->tail, .text_bytes = c->tail_bytes };
}
/* error.c: the two forms of an error object. */
void nb_w_error(nb_writer *w, int status, const char *param, const char *message);
void nb_w_error_anthropic(nb_writer *w, int status, const char *message);
void nb_openai_error(nb_job *j, int status, const char *message); /* nb_api.error of both */
/* One object of a render's answer. */
void nb_w_rendered(nb_writer *w, const nb_job *j, const nb_prompt *p);
const char *nb_finish_reason(const nb_choice *c); /* "stop", "length", "tool_calls" */
bool nb_ended_by_calls(const nb_choice *c);
/* ,"stop_reason":... of vLLM: the stop string, the token id, or null. */
void nb_w_stop_reason(nb_writer *w, const nb_choice *c);
/* {"prompt_tokens":...}; choice: of one choice as far as it is, NULL: of the job. */
void nb_w_usage(nb_writer *w, const nb_job *j, const nb_choice *c);
/* What whole answers of OpenAI's two kinds begin with: {"id":... to "system_fingerprint":..., with all choices. */
typedef void nb_w_choice_fn(nb_writer *w, const nb_job *j, nb_choice *c);
void nb_w_answer(nb_writer *w, nb_job *j, const char *object, nb_w_choice_fn *choice);
void nb_w_prompt_logprobs(nb_writer *w, const nb_job *j, const nb_choice *c); /* array, or null */
/* The text of a token in log-probabilities. */
nb_str nb_token_text(const nb_job *j, uint32_t id, char num[32]);
size_t nb_job_reasoning(const nb_job *j); /* tokens of thoughts */
/* Total of a job: of prompts, of these cached, generated. */
void nb_job_counts(const nb_job *j, size_t *prompt, size_t *cached, size_t *generated);

/* The loop's: takes the events that have come (nb_http_post'ed by the engine's thread). */
void nb_jobs_drain(void *ctx);
void nb_jobs_prepared(void *ctx); /* the loop's: jobs that come back from the helper thread */
nb_status nb_jobs_start(nb_serve *s, nb_error *err); /* the helper thread; after http's create */
void nb_jobs_stop(nb_serve *s);
/* Waits until the engine has given back every choice. */
void nb_jobs_wait(nb_serve *s);

#endif
