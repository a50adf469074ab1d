/* sample.c - logits processors and the draw; see sample.h for the order of steps.
 *
 * The draw needs the set of tokens that stay, not their order: cumulated weights in
 * order of ids are as good as any other fixed order, and need no sort.  So top_k and
 * top_p both come down to one question: which token is the last that stays?  For a
 * budget b and weights v (1 for top_k, the probability weight for top_p), a token
 * stays when the tokens better than it weigh less than b.  keep_best() answers
 * it with a radix selection over the bits of the logits: three digits of 11, 11 and 10
 * bits, each level looking only at the tokens of the digit in which the budget ends.
 * A partial sort by heap was the alternative; it is as fast for small nuclei and
 * n log n for flat distributions. */
#include "sample/sample.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

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
    float *work; /* [n_vocab] processed logits */
    /* candidates in order of ids */
    uint32_t *cand; /* [n_cand] ids */
    double *weight; /* [n_cand] */
    uint32_t *part; /* [<= n_cand] positions in cand, scratch of keep_best */
    double mass[RADIX];
};

size_t nb_sample_scratch_bytes(size_t n_vocab)
{
    return sizeof(nb_sample_scratch) +
           n_vocab * (sizeof(float) + sizeof(double) + 2 * sizeof(uint32_t));
}

nb_status nb_sample_scratch_create(size_t n_vocab, nb_sample_scratch **out, nb_error *err)
{
    nb_sample_scratch *x = calloc(1, sizeof *x);
    if (x) {
        x->work = calloc(n_vocab, sizeof *x->work);
        x->cand = calloc(n_vocab, sizeof *x->cand);
        x->weight = calloc(n_vocab, sizeof *x->weight);
        x->part = calloc(n_vocab, sizeof *x->part);
    }
    if (!x || !x->work || !x->cand || !x->weight || !x->part) {
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
    free(x->cand);
    free(x->weight);
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

/* Index of the largest of x[0..n), the first of equal ones; false when a value is NaN
 * or +inf, or all are -inf. */
static bool argmax(const float *x, size_t n, size_t *best)
{
    float m = -INFINITY;
    size_t at = n;
    for (size_t i = 0; i < n; i++) {
        if (!(x[i] <= FLT_MAX)) return false;
        if (x[i] > m) {
            m = x[i];
            at = i;
        }
    }
    *best = at;
    return at < n;
}

/* ---- log-probabilities ------------------------------------------------- */

static size_t best_logits(const float *x, size_t n, size_t k, nb_sample_logprob *top)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        if (m == k && (k == 0 || x[i] <= top[m - 1].logprob)) continue;
        size_t j = m < k ? m++ : m - 1;
        for (; j > 0 && x[i] > top[j - 1].logprob; j--) top[j] = top[j - 1];
        top[j] = (nb_sample_logprob){ (uint32_t)i, x[i] };
    }
    return m;
}

/* Fills out->top and out->logprob; best is the index of the largest of x. */
static void raw_logprobs(const float *x, size_t n_vocab, size_t n_top, size_t best,
                         nb_sample_out *out)
{
    const double shift = (double)x[best];
    double sum = 0;
    for (size_t i = 0; i < n_vocab; i++) sum += exp((double)x[i] - shift);
    const double log_sum = log(sum);
    out->n_top = best_logits(x, n_vocab, n_top, out->top);
    for (size_t i = 0; i < out->n_top; i++)
        out->top[i].logprob = (float)((double)x[out->top[i].id] - shift - log_sum);
    out->logprob = (float)((double)x[out->id] - shift - log_sum);
}

nb_status nb_sample_logprobs(const float *logits, size_t n_vocab, uint32_t id, size_t n_top,
                             nb_sample_out *out)
{
    size_t best;
    if (!argmax(logits, n_vocab, &best)) return NB_ERR_NONFINITE;
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

static const float *process(const nb_sampler *s, float *work, const float *logits)
{
    if (!s->modify) return logits;
    memcpy(work, logits, s->n_vocab * sizeof *work);
    for (size_t i = 0; i < s->p.n_logit_bias; i++) work[s->bias[i].id] += s->bias[i].bias;
    if (s->n_generated < s->p.min_tokens)
        for (size_t i = 0; i < s->p.n_end_id; i++) work[s->end_id[i]] = -INFINITY;
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

/* Keeps of cand[0..n) those whose betters weigh less than budget (> 0), with weights
 * v[0..n) in step with cand, or 1 each where v is NULL; returns how many. */
static size_t keep_best(nb_sample_scratch *c, const float *x, size_t n, double *v, double budget)
{
    static const struct {
        unsigned shift, mask;
    } level[] = { { 21, 0x7ff }, { 10, 0x7ff }, { 0, 0x3ff } };
    uint32_t key = 0; /* of the last that stays, digit by digit */
    double better = 0;
    size_t n_part = n;
    for (size_t i = 0; i < n; i++) c->part[i] = (uint32_t)i;
    for (size_t k = 0; k < NB_COUNT(level); k++) {
        memset(c->mass, 0, sizeof c->mass);
        for (size_t i = 0; i < n_part; i++) {
            const uint32_t j = c->part[i];
            c->mass[sort_key(x[c->cand[j]]) >> level[k].shift & level[k].mask] += v ? v[j] : 1.0;
        }
        const uint32_t digit = boundary_digit(c->mass, budget, &better);
        key |= digit << level[k].shift;
        size_t m = 0;
        for (size_t i = 0; i < n_part; i++) {
            const uint32_t j = c->part[i];
            c->part[m] = j;
            m += (sort_key(x[c->cand[j]]) >> level[k].shift & level[k].mask) == digit;
        }
        n_part = m;
    }
    /* What is left in part has equal logits: the lowest ids stay. */
    uint32_t last = c->part[0];
    for (size_t i = 0; i < n_part && better < budget; i++) {
        last = c->part[i];
        better += v ? v[last] : 1.0;
    }
    size_t m = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t ki = sort_key(x[c->cand[i]]);
        c->cand[m] = c->cand[i];
        if (v) v[m] = v[i];
        m += ki > key || (ki == key && i <= last);
    }
    return m;
}

static uint32_t draw(const nb_sampler *s, nb_sample_scratch *c, const float *x, size_t best)
{
    const double top = (double)x[best], t = s->p.temperature;
    const double lowest = s->p.min_p > 0 ? fmax(WEIGHT_FLOOR, log(s->p.min_p)) : WEIGHT_FLOOR;
    const double least = fmax(top + t * lowest, -(double)FLT_MAX);
    size_t n = 0;
    for (size_t i = 0; i < s->n_vocab; i++) { /* no branch: it would be mispredicted */
        c->cand[n] = (uint32_t)i;
        n += (double)x[i] >= least;
    }

    if (s->p.top_k && s->p.top_k < n) n = keep_best(c, x, n, NULL, (double)s->p.top_k);
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        c->weight[i] = exp(((double)x[c->cand[i]] - top) / t);
        sum += c->weight[i];
    }
    if (s->p.top_p < 1) {
        n = keep_best(c, x, n, c->weight, s->p.top_p * sum);
        sum = 0;
        for (size_t i = 0; i < n; i++) sum += c->weight[i];
    }
    const double target = nb_rng_unit(s->p.seed, s->n_generated) * sum;
    double cumulated = 0;
    for (size_t i = 0; i < n; i++) {
        cumulated += c->weight[i];
        if (cumulated > target) return c->cand[i];
    }
    return c->cand[n - 1]; /* u < 1, so only by rounding of u * sum */
}

nb_status nb_sampler_next(nb_sampler *s, nb_sample_scratch *c, const float *logits,
                          nb_sample_out *out)
{
    size_t best_raw, best;
    if (!argmax(logits, s->n_vocab, &best_raw)) return NB_ERR_NONFINITE;
    if (s->penalise) NB_TRY(seen_reserve(s));
    const float *x = process(s, c->work, logits);
    best = best_raw;
    if (s->modify && !argmax(x, s->n_vocab, &best)) return NB_ERR_NONFINITE;

    nb_sample_out o = { .id = s->greedy ? (uint32_t)best : draw(s, c, x, best) };
    if (s->p.n_logprobs >= 0)
        raw_logprobs(logits, s->n_vocab, (size_t)s->p.n_logprobs, best_raw, &o);
    s->n_generated++;
    if (s->penalise) note_seen(s, o.id)->n_out++;
    *out = o;
    return NB_OK;
}
