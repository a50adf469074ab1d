/* cmd_plan.c - `nibble plan`: what a machine can serve of a model, from a config.json alone. */
#include <string.h>

#include "../cli.h"
#include "../options/opts.h"
#include "../options/opts_table.h"
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

/* Options that only a replay reads. */
static int check_options(const opts *o)
{
    for (size_t i = 0; i < opt_table_trace.n; i++) {
        const char *name = opt_table_trace.rows[i].name;
        if (strcmp(name, "html") != 0 && opts_given(o, CMD_PLAN, name))
            return cli_usage("--%s: only a replay reads it, and there is no --trace FILE", name);
    }
    return CLI_OK;
}

int cmd_plan(const opts *o)
{
    if (o->trace.file) return cmd_plan_trace(o);
    plan p;
    if (check_options(o) != CLI_OK) return CLI_USAGE;
    int code = plan_setup(o, &p);
    if (code == CLI_OK) code = report(&p);
    plan_deinit(&p);
    return code;
}
