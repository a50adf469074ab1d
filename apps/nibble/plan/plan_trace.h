/* plan_trace.h - `nibble plan --trace`: the points of a replay, and their report. */
#ifndef NB_APPS_PLAN_TRACE_H
#define NB_APPS_PLAN_TRACE_H
#include <jansson.h>

#include "../options/opts.h"
#include "capacity/replay.h"
#include "plan.h"

enum { TRACE_MAX_SIZE = 16, TRACE_MAX_RECORD = 16, TRACE_MAX_POINT = 1024 };
enum { TRACE_PREFILL_RATE = 20000, TRACE_DECODE_RATE = 30 }; /* assumed where nothing says it */

typedef struct trace_record {
    char name[24];
    double block_bytes; /* 64 tokens of all layers */
    /* With a machine: of one GPU; blocks of all replicas. */
    nb_record_size on_gpu;
    double machine_blocks;
    nb_replay_clock clock;
} trace_record;

/* Means over the seeds; of the hit rate also the extremes. */
typedef struct trace_point {
    size_t record, size; /* of trace_plan */
    nb_kv_evict evict;
    size_t n_block;
    double hit, hit_min, hit_max, ceiling; /* shares of input tokens; ceiling NAN: unknown */
    double n_in, n_uncached, n_evicted, n_request, n_skipped, n_session, n_out;
    double alone_mean, alone_p50; /* cache mode with a clock, seconds */
    double n_preempted, ttft_mean, ttft_p50, ttft_p90, ttft_p99, wait, duration, held, n_running;
} trace_point;

typedef struct trace_plan {
    const opts *o;
    bool serve;
    plan plan; /* of the machine, where there is one */
    bool has_machine;
    bool models_prompts, models_steps; /* the clock's times are the machine's */
    double machine_bytes; /* what it leaves for caches: of all replicas, a token once */
    bool own_sizes;       /* sizes are shares of machine_bytes, the last is all */
    nb_mix_options mix;
    char **path;
    size_t n_path;
    double size[TRACE_MAX_SIZE]; /* bytes */
    size_t n_size;
    trace_record record[TRACE_MAX_RECORD];
    size_t n_record;
    nb_kv_evict policy[NB_KV_N_EVICT];
    size_t n_policy;
    trace_point *point; /* [n_point] by size, policy, record */
    size_t n_point;
} trace_plan;

/* plan_trace.c: an exit code. */
int cmd_plan_trace(const opts *o);

/* plan_trace_machine.c: CLI_OK, or another code after one error line.  The machine that the options name,
 * if they name one: before sizes and records.  Then, when the records are known: their clocks. */
int trace_machine(trace_plan *t);
int trace_clocks(trace_plan *t);
/* Whether points of --replay cache have times. */
static inline bool trace_has_alone(const trace_plan *t)
{
    return !t->serve && t->has_machine && (t->models_prompts || t->o->trace.prefill_rate > 0);
}
/* Modelled times that stand for a machine in reports: a prompt of n_tok tokens after n_cached; a step of n_seq
 * sequences with so many tokens each. */
enum { TRACE_REF_PROMPT = 8192, TRACE_REF_NEW = 512, TRACE_REF_SEQ = 16, TRACE_REF_CONTEXT = 8192 };
double trace_ref_prompt_s(const trace_plan *t, size_t n_tok, size_t n_cached);
double trace_ref_step_s(const trace_plan *t, size_t record);
/* "given", "modelled" or "assumed". */
const char *trace_rate_source(double given, bool modelled);

/* plan_trace_setup.c: CLI_OK, or another code after one error line.  Deinit in any case. */
int trace_setup(const opts *o, trace_plan *t);
void trace_deinit(trace_plan *t);

/* plan_trace_check.c: CLI_OK, or another code after one error line.  Whether this replay reads all options
 * that were given (after trace_setup's other steps); whether every point had requests. */
int trace_check_options(const trace_plan *t);
int trace_check_played(const trace_plan *t);

/* plan_trace_out.c: the report, its keys are in docs/trace-replay.md; NULL without memory. */
json_t *trace_json(const trace_plan *t);
void trace_print(const trace_plan *t);
/* The page: CLI_OK, or CLI_FAILED after one error line. */
int trace_page(const trace_plan *t, const char *path);

#endif
