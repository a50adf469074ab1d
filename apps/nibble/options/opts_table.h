/* opts_table.h - a row of the tables of options, shared by opts.c (parsing and help) and
 * opts_table*.c (the rows). */
#ifndef NB_APPS_OPTS_TABLE_H
#define NB_APPS_OPTS_TABLE_H
#include "opts.h"
#include "num/record.h"

typedef enum opt_type {
    OPT_FLAG,   /* bool: --name                                    */
    OPT_BOOL,   /* bool: --name or --no-name                       */
    OPT_STR,    /* const char *                                    */
    OPT_CHOICE, /* const char *, one of the row's choices          */
    OPT_UNSET,  /* bool: --name makes it false                     */
    OPT_COUNT,  /* size_t: 4096, 4k, 4K; where the range begins at -1 also auto: OPT_AUTO */
    OPT_TOKENS, /* size_t: 4096; 4k and 4K are 4096, 1m and 1M 2^20 */
    OPT_SIZE,   /* size_t; where the range begins at -1, -1 is 0   */
    OPT_INT,    /* int                                             */
    OPT_U64,    /* uint64_t                                        */
    OPT_NUM,    /* double                                          */
    OPT_STRS,   /* opt_strs, repeatable                            */
    OPT_IDS,    /* opt_ids: 1,2,3; repeatable                      */
    OPT_BIAS,   /* opt_biases: ID=VALUE; repeatable                */
    OPT_JSON,   /* json_t *: an object; given again, members are merged.  --name.key.key VALUE
                   sets one member; VALUE is JSON, or else a string */
    /* Without a field.  help gives the reason: why the option is refused or ignored. */
    OPT_ONLY,         /* one of choices (an empty one first), else refused */
    OPT_ONLY_ON,      /* bool that is true                                 */
    OPT_ONLY_OFF,     /* bool that is false                                */
    OPT_REFUSED,      /* always refused; takes a value if it has an arg    */
    OPT_IGNORE,       /* bool without effect: a line goes to opts.warning  */
    OPT_IGNORE_VALUE, /* the same, with a value                            */
} opt_type;

/* How many words an option with a value takes; default: one. */
typedef enum opt_words {
    OPT_ONE_WORD,
    OPT_MANY_WORDS, /* one or more: all up to the next option */
    OPT_MAYBE_WORD, /* one, or none where an option follows or the line ends */
} opt_words;

typedef struct opt_row {
    const char *name;
    const char *alias; /* other names, "a|b", or NULL */
    const char *dash;  /* letters behind one dash, "tp" for -tp, or NULL */
    char letter;       /* -x, or 0 */
    const char *arg;   /* name of the argument in the help */
    opt_type type;
    opt_words words;
    size_t offset;   /* in struct opts */
    const char *def; /* default, parsed like an argument; NULL: zero, of OPT_NUM: not given */
    double lo, hi;   /* numbers; with lo_open lo itself is not accepted */
    bool lo_open;
    const char *choices; /* OPT_CHOICE, OPT_ONLY: "a|b|c" */
    unsigned cmds, group;
    const char *help;  /* a phrase without a full stop; also in the manual pages */
    const char *unset; /* in words: what stands for an option that was not given; NULL: def */
} opt_row;

enum {
    GROUP_INPUT,
    GROUP_OUTPUT,
    GROUP_SAMPLING,
    GROUP_MODEL,
    GROUP_SERVER,
    GROUP_REQUESTS,
    GROUP_FOREIGN, /* options of vLLM, SGLang and llama.cpp that nibble knows but does not have */
    N_GROUP
};

typedef struct opt_table {
    const opt_row *rows;
    size_t n;
} opt_table;
extern const opt_table opt_table_main;    /* opts_table.c */
extern const opt_table opt_table_serve;   /* opts_table_serve.c */
extern const opt_table opt_table_hub;     /* opts_table_hub.c */
extern const opt_table opt_table_foreign; /* opts_table_foreign.c */
extern const opt_table opt_table_bench;   /* opts_table_bench.c */
extern const opt_table opt_table_kv;      /* opts_table_kv.c */
extern const opt_table opt_table_eval;    /* opts_table_eval.c */
extern const opt_table opt_table_plan;    /* opts_table_plan.c */
extern const opt_table opt_table_trace;   /* opts_table_trace.c */

enum { OPT_NAME_BYTES = 64 };

/* opts.c */
const opt_row *opts_row_at(size_t i); /* row i of all tables in order, or NULL behind the last */
/* Copies with underscores as dashes; false when it cannot be the name of an option. */
bool opts_canonical(const char *s, size_t n, char out[OPT_NAME_BYTES]);
/* The row of a name for a command; *negated for no-NAME of a bool. */
const opt_row *opts_find(unsigned cmd, const char *name, bool *negated);
/* The row of the n bytes at s, the name as a user wrote it without dashes; *path is what follows
 * the dot of name.key.key, or NULL.  NULL where there is no such option; `name` is filled in any case. */
const opt_row *opts_lookup(unsigned cmd, const char *s, size_t n, char name[OPT_NAME_BYTES],
                           const char **path, bool *negated);
bool opts_takes_value(const opt_row *r);
/* The choice of "a|b|c" that is near enough to be meant; false: none. */
bool opts_nearest_choice(const char *choices, const char *value, char out[OPT_NAME_BYTES]);
int opts_unknown(const command *c, const char *given, const char *name);
/* Notes that a row was given, as `shown`. */
void opts_mark(opts *o, const opt_row *r, const char *shown);

/* opts_value.c: sets the field of a row; shown is the option as it was written, for the error
 * line; path: see opts_lookup.  Bools take "1" or "0".  CLI_OK, CLI_USAGE, CLI_FAILED (memory). */
int opts_set(opts *o, const opt_row *r, const char *shown, const char *path, const char *value);
void opts_range_text(const opt_row *r, char *out, size_t n);

/* opts_help.c: an option as --help and the manual show it, "-n, --name ARG" and its text; out has
 * OPT_TEXT_BYTES. */
enum { OPT_TEXT_BYTES = 1024 };
void opts_head(const opt_row *r, char *out);
void opts_text(const opt_row *r, char *out);
extern const char *const opts_group_names[N_GROUP];
extern const char opts_model_text[]; /* what MODEL may be; one line */
/* What the manual and the help say before the options: paragraphs, ends at NULL. */
const char *const *opts_about(const command *c);

/* opts_config.c: what a YAML file says, into *o. */
int opts_load_config(const command *c, opts *o, const char *path);

#endif
