/* plan.c - see plan.h.  Every table ends with a row that runs anywhere. */
#include "model/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/attr.h"
#include "base/status.h"
#include "kernel/linear/packed.h"

#define RESOLVE(field, table)                                                                      \
    do {                                                                                           \
        (field) = (table);                                                                         \
        while ((field)->name && ((field)->space != NB_SPACE_HOST || ((field)->need & ~caps) != 0)) \
            (field)++;                                                                             \
        NB_ASSERT((field)->name != NULL);                                                          \
    } while (0)

/* docs/decisions/031: where rounding activations costs less than rounding the weights has cost. */
static nb_act act_of(nb_wtype t)
{
    return t == NB_W_INT8 || nb_wtype_is_packed(t) ? NB_ACT_INT8 : NB_ACT_FLOAT;
}

bool nb_acts_parse(const char *name, nb_acts *out)
{
    static const char *const names[NB_ACT_COUNT] = { "float", "bf16", "int16", "int8", "fp8" };
    nb_act act = NB_ACT_FLOAT;
    out->asked = name && strcmp(name, "auto") != 0;
    while (out->asked && act < NB_ACT_COUNT && strcmp(name, names[act]) != 0) act++;
    for (int t = 0; t < NB_W_TYPE_COUNT; t++) out->of[t] = out->asked ? act : act_of((nb_wtype)t);
    return act < NB_ACT_COUNT;
}

void nb_plan_init(nb_plan *p, nb_caps caps, const nb_acts *acts)
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
    RESOLVE(p->kda, nb_kda_variants);
    RESOLVE(p->index_score, nb_index_score_variants);
    RESOLVE(p->index_topk, nb_index_topk_variants);
    for (int t = 0; t < NB_W_TYPE_COUNT; t++) {
        p->linear[t] = nb_linear_find((nb_wtype)t, acts ? acts->of[t] : NB_ACT_FLOAT, caps);
        p->linear_float[t] = nb_linear_find((nb_wtype)t, NB_ACT_FLOAT, caps);
        NB_ASSERT(p->linear[t] && p->linear_float[t]);
    }
}

void nb_plan_init_exact(nb_plan *p, nb_caps caps, const nb_acts *acts)
{
    nb_plan_init(p, caps & ~(nb_caps)(NB_CAP_AMX | NB_CAP_AVX512BF16),
                 acts && acts->asked ? acts : NULL);
}

void nb_plan_describe(const nb_plan *p, char *buf, size_t n_bytes)
{
    static const nb_wtype shown[] = { NB_W_F32,  NB_W_BF16, NB_W_F16, NB_W_FP8B,
                                      NB_W_INT8, NB_W_INT4, NB_W_FP4, NB_W_Q4_K };
    static const char *const form[NB_ACT_COUNT] = { "", "+bf16", "+int16", "+int8", "+fp8" };
    size_t n = (size_t)snprintf(buf, n_bytes, "rmsnorm=%s", p->rmsnorm->name);
    for (size_t i = 0; i < NB_COUNT(shown) && n < n_bytes; i++)
        n += (size_t)snprintf(buf + n, n_bytes - n, " linear_%s=%s%s", nb_wtypes[shown[i]].word,
                              p->linear[shown[i]]->name, form[p->linear[shown[i]]->act]);
    if (n >= n_bytes) return;
    (void)snprintf(buf + n, n_bytes - n,
                   " rope=%s attn=%s attn_prefill=%s attn_score=%s swiglu=%s embed=%s route=%s "
                   "kv_codec=%s kv_residual=%s kda=%s",
                   p->rope->name, p->attn->name, p->attn_prefill->name, p->attn_score->name,
                   p->swiglu->name, p->embed->name, p->route->name, p->kv_codec->name,
                   p->kv_residual->name, p->kda->name);
}

void nb_levels_all(nb_levels *l)
{
    for (int t = 0; t < NB_W_TYPE_COUNT; t++) l->linear[t] = NB_CAPS_ALL;
    l->attn_pages = l->attn_prefill = NB_CAPS_ALL;
}

void nb_plan_limit(nb_plan *p, const nb_levels *l)
{
    for (int t = 0; t < NB_W_TYPE_COUNT; t++) {
        const nb_caps may = p->caps & l->linear[t];
        p->linear[t] = nb_linear_find((nb_wtype)t, p->linear[t]->act, may);
        p->linear_float[t] = nb_linear_find((nb_wtype)t, NB_ACT_FLOAT, may);
        NB_ASSERT(p->linear[t] && p->linear_float[t]);
    }
    const nb_caps caps = p->caps & l->attn_prefill;
    RESOLVE(p->attn_prefill, nb_attn_prefill_variants);
}
