/* plan_trace_check.c - what `nibble plan --trace` refuses: options that this replay would not read, and a
 * replay without requests. */
#include <string.h>

#include "../cli.h"
#include "plan_trace.h"

/* Whom an option is for. */
typedef enum for_whom {
    FOR_PLAN,     /* never a replay              */
    FOR_MACHINE,  /* one on a machine            */
    FOR_SERVE,    /* --replay serve              */
    FOR_TIMES,    /* either of these two         */
    FOR_SESSIONS, /* sessions, no stream         */
    FOR_RECORDS,  /* without --bytes-per-token   */
    FOR_CLASSES,  /* with policy classes         */
} for_whom;

static const struct {
    const char *name;
    for_whom whom;
    const char *instead; /* FOR_PLAN: what would make sense */
} checks[] = {
    { "context", FOR_PLAN, "the trace says how long prompts are; --max-prompt N leaves some out" },
    { "prompt", FOR_PLAN, "the trace says how long prompts are; --max-prompt N leaves some out" },
    { "concurrency", FOR_PLAN, "the trace says who comes when; --sessions N or --max-num-seqs N" },
    { "price", FOR_PLAN, "a replay has no costs" },
    { "tokens-per-second", FOR_PLAN, "rates of a replay are --prefill-rate and --decode-rate" },
    { "kv-rope-dtype", FOR_PLAN, "records of a replay have the default rope key" },
    { "cpu-experts", FOR_PLAN, "a replay has all experts on the GPU" },
    { "ram-bandwidth", FOR_PLAN, "a replay has all experts on the GPU" },
    { "pcie-bandwidth", FOR_PLAN, "a replay has all experts on the GPU" },
    { "kv-cache-dtype", FOR_MACHINE, NULL },
    { "gpu-file", FOR_MACHINE, NULL },
    { "gpu-memory-utilization", FOR_MACHINE, NULL },
    { "weight-dtype", FOR_MACHINE, NULL },
    { "decode-rate", FOR_SERVE, NULL },
    { "max-num-seqs", FOR_SERVE, NULL },
    { "prefill-rate", FOR_TIMES, NULL },
    { "max-num-batched-tokens", FOR_TIMES, NULL },
    { "sessions", FOR_SESSIONS, NULL },
    { "max-gap", FOR_SESSIONS, NULL },
    { "records", FOR_RECORDS, NULL },
    { "protected-share", FOR_CLASSES, NULL },
};

static bool has_policy(const trace_plan *t, nb_kv_evict policy)
{
    size_t i = 0;
    while (i < t->n_policy && t->policy[i] != policy) i++;
    return i < t->n_policy;
}

/* NULL: it is read.  Else what was expected. */
static const char *expected(const trace_plan *t, for_whom whom)
{
    switch (whom) {
    case FOR_PLAN: break;
    case FOR_MACHINE: return t->has_machine ? NULL : "a machine: --gpu NAME or --memory SIZE";
    case FOR_SERVE: return t->serve ? NULL : "--replay serve";
    case FOR_TIMES:
        return t->serve || t->has_machine ? NULL : "--replay serve, or a machine: --gpu NAME";
    case FOR_SESSIONS:
        return t->mix.sessions ? NULL : "sessions, and this is a stream, played as recorded";
    case FOR_RECORDS: return t->o->trace.bytes_per_token ? "either it or --bytes-per-token" : NULL;
    case FOR_CLASSES: return has_policy(t, NB_KV_EVICT_CLASSES) ? NULL : "classes in --policies";
    }
    return "";
}

int trace_check_options(const trace_plan *t)
{
    for (size_t i = 0; i < NB_COUNT(checks); i++) {
        if (!opts_given(t->o, CMD_PLAN, checks[i].name)) continue;
        const char *want = expected(t, checks[i].whom);
        if (want && checks[i].whom == FOR_PLAN)
            return cli_usage("--%s: --trace does not read it: %s", checks[i].name,
                             checks[i].instead);
        if (want)
            return cli_usage("--%s: this replay would not read it; expected %s", checks[i].name,
                             want);
    }
    if (!t->mix.sessions && t->o->trace.seeds > 1)
        return cli_usage("--seeds %zu: a stream is played as it was recorded; expected 1",
                         t->o->trace.seeds);
    return CLI_OK;
}

int trace_check_played(const trace_plan *t)
{
    const trace_opts *o = &t->o->trace;
    for (size_t i = 0; i < t->n_point; i++) {
        const trace_point *p = &t->point[i];
        if (p->n_request > 0) continue;
        if (!(p->n_skipped > 0)) return cli_failed("%s: no requests in it", o->file);
        if (!t->serve)
            return cli_failed("--max-prompt %zu: all %.0f prompts of %s are longer", o->max_prompt,
                              p->n_skipped, o->file);
        return cli_failed("%s: no request is left: %.0f are too long for a cache of %zu tokens "
                          "(%.3g GB of %s)%s",
                          o->file, p->n_skipped, p->n_block * NB_BLOCK_TOK, t->size[p->size] / 1e9,
                          t->record[p->record].name, o->max_prompt ? " or for --max-prompt" : "");
    }
    return CLI_OK;
}
