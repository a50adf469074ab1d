/* many.c - several texts at once through the C API, as each token comes.
 *
 *   cc many.c -lnibble ... && ./many MODEL "Once upon a time" "The fox" ...
 *
 * Uses nothing of nibble but its public header.  Each prompt is one request; the engine
 * runs them side by side, and this program prints which of them got a token, then the
 * texts.  Exit code 0 when every request came to its end. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>

#include "nibble/nibble.h"

enum { MAX_PROMPTS = 64 };

typedef struct job {
    size_t index;
    char *text;
    nb_status status;
    bool done;
} job;

/* Callbacks run on the engine's thread; main waits for them here. */
static mtx_t lock;
static cnd_t news;
static size_t n_left;

static int on_token(void *ctx, const nb_token_event *ev)
{
    const job *j = ctx;
    (void)printf("%zu%s", j->index, ev->text_bytes ? "" : "?");
    return 0; /* anything else would end this request */
}

static void on_done(void *ctx, nb_status st, const nb_result *r, const nb_error *err)
{
    job *j = ctx;
    j->status = st;
    if (st == NB_OK) {
        j->text = malloc(r->text_bytes + 1); /* *r is only borrowed */
        if (j->text) memcpy(j->text, r->text, r->text_bytes + 1);
    } else {
        (void)fprintf(stderr, "request %zu: %s\n", j->index, err->msg);
    }
    (void)mtx_lock(&lock);
    j->done = true;
    n_left--;
    (void)cnd_signal(&news);
    (void)mtx_unlock(&lock);
}

static nb_status submit(nb_engine *e, job *j, const char *prompt, nb_error *err)
{
    uint32_t *ids;
    size_t n;
    nb_status st = nb_text_tokenize(nb_engine_text(e), prompt, strlen(prompt), NB_TEXT_ADD_SPECIAL,
                                    &ids, &n, err);
    if (st != NB_OK) return st;
    nb_request rq = { .prompt = ids, .n_prompt = n };
    nb_request_id id;
    nb_sampling_default(&rq.sampling);
    rq.sampling.max_tokens = 24;
    rq.sampling.temperature = 0;
    rq.on_token = on_token;
    rq.on_token_ctx = j;
    rq.on_done = on_done;
    st = nb_engine_submit(e, &rq, &id, err); /* copies what it needs */
    nb_free(ids);
    return st;
}

static int run(nb_engine *e, char **prompt, size_t n)
{
    job jobs[MAX_PROMPTS] = { 0 };
    nb_error err = { 0 };
    int code = EXIT_SUCCESS;
    (void)mtx_lock(&lock); /* callbacks that end early wait until all are counted */
    for (size_t i = 0; i < n; i++) {
        jobs[i].index = i;
        if (submit(e, &jobs[i], prompt[i], &err) == NB_OK) {
            n_left++;
        } else {
            (void)fprintf(stderr, "request %zu: %s\n", i, err.msg);
            jobs[i].status = err.status;
        }
    }
    while (n_left) (void)cnd_wait(&news, &lock);
    (void)mtx_unlock(&lock);
    (void)printf("\n");
    for (size_t i = 0; i < n; i++) {
        if (jobs[i].status != NB_OK || !jobs[i].text)
            code = EXIT_FAILURE;
        else
            (void)printf("%zu: %s%s\n", i, prompt[i], jobs[i].text);
        free(jobs[i].text);
    }
    return code;
}

int main(int argc, char **argv)
{
    if (argc < 3 || argc - 2 > MAX_PROMPTS) {
        (void)fprintf(stderr, "usage: %s MODEL PROMPT... (at most %d)\n", argv[0], MAX_PROMPTS);
        return 2;
    }
    nb_error err = { 0 };
    nb_engine *e;
    const nb_engine_options o = { .model = argv[1], .kv_cache_dtype = "nvfp4" };
    if (nb_engine_create(&o, &e, &err) != NB_OK) {
        (void)fprintf(stderr, "%s\n", err.msg);
        return EXIT_FAILURE;
    }
    int code = EXIT_FAILURE;
    if (!nb_engine_text(e))
        (void)fprintf(stderr, "%s has no tokenizer\n", argv[1]);
    else if (mtx_init(&lock, mtx_plain) == thrd_success && cnd_init(&news) == thrd_success)
        code = run(e, argv + 2, (size_t)argc - 2);
    nb_engine_destroy(e);
    return code;
}
