/* sample_params.c - defaults and checks of the sampling parameters.
 *
 * The ranges are those of the OpenAI API and of vLLM's SamplingParams. */
#include <math.h>

#include "sample/sample.h"

void nb_sample_params_default(nb_sample_params *p)
{
    *p = (nb_sample_params){
        .temperature = 1, .top_p = 1, .repetition_penalty = 1, .max_tokens = 128, .n_logprobs = -1
    };
}

/* One row per number: where it is, what is accepted. */
typedef struct nb_sample_range {
    const char *name;
    size_t offset;
    double lo, hi;
    bool lo_open;
    const char *text;
} nb_sample_range;

static const nb_sample_range ranges[] = {
    { "temperature", offsetof(nb_sample_params, temperature), 0, INFINITY, false,
      "a finite number >= 0" },
    { "top_p", offsetof(nb_sample_params, top_p), 0, 1, true, "a number in (0, 1]" },
    { "min_p", offsetof(nb_sample_params, min_p), 0, 1, false, "a number in [0, 1]" },
    { "repetition_penalty", offsetof(nb_sample_params, repetition_penalty), 1e-6, 1e6, false,
      "a number in [1e-6, 1e6]" }, /* logits are divided by it, and must stay finite */
    { "presence_penalty", offsetof(nb_sample_params, presence_penalty), -2, 2, false,
      "a number in [-2, 2]" },
    { "frequency_penalty", offsetof(nb_sample_params, frequency_penalty), -2, 2, false,
      "a number in [-2, 2]" },
};

static nb_status check_ids(const nb_sample_params *p, size_t n_vocab, nb_error *err)
{
    for (size_t i = 0; i < p->n_logit_bias; i++) {
        const nb_sample_bias b = p->logit_bias[i];
        if (b.id >= n_vocab)
            return nb_fail(err, NB_ERR_RANGE,
                           "logit_bias: token id %u is out of range: expected 0..%zu",
                           (unsigned)b.id, n_vocab - 1);
        if (!(b.bias >= -100 && b.bias <= 100))
            return nb_fail(err, NB_ERR_RANGE,
                           "logit_bias of token %u is %g: expected a number in [-100, 100]",
                           (unsigned)b.id, (double)b.bias);
    }
    for (size_t i = 0; i < p->n_end_id; i++)
        if (p->end_id[i] >= n_vocab)
            return nb_fail(err, NB_ERR_RANGE,
                           "stop_token_ids: token id %u is out of range: expected 0..%zu",
                           (unsigned)p->end_id[i], n_vocab - 1);
    if (p->min_tokens && p->n_end_id >= n_vocab)
        return nb_fail(err, NB_ERR_RANGE,
                       "stop_token_ids: %zu ends of text in a vocabulary of %zu leave no token for "
                       "min_tokens",
                       p->n_end_id, n_vocab);
    return NB_OK;
}

nb_status nb_sample_params_check(const nb_sample_params *p, size_t n_vocab, nb_error *err)
{
    if (n_vocab == 0 || n_vocab > UINT32_MAX)
        return nb_fail(err, NB_ERR_ARG, "vocabulary of %zu tokens: expected 1..%u", n_vocab,
                       (unsigned)UINT32_MAX);
    for (size_t i = 0; i < NB_COUNT(ranges); i++) {
        const nb_sample_range *r = &ranges[i];
        const double x = *(const double *)(const void *)((const char *)p + r->offset);
        if (!isfinite(x) || x < r->lo || x > r->hi || (r->lo_open && x <= r->lo))
            return nb_fail(err, NB_ERR_RANGE, "%s is %g: expected %s", r->name, x, r->text);
    }
    if (p->max_tokens == 0)
        return nb_fail(err, NB_ERR_RANGE, "max_tokens is 0: expected at least 1");
    if (p->min_tokens > p->max_tokens)
        return nb_fail(err, NB_ERR_RANGE, "min_tokens is %zu: expected 0..%zu (max_tokens)",
                       p->min_tokens, p->max_tokens);
    if (p->n_logprobs < -1 || p->n_logprobs > NB_SAMPLE_TOP_MAX)
        return nb_fail(err, NB_ERR_RANGE, "logprobs is %d: expected 0..%d, or -1 for none",
                       p->n_logprobs, NB_SAMPLE_TOP_MAX);
    return check_ids(p, n_vocab, err);
}
