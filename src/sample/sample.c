/* sample.c - logits processors and the draw; see sample.h for the order of steps.
 *
 * The draw needs the set of tokens that stay, not their order: cumulated weights in
 * order of ids are as good as any other fixed order, and need no sort.  So top_k and
 * top_p both come down to one question: which token is the last that stays?  For a
 * budget b and weights v (1 for top_k, the probability weight for top_p), a token
 * stays when the tokens better than it weigh less than b.  keep_best() answers it: 2048 bins
 * of equal width between the least candidate and the best, then, in the bin where the budget
 * ends, a radix selection over the bits of the logits, in digits of 11, 11 and 10 bits.  Starting
 * with the radix was slower: its first digit, sign, exponent and two bits, puts all logits in a
 * few places of the table, and each addition waits for the one before.  A partial sort by heap
 * is as fast for small nuclei and n log n for flat distributions.
 *
 * What is wanted before that is few candidates, found by passes over the row that vectorise
 * (row.h).  For top_k, the k-th of the largest logits of blocks is a bound from below; for top_p,
 * lightest_to_stay() is.  A row of 129,280 is then bound by the passes themselves: two or three for
 * the largest and the weights, one to collect. */
#include "sample/sample.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "sample/row.h"

enum { RADIX = 2048 };
#define WEIGHT_FLOOR (-60.0) /* log of the smallest weight: e^-60 * 2^18 tokens < 2^-53 */
#define GREEDY_BELOW 1e-5    /* vLLM's _SAMPLING_EPS */

/* A token of the prompt or the output; a table of them by id, open addressing. */
typedef struct seen_tok {
    uint32_t id1; /* id + 1; 0: an empty place */
    uint32_t n_out;
} seen_tok;

struct nb_sampler {
    nb_sample_params p; /* without its pointers */
    size_t n_vocab, n_generated;
    nb_sample_bias *bias;
    uint32_t *end_id;
    bool greedy, penalise, modify;
    /* Penalties: only ids that occurred, so that a step costs as much as there are of them. */
    seen_tok *seen; /* [cap_seen], a power of two, at most half full */
    size_t n_seen, cap_seen;
};

struct nb_sample_scratch {
    float *work;       /* [n_vocab] processed logits */
    float *weight;     /* [n_vocab] of all tokens, or of the candidates */
    float *block_max;  /* [n_blocks] of the processed logits */
    double *block_sum; /* [n_blocks] of weight */
    uint32_t *cand;    /* [n_vocab] candidates: ids, in order */
    uint32_t *key;     /* [n_vocab] what find_bound() selects from */
    uint32_t *part;    /* [n_vocab] positions in key, scratch of find_bound() */
    double mass[RADIX];
};

size_t nb_sample_scratch_bytes(size_t n_vocab)
{
    return sizeof(nb_sample_scratch) + n_vocab * (2 * sizeof(float) + 3 * sizeof(uint32_t)) +
           nb_row_n_blocks(n_vocab) * (sizeof(float) + sizeof(double));
}

nb_status nb_sample_scratch_create(size_t n_vocab, nb_sample_scratch **out, nb_error *err)
{
    const size_t n_blocks = nb_row_n_blocks(n_vocab);
    nb_sample_scratch *x = calloc(1, sizeof *x);
    if (x) {
        x->work = calloc(n_vocab, sizeof *x->work);
        x->weight = calloc(n_vocab, sizeof *x->weight);
        x->block_max = calloc(n_blocks, sizeof *x->block_max);
        x->block_sum = calloc(n_blocks, sizeof *x->block_sum);
        x->cand = calloc(n_vocab, sizeof *x->cand);
        x->key = calloc(n_vocab, sizeof *x->key);
        x->part = calloc(n_vocab, sizeof *x->part);
    }
    if (!x || !x->work || !x->weight || !x->block_max || !x->block_sum || !x->cand || !x->key ||
        !x->part) {
        nb_sample_scratch_destroy(x);
        return nb_fail(err, NB_ERR_NOMEM, "no memory to sample from %zu tokens", n_vocab);
    }
    *out = x;
    return NB_OK;
}

void nb_sample_scratch_destroy(nb_sample_scratch *x)
{
    if (!x) return;
    free(x->work);
    free(x->weight);
    free(x->block_max);
    free(x->block_sum);
    free(x->cand);
    free(x->key);
    free(x->part);
    free(x);
}

static void *alloc_or_fail(size_t n, size_t item_bytes, bool *ok)
{
    if (n == 0) return NULL;
    void *p = calloc(n, item_bytes);
    if (!p) *ok = false;
    return p;
}

static void copy_lists(nb_sampler *s, const nb_sample_params *p)
{
    if (p->n_logit_bias) memcpy(s->bias, p->logit_bias, p->n_logit_bias * sizeof *s->bias);
    if (p->n_end_id) memcpy(s->end_id, p->end_id, p->n_end_id * sizeof *s->end_id);
    s->p.logit_bias = NULL;
    s->p.end_id = NULL;
}

nb_status nb_sampler_create(const nb_sample_params *p, size_t n_vocab, nb_sampler **out,
                            nb_error *err)
{
    NB_TRY(nb_sample_params_check(p, n_vocab, err));
    nb_sampler *s = calloc(1, sizeof *s);
    if (!s) return nb_fail(err, NB_ERR_NOMEM, "no memory for a sampler");
    s->p = *p;
    s->n_vocab = n_vocab;
    s->greedy = p->temperature < GREEDY_BELOW;
    s->penalise =
        p->repetition_penalty != 1 || p->presence_penalty != 0 || p->frequency_penalty != 0;
    s->modify = s->penalise || p->n_logit_bias || (p->n_end_id && p->min_tokens);
    bool ok = true;
    s->bias = alloc_or_fail(p->n_logit_bias, sizeof *s->bias, &ok);
    s->end_id = alloc_or_fail(p->n_end_id, sizeof *s->end_id, &ok);
    if (!ok) {
        nb_sampler_destroy(s);
        return nb_fail(err, NB_ERR_NOMEM, "no memory for a sampler");
    }
    copy_lists(s, p);
    *out = s;
    return NB_OK;
}

void nb_sampler_destroy(nb_sampler *s)
{
    if (!s) return;
    free(s->bias);
    free(s->end_id);
    free(s->seen);
    free(s);
}

size_t nb_sampler_n_generated(const nb_sampler *s)
{
    return s->n_generated;
}

/* The place of id in the table, or the empty one where it belongs. */
static seen_tok *seen_place(seen_tok *seen, size_t cap, uint32_t id)
{
    size_t i = (size_t)nb_mix64(id) & (cap - 1);
    while (seen[i].id1 != 0 && seen[i].id1 != id + 1) i = (i + 1) & (cap - 1);
    return &seen[i];
}

/* Room for one more id. */
static nb_status seen_reserve(nb_sampler *s)
{
    if (s->n_seen + 1 <= s->cap_seen / 2) return NB_OK;
    const size_t cap = s->cap_seen ? s->cap_seen * 2 : 64;
    seen_tok *seen = calloc(cap, sizeof *seen);
    if (!seen) return NB_ERR_NOMEM;
    for (size_t i = 0; i < s->cap_seen; i++)
        if (s->seen[i].id1) *seen_place(seen, cap, s->seen[i].id1 - 1) = s->seen[i];
    free(s->seen);
    s->seen = seen;
    s->cap_seen = cap;
    return NB_OK;
}

static seen_tok *note_seen(nb_sampler *s, uint32_t id)
{
    seen_tok *t = seen_place(s->seen, s->cap_seen, id);
    if (t->id1 == 0) {
        t->id1 = id + 1;
        s->n_seen++;
    }
    return t;
}

nb_status nb_sampler_accept_prompt(nb_sampler *s, const uint32_t *ids, size_t n_ids)
{
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] >= s->n_vocab) return NB_ERR_RANGE;
    for (size_t i = 0; s->penalise && i < n_ids; i++) {
        NB_TRY(seen_reserve(s));
        (void)note_seen(s, ids[i]);
    }
    return NB_OK;
}

/* ---- log-probabilities ------------------------------------------------- */

/* Most blocks have nothing that is among the k best so far. */
static size_t best_logits(const float *x, size_t n, size_t k, nb_sample_logprob *top)
{
    size_t m = 0;
    for (size_t i0 = 0; k > 0 && i0 < n; i0 += NB_ROW_BLOCK) {
        const size_t n_block = n - i0 < NB_ROW_BLOCK ? n - i0 : NB_ROW_BLOCK;
        if (m == k && nb_row_block_max(x + i0, n_block) <= top[m - 1].logprob) continue;
        for (size_t i = i0; i < i0 + n_block; i++) {
            if (m == k && x[i] <= top[m - 1].logprob) continue;
            size_t j = m < k ? m++ : m - 1;
            for (; j > 0 && x[i] > top[j - 1].logprob; j--) top[j] = top[j - 1];
            top[j] = (nb_sample_logprob){ (uint32_t)i, x[i] };
        }
    }
    return m;
}

/* Fills out->top and out->logprob; best is the index of the largest of x. */
static void raw_logprobs(const float *x, size_t n_vocab, size_t n_top, size_t best,
                         nb_sample_out *out)
{
    const double shift = (double)x[best];
    const double least = fmax(shift + WEIGHT_FLOOR, -(double)FLT_MAX);
    const nb_row_scale scale = { .top = x[best], .inv_t = 1, .least = (float)least };
    const double log_sum = log(nb_row_weigh(x, n_vocab, &scale, NULL, NULL, NULL));
    out->n_top = best_logits(x, n_vocab, n_top, out->top);
    for (size_t i = 0; i < out->n_top; i++)
        out->top[i].logprob = (float)((double)x[out->top[i].id] - shift - log_sum);
    out->logprob = (float)((double)x[out->id] - shift - log_sum);
}

nb_status nb_sample_logprobs(const float *logits, size_t n_vocab, uint32_t id, size_t n_top,
                             nb_sample_out *out)
{
    size_t best;
    if (!nb_row_max(logits, n_vocab, NULL, &best)) return NB_ERR_NONFINITE;
    out->id = id;
    raw_logprobs(logits, n_vocab, n_top, best, out);
    return NB_OK;
}

/* ---- processors -------------------------------------------------------- */

static void apply_penalties(const nb_sampler *s, float *work)
{
    const float rep = (float)s->p.repetition_penalty;
    const float freq = (float)s->p.frequency_penalty;
    const float pres = (float)s->p.presence_penalty;
    for (size_t i = 0; i < s->cap_seen; i++) {
        const seen_tok t = s->seen[i];
        if (t.id1 == 0) continue;
        float l = work[t.id1 - 1];
        l = l > 0 ? l / rep : l * rep;
        if (t.n_out) {
            l -= freq * (float)t.n_out;
            l -= pres;
        }
        work[t.id1 - 1] = l;
    }
}

static void apply_mask(float *work, size_t n_vocab, const nb_sample_mask *mask)
{
    const size_t n = mask->n_id < n_vocab ? mask->n_id : n_vocab;
    for (size_t i = 0; i < n; i += 64) {
        const uint64_t w = mask->bits[i / 64];
        const size_t m = n - i < 64 ? n - i : 64;
        if (w == 0)
            for (size_t k = 0; k < m; k++) work[i + k] = -INFINITY;
        else if (w != UINT64_MAX)
            for (size_t k = 0; k < m; k++)
                if (!(w >> k & 1)) work[i + k] = -INFINITY;
    }
    for (size_t i = n; i < n_vocab; i++) work[i] = -INFINITY;
}

/* hold: min_tokens keeps ends of text away. */
static const float *process(const nb_sampler *s, float *work, const float *logits,
                            const nb_sample_mask *mask, bool hold)
{
    if (!s->modify && !mask) return logits;
    memcpy(work, logits, s->n_vocab * sizeof *work);
    for (size_t i = 0; i < s->p.n_logit_bias; i++) work[s->bias[i].id] += s->bias[i].bias;
    if (hold && s->n_generated < s->p.min_tokens)
        for (size_t i = 0; i < s->p.n_end_id; i++) work[s->end_id[i]] = -INFINITY;
    if (mask) apply_mask(work, s->n_vocab, mask);
    if (s->penalise) apply_penalties(s, work);
    return work;
}

/* ---- selection --------------------------------------------------------- */

/* Larger logits have larger keys; -0 and 0 have the same. */
static uint32_t sort_key(float x)
{
    uint32_t u;
    const float y = x + 0.0f;
    memcpy(&u, &y, sizeof u);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* The digit in which the budget ends: going down from the largest digit, the first
 * one that brings *better to `budget` or beyond, else the lowest that is not empty.
 * *better becomes the mass of the digits above it. */
static uint32_t boundary_digit(const double *mass, double budget, double *better)
{
    uint32_t last = 0;
    double before_last = *better, sum = *better;
    for (uint32_t d = RADIX; d-- > 0;) {
        if (!(mass[d] > 0)) continue;
        last = d;
        before_last = sum;
        sum += mass[d];
        if (sum >= budget) break;
    }
    *better = before_last;
    return last;
}

/* The last that stays of those at c->part[0..n), n > 0, in order of their c->key: the last whose
 * betters weigh less than budget, with weights v[], or 1 each where v is NULL.  better: what is
 * better than all of them weighs that much already. */
static uint32_t last_to_stay(nb_sample_scratch *c, size_t n, const float *v, double budget,
                             double better)
{
    static const struct {
        unsigned shift, mask;
    } level[] = { { 21, 0x7ff }, { 10, 0x7ff }, { 0, 0x3ff } };
    for (size_t k = 0; k < NB_COUNT(level); k++) {
        memset(c->mass, 0, sizeof c->mass);
        for (size_t i = 0; i < n; i++) {
            const uint32_t j = c->part[i];
            c->mass[c->key[j] >> level[k].shift & level[k].mask] += v ? (double)v[j] : 1.0;
        }
        const uint32_t digit = boundary_digit(c->mass, budget, &better);
        size_t m = 0;
        for (size_t i = 0; i < n; i++) { /* no branch: it would be mispredicted */
            const uint32_t j = c->part[i];
            c->part[m] = j;
            m += (c->key[j] >> level[k].shift & level[k].mask) == digit;
        }
        n = m;
    }
    /* What is left has equal keys: the first ones stay. */
    uint32_t last = c->part[0];
    for (size_t i = 0; i < n && better < budget; i++) {
        last = c->part[i];
        better += v ? (double)v[last] : 1.0;
    }
    return last;
}

/* Keeps of the candidates cand[0..n), n > 0, with logits from about lo to top, those whose
 * betters weigh less than budget (> 0): by c->weight, which is kept in step, or 1 each.  Returns
 * how many. */
static size_t keep_best(nb_sample_scratch *c, const float *x, size_t n, bool by_weight,
                        double budget, float lo, float top)
{
    const float *v = by_weight ? c->weight : NULL;
    const float range = top - lo, f = range > FLT_MIN * RADIX ? (RADIX - 1) / range : 0;
    memset(c->mass, 0, sizeof c->mass);
    for (size_t i = 0; i < n; i++) {
        const float above = x[c->cand[i]] - lo;
        c->key[i] = (uint32_t)((above > 0 ? above : 0) * f);
        c->mass[c->key[i]] += v ? (double)v[i] : 1.0;
    }
    double better = 0;
    const uint32_t bin = boundary_digit(c->mass, budget, &better);
    size_t n_part = 0;
    for (size_t i = 0; i < n; i++) {
        c->part[n_part] = (uint32_t)i;
        n_part += c->key[i] == bin;
    }
    for (size_t i = 0; i < n_part; i++) c->key[c->part[i]] = sort_key(x[c->cand[c->part[i]]]);
    const uint32_t last = last_to_stay(c, n_part, v, budget, better);
    const float worst = x[c->cand[last]];
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        const float xi = x[c->cand[i]];
        c->cand[m] = c->cand[i];
        if (by_weight) c->weight[m] = c->weight[i];
        m += (xi > worst) | ((xi == worst) & (i <= last));
    }
    return m;
}

/* The smallest float that is not below y, y >= -FLT_MAX. */
static float round_up(double y)
{
    const float f = (float)y;
    return (double)f < y ? nextafterf(f, INFINITY) : f;
}

/* Steps 7 and 8 from below: no token under it stays. */
static float least_logit(const nb_sampler *s, nb_sample_scratch *c, float top)
{
    const double t = s->p.temperature;
    const double lowest = s->p.min_p > 0 ? fmax(WEIGHT_FLOOR, log(s->p.min_p)) : WEIGHT_FLOOR;
    const double finite = fmax((double)top, 0) - (double)FLT_MAX; /* and x - top too */
    const float least = round_up(fmax((double)top + t * lowest, finite));
    const size_t n_blocks = nb_row_n_blocks(s->n_vocab);
    if (s->p.top_k == 0 || s->p.top_k > n_blocks) return least;
    /* top_k blocks have a largest logit of this or more, so as many tokens have. */
    for (size_t b = 0; b < n_blocks; b++) {
        c->key[b] = sort_key(c->block_max[b]);
        c->part[b] = (uint32_t)b;
    }
    return fmaxf(least, c->block_max[last_to_stay(c, n_blocks, NULL, (double)s->p.top_k, 0)]);
}

/* Candidates: ids of the tokens that are not below least. */
static size_t collect(const nb_sampler *s, nb_sample_scratch *c, const float *x, float least)
{
    size_t n = 0;
    for (size_t b = 0; b < nb_row_n_blocks(s->n_vocab); b++) {
        if (c->block_max[b] < least) continue;
        const size_t i0 = b * NB_ROW_BLOCK;
        const size_t i1 = s->n_vocab - i0 < NB_ROW_BLOCK ? s->n_vocab : i0 + NB_ROW_BLOCK;
        for (size_t i = i0; i < i1; i++) { /* no branch: it would be mispredicted */
            c->cand[n] = (uint32_t)i;
            n += x[i] >= least;
        }
    }
    return n;
}

/* For top_p: tokens with less than (1 - top_p) / n of the sum have together less than 1 - top_p
 * of it, so all that stay weigh more.  The factor is for rounding, of sums and of weights of
 * nearly equal logits. */
static float lightest_to_stay(const nb_sampler *s, double sum)
{
    return fmaxf((float)(0.999 * (1 - s->p.top_p) * sum / (double)s->n_vocab), FLT_MIN);
}

/* Candidates from the weights of all tokens. */
static size_t collect_heavy(const nb_sampler *s, nb_sample_scratch *c, float lightest)
{
    size_t n = 0;
    for (size_t b = 0; b < nb_row_n_blocks(s->n_vocab); b++) {
        if (c->block_sum[b] < (double)lightest) continue;
        const size_t i0 = b * NB_ROW_BLOCK;
        const size_t i1 = s->n_vocab - i0 < NB_ROW_BLOCK ? s->n_vocab : i0 + NB_ROW_BLOCK;
        for (size_t i = i0; i < i1; i++) {
            const float w = c->weight[i];
            c->cand[n] = (uint32_t)i;
            c->weight[n] = w;
            n += w >= lightest;
        }
    }
    return n;
}

static uint32_t draw(const nb_sampler *s, nb_sample_scratch *c, const float *x, size_t best)
{
    const nb_row_scale scale = { .top = x[best],
                                 .inv_t = (float)(1 / s->p.temperature),
                                 .least = least_logit(s, c, x[best]) };
    size_t n = s->n_vocab;
    const bool all = s->p.top_k == 0 || s->p.top_k >= n;
    double sum;
    if (all) {
        sum = nb_row_weigh(x, n, &scale, c->block_max, c->weight, c->block_sum);
    } else {
        n = collect(s, c, x, scale.least);
        if (n > s->p.top_k)
            n = keep_best(c, x, n, false, (double)s->p.top_k, scale.least, scale.top);
        for (size_t i = 0; i < n; i++) c->weight[i] = x[c->cand[i]];
        sum = nb_row_weigh(c->weight, n, &scale, NULL, c->weight, c->block_sum);
    }
    if (s->p.top_p < 1) {
        float lo = scale.least;
        if (all) {
            const float lightest = lightest_to_stay(s, sum);
            const double d = s->p.temperature * log((double)lightest);
            lo = (float)fmax((double)lo, (double)scale.top + d);
            n = collect_heavy(s, c, lightest);
        }
        n = keep_best(c, x, n, true, s->p.top_p * sum, lo, scale.top);
        sum = nb_row_sum(c->weight, n, c->block_sum);
    }
    const double target = nb_rng_unit(s->p.seed, s->n_generated) * sum;
    const size_t i = nb_row_find(c->weight, n, c->block_sum, target);
    return all && !(s->p.top_p < 1) ? (uint32_t)i : c->cand[i];
}

nb_status nb_sampler_next(nb_sampler *s, nb_sample_scratch *c, const float *logits,
                          const nb_sample_mask *mask, nb_sample_out *out)
{
    size_t best_raw, best;
    if (!nb_row_max(logits, s->n_vocab, c->block_max, &best_raw)) return NB_ERR_NONFINITE;
    if (s->penalise) NB_TRY(seen_reserve(s));
    const float *x = process(s, c->work, logits, mask, true);
    best = best_raw;
    if (x != logits && !nb_row_max(x, s->n_vocab, c->block_max, &best)) {
        if (!mask) return NB_ERR_NONFINITE;
        x = process(s, c->work, logits, mask, false);
        if (!nb_row_max(x, s->n_vocab, c->block_max, &best)) return NB_ERR_NONFINITE;
    }

    nb_sample_out o = { .id = s->greedy ? (uint32_t)best : draw(s, c, x, best) };
    if (s->p.n_logprobs >= 0)
        raw_logprobs(logits, s->n_vocab, (size_t)s->p.n_logprobs, best_raw, &o);
    s->n_generated++;
    if (s->penalise) note_seen(s, o.id)->n_out++;
    *out = o;
    return NB_OK;
}

bool nb_sampler_plain(const nb_sampler *s, nb_cuda_sample_row *row)
{
    if (s->penalise || s->modify || s->p.n_logprobs >= 0) return false;
    *row = (nb_cuda_sample_row){ .temperature = s->p.temperature,
                                 .top_p = s->p.top_p,
                                 .min_p = s->p.min_p,
                                 .top_k = (uint32_t)(s->p.top_k < s->n_vocab ? s->p.top_k : 0),
                                 .u = nb_rng_unit(s->p.seed, s->n_generated) };
    return true;
}

void nb_sampler_drew(nb_sampler *s)
{
    s->n_generated++;
}
