/* opts_table.h - a row of the tables of options, shared by opts.c (parsing and help) and
 * opts_table*.c (the rows). */
#ifndef NB_APPS_OPTS_TABLE_H
#define NB_APPS_OPTS_TABLE_H
#include "opts.h"

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
    OPT_WORDS,  /* the same, and takes all words up to the next option */
    OPT_IDS,    /* opt_ids: 1,2,3; repeatable                      */
    OPT_BIAS,   /* opt_biases: ID=VALUE; repeatable                */
    /* Without a field.  help says why other values are refused. */
    OPT_ONLY,        /* one of choices (an empty one first), else refused */
    OPT_ONLY_ON,     /* bool that is true                                  */
    OPT_ONLY_OFF,    /* bool that is false                                 */
    OPT_IGNORE,      /* bool without effect: its name goes to opts.ignored */
    OPT_IGNORE_VALUE /* the same, with a value                             */
} opt_type;

typedef struct opt_row {
    const char *name, *alias, *dash; /* dash: -tp, letters behind one dash */
    char letter;                     /* -x, or 0 */
    const char *arg;                 /* name of the argument in the help */
    opt_type type;
    size_t offset;   /* in struct opts */
    const char *def; /* default, parsed like an argument; NULL: zero, of OPT_NUM: not given */
    double lo, hi;   /* numbers; with lo_open lo itself is not accepted */
    bool lo_open;
    const char *choices; /* OPT_CHOICE: "a|b|c" */
    unsigned cmds, group;
    const char *help;
} opt_row;

enum {
    GROUP_INPUT,
    GROUP_OUTPUT,
    GROUP_SAMPLING,
    GROUP_MODEL,
    GROUP_SERVER,
    GROUP_REQUESTS,
    GROUP_NO_EFFECT,
    N_GROUP
};

typedef struct opt_table {
    const opt_row *rows;
    size_t n;
} opt_table;
extern const opt_table opt_table_main;  /* opts_table.c */
extern const opt_table opt_table_serve; /* opts_table_serve.c */
extern const opt_table opt_table_bench; /* opts_table_bench.c */
extern const opt_table opt_table_kv;    /* opts_table_kv.c */
extern const opt_table opt_table_eval;  /* opts_table_eval.c */
extern const opt_table opt_table_plan;  /* opts_table_plan.c */
extern const opt_table opt_table_trace; /* opts_table_trace.c */

enum { OPT_NAME_BYTES = 64 };

/* opts.c */
const opt_row *opts_row_at(size_t i); /* row i of all tables in order, or NULL behind the last */
/* Copies with underscores as dashes; false when it cannot be the name of an option. */
bool opts_canonical(const char *s, size_t n, char out[OPT_NAME_BYTES]);
/* The row of a name for a command; *negated for no-NAME of a bool. */
const opt_row *opts_find(unsigned cmd, const char *name, bool *negated);
bool opts_takes_value(const opt_row *r);
int opts_unknown(const command *c, const char *given, const char *name);

/* opts_value.c: sets the field of a row; shown is the option as it was written, for the error
 * line.  Bools take "1" or "0".  CLI_OK, CLI_USAGE, CLI_FAILED (memory). */
int opts_set(opts *o, const opt_row *r, const char *shown, const char *value);
void opts_range_text(const opt_row *r, char *out, size_t n);

/* opts_config.c: what a YAML file says, into *o. */
int opts_load_config(const command *c, opts *o, const char *path);

#endif
