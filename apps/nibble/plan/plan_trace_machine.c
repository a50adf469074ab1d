/* plan_trace_machine.c - the machine of `nibble plan --trace`: what it leaves for the cache, and how long its
 * steps take. */
#include <math.h>

#include "../cli.h"
#include "plan_trace.h"

enum { MAX_AT_ONCE = 1 << 20 };

static bool names_machine(const plan_opts *o)
{
    return o->gpu || o->memory || o->gpus || o->tp || o->dp || o->ep || o->enable_ep ||
           o->bandwidth > 0 || o->flops > 0 || o->reserve || o->efficiency > 0;
}

static int refuse_unfit(const plan *p)
{
    char weights[32], budget[32];
    cli_bytes_text(p->place.weights, weights, sizeof weights);
    cli_bytes_text(p->place.budget, budget, sizeof budget);
    if (p->needed)
        return cli_usage(
            "--trace: the model does not fit: %s of weights on each device, which has %s for "
            "weights, reserve and cache; expected --gpus %zu at least",
            weights, budget, p->needed);
    return cli_usage(
        "--trace: the model does not fit: %s of weights on each device, which has %s for "
        "weights, reserve and cache; expected a larger machine",
        weights, budget);
}

int trace_machine(trace_plan *t)
{
    const opts *o = t->o;
    if (!names_machine(&o->plan)) return CLI_OK;
    if (!o->plan.gpu && !o->plan.memory)
        return cli_usage("--trace: of which machine? --gpu NAME or --memory SIZE says it");
    const int code = plan_setup(o, &t->plan);
    const plan *p = &t->plan;
    if (code != CLI_OK) return code;
    if (!p->fits) return refuse_unfit(p);
    if (o->trace.max_num_seqs * p->layout.dp > MAX_AT_ONCE)
        return cli_usage("--max-num-seqs %zu: on %zu replicas; expected %d at once in all, at most",
                         o->trace.max_num_seqs, p->layout.dp, MAX_AT_ONCE);
    t->has_machine = true;
    t->machine_bytes = floor(p->place.cache * p->place.n_part * (double)p->layout.dp);
    t->models_prompts = p->has_rates && !(o->trace.prefill_rate > 0);
    t->models_steps = p->has_rates && !(o->trace.decode_rate > 0);
    return CLI_OK;
}

/* Bytes of a token alone: as of a record whose codes are decoded. */
static int place_record(trace_plan *t, trace_record *r)
{
    const plan *p = &t->plan;
    const nb_record_size *of = nb_sizes_find(&p->sizes, r->name);
    if (!t->o->trace.bytes_per_token && of) {
        r->on_gpu = *of;
        r->machine_blocks = nb_place_blocks(&p->place, &r->on_gpu) * (double)p->layout.dp;
        return CLI_OK;
    }
    const double bytes = r->block_bytes / NB_BLOCK_TOK;
    r->on_gpu = (nb_record_size){ .type = NB_KV_NVFP4, .name = r->name, .attn_bytes_tok = bytes };
    r->machine_blocks = floor(p->place.cache * p->place.n_part / (bytes * NB_BLOCK_TOK)) * (double)p->layout.dp;
    return CLI_OK;
}

int trace_clocks(trace_plan *t)
{
    const trace_opts *o = &t->o->trace;
    const bool modelled = t->models_prompts || t->models_steps;
    const double prefill = o->prefill_rate > 0 ? o->prefill_rate : TRACE_PREFILL_RATE;
    const double decode = o->decode_rate > 0 ? o->decode_rate : TRACE_DECODE_RATE;
    for (size_t i = 0; i < t->n_record; i++) {
        trace_record *r = &t->record[i];
        const int code = t->has_machine ? place_record(t, r) : CLI_OK;
        if (code != CLI_OK) return code;
        r->clock = (nb_replay_clock){ .prefill_tok_s = t->models_prompts ? 0 : prefill,
                                      .step_s = t->models_steps ? 0 : 1 / decode,
                                      .demand = modelled ? &t->plan.demand : NULL,
                                      .layout = &t->plan.layout,
                                      .efficiency = &t->plan.efficiency,
                                      .record = &r->on_gpu,
                                      .chunk = (double)t->o->plan.chunk };
    }
    return CLI_OK;
}

double trace_ref_prompt_s(const trace_plan *t, size_t n_tok, size_t n_cached)
{
    return nb_clock_prompt_s(&t->record[0].clock, n_tok, n_cached);
}

double trace_ref_step_s(const trace_plan *t, size_t record)
{
    const double n_seq = TRACE_REF_SEQ * (double)t->plan.layout.dp;
    const nb_clock_step step = {
        .n_generating = (size_t)n_seq,
        .work = { .n_seq = n_seq, .context = TRACE_REF_CONTEXT },
    };
    return nb_clock_step_s(&t->record[record].clock, &step);
}

const char *trace_rate_source(double given, bool modelled)
{
    return given > 0 ? "given" : modelled ? "modelled" : "assumed";
}
