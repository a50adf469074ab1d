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
    OPT_SIZE,   /* size_t; where the range begins at -1, -1 is 0   */
    OPT_INT,    /* int                                             */
    OPT_U64,    /* uint64_t                                        */
    OPT_NUM,    /* double                                          */
    OPT_STRS,   /* opt_strs, repeatable                            */
    OPT_WORDS,  /* the same, and takes all words up to the next option */
    OPT_IDS,    /* opt_ids: 1,2,3; repeatable                      */
    OPT_BIAS    /* opt_biases: ID=VALUE; repeatable                */
} opt_type;

typedef struct opt_row {
    const char *name, *alias;
    char letter;     /* -x, or 0 */
    const char *arg; /* name of the argument in the help */
    opt_type type;
    size_t offset;   /* in struct opts */
    const char *def; /* default, parsed like an argument; NULL: zero */
    double lo, hi;   /* numbers; with lo_open lo itself is not accepted */
    bool lo_open;
    const char *choices; /* OPT_CHOICE: "a|b|c" */
    unsigned cmds, group;
    const char *help;
} opt_row;

enum { GROUP_INPUT, GROUP_OUTPUT, GROUP_SAMPLING, GROUP_MODEL, GROUP_SERVER, N_GROUP };

typedef struct opt_table {
    const opt_row *rows;
    size_t n;
} opt_table;
extern const opt_table opt_table_main;  /* opts_table.c */
extern const opt_table opt_table_bench; /* opts_table_bench.c */

#endif
