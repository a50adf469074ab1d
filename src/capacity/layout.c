/* layout.c - see layout.h. */
#include "capacity/layout.h"
#include "kv/kv_cache.h"
#include "model/rank.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static size_t more(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The divisors of n up to 256 as words, for an error line. */
static void divisors(size_t n, char *out, size_t n_bytes)
{
    size_t at = 0;
    out[0] = 0;
    for (size_t i = 1; i <= n && i <= 256; i++) {
        if (n % i) continue;
        const int k = snprintf(out + at, n_bytes - at, at ? ", %zu" : "%zu", i);
        if (k < 0 || (size_t)k >= n_bytes - at) return;
        at += (size_t)k;
    }
}

static nb_status check_ep(const nb_demand *d, const nb_layout *l, nb_error *err)
{
    const size_t n = d->sizes->n_expert;
    if (l->ep == 1) return NB_OK;
    if (n == 0)
        return nb_fail(err, NB_ERR_ARG,
                       "expert parallelism over %zu GPUs: this model has no routed experts", l->ep);
    if (l->ep > n)
        return nb_fail(err, NB_ERR_ARG,
                       "expert parallelism over %zu GPUs: there are %zu experts in a layer", l->ep,
                       n);
    if (l->n_gpu % l->ep)
        return nb_fail(err, NB_ERR_ARG,
                       "expert parallelism over %zu GPUs: expected a divisor of the %zu GPUs",
                       l->ep, l->n_gpu);
    return NB_OK;
}

nb_status nb_layout_check(const nb_demand *d, const nb_layout *l, nb_error *err)
{
    const size_t heads = nb_layer_attn(d->config, 0)->n_head;
    if (l->tp == 0 || l->dp == 0 || l->ep == 0 || l->n_gpu == 0 || l->n_gpu > NB_MAX_GPU ||
        l->tp > NB_MAX_GPU || l->dp > NB_MAX_GPU || l->tp * l->dp != l->n_gpu)
        return nb_fail(err, NB_ERR_ARG,
                       "tensor-parallel-size %zu times data-parallel-size %zu is not the number of "
                       "GPUs, %zu (1 to %d)",
                       l->tp, l->dp, l->n_gpu, NB_MAX_GPU);
    if (heads % l->tp) {
        char words[256];
        divisors(heads, words, sizeof words);
        return nb_fail(err, NB_ERR_ARG,
                       "tensor-parallel-size %zu does not divide the %zu heads; expected one of %s",
                       l->tp, heads, words);
    }
    if (l->dcp > 1 && l->dcp != l->tp)
        return nb_fail(err, NB_ERR_ARG,
                       "decode-context-parallel-size %zu: expected 1 or tensor-parallel-size, %zu", l->dcp, l->tp);
    if (!(l->utilization > 0) || l->utilization > 1 || !(l->reserve_bytes >= 0))
        return nb_fail(err, NB_ERR_ARG, "gpu-memory-utilization %g: expected a share in (0, 1]",
                       l->utilization);
    return check_ep(d, l, err);
}

/* Of all routed experts, the bytes on the GPU that has the most. */
static double expert_bytes(const nb_demand *d, const nb_layout *l)
{
    const nb_sizes *s = d->sizes;
    const nb_weight_size *w = &s->weight[d->wtype];
    if (s->n_expert == 0) return 0;
    const size_t most = (s->n_expert + l->ep - 1) / l->ep;
    return (double)w->expert / (double)s->n_expert * (double)most / (double)(l->n_gpu / l->ep);
}

/* nibble keeps W_UK and W_UV beside kv_b on a GPU. */
static double absorbed_bytes(const nb_demand *d)
{
    const nb_sizes *s = d->sizes;
    if (!s->is_mla || d->machine->cpu) return 0;
    if (d->wtype == NB_SIZES_CHECKPOINT) return (double)s->gpu_absorbed_bytes;
    return (double)(d->wtype == NB_SIZES_FP8 ? s->gpu_absorbed_fp8_bytes : s->absorbed_copy_bytes);
}

void nb_layout_place(const nb_demand *d, const nb_layout *l, nb_place *out)
{
    const nb_weight_size *w = &d->sizes->weight[d->wtype];
    const size_t n_kv = nb_layer_attn(d->config, 0)->n_kv_head;
    nb_place p = { 0 };
    p.budget = floor(l->utilization * d->machine->memory_bytes);
    p.replicated = (double)w->replicated;
    p.embed = (double)w->embed / (d->machine->cpu ? (double)l->tp : 1);
    if (l->tp > 1 && !d->machine->cpu) p.embed = (double)w->embed_copy;
    p.dense = (double)(w->bytes - w->expert - w->replicated - w->embed) / (double)l->tp + p.embed;
    p.expert = expert_bytes(d, l);
    if (l->host_layers) {
        p.host = p.expert * (double)l->host_layers / (double)d->sizes->n_moe_layer;
        p.expert -= p.host;
    }
    p.absorbed = absorbed_bytes(d) / (double)l->tp;
    p.weights = p.replicated + p.dense + p.expert + p.absorbed;
    p.cache = floor(p.budget - p.weights - l->reserve_bytes);
    if (!(p.cache > 0)) p.cache = 0;
    p.read_share = 1;
    if (!d->sizes->is_mla && !d->machine->cpu && n_kv)
        p.read_share = (double)((n_kv + l->tp - 1) / l->tp) / (double)n_kv;
    p.n_part = l->dcp > 1 ? (double)l->dcp : 1;
    p.read_share /= p.n_part;
    *out = p;
}

nb_status nb_layout_runs(const nb_demand *d, const nb_layout *l, nb_error *err)
{
    if (l->dcp > 1 && !d->machine->cpu)
        return nb_fail(err, NB_ERR_UNSUPPORTED, "decode-context-parallel-size %zu: GPUs do not divide a context yet", l->dcp);
    if (l->dcp > 1) NB_TRY(nb_rank_can_divide_context(d->config, err));
    if (!d->machine->cpu) NB_TRY(nb_rank_can_on_gpus(d->config, false, l->n_gpu, l->tp, err));
    return nb_rank_can_divide(d->config, l->tp, err);
}

double nb_layout_upload_tok(const nb_demand *d)
{
    enum { ROWS_PER_EXPERT = 32 };
    const nb_sizes *s = d->sizes;
    const bool packed = d->wtype == NB_SIZES_INT4 || d->wtype == NB_SIZES_INT8 ||
                        (d->wtype == NB_SIZES_CHECKPOINT && d->config->quant.method[0]);
    if (!s->n_expert || packed) return 0;
    return ceil(ceil(ROWS_PER_EXPERT * (double)s->n_expert / (double)s->top_k) / NB_PAGE_TOK) *
           NB_PAGE_TOK;
}

size_t nb_layout_fit_host(const nb_demand *d, const nb_layout *l, double n_bytes)
{
    nb_layout t = *l;
    nb_place p;
    for (t.host_layers = 0; t.host_layers < d->sizes->n_moe_layer; t.host_layers++) {
        nb_layout_place(d, &t, &p);
        if (p.cache >= n_bytes) break;
    }
    return t.host_layers;
}

double nb_place_blocks(const nb_place *p, const nb_record_size *r)
{
    const double own = r->block_bytes ? floor(p->cache / (double)r->block_bytes) : 0;
    return p->n_part > 1 ? floor(own / NB_KV_UNIT_BLOCKS) * NB_KV_UNIT_BLOCKS * p->n_part : own;
}

double nb_place_users(const nb_place *p, const nb_record_size *r, double tail_bytes, size_t n_tok)
{
    const double blocks = (double)(n_tok / NB_PAGE_TOK + (n_tok % NB_PAGE_TOK != 0));
    const double one = blocks * (double)r->block_bytes / p->n_part + tail_bytes;
    return one > 0 ? floor(p->cache / one) : 0;
}

/* ---- which layout ------------------------------------------------------- */

/* As many groups of experts as there are GPUs, or the most that fit. */
static size_t expert_groups(const nb_demand *d, const nb_layout *l)
{
    if (d->sizes->n_expert == 0 || l->dp == 1) return 1;
    for (size_t ep = l->n_gpu; ep > 1; ep--)
        if (ep <= d->sizes->n_expert && l->n_gpu % ep == 0) return ep;
    return 1;
}

/* Tokens of cache in all; *weights: bytes per GPU. */
static double tokens_of(const nb_demand *d, const nb_layout *l, double *weights)
{
    const nb_record_size *r = nb_sizes_find_rope(d->sizes, nb_kv_type_name(d->kv), d->rope);
    nb_place p;
    nb_layout_place(d, l, &p);
    *weights = p.weights;
    return r ? nb_place_blocks(&p, r) * NB_PAGE_TOK * (double)l->dp : 0;
}

bool nb_layout_suggest(const nb_demand *d, nb_layout *l)
{
    nb_layout best = *l;
    double best_tokens = -1, best_weights = 0;
    for (size_t tp = 1; tp <= l->n_gpu; tp++) {
        if (l->n_gpu % tp || nb_layer_attn(d->config, 0)->n_head % tp) continue;
        nb_layout t = *l;
        double weights;
        t.tp = tp;
        if (t.dcp > 1) t.dcp = tp; /* as nb_layout_check wants it */
        t.dp = l->n_gpu / tp;
        t.ep = expert_groups(d, &t);
        const double tokens = tokens_of(d, &t, &weights);
        const bool smaller = tokens == 0 && best_tokens == 0 && weights < best_weights;
        if (best_tokens < 0 || tokens > best_tokens || (tokens > 0 && tokens == best_tokens) ||
            smaller) {
            best = t;
            best_tokens = tokens;
            best_weights = weights;
        }
    }
    *l = best;
    return best_tokens > 0;
}

size_t nb_layout_needed(const nb_demand *d, nb_layout *l)
{
    for (size_t n = 1; n <= 1024; n = n < 8 ? n + 1 : more(16, n + 8)) {
        nb_layout t = *l;
        t.n_gpu = n;
        if (!nb_layout_suggest(d, &t)) continue;
        *l = t;
        return n;
    }
    return 0;
}
