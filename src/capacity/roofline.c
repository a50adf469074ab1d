/* roofline.c - see roofline.h. */
#include "capacity/roofline.h"

#include <math.h>

#include "num/traits.h"

/* Fitted to bench/results/gpu_h100.json and gpu_h100_runs.json (DeepSeek-V2-Lite's shape, BF16 weights, one H100, commit
 * 1eb11ed): the decode points with nvfp4, fp8 and bf16 pages, 512 to 131,072 tokens, 1 to 64 sequences, are each met within
 * 8 % by 0.90 (up to 8 sequences) and 0.73 (from 32 on) for weights, 0.54, 0.75 and 0.84 for the cache, of 3.35 TB/s, and
 * 40 us a layer.  FP8 weights (nine points): within 10 % by 0.54 and 0.42; no device ran other narrow ones, which get
 * the same.
 * attention: 64 and 128 heads take 350 and 668 us for 2^20 tokens of nvfp4, 0.43 and 0.44 of 989 TFLOP/s.  prefill:
 * 43,204 tokens/s are 0.26 of it.  tests/unit/test_capacity_machine.c has the points.  Exchanges: SGLang's all-reduce
 * among eight H100, up to 32 KB, 5.7 to 7.8 us (SGLang PR 2904). */
const nb_efficiency nb_efficiency_gpu = {
    .weights_few = 0.90,
    .weights = 0.73,
    .narrow_few = 0.54,
    .narrow = 0.42,
    .cache = 0.54,
    .cache_fp8 = 0.75,
    .cache_wide = 0.84,
    .attention = 0.43,
    .prefill = 0.25,
    .layer_s = 40e-6,
    .reduce_s = 6e-6,
    .source = "measured on one H100 (docs/gpu.md); on other devices an assumption",
};

/* The tables of docs/performance.md, AVX2: cold linear BF16 of one token 1.2 times its floor, attention
 * over pages 2.0 (nvfp4), 2.4 (fp8) and 2.2 (bf16), products of 512 tokens 2.5. */
const nb_efficiency nb_efficiency_cpu = {
    .weights_few = 0.83,
    .weights = 0.83,
    .narrow_few = 0.83,
    .narrow = 0.83,
    .cache = 0.5,
    .cache_fp8 = 0.42,
    .cache_wide = 0.45,
    .attention = 0.5,
    .prefill = 0.4,
    .source =
        "measured on two cores with AVX2 (docs/performance.md), of the read rate that the machine shows",
};

nb_efficiency nb_efficiency_flat(double fraction)
{
    return (nb_efficiency){ .weights_few = fraction,
                            .weights = fraction,
                            .narrow_few = fraction,
                            .narrow = fraction,
                            .cache = fraction,
                            .cache_fp8 = fraction,
                            .cache_wide = fraction,
                            .attention = fraction,
                            .prefill = fraction,
                            .source = "--efficiency" };
}

const char *nb_bound_name(nb_bound b)
{
    static const char *const name[NB_BOUND_COUNT] = { "weights", "products", "cache", "attention",
                                                      "host" };
    return name[b];
}

const char *nb_bound_text(nb_bound b)
{
    static const char *const text[NB_BOUND_COUNT] = { "bandwidth: weights", "arithmetic: products",
                                                      "bandwidth: cache", "arithmetic: attention",
                                                      "bandwidth: host" };
    return text[b];
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* ---- parts of the model --------------------------------------------------- */

/* Parameters that one token meets. */
typedef struct params {
    double replicated, dense, expert,
        head; /* dense: without the head; expert: top_k of each layer */
} params;

static params params_of(const nb_demand *d)
{
    const nb_sizes *s = d->sizes;
    const nb_weight_size *w = &s->weight[NB_SIZES_BF16];
    params p;
    p.replicated = (double)w->replicated / 2;
    p.expert = (double)s->n_moe_layer * (double)s->top_k * (double)w->one_expert / 2;
    p.head = (double)d->config->n_vocab * (double)d->config->hidden;
    p.dense = larger(0, (double)s->n_param_active - p.replicated - p.expert - p.head);
    return p;
}

/* Different experts of a layer that n_tok tokens hit. */
static double experts_hit(const nb_sizes *s, double n_tok)
{
    const double n = (double)s->n_expert;
    if (n == 0) return 0;
    return n * (1 - pow(1 - (double)s->top_k / n, n_tok));
}

/* Bytes of weights that a step reads on a GPU. */
static double weights_read(const nb_demand *d, const nb_place *p, double hit)
{
    const double dense = p->dense - p->embed;
    const double part = d->sizes->n_expert ? hit / (double)d->sizes->n_expert : 0;
    return p->replicated + dense + p->expert * part;
}

/* Of experts that the host computes: the rate of its memory, and a wait in each layer. */
static double host_s(const nb_layout *l, double bytes, bool modelled)
{
    enum { WAIT_US = 100 }; /* bench/results/experts_h100.json */
    if (!l->host_layers || !(l->host_bandwidth > 0)) return 0;
    if (!modelled) return bytes / l->host_bandwidth;
    return bytes / l->host_bandwidth / nb_efficiency_cpu.weights +
           (double)l->host_layers * WAIT_US * 1e-6;
}

/* Whether linear weights are decoded before they are multiplied: they have well under 16 bits. */
static bool is_narrow(const nb_demand *d)
{
    const nb_weight_size *w = d->sizes->weight;
    return (double)w[d->wtype].bytes < 0.75 * (double)w[NB_SIZES_BF16].bytes;
}

enum { MANY_ROWS = 32 }; /* from here on the fraction no longer falls: steps of many, prompts */

/* Of the bandwidth, reading weights for n_row sequences: between 8 and 32 by the logarithm. */
static double weights_fraction(const nb_demand *d, const nb_efficiency *e, double n_row)
{
    const bool narrow = is_narrow(d);
    const double many = narrow ? e->narrow : e->weights;
    const double few = narrow ? e->narrow_few : e->weights_few;
    return many +
           log2(MANY_ROWS / larger(8, n_row < MANY_ROWS ? n_row : MANY_ROWS)) / 2 * (few - many);
}

/* ---- decode --------------------------------------------------------------- */

/* Exchanges of a step: two all-reduces a layer where tp > 1; where experts are on other replicas'
 * GPUs, rows go there and back, in BF16. */
static double exchange_s(const nb_demand *d, const nb_layout *l, const nb_efficiency *e,
                         double n_seq)
{
    const double row = (double)d->config->hidden * 2, tp = (double)l->tp;
    const double link = d->machine->link;
    double s = 0;
    if (l->tp > 1) {
        const double bytes = n_seq * row * 2 * (tp - 1) / tp;
        s += 2 * (double)d->sizes->n_layer * (e->reduce_s + (link > 0 ? bytes / link : 0));
    }
    if (l->dp > 1 && d->sizes->n_expert) {
        const double bytes = n_seq / tp * row * (double)d->sizes->top_k;
        s += 2 * (double)d->sizes->n_moe_layer * (e->reduce_s + (link > 0 ? bytes / link : 0));
    }
    return s;
}

static nb_bound longest(const double t[NB_BOUND_COUNT])
{
    int b = 0;
    for (int i = 1; i < NB_BOUND_COUNT; i++)
        if (t[i] > t[b]) b = i;
    return (nb_bound)b;
}

/* Fills the sums; t: the times. */
static void add_up(nb_time *out, const double t[NB_BOUND_COUNT], double other_s, double concurrency)
{
    out->products_s = larger(t[NB_BOUND_WEIGHTS], t[NB_BOUND_PRODUCTS]);
    out->attention_s = larger(t[NB_BOUND_CACHE], t[NB_BOUND_ATTENTION]);
    out->host_s = t[NB_BOUND_HOST];
    out->other_s = other_s;
    out->total_s = out->products_s + out->attention_s + out->host_s + other_s;
    out->tok_s = out->total_s > 0 ? concurrency / out->total_s : 0;
}

static double cache_fraction(const nb_efficiency *e, nb_kv_type type)
{
    const unsigned bits = nb_kv_bits(type);
    return bits >= 16 ? e->cache_wide : bits == 8 ? e->cache_fp8 : e->cache;
}

/* Pairs of a query with n cached tokens that are computed: sparse attention leaves some out. */
static double pairs_computed(const nb_sizes *s, double n)
{
    return s->attn_most_pairs > 0 && n > s->attn_most_pairs ? s->attn_most_pairs : n;
}

void nb_step_of(const nb_demand *d, const nb_layout *l, const nb_record_size *r,
                const nb_efficiency *e, double concurrency, double context, nb_step *out)
{
    const nb_machine *m = d->machine;
    const params k = params_of(d);
    const double tp = (double)l->tp;
    nb_place p;
    nb_step s = { 0 };
    nb_layout_place(d, l, &p);
    s.n_seq = ceil(concurrency / (double)l->dp);
    s.experts_read = experts_hit(d->sizes, concurrency);
    s.weight_bytes = weights_read(d, &p, s.experts_read);
    if (d->sizes->n_expert) s.host_bytes = p.host * s.experts_read / (double)d->sizes->n_expert;
    const nb_sizes *z = d->sizes;
    const double pairs = pairs_computed(z, context), choose = z->choose_bytes_tok;
    s.cache_bytes = s.n_seq * ((context * choose + pairs * (r->attn_bytes_tok - choose)) * p.read_share +
                               2 * (double)z->state_bytes); /* states are read and written */
    s.product_flop = 2 * s.n_seq * (k.replicated + (k.dense + k.head) / tp) +
                     2 * k.expert * concurrency / (double)l->n_gpu;
    /* every rank chooses for itself */
    s.attention_flop = s.n_seq * (pairs * z->attn_flop_decode / tp + context * z->attn_flop_choose);

    const double cache = cache_fraction(e, r->type);
    const double most[NB_BOUND_COUNT] = { s.weight_bytes / m->bandwidth, s.product_flop / m->bf16,
                                          s.cache_bytes / m->bandwidth,
                                          s.attention_flop / m->bf16,
                                          host_s(l, s.host_bytes, false) };
    const double weights = weights_fraction(d, e, d->sizes->n_expert ? concurrency : s.n_seq);
    const double model[NB_BOUND_COUNT] = { most[0] / weights, most[1] / e->prefill, most[2] / cache,
                                           most[3] / e->attention,
                                           host_s(l, s.host_bytes, true) };
    s.bound = longest(most);
    add_up(&s.most, most, 0, concurrency);
    add_up(&s.model, model, (double)d->sizes->n_layer * e->layer_s + exchange_s(d, l, e, s.n_seq),
           concurrency);
    *out = s;
}

/* ---- prefill -------------------------------------------------------------- */

/* Products and attention of prompt tokens, in operations. */
typedef struct prompt_flop {
    double replicated, dense, expert, attention; /* dense: with the keys that are rebuilt */
} prompt_flop;

static prompt_flop prompt_flop_of(const nb_demand *d, const params *k, const nb_prompt_work *w)
{
    const nb_sizes *s = d->sizes;
    prompt_flop f = { .replicated = 2 * k->replicated * w->n_tok,
                      .dense = 2 * k->dense * w->n_tok + s->expand_flop_tok * w->rebuilt,
                      .expert = 2 * k->expert * w->n_tok,
                      .attention = s->attn_flop_prefill * w->pairs };
    const double most = w->n_tok * s->attn_most_pairs;
    if (most > 0 && w->pairs > most) { /* on average a token sees more than it attends to */
        f.dense = 2 * k->dense * w->n_tok;
        f.attention = s->attn_flop_decode * most + s->attn_flop_choose * w->pairs;
    }
    return f;
}

void nb_prefill_after(const nb_demand *d, const nb_layout *l, const nb_efficiency *e, double n_tok,
                      double n_cached, double chunk, nb_prefill *out)
{
    const nb_machine *m = d->machine;
    const params k = params_of(d);
    const double tp = (double)l->tp, dp = (double)l->dp, n_step = ceil(n_tok / chunk);
    nb_place p;
    nb_prefill s = { 0 };
    nb_layout_place(d, l, &p);
    /* chunk i rebuilds the keys of what is cached and of the i * chunk tokens before it */
    const nb_prompt_work w = { .n_tok = n_tok,
                               .pairs = n_tok * n_cached + n_tok * (n_tok + 1) / 2,
                               .rebuilt = n_step * n_cached + chunk * n_step * (n_step - 1) / 2 };
    const prompt_flop f = prompt_flop_of(d, &k, &w);
    s.flop = f.replicated + f.dense + f.expert + f.attention;
    s.attention_fraction = s.flop > 0 ? f.attention / s.flop : 0;

    const double hit = experts_hit(d->sizes, n_tok < chunk ? n_tok : chunk);
    const double read = n_step * weights_read(d, &p, hit) / m->bandwidth;
    const double alone =
        (f.replicated + (f.dense + f.attention) / tp + f.expert / (double)l->n_gpu) / m->bf16;
    const double busy = (f.replicated + (f.dense + f.attention + f.expert) / tp) / m->bf16;
    const double other = n_step * (double)d->sizes->n_layer * e->layer_s +
                         n_step * exchange_s(d, l, e, n_tok / n_step);
    const double weights = weights_fraction(d, e, MANY_ROWS);
    const double unit = nb_layout_upload_tok(d);
    const bool upload = l->host_layers && unit > 0 && n_tok >= unit;
    const double sent = upload && l->host_link > 0 ? n_step * p.host / l->host_link : 0;
    const double part = d->sizes->n_expert ? hit / (double)d->sizes->n_expert : 0;
    const double on_host = upload ? 0 : host_s(l, p.host * part, false);
    s.sends_experts = sent > larger(alone, read);
    s.reads_weights = read > alone && !s.sends_experts;
    s.most_s = larger(larger(alone, read), sent) + on_host;
    s.model_s = larger(larger(alone / e->prefill, read / weights), sent) + on_host + other;
    s.most_tok_s = dp * n_tok / (larger(larger(busy, read), sent) + on_host);
    s.model_tok_s = dp * n_tok /
                    (larger(larger(busy / e->prefill, read / weights), sent) + on_host + other);
    *out = s;
}

void nb_prefill_of(const nb_demand *d, const nb_layout *l, const nb_efficiency *e, double n_tok,
                   double chunk, nb_prefill *out)
{
    nb_prefill_after(d, l, e, n_tok, 0, chunk, out);
}

/* ---- both in one step ------------------------------------------------------ */

/* Of the busiest replica: prompts are dealt evenly, as far as one is not divided. */
static nb_prompt_work busiest(const nb_mixed *m, double dp)
{
    return (nb_prompt_work){ .n_tok = larger(m->largest.n_tok, m->all.n_tok / dp),
                             .pairs = larger(m->largest.pairs, m->all.pairs / dp),
                             .rebuilt = larger(m->largest.rebuilt, m->all.rebuilt / dp) };
}

double nb_mixed_s(const nb_demand *d, const nb_layout *l, const nb_record_size *r,
                  const nb_efficiency *e, const nb_mixed *m)
{
    nb_step s = { 0 };
    if (m->n_seq > 0) nb_step_of(d, l, r, e, m->n_seq, m->context, &s);
    if (!(m->all.n_tok > 0)) return s.model.total_s;
    const params k = params_of(d);
    const nb_prompt_work b = busiest(m, (double)l->dp);
    const prompt_flop f = prompt_flop_of(d, &k, &b);
    nb_place p;
    nb_layout_place(d, l, &p);
    double flop = f.replicated + (f.dense + f.attention) / (double)l->tp +
                  2 * k.expert * m->all.n_tok / (double)l->n_gpu;
    double before_s = s.model.total_s, n_row = b.n_tok, n_tok = m->all.n_tok;
    if (d->machine->cpu || !d->sizes->is_mla) {
        /* one pass over the layers for both */
        before_s = s.model.attention_s;
        flop += s.product_flop;
        n_row += s.n_seq;
        n_tok += m->n_seq;
    }
    const double read = weights_read(d, &p, experts_hit(d->sizes, n_tok));
    return before_s +
           larger(flop / d->machine->bf16 / e->prefill,
                  read / d->machine->bandwidth / weights_fraction(d, e, MANY_ROWS)) +
           (double)d->sizes->n_layer * e->layer_s + exchange_s(d, l, e, n_row);
}
