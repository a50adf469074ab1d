/* opts.h - the options of the command.
 *
 * One table (opts.c) says of each option its name, argument, type, range, default,
 * help and the commands that take it; parsing, --help and the error lines come from it.
 * Names may be written with dashes or underscores, values as `--name value` or
 * `--name=value`; of an option given twice the last counts, unless it is a list. */
#ifndef NB_APPS_OPTS_H
#define NB_APPS_OPTS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nibble/nibble.h"

typedef struct opt_strs {
    const char **p;
    size_t n;
} opt_strs;
typedef struct opt_ids {
    uint32_t *p;
    size_t n;
} opt_ids;
typedef struct opt_biases {
    nb_logit_bias *p;
    size_t n;
} opt_biases;

/* Filled by opts_parse from the defaults of the table and the command line.  Strings
 * point into argv. */
typedef struct opts {
    /* model and engine */
    const char *model, *load_format, *kv_cache_dtype, *kv_cache_mode, *kv_rope_dtype, *mla;
    const char *cpu_caps, *chat_template;
    size_t threads, max_model_len, prefill_chunk;
    uint64_t dummy_seed;
    bool skip_tokenizer_init;
    /* input */
    const char *prompt, *tokens, *file, *decode, *messages, *system, *rows;
    bool chat, add_special, parse_special, skip_special, generation_prompt;
    /* output */
    const char *output;
    bool json, stats, echo, history;
    /* sampling; its lists are set by opts_sampling */
    nb_sampling sampling;
    opt_strs stop;
    opt_ids stop_id;
    opt_biases logit_bias;
} opts;

enum { /* commands, as bits */
       CMD_RUN = 1,
       CMD_CHAT = 2,
       CMD_INFO = 4,
       CMD_LOGITS = 8,
       CMD_TOKENIZE = 16,
       CMD_RENDER = 32
};

typedef struct command {
    const char *name;
    unsigned bit;
    const char *forms; /* usage, one form a line, without "nibble NAME " */
    const char *help;
    int (*main)(const opts *o);
} command;
extern const command commands[]; /* ends at name == NULL */

/* argv[0..argc) are the arguments after the command's name.  Returns CLI_OK, or CLI_USAGE
 * after an error line; *help is set when --help was among them.  opts_deinit in any case. */
int opts_parse(const command *c, int argc, char **argv, opts *o, bool *help);
void opts_deinit(opts *o);

void opts_print_help(const command *c);
/* The name among the commands that is nearest to a misspelt one, or NULL. */
const char *opts_nearest_command(const char *name);

/* What the table filled, as the API wants it; borrows from o. */
nb_sampling opts_sampling(const opts *o);
nb_engine_options opts_engine(const opts *o);

#endif
