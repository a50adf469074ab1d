/* session.h - a loaded model for the commands that compute: loading with a progress bar,
 * generation with streaming, Ctrl-C, statistics. */
#ifndef NB_APPS_SESSION_H
#define NB_APPS_SESSION_H
#include "cli.h"
#include "options/opts.h"

typedef struct session {
    nb_engine *engine;
    const nb_text *text; /* NULL: no tokenizer; lives with the engine */
    nb_engine_info info;
    double load_s;
} session;

/* CLI_OK, or CLI_FAILED after an error line; close in any case.  turns: answers come back in later
 * prompts. */
int session_open(const opts *o, bool turns, session *s);
void session_close(session *s);

/* From now on Ctrl-C ends the running answer.  With `once` a second Ctrl-C ends the
 * process, as does one before any answer runs. */
void session_catch_interrupts(bool once);
/* Whether Ctrl-C was pressed since the last call. */
bool session_interrupted(void);

/* What a generation records beside its result. */
typedef struct session_logprobs {
    nb_token_logprob *items; /* per token: itself, then n_top best */
    size_t *n_top;           /* [n_tok] */
    size_t n_tok, n_items, cap_tok, cap_items;
} session_logprobs;
void session_logprobs_deinit(session_logprobs *l);

typedef struct session_request {
    const uint32_t *prompt;
    size_t n_prompt;
    nb_sampling sampling;
    bool stream;                /* text to standard output as it comes */
    session_logprobs *logprobs; /* or NULL */
} session_request;

/* Returns the API's status.  A failure to write standard output ends the generation
 * ("cancelled"); cli_out_ok tells. */
nb_status session_generate(session *s, const session_request *rq, nb_result *out, nb_error *err);

void session_print_stats(const session *s, const nb_result *r, bool with_load);

#endif
