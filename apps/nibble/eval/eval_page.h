/* eval_page.h - the page of `eval compare`: one HTML file without script, plots inside. */
#ifndef NB_APPS_EVAL_PAGE_H
#define NB_APPS_EVAL_PAGE_H
#include "cmd_eval.h"

typedef struct eval_section {
    const char *id, *title, *about; /* about: what is measured, a sentence or two */
    eval_report report;
    int code; /* CLI_OK, or why there is no report */
} eval_section;

/* A row of the summary; what was not measured is null or absent in the objects it comes from. */
typedef struct eval_page_row {
    const char *name;
    double bits, bytes;
    const json_t *kl, *ppl_ratio, *top1, *attn,
        *score; /* NULL: not measured; attn: {"mean", ...} */
} eval_page_row;

nb_status eval_page_write(const char *title, const char *about, const eval_page_row *row,
                          size_t n_row, const eval_section *section, size_t n_section, nb_buf *to);

#endif
