/* plan_value.h - reading the report of `nibble plan`: for the tables and for the page. */
#ifndef NB_APPS_PLAN_VALUE_H
#define NB_APPS_PLAN_VALUE_H
#include <jansson.h>

#include <stdbool.h>
#include <stddef.h>

static inline const json_t *at(const json_t *j, const char *key)
{
    return json_object_get(j, key);
}
/* 0: not there, or unknown. */
static inline double num(const json_t *j, const char *key)
{
    return json_number_value(at(j, key));
}
static inline const char *str(const json_t *j, const char *key)
{
    const char *s = json_string_value(at(j, key));
    return s ? s : "-";
}
static inline bool is(const json_t *j, const char *key)
{
    return json_is_true(at(j, key));
}

/* plan_print.c.  Records of plots and short tables: bf16, fp8, nvfp4 and the marked one.  Rows of decode in
 * short tables: of the marked record, and of the others with all users that fit. */
bool plan_shown(const json_t *report, const char *dtype);
bool plan_row_shown(const json_t *report, const json_t *row);
/* "671.0 B"; "4k", "163841"; "bandwidth: weights". */
void plan_params_text(double x, char *out, size_t n);
void plan_context_text(double n_tok, char *out, size_t n);
void plan_bound_text(const char *bound, char *out, size_t n);

#endif
