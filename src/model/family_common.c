/* family_common.c - rules that several families share: rotary tables, the
 * softmax scale of MLA, checks of the expert counts.
 *
 * Sources: DeepSeek-V2/V3 (arXiv 2405.04434, 2412.19437), YaRN (arXiv
 * 2309.00071), LongRoPE (arXiv 2402.13753), the llama3 rule of Llama 3.1; the
 * spellings and defaults are those of transformers 5.17 (tests/parity/README.md). */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "kernel/route/route.h"
#include "model/family.h"

enum { PATH_BYTES = 96 };

typedef struct rope_reader {
    nb_doc *doc;
    nb_model_config *c;
    const char *dict; /* "rope_scaling", "rope_parameters" or NULL */
    size_t dim;
    double theta, orig;
} rope_reader;

static bool rope_f64(const rope_reader *r, const char *key, double *out)
{
    char path[PATH_BYTES];
    if (!r->dict) return false;
    (void)snprintf(path, sizeof path, "%s.%s", r->dict, key);
    return nb_doc_f64(r->doc, path, out);
}

static const char *rope_dict(nb_doc *doc)
{
    static const char *const names[] = { "rope_scaling", "rope_parameters" };
    for (size_t i = 0; i < NB_COUNT(names); i++) {
        const char *key;
        if (nb_doc_is_object(doc, names[i]) && nb_doc_keys(doc, names[i], &key, 1) > 0)
            return names[i];
    }
    return NULL;
}

/* What the dictionary holds must be values: newer configurations may nest one
 * dictionary per kind of layer, which no family here has. */
static nb_status check_dict(nb_doc *doc, nb_error *err)
{
    enum { MAX_KEY = 64 };
    static const char *const names[] = { "rope_scaling", "rope_parameters" };
    for (size_t i = 0; i < NB_COUNT(names); i++) {
        const char *keys[MAX_KEY];
        if (!nb_doc_has(doc, names[i])) continue;
        if (!nb_doc_is_object(doc, names[i]))
            return nb_fail(err, NB_ERR_FORMAT, "%s: %s: expected an object", nb_doc_name(doc),
                           names[i]);
        const size_t n = nb_doc_keys(doc, names[i], keys, MAX_KEY);
        for (size_t k = 0; k < n && k < MAX_KEY; k++) {
            char path[PATH_BYTES];
            (void)snprintf(path, sizeof path, "%s.%s", names[i], keys[k]);
            if (nb_doc_is_object(doc, path))
                return nb_fail(err, NB_ERR_UNSUPPORTED,
                               "%s: %s: one set of values per kind of layer is not supported",
                               nb_doc_name(doc), path);
        }
    }
    return NB_OK;
}

static const char *rope_type(nb_doc *doc, const char *dict)
{
    char path[PATH_BYTES];
    const char *type = "default";
    if (!dict) return type;
    (void)snprintf(path, sizeof path, "%s.rope_type", dict);
    if (nb_doc_str(doc, path, &type)) return type;
    (void)snprintf(path, sizeof path, "%s.type", dict);
    (void)nb_doc_str(doc, path, &type);
    return type;
}

static double base_freq(const rope_reader *r, size_t j)
{
    return pow(r->theta, -2.0 * (double)j / (double)r->dim);
}

static nb_status bad_rope(const rope_reader *r, const char *what, nb_error *err)
{
    NB_TRY(nb_doc_check(r->doc, err)); /* a value of the wrong type is the better line */
    return nb_fail(err, NB_ERR_FORMAT, "%s: %s: %s", nb_doc_name(r->doc),
                   r->dict ? r->dict : "rope_parameters", what);
}

static nb_status rope_default(rope_reader *r, nb_error *err)
{
    (void)err;
    for (size_t j = 0; j < r->dim / 2; j++) r->c->attn[0].rope.inv_freq[j] = (float)base_freq(r, j);
    return NB_OK;
}

static nb_status rope_linear(rope_reader *r, nb_error *err)
{
    double factor;
    if (!rope_f64(r, "factor", &factor) || !(factor > 0))
        return bad_rope(r, "factor is missing", err);
    for (size_t j = 0; j < r->dim / 2; j++)
        r->c->attn[0].rope.inv_freq[j] = (float)(base_freq(r, j) / factor);
    return NB_OK;
}

static double mscale(double factor, double m)
{
    return factor <= 1 ? 1.0 : 0.1 * m * log(factor) + 1.0;
}

static nb_status rope_yarn(rope_reader *r, nb_error *err)
{
    double factor, fast = 0, slow = 0, m = 0, m_all = 0, att;
    bool truncate = true;
    char path[PATH_BYTES];
    if (!rope_f64(r, "factor", &factor) || !(factor > 0))
        return bad_rope(r, "factor is missing", err);
    (void)rope_f64(r, "beta_fast", &fast);
    (void)rope_f64(r, "beta_slow", &slow);
    if (fast == 0) fast = 32;
    if (slow == 0) slow = 1;
    if (!(fast > 0 && slow > 0))
        return bad_rope(r, "beta_fast and beta_slow must be positive", err);
    (void)snprintf(path, sizeof path, "%s.truncate", r->dict);
    (void)nb_doc_bool(r->doc, path, &truncate);
    const double d = (double)r->dim, pi = 3.14159265358979323846;
    double low = d * log(r->orig / (fast * 2 * pi)) / (2 * log(r->theta));
    double high = d * log(r->orig / (slow * 2 * pi)) / (2 * log(r->theta));
    if (truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, d - 1);
    if (low == high) high += 0.001;
    for (size_t j = 0; j < r->dim / 2; j++) {
        const double ramp = fmin(fmax(((double)j - low) / (high - low), 0), 1), f = base_freq(r, j);
        r->c->attn[0].rope.inv_freq[j] = (float)(f * (1 - ramp) + f / factor * ramp);
    }
    const bool both =
        rope_f64(r, "mscale", &m) && rope_f64(r, "mscale_all_dim", &m_all) && m != 0 && m_all != 0;
    att = both ? mscale(factor, m) / mscale(factor, m_all) : mscale(factor, 1);
    (void)rope_f64(r, "attention_factor", &att);
    r->c->attn[0].rope.factor = (float)att;
    return NB_OK;
}

static nb_status rope_llama3(rope_reader *r, nb_error *err)
{
    double factor, lo, hi;
    if (!rope_f64(r, "factor", &factor) || !rope_f64(r, "low_freq_factor", &lo) ||
        !rope_f64(r, "high_freq_factor", &hi) || !(factor > 0 && lo > 0 && hi > lo))
        return bad_rope(r, "llama3 needs factor, low_freq_factor and a larger high_freq_factor",
                        err);
    for (size_t j = 0; j < r->dim / 2; j++) {
        const double f = base_freq(r, j), wave = 2 * 3.14159265358979323846 / f;
        const double s = (r->orig / wave - lo) / (hi - lo);
        const double g = wave < r->orig / hi   ? f
                         : wave > r->orig / lo ? f / factor
                                               : (1 - s) * f / factor + s * f;
        r->c->attn[0].rope.inv_freq[j] = (float)g;
    }
    return NB_OK;
}

static nb_status longrope_table(rope_reader *r, const char *key, float *out, nb_error *err)
{
    double ext[NB_MAX_ROPE_PAIR];
    char path[PATH_BYTES];
    size_t n = 0;
    (void)snprintf(path, sizeof path, "%s.%s", r->dict, key);
    if (!nb_doc_f64s(r->doc, path, ext, NB_MAX_ROPE_PAIR, &n) || n != r->dim / 2) {
        NB_TRY(nb_doc_check(r->doc, err));
        return nb_fail(err, NB_ERR_FORMAT, "%s: %s has %zu values, expected %zu",
                       nb_doc_name(r->doc), path, n, r->dim / 2);
    }
    for (size_t j = 0; j < n; j++) {
        if (!(ext[j] > 0)) return bad_rope(r, "longrope factors must be positive", err);
        out[j] = (float)(base_freq(r, j) / ext[j]);
    }
    return NB_OK;
}

static nb_status rope_long(rope_reader *r, nb_error *err)
{
    nb_rope_config *p = &r->c->attn[0].rope;
    NB_TRY(longrope_table(r, "short_factor", p->inv_freq, err));
    NB_TRY(longrope_table(r, "long_factor", p->inv_freq_long, err));
    p->switch_tok = (size_t)r->orig;
    double factor = (double)r->c->max_pos / r->orig, att;
    (void)rope_f64(r, "factor", &factor);
    att = factor <= 1 || r->orig <= 1 ? 1 : sqrt(1 + log(factor) / log(r->orig));
    (void)rope_f64(r, "attention_factor", &att);
    p->factor = (float)att;
    return NB_OK;
}

static const struct {
    const char *type;
    nb_status (*fn)(rope_reader *r, nb_error *err);
} rope_rules[] = {
    { "default", rope_default }, { "linear", rope_linear }, { "yarn", rope_yarn },
    { "llama3", rope_llama3 },   { "longrope", rope_long }, { "deepseek_yarn", rope_yarn },
};

nb_status nb_family_rope_from(nb_doc *doc, nb_model_config *c, const char *dict, double theta,
                              size_t dim, bool interleaved, nb_error *err)
{
    rope_reader r = { .doc = doc, .c = c, .dict = dict, .dim = dim, .theta = theta };
    c->attn[0].rope.dim = dim;
    c->attn[0].rope.interleaved = interleaved;
    c->attn[0].rope.factor = 1;
    if (dim == 0 || dim % 2 || dim / 2 > NB_MAX_ROPE_PAIR)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: %zu rotated values per head, expected an even number from 2 to %d",
                       nb_doc_name(doc), dim, 2 * NB_MAX_ROPE_PAIR);
    (void)rope_f64(&r, "rope_theta", &r.theta);
    r.orig = (double)c->max_pos;
    (void)rope_f64(&r, "original_max_position_embeddings", &r.orig);
    (void)nb_doc_f64(doc, "original_max_position_embeddings", &r.orig);
    NB_TRY(nb_doc_check(doc, err));
    if (!(r.theta > 1 && r.theta < 1e15))
        return nb_fail(err, NB_ERR_RANGE, "%s: rope_theta is %g, expected more than 1",
                       nb_doc_name(doc), r.theta);
    if (!(r.orig >= 1 && r.orig < 1e12))
        return bad_rope(&r, "original_max_position_embeddings must be positive", err);
    const char *type = rope_type(doc, r.dict);
    for (size_t i = 0; i < NB_COUNT(rope_rules); i++)
        if (!strcmp(type, rope_rules[i].type)) {
            NB_TRY(rope_rules[i].fn(&r, err));
            for (size_t j = 0; j < dim / 2; j++)
                if (!isfinite(c->attn[0].rope.inv_freq[j]) ||
                    !isfinite(c->attn[0].rope.inv_freq_long[j]))
                    return bad_rope(&r, "frequencies overflow", err);
            return isfinite(c->attn[0].rope.factor)
                       ? nb_doc_check(doc, err)
                       : bad_rope(&r, "attention factor overflows", err);
        }
    return nb_fail(
        err, NB_ERR_UNSUPPORTED,
        "%s: rope type \"%s\" is not supported (supported: default, linear, yarn, llama3, "
        "longrope)",
        nb_doc_name(doc), type);
}

nb_status nb_family_rope(nb_doc *doc, nb_model_config *c, size_t dim, bool interleaved,
                         nb_error *err)
{
    double theta = 10000;
    NB_TRY(check_dict(doc, err));
    (void)nb_doc_f64(doc, "rope_theta", &theta);
    return nb_family_rope_from(doc, c, rope_dict(doc), theta, dim, interleaved, err);
}

nb_status nb_family_mla_scale(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    rope_reader r = { .doc = doc, .c = c, .dict = rope_dict(doc) };
    double scale = 1 / sqrt((double)(c->attn[0].d_nope + c->attn[0].d_rope)), all = 0, factor = 1;
    bool apply = true; /* false: of models that were trained without mscale */
    if (r.dict) {
        char path[PATH_BYTES];
        (void)snprintf(path, sizeof path, "%s.apply_yarn_scaling", r.dict);
        (void)nb_doc_bool(doc, path, &apply);
    }
    if (r.dict && apply && strcmp(rope_type(doc, r.dict), "default") != 0 &&
        rope_f64(&r, "mscale_all_dim", &all) && all != 0 && rope_f64(&r, "factor", &factor)) {
        const double m = mscale(factor, all);
        scale *= m * m;
    }
    c->attn[0].softmax_scale = (float)scale;
    if (!isfinite(c->attn[0].softmax_scale))
        return bad_rope(&r, "the softmax scale overflows", err);
    return nb_doc_check(doc, err);
}

nb_status nb_family_check_experts(const nb_doc *doc, const nb_model_config *c, nb_error *err)
{
    bool any = false;
    for (size_t i = 0; i < c->n_layer; i++) any |= nb_layer_has_experts(c, i);
    if (!any) return NB_OK;
    const char *what = NULL;
    if (c->n_expert == 0 || nb_n_choice(c) > NB_ROUTE_MAX_EXPERT)
        what = "n_routed_experts out of range";
    else if (c->moe_inter == 0)
        what = "moe_intermediate_size is missing";
    else if (c->top_k == 0 || c->top_k > nb_n_choice(c) || c->top_k > NB_ROUTE_MAX_TOPK)
        what = "num_experts_per_tok must be between 1 and the number of experts (at most 64)";
    else if (c->n_group == 0 || nb_n_choice(c) % c->n_group)
        what = "n_group must divide n_routed_experts";
    else if (c->topk_group == 0 || c->topk_group > c->n_group)
        what = "topk_group must be between 1 and n_group";
    else if (c->top_k > c->topk_group * (nb_n_choice(c) / c->n_group))
        what = "num_experts_per_tok exceeds the experts of topk_group groups";
    else if (c->group_top == 2 && c->n_group > 1 && nb_n_choice(c) / c->n_group < 2)
        what = "groups need at least two experts";
    return what ? nb_fail(err, NB_ERR_FORMAT, "%s: %s", nb_doc_name(doc), what) : NB_OK;
}
