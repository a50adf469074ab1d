/* plan_page.h - the page of `nibble plan --html`. */
#ifndef NB_APPS_PLAN_PAGE_H
#define NB_APPS_PLAN_PAGE_H
#include "plan.h"
#include "report/html.h"

/* plan_page.c: the report of p as a page in the file; an exit code. */
int plan_page(const plan *p, const json_t *report, const char *path);

/* The row of a list with this record, with the default rope key where there are several; or NULL. */
const json_t *plan_record_of(const json_t *list, const char *dtype);

/* plan_page_rates.c: a cell of a table; 0 of a rate, a price or a ratio is unknown: "-". */
nb_status plan_cell_count(nb_buf *to, double x);
nb_status plan_cell_tenths(nb_buf *to, double x);
nb_status plan_cell_bytes(nb_buf *to, double x);
nb_status plan_cell_rate(nb_buf *to, double x);
nb_status plan_cell_money(nb_buf *to, double dollars);
nb_status plan_cell_time(nb_buf *to, double ms);
nb_status plan_cell_ratio(nb_buf *to, double x);
void plan_rate_text(double x, char *out, size_t n);
void plan_money_text(double dollars, char *out, size_t n);
/* Sections; nothing where the report j has no figures for them. */
nb_status plan_add_decode(nb_buf *to, const plan *p, const json_t *j, const json_t *by_users);
nb_status plan_add_prefill(nb_buf *to, const json_t *j, const json_t *by_context);
nb_status plan_add_cost(nb_buf *to, const json_t *j, const json_t *by_context);

/* plan_page_plot.c: plots that a report has no figures for are left out. */
nb_status plan_plot_cache(nb_buf *to, const json_t *report);
nb_status plan_plot_memory(nb_buf *to, const json_t *report);
/* by_context: the same plan at many lengths of context and prompt. */
nb_status plan_plot_users(nb_buf *to, const json_t *by_context);
nb_status plan_plot_cost(nb_buf *to, const json_t *by_context);
nb_status plan_plot_prefill(nb_buf *to, const json_t *by_context);
/* by_users: the same plan with many numbers of sequences; a pair of plots for a context. */
nb_status plan_plot_decode(nb_buf *to, const json_t *by_users, double context);

#endif
