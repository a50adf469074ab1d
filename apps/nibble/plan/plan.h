/* plan.h - `nibble plan`: what the options ask for, resolved; the report as JSON; the report as
 * tables.
 *
 * Functions that return an int return CLI_OK, or CLI_FAILED / CLI_USAGE after one error line. */
#ifndef NB_APPS_PLAN_H
#define NB_APPS_PLAN_H
#include <jansson.h>

#include "../bench/bench_list.h"
#include "../options/opts.h"
#include "capacity/machine.h"
#include "capacity/roofline.h"
#include "capacity/sizes.h"

typedef struct plan {
    const opts *o;
    nb_model_config *config;
    const char *model_note; /* or NULL */
    nb_sizes sizes;
    nb_machines machines;
    nb_machine machine;
    bool has_machine; /* without one there are sizes only */
    bool has_rates;   /* its bandwidth and arithmetic are known */
    nb_demand demand;
    const nb_record_size *marked; /* --kv-cache-dtype, of sizes */
    nb_layout layout;
    bool suggested; /* the layout is ours */
    bool fits;      /* there is room for a block */
    nb_error why_not; /* nibble does not compute the model so; msg "": it does */
    size_t needed;  /* does not fit: GPUs of this kind that would do, 0: none */
    nb_layout needed_layout;
    nb_error needed_why_not; /* nibble does not compute the model with these; msg "": it does, or none would do */
    nb_place place;
    nb_efficiency efficiency;
    bench_counts context, concurrency, prompt;
    double price_hour; /* of all devices; 0: unknown */
} plan;

/* plan_setup.c.  Deinit in any case. */
int plan_setup(const opts *o, plan *p);
void plan_deinit(plan *p);
/* All records with the rope key that is asked for, or the default one: *i counts from 0.  NULL behind the
 * last. */
const nb_record_size *plan_next_record(const plan *p, size_t *i);

/* plan_json.c: the whole report, its keys are in src/capacity/README.md; NULL without memory. */
json_t *plan_json(const plan *p);
/* plan_words.c: arrays of strings, NULL without memory. */
json_t *plan_assumptions(const plan *p);
json_t *plan_notes(const plan *p);
const char *plan_arithmetic(const plan *p,
                            nb_kv_type type); /* how a record's codes are computed with */
const char *plan_wtype_name(nb_sizes_wtype w);
/* A JSON string; of what is not UTF-8 the bytes above 127 become '?'. */
json_t *plan_string(const char *s);

/* plan_print.c: tables on standard output, from the JSON alone. */
void plan_print(const json_t *report);

#endif
