/* cmd_plan.c - `nibble plan`: what a machine can serve of a model, from a config.json alone. */
#include "cli.h"
#include "opts.h"
#include "plan.h"
#include "plan_page.h"
#include "plan_trace.h"

static int report(const plan *p)
{
    json_t *j = plan_json(p);
    if (!j) return cli_failed("out of memory");
    const int code = p->o->trace.html ? plan_page(p, j, p->o->trace.html) : CLI_OK;
    if (code == CLI_OK && p->o->json) {
        (void)json_dumpf(j, stdout, JSON_COMPACT | JSON_REAL_PRECISION(10));
        (void)fputc('\n', stdout);
    } else if (code == CLI_OK) {
        plan_print(j);
    }
    json_decref(j);
    return code;
}

int cmd_plan(const opts *o)
{
    if (o->trace.file) return cmd_plan_trace(o);
    plan p;
    int code = plan_setup(o, &p);
    if (code == CLI_OK) code = report(&p);
    plan_deinit(&p);
    return code;
}
