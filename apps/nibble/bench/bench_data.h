/* bench_data.h - the requests of a benchmark: prompts, lengths and times of arrival.
 *
 * Prompts of token ids are functions of the seed and made when they are sent, so that a trace
 * of a hundred million tokens costs no memory; the same options give the same requests with
 * `bench serve` and `bench throughput`. */
#ifndef NB_APPS_BENCH_DATA_H
#define NB_APPS_BENCH_DATA_H
#include "../options/opts.h"

/* A tokenizer, here or behind the server; CLI_OK or CLI_FAILED after an error line. */
typedef struct bench_tok {
    int (*encode)(const void *ctx, const char *text, size_t n_bytes, uint32_t **ids, size_t *n_ids);
    const void *ctx;
} bench_tok;

typedef struct bench_item {
    size_t n_prompt;   /* tokens; of a text: 0 when unknown */
    size_t max_tokens; /* >= 1 */
    double at_s;       /* timed_trace: since the begin */
    char *text;        /* NULL: token ids; else terminated, on the heap */
    size_t text_bytes;
    uint64_t key, prefix_key; /* streams of random ids; the first n_prefix are of prefix_key */
    size_t n_prefix;
    uint64_t *hash; /* timed_trace: on the heap, each stands for `chunk` ids */
} bench_item;

typedef struct bench_set {
    bench_item *items; /* [n + n_warm], the warm-ups last */
    size_t n, n_warm, chunk, max_prompt;
    uint64_t seed;
    uint32_t *pool; /* ids to draw from, on the heap; NULL: 0..n_pool-1 */
    size_t n_pool;
} bench_set;

/* pool and n_pool of *s are set and stay; tok.encode may be NULL where lengths need no tokenizer
 * (all but sharegpt).  CLI_OK, or CLI_FAILED or CLI_USAGE after an error line; deinit in any case. */
int bench_set_load(const bench_opts *o, const bench_tok *tok, bench_set *s);
void bench_set_deinit(bench_set *s);
/* out[n_prompt] of an item of token ids. */
void bench_prompt_ids(const bench_set *s, const bench_item *it, uint32_t *out);

/* "inf" or a number > 0; false: neither. */
bool bench_parse_rate(const char *text, double *out);
/* Seconds from the begin to the sending of each of the n requests: malloc'd, ascending but for
 * traces that are not.  NULL: out of memory.  rate and burstiness may be INFINITY. */
double *bench_arrivals(const bench_opts *o, const bench_set *s, double rate, double burstiness);

#endif
