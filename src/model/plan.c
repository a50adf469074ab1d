/* plan.c - see plan.h.  Every table ends with a row that runs anywhere. */
#include "model/plan.h"

#include <stdio.h>

#include "base/status.h"

#define RESOLVE(field, table)                                                                      \
    do {                                                                                           \
        (field) = (table);                                                                         \
        while ((field)->name && ((field)->space != NB_SPACE_HOST || ((field)->need & ~caps) != 0)) \
            (field)++;                                                                             \
        NB_ASSERT((field)->name != NULL);                                                          \
    } while (0)

void nb_plan_init(nb_plan *p, nb_caps caps)
{
    p->caps = caps;
    RESOLVE(p->rmsnorm, nb_rmsnorm_variants);
    RESOLVE(p->rope, nb_rope_variants);
    RESOLVE(p->attn, nb_attn_variants);
    RESOLVE(p->attn_prefill, nb_attn_prefill_variants);
    RESOLVE(p->attn_score, nb_attn_score_variants);
    RESOLVE(p->swiglu, nb_swiglu_variants);
    RESOLVE(p->embed, nb_embed_variants);
    RESOLVE(p->route, nb_route_variants);
    RESOLVE(p->kv_codec, nb_kv_codec_variants);
    RESOLVE(p->kv_residual, nb_kv_residual_variants);
    for (int t = 0; t < NB_W_TYPE_COUNT; t++) {
        const nb_linear_variant *v = nb_linear_variants;
        while (v->name &&
               (v->type != (nb_wtype)t || v->space != NB_SPACE_HOST || (v->need & ~caps) != 0))
            v++;
        NB_ASSERT(v->name != NULL);
        p->linear[t] = v;
    }
}

void nb_plan_init_exact(nb_plan *p, nb_caps caps)
{
    nb_plan_init(p, caps & ~(nb_caps)NB_CAP_AMX);
}

void nb_plan_describe(const nb_plan *p, char *buf, size_t n_bytes)
{
    (void)snprintf(
        buf, n_bytes,
        "rmsnorm=%s linear_f32=%s linear_bf16=%s linear_f16=%s linear_fp8b=%s "
        "linear_int8=%s linear_int4=%s linear_fp4=%s rope=%s attn=%s attn_prefill=%s attn_score=%s "
        "swiglu=%s embed=%s route=%s kv_codec=%s kv_residual=%s",
        p->rmsnorm->name, p->linear[NB_W_F32]->name, p->linear[NB_W_BF16]->name,
        p->linear[NB_W_F16]->name, p->linear[NB_W_FP8B]->name, p->linear[NB_W_INT8]->name,
        p->linear[NB_W_INT4]->name, p->linear[NB_W_FP4]->name, p->rope->name, p->attn->name, p->attn_prefill->name, p->attn_score->name, p->swiglu->name,
        p->embed->name, p->route->name, p->kv_codec->name, p->kv_residual->name);
}
