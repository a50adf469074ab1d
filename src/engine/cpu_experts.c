/* cpu_experts.c - --cpu-experts: routed experts in host memory beside a GPU. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"

static nb_status parse(const char *s, nb_expert_place *p, nb_error *err)
{
    char *end = NULL;
    *p = (nb_expert_place){ .n_host = 0 };
    if (!s || !strcmp(s, "all") || !strcmp(s, "auto")) {
        if (s && s[1] == 'l') p->n_host = SIZE_MAX;
        p->fit = s && s[1] == 'u';
        return NB_OK;
    }
    const long n = s[0] >= '0' && s[0] <= '9' ? strtol(s, &end, 10) : -1;
    if (n < 0 || n > 100000 || *end)
        return nb_fail(err, NB_ERR_ARG, "--cpu-experts %.40s: expected a number of layers, all or auto",
                       s);
    p->n_host = (size_t)n;
    return NB_OK;
}

nb_status nb_engine_read_experts(nb_engine *e, const nb_engine_options *o, const char *why,
                                 nb_error *err)
{
    const nb_model_config *c = &e->model.c;
    nb_expert_place *p = &e->experts.place;
    size_t n_moe = 0;
    NB_TRY(parse(o->cpu_experts, p, err));
    if (!nb_engine_wants_experts(e)) return NB_OK;
    for (size_t i = 0; i < c->n_layer; i++) n_moe += nb_layer_has_experts(c, i);
    if (n_moe == 0)
        return nb_fail(err, NB_ERR_ARG, "--cpu-experts %s: the model has no routed experts",
                       o->cpu_experts);
    if (p->n_host != SIZE_MAX && p->n_host > n_moe)
        return nb_fail(err, NB_ERR_RANGE, "--cpu-experts %s: the model has %zu layers with routed experts",
                       o->cpu_experts, n_moe);
    if (!e->rank[0].device.kind->own_memory)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--cpu-experts %s is for a model on a GPU, and this one is on the CPU%s%s",
                       o->cpu_experts, why[0] ? ": " : "", why);
    return NB_OK;
}

void nb_engine_reserve_for_experts(nb_engine *e, const nb_engine_options *o)
{
    enum { PART = 4 }; /* of the memory: most that one request's cache reserves */
    uint64_t all, left;
    if (!e->experts.place.fit) return;
    e->rank[0].device.kind->memory(&e->rank[0].device, &all, &left);
    const double used = o->gpu_memory_utilization > 0 ? o->gpu_memory_utilization : 0.9;
    const size_t one = (e->step.max_model_len + NB_PAGE_TOK - 1) / NB_PAGE_TOK * e->pages.block_bytes;
    const uint64_t cache = o->kv_cache_bytes ? o->kv_cache_bytes : one < all / PART ? one : all / PART;
    e->experts.place.leave_bytes = cache + (uint64_t)((1 - used) * (double)all);
}
