/* bench_grammar_engine.c - what constraining costs a whole engine.
 *
 *   bench_grammar_engine MODEL [REQUESTS [TOKENS [ROUNDS]]]
 *
 * Runs REQUESTS (32) at once, TOKENS (128) each, without and with a grammar (a JSON array of objects that
 * is longer than that), alternately, and prints for each round the tokens per second and the processor time
 * per token of both.  Both sample from the whole vocabulary on the processor. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nibble/nibble.h"

static double now_s(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_grammar_engine: %s: %s\n", what, why);
    exit(1);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t done = PTHREAD_COND_INITIALIZER;
static size_t n_done, n_tokens;

static void on_done(void *ctx, nb_status st, const nb_result *r, const nb_error *err)
{
    (void)ctx;
    if (st != NB_OK) die("request", err->msg);
    (void)pthread_mutex_lock(&lock);
    n_done++;
    n_tokens += r->n_tokens;
    (void)pthread_cond_signal(&done);
    (void)pthread_mutex_unlock(&lock);
}

typedef struct cost {
    double tok_s, cpu_us;
} cost;

static cost run(nb_engine *e, const uint32_t *prompt, size_t n_prompt, nb_grammar *g, size_t n,
                size_t n_tok)
{
    const double wall = now_s(CLOCK_MONOTONIC), cpu = now_s(CLOCK_PROCESS_CPUTIME_ID);
    n_done = n_tokens = 0;
    for (size_t i = 0; i < n; i++) {
        nb_request rq = {
            .prompt = prompt, .n_prompt = n_prompt, .on_done = on_done, .grammar = g
        };
        nb_request_id id;
        nb_error err;
        nb_sampling_default(&rq.sampling);
        rq.sampling.max_tokens = n_tok;
        rq.sampling.ignore_eos = true;
        rq.sampling.seed = i;
        if (nb_engine_submit(e, &rq, &id, &err) != NB_OK) die("submit", err.msg);
    }
    (void)pthread_mutex_lock(&lock);
    while (n_done < n) (void)pthread_cond_wait(&done, &lock);
    (void)pthread_mutex_unlock(&lock);
    return (cost){ (double)n_tokens / (now_s(CLOCK_MONOTONIC) - wall),
                   (now_s(CLOCK_PROCESS_CPUTIME_ID) - cpu) / (double)n_tokens * 1e6 };
}

int main(int argc, char **argv)
{
    if (argc < 2) die("usage", "bench_grammar_engine MODEL [REQUESTS [TOKENS [ROUNDS]]]");
    const size_t n = argc > 2 ? strtoul(argv[2], NULL, 10) : 32;
    const size_t n_tok = argc > 3 ? strtoul(argv[3], NULL, 10) : 128;
    const size_t n_round = argc > 4 ? strtoul(argv[4], NULL, 10) : 5;
    static const char schema[] =
        "{\"type\":\"array\",\"minItems\":1000,\"items\":{\"type\":\"object\",\"properties\":{\"name\":{"
        "\"type\":\"string\",\"maxLength\":40},\"age\":{\"type\":\"integer\"},\"tags\":{\"type\":\"array\","
        "\"items\":{\"type\":\"string\"}}},\"required\":[\"name\",\"age\"],\"additionalProperties\":false}}";
    const nb_engine_options o = { .model = argv[1],
                                  .max_num_seqs = n,
                                  .max_model_len = n_tok + 64,
                                  .kv_cache_bytes = (uint64_t)256 << 20 };
    const nb_grammar_spec spec = { .kind = NB_GRAMMAR_JSON_SCHEMA,
                                   .text = schema,
                                   .text_bytes = sizeof schema - 1 };
    nb_engine *e;
    nb_grammar *g;
    uint32_t *prompt;
    size_t n_prompt;
    nb_error err;
    static const char text[] = "Once upon a time there was a little girl who";
    if (nb_engine_create(&o, &e, &err) != NB_OK) die(argv[1], err.msg);
    if (nb_grammar_compile(nb_engine_text(e), &spec, &g, &err) != NB_OK) die("grammar", err.msg);
    if (nb_text_tokenize(nb_engine_text(e), text, sizeof text - 1, NB_TEXT_ADD_SPECIAL, &prompt,
                         &n_prompt, &err) != NB_OK)
        die("prompt", err.msg);
    (void)run(e, prompt, n_prompt, NULL, n, n_tok); /* warm */
    for (size_t i = 0; i < n_round; i++) {
        const cost a = run(e, prompt, n_prompt, NULL, n, n_tok);
        const cost b = run(e, prompt, n_prompt, g, n, n_tok);
        printf(
            "free %.0f tok/s %.1f us of processor; constrained %.0f tok/s %.1f us: %.1f %% (time), "
            "%.1f %% (processor)\n",
            a.tok_s, a.cpu_us, b.tok_s, b.cpu_us, 100 * b.tok_s / a.tok_s,
            100 * a.cpu_us / b.cpu_us);
    }
    nb_grammar_unref(g);
    nb_free(prompt);
    nb_engine_destroy(e);
    return 0;
}
