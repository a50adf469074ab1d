/* plan.h - the kernels a model runs with: for each operation the first row of its
 * table whose needs the capability mask meets.  Plain data, immutable. */
#ifndef NB_MODEL_PLAN_H
#define NB_MODEL_PLAN_H
#include "kernel/attn/attn.h"
#include "kernel/attn_prefill/attn_prefill.h"
#include "kernel/attn_score/attn_score.h"
#include "kernel/embed/embed.h"
#include "kernel/index_score/index_score.h"
#include "kernel/index_topk/index_topk.h"
#include "kernel/kda/kda.h"
#include "kernel/kv_codec/kv_codec.h"
#include "kernel/kv_residual/kv_residual.h"
#include "kernel/linear/linear.h"
#include "kernel/rmsnorm/rmsnorm.h"
#include "kernel/rope/rope.h"
#include "kernel/route/route.h"
#include "kernel/swiglu/swiglu.h"

/* --activation-dtype: the form of activations for each type of weights. */
typedef struct nb_acts {
    nb_act of[NB_W_TYPE_COUNT];
    bool asked; /* by name; false: auto */
} nb_acts;

/* "auto" (NULL, too), "float", "bf16", "int16", "int8" or "fp8"; auto is docs/decisions/031.  Else false. */
bool nb_acts_parse(const char *name, nb_acts *out);

typedef struct nb_plan {
    nb_caps caps;
    const nb_rmsnorm_variant *rmsnorm;
    const nb_linear_variant *linear[NB_W_TYPE_COUNT];
    const nb_linear_variant *linear_float[NB_W_TYPE_COUNT]; /* for routers: a rounded input may choose
                                                               another expert */
    const nb_rope_variant *rope;
    const nb_attn_variant *attn;
    const nb_attn_prefill_variant *attn_prefill;
    const nb_attn_score_variant *attn_score;
    const nb_swiglu_variant *swiglu;
    const nb_embed_variant *embed;
    const nb_route_variant *route;
    const nb_kv_codec_variant *kv_codec;
    const nb_kv_residual_variant *kv_residual;
    const nb_kda_variant *kda;
    const nb_index_score_variant *index_score;
    const nb_index_topk_variant *index_topk;
} nb_plan;

/* acts NULL: floats. */
void nb_plan_init(nb_plan *p, nb_caps caps, const nb_acts *acts);
/* The same with float products only, unless acts asks for others, for caches that keep floats: AMX rows read
 * activations in two BF16 parts (2^-17) and prompts' keys and values in one. */
void nb_plan_init_exact(nb_plan *p, nb_caps caps, const nb_acts *acts);
/* "rmsnorm=avx2 linear_bf16=avx2 linear_int8=avx512+int8 ..." into buf, always terminated: the level, and the
 * form of activations where it is not float. */
void nb_plan_describe(const nb_plan *p, char *buf, size_t n_bytes);

/* The instruction set levels that an operation may use, as measured (engine/tune.h); all bits: any. */
typedef struct nb_levels {
    nb_caps linear[NB_W_TYPE_COUNT], attn_pages, attn_prefill;
} nb_levels;
void nb_levels_all(nb_levels *l);
/* Chooses again within these levels. */
void nb_plan_limit(nb_plan *p, const nb_levels *l);

#endif
