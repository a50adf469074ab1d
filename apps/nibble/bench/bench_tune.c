/* bench_tune.c - `nibble bench tune`: which level of instruction sets each operation of a model uses, measured
 * anew and kept for later runs (src/engine/tune.h). */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "../cli.h"
#include "../options/opts.h"

static void put_us(double us)
{
    if (us > 0)
        (void)printf(" %12.1f", us);
    else
        (void)printf(" %12s", "");
}

/* One operation: a line per level, the chosen one marked. */
static void print_op(const char *name, const json_t *op)
{
    const char *chosen = json_string_value(json_object_get(op, "level")), *level;
    json_t *measured = json_object_get(op, "measured_us"), *us;
    json_object_foreach(measured, level, us)
    {
        const double few = json_real_value(json_array_get(us, 0)),
                     many = json_real_value(json_array_get(us, 1));
        (void)printf("%-18s %-12s", name, level);
        put_us(few);
        put_us(many);
        (void)printf("%s\n", chosen && strcmp(level, chosen) == 0 ? "  chosen" : "");
    }
}

static int print(const opts *o, const nb_engine_info *info)
{
    json_error_t why;
    json_t *j = json_load_file(info->tuned, 0, &why), *op;
    const char *name;
    if (!j) return cli_failed("%s: %s", info->tuned, why.text);
    if (o->json) {
        (void)json_dumpf(j, stdout, JSON_COMPACT);
        (void)printf("\n");
    } else {
        (void)printf("%s\n%-18s %-12s %12s %12s\n", info->tuned, "", "level", "1 token, us", "64, us");
        json_object_foreach(json_object_get(j, "operations"), name, op) print_op(name, op);
        (void)printf("kernels: %s\n", info->kernels);
    }
    json_decref(j);
    return CLI_OK;
}

int cmd_bench_tune(const struct opts *o)
{
    nb_engine_options e = opts_engine(o);
    nb_engine_info info;
    nb_engine *engine = NULL;
    nb_error err = { 0 };
    e.tune = "again";
    e.no_text = true;
    e.max_model_len = 64;
    if (o->cpu_caps) return cli_usage("--cpu-caps %s: bench tune chooses between levels", o->cpu_caps);
    const nb_status st = nb_engine_create(&e, &engine, &err);
    cli_progress_end();
    if (st != NB_OK) return cli_status(st, &err);
    nb_engine_get_info(engine, &info);
    if (info.warnings && *info.warnings) cli_note("warning: %s", info.warnings);
    int code = CLI_OK;
    if (*info.tuned)
        code = print(o, &info);
    else
        code = cli_failed("nothing was chosen: see above, or this machine has one level, or a GPU computes");
    nb_engine_destroy(engine);
    return code;
}
