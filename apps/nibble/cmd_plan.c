/* cmd_plan.c - `nibble plan`: what a machine can serve of a model, from a config.json alone. */
#include "cli.h"
#include "opts.h"
#include "plan.h"
#include "plan_trace.h"

static int report(const plan *p)
{
    json_t *j = plan_json(p);
    if (!j) return cli_failed("out of memory");
    if (p->o->json) {
        (void)json_dumpf(j, stdout, JSON_COMPACT | JSON_REAL_PRECISION(10));
        (void)fputc('\n', stdout);
    } else {
        plan_print(j);
    }
    json_decref(j);
    return CLI_OK;
}

int cmd_plan(const opts *o)
{
    if (o->trace.file) return cmd_plan_trace(o);
    if (o->trace.html) return cli_usage("--html: expected with --trace");
    plan p;
    int code = plan_setup(o, &p);
    if (code == CLI_OK) code = report(&p);
    plan_deinit(&p);
    return code;
}
