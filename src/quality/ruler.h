/* ruler.h - retrieval prompts in the manner of RULER, made from a seed for any tokenizer and
 * length, and their scores.
 *
 * Tasks, counts and the sentences that are planted follow RULER's generators
 * (github.com/NVIDIA/RULER, scripts/data/synthetic): noise, needle and VAR sentences, adjective-noun
 * keys, 7-digit numbers, the frequencies of cwe and fwe, the number of tokens left for the answer,
 * an answer prefix in the prompt.  Other sentences are our own, so scores compare between formats
 * and roughly, not exactly, with published ones.
 *
 * Two dialects: `ruler`, one question about its own text each; and `plain`, short questions that
 * small models learn, several about one text (its prompts share their beginning, so a prefix cache
 * computes it once). `plain` has no cwe and fwe: no small model here has learnt them.
 *
 * Lengths are in tokens: prompt, with the beginning-of-text token, and what is left for the
 * answer.  Everything is a function of options, seed and tokenizer. */
#ifndef NB_QUALITY_RULER_H
#define NB_QUALITY_RULER_H
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "base/str.h"

typedef enum nb_ruler_task {
    NB_RULER_SINGLE,     /* one fact                                                  */
    NB_RULER_MULTIKEY,   /* one fact among many of the same form with similar keys    */
    NB_RULER_MULTIVALUE, /* all values of one key                                     */
    NB_RULER_MULTIQUERY, /* the values of several keys                                */
    NB_RULER_VT,         /* variables that hold a value, through a chain              */
    NB_RULER_CWE,        /* the ten commonest words of a list                         */
    NB_RULER_FWE,        /* the three most frequent coded words after the first       */
    NB_RULER_N_TASK
} nb_ruler_task;
enum { NB_RULER_N_DIALECT = 2, NB_RULER_MAX_LENGTHS = 16 };
#define NB_RULER_NO_DEPTH SIZE_MAX /* nb_ruler_item.depth of tasks without a needle */

const char *nb_ruler_task_name(nb_ruler_task t); /* "niah_single", ... */
/* Tasks of a dialect as bits 1 << nb_ruler_task; 0: there is no such dialect. */
unsigned nb_ruler_dialect_tasks(const char *dialect);
/* Names separated by commas, NULL: all of the dialect.  The error line names what is unknown or
 * missing in the dialect. */
nb_status nb_ruler_parse_tasks(const char *list, const char *dialect, unsigned *out, nb_error *err);
/* Lengths such as 512,2k,4k: ascending, each once, at most NB_RULER_MAX_LENGTHS. */
nb_status nb_ruler_parse_lengths(const char *list, size_t out[NB_RULER_MAX_LENGTHS], size_t *n,
                                 nb_error *err);

/* Tokens of a text; ids (for free) with the beginning-of-text token where the model has one. */
typedef nb_status nb_ruler_encode_fn(void *ctx, const char *text, size_t n_bytes, uint32_t **ids,
                                     size_t *n_ids, nb_error *err);

typedef struct nb_ruler_options {
    const char *dialect;  /* "ruler", "plain"                            */
    unsigned tasks;       /* bits                                        */
    const size_t *length; /* [n_length] tokens                           */
    size_t n_length;
    size_t n_sample; /* prompts per task and length, 1..1e6         */
    size_t n_depth;  /* places of the needle, 1..100                */
    uint64_t seed;
    nb_ruler_encode_fn *encode;
    void *encode_ctx;
} nb_ruler_options;

/* Pointers live as long as the set. */
typedef struct nb_ruler_item {
    const char *kind; /* name of the task, or a file's kind */
    size_t length;    /* wanted; 0: a file did not say      */
    size_t depth;     /* index of the asked needle's place, or NB_RULER_NO_DEPTH */
    double at;        /* where it is: bytes before it / bytes of text; -1: no needle */
    uint32_t context; /* items of equal number are about one text */
    const char *prompt;
    const char *answer;      /* expected continuation of the prompt, as it would be written */
    const char *const *refs; /* [n_ref] what must be in it */
    size_t n_ref;
    bool first_line;     /* generation ends at the first newline */
    size_t max_tok;      /* to generate */
    const uint32_t *ids; /* [n_ids] of the prompt */
    size_t n_ids;
    const uint32_t *full; /* [n_full] of prompt and answer; the first n_given are given, the
                                rest is the answer (n_given < n_ids when a token spans both) */
    size_t n_full, n_given;
} nb_ruler_item;

typedef struct nb_ruler_set {
    nb_arena arena;
    nb_ruler_item *item; /* [n], in the order of length, context, question */
    size_t n, max_tok;   /* max_tok: the longest prompt with all it may generate */
    size_t n_context;
} nb_ruler_set;

/* NB_ERR_ARG for options out of range; NB_ERR_LIMIT when a length is too short for a task (the
 * line says how much it needs).  Deinit in any case. */
nb_status nb_ruler_make(const nb_ruler_options *o, nb_ruler_set *out, nb_error *err);
void nb_ruler_set_deinit(nb_ruler_set *s);

/* Files: an array of objects with "prompt", "answer" and optionally "kind", "refs" (default: the
 * answer), "length", "depth", "context", "at", "first_line" (default true), "max_tokens" (default: the
 * answer's and 16).  An answer that begins with no white space gets a space in front.  What
 * nb_ruler_to_json writes has also "ids" and "answer_ids", which are not read. */
nb_status nb_ruler_from_json(nb_str json, nb_ruler_encode_fn *encode, void *encode_ctx,
                             nb_ruler_set *out, nb_error *err);
json_t *nb_ruler_to_json(const nb_ruler_set *s); /* NULL: no memory */

typedef struct nb_ruler_score {
    double match; /* share of refs that occur in it, without regard to case (ASCII) */
    bool exact;   /* it is the answer, but for white space around it */
} nb_ruler_score;
nb_ruler_score nb_ruler_grade(const nb_ruler_item *it, nb_str generated);

#endif
