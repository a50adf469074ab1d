/* opts_trace.h - the options of `nibble plan --trace`: opts_table_trace.c. */
#ifndef NB_APPS_OPTS_TRACE_H
#define NB_APPS_OPTS_TRACE_H
#include <stddef.h>
#include <stdint.h>

typedef struct trace_opts {
    const char *file; /* NULL: no replay */
    /* caches: lists */
    const char *cache, *cache_bytes, *records, *bytes_per_token, *policies;
    /* which requests come when */
    size_t sessions, requests, max_prompt, seeds;
    double max_gap_s, speed, protected_share;
    /* serve */
    const char *replay;
    double prefill_rate, decode_rate; /* 0: the machine's, or those of plan_trace.h */
    size_t max_num_seqs;
    const char *html;
} trace_opts;

#endif
