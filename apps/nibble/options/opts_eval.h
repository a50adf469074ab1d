/* opts_eval.h - the options of `nibble eval ...` and `nibble calibrate`: opts_table_eval.c. */
#ifndef NB_APPS_OPTS_EVAL_H
#define NB_APPS_OPTS_EVAL_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct eval_opts {
    /* input */
    const char *text, *tokens;       /* files: text, or a JSON array of ids                       */
    const char *formats,
        *reference; /* variants (src/quality/variant.h), and the one compared with  */
    size_t context, stride, n_tok;   /* tokens of a window, between windows, in all               */
    uint64_t seed;
    size_t n_round; /* of the bootstrap                                          */
    bool decode;    /* tokens one by one, as if generated                        */
    /* output */
    const char *plot;    /* SVG file, or NULL                                         */
    const char *out_dir; /* compare: where the page and its parts go                  */
    bool detailed;       /* JSON: every position or item, not only the summary        */
    /* eval attn */
    bool stress;
    const char *layers, *methods; /* lists; NULL: all                                          */
    size_t n_query, n_head;
    double tau;
    const char *fractions;
    const char *dump;       /* folder for raw tensors                                    */
    const char *stress_set; /* name=value list of the generator                          */
    /* eval ruler */
    const char *tasks, *lengths, *dialect, *prompts, *write_prompts;
    size_t n_sample, n_depth, batch;
    /* calibrate */
    double target_bits, max_error, held_out;
    const char *candidates;
} eval_opts;

#endif
