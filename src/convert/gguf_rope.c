/* gguf_rope.c - how far apart positions are rotated: config.json's rules as llama.cpp's keys, and as tensors of factors
 * where its keys have no rule.  The rules themselves: src/model/family_common.c. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/gguf_meta.h"

#define PI 3.14159265358979323846

typedef struct rope {
    const nb_gguf_meta *m;
    const json_t *o; /* rope_scaling or rope_parameters; NULL: neither */
    const char *dict;
    double theta, original;
} rope;

static nb_status refuse(const rope *r, const char *field, const char *what)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s%s%s", r->dict, *field ? "." : "", field);
    return nb_gguf_refuse(r->m, name, what);
}

static nb_status broken(const rope *r, const char *what)
{
    return nb_fail(r->m->c->err, NB_ERR_FORMAT, "config.json: %s: %s", r->dict, what);
}

static nb_status factor_of(const rope *r, double *out)
{
    *out = nb_gguf_real(r->o, "factor", NAN);
    return *out > 0 && *out < 1e9 ? NB_OK : broken(r, "factor is missing");
}

static void put_original(const rope *r)
{
    nb_gguf_meta_u32(r->m, "rope.scaling.original_context_length", (uint32_t)r->original);
}

static nb_status put_default(const rope *r)
{
    (void)r;
    return NB_OK;
}

static nb_status put_linear(const rope *r)
{
    double factor;
    NB_TRY(factor_of(r, &factor));
    if (nb_gguf_real(r->o, "mscale_all_dim", 0) != 0)
        return refuse(r, "mscale_all_dim", "is not supported beside linear in a GGUF file");
    nb_gguf_meta_str(r->m, "rope.scaling.type", "linear");
    nb_gguf_meta_f32(r->m, "rope.scaling.factor", factor);
    return NB_OK;
}

/* deepseek2 has one multiplier for both of the class's; the other architectures have none, and magnify the rotation by
 * 1 + 0.1 ln(factor). */
static nb_status put_yarn(const rope *r)
{
    double factor, all = nb_gguf_real(r->o, "mscale_all_dim", 0),
                   one = nb_gguf_real(r->o, "mscale", all ? 1 : 0);
    const double fast = nb_gguf_real(r->o, "beta_fast", 0),
                 slow = nb_gguf_real(r->o, "beta_slow", 0);
    const bool split = r->m->a->kind == NB_GGUF_MLA;
    NB_TRY(factor_of(r, &factor));
    if (json_is_number(json_object_get(r->o, "attention_factor")))
        return refuse(r, "attention_factor", "has no place in a GGUF file");
    if (json_is_false(json_object_get(r->o, "truncate")))
        return refuse(r, "truncate", "false is not supported in a GGUF file");
    if (json_is_false(json_object_get(r->o, "apply_yarn_scaling")))
        return refuse(r, "apply_yarn_scaling", "false is not supported in a GGUF file");
    if (split && (all == 0 || all != one))
        return refuse(r, "mscale",
                      "must equal mscale_all_dim and not be 0: a GGUF file has one of them");
    if (!split && (all != 0 || one != 0))
        return refuse(r, "mscale", "has no place in a GGUF file of this architecture");
    nb_gguf_meta_str(r->m, "rope.scaling.type", "yarn");
    nb_gguf_meta_f32(r->m, "rope.scaling.factor", factor);
    put_original(r);
    if (split) nb_gguf_meta_f32(r->m, "rope.scaling.yarn_log_multiplier", 0.1 * all);
    nb_gguf_meta_f32(r->m, "rope.scaling.yarn_beta_fast", fast != 0 ? fast : 32);
    nb_gguf_meta_f32(r->m, "rope.scaling.yarn_beta_slow", slow != 0 ? slow : 1);
    return NB_OK;
}

/* Llama 3.1: what divides each frequency. */
static nb_status put_llama3(const rope *r)
{
    const double lo = nb_gguf_real(r->o, "low_freq_factor", 0),
                 hi = nb_gguf_real(r->o, "high_freq_factor", 0);
    const size_t n = r->m->rope_dim / 2;
    nb_gguf_table *t = &r->m->model->table[0];
    double factor;
    NB_TRY(factor_of(r, &factor));
    if (!(lo > 0 && hi > lo))
        return broken(r, "llama3 needs low_freq_factor and a larger high_freq_factor");
    if (n > NB_GGUF_MAX_TABLE) return broken(r, "rotates more values than 1024");
    for (size_t i = 0; i < n; i++) {
        const double wave = 2 * PI * pow(r->theta, 2 * (double)i / r->m->rope_dim);
        const double s = (r->original / wave - lo) / (hi - lo);
        t->v[i] = (float)(wave < r->original / hi   ? 1
                          : wave > r->original / lo ? factor
                                                    : 1 / ((1 - s) / factor + s));
    }
    t->n = n;
    t->name = "rope_freqs.weight";
    return NB_OK;
}

static nb_status read_table(const rope *r, const char *field, const char *name, nb_gguf_table *t)
{
    const json_t *a = json_object_get(r->o, field), *x;
    size_t i;
    char what[80];
    const size_t n = r->m->rope_dim / 2;
    (void)snprintf(what, sizeof what, "%s has not %zu positive numbers", field, n);
    if (json_array_size(a) != n || n > NB_GGUF_MAX_TABLE) return broken(r, what);
    json_array_foreach(a, i, x)
    {
        t->v[i] = json_is_number(x) ? (float)json_number_value(x) : 0;
        if (!(t->v[i] > 0) || !isfinite(t->v[i])) return broken(r, what);
    }
    t->n = n;
    t->name = name;
    return NB_OK;
}

static nb_status put_longrope(const rope *r)
{
    const double factor = nb_gguf_real(r->o, "factor", r->m->context / r->original);
    const double usual =
        factor <= 1 || r->original <= 1 ? 1 : sqrt(1 + log(factor) / log(r->original));
    const double att = nb_gguf_real(r->o, "attention_factor", usual);
    NB_TRY(read_table(r, "long_factor", "rope_factors_long.weight", &r->m->model->table[0]));
    NB_TRY(read_table(r, "short_factor", "rope_factors_short.weight", &r->m->model->table[1]));
    if (!(att > 0 && att < 1e6)) return broken(r, "attention_factor is not positive");
    nb_gguf_meta_str(r->m, "rope.scaling.type", "longrope");
    put_original(r);
    if (att != 1) nb_gguf_meta_f32(r->m, "rope.scaling.attn_factor", att);
    return NB_OK;
}

nb_status nb_gguf_put_rope(const nb_gguf_meta *m)
{
    enum {
        SPLIT = 1 << NB_GGUF_MLA,
        WHOLE = 1 << NB_GGUF_MLA_WHOLE,
        PAIRS = 1 << NB_GGUF_GQA_PAIRS,
        ALL = SPLIT | WHOLE | PAIRS | 1 << NB_GGUF_GQA
    };
    static const struct {
        const char *type;
        int kinds; /* whose tensors or keys llama.cpp reads */
        nb_status (*put)(const rope *r);
    } rules[] = {
        { "default", ALL, put_default }, { "linear", ALL, put_linear },
        { "yarn", ALL, put_yarn },       { "deepseek_yarn", SPLIT, put_yarn },
        { "llama3", PAIRS, put_llama3 }, { "longrope", WHOLE | PAIRS, put_longrope },
    };
    rope r = { .m = m, .dict = "rope_scaling", .o = json_object_get(m->o, "rope_scaling") };
    if (json_object_size(r.o) == 0) {
        r.dict = "rope_parameters";
        r.o = json_object_get(m->o, "rope_parameters");
    }
    r.theta = nb_gguf_real(r.o, "rope_theta", nb_gguf_real(m->o, "rope_theta", 10000));
    r.original = nb_gguf_real(m->o, "original_max_position_embeddings",
                              nb_gguf_real(r.o, "original_max_position_embeddings", m->context));
    if (!(r.theta > 1 && r.theta < 1e15)) return broken(&r, "rope_theta is not more than 1");
    if (!(r.original >= 1 && r.original < 4e9))
        return broken(&r, "original_max_position_embeddings is not positive");
    nb_gguf_meta_f32(m, "rope.freq_base", r.theta);
    const char *type = json_string_value(json_object_get(r.o, "rope_type"));
    if (!type) type = json_string_value(json_object_get(r.o, "type"));
    if (!type) type = "default";
    for (size_t i = 0; i < NB_COUNT(rules); i++)
        if (!strcmp(type, rules[i].type) && rules[i].kinds & 1 << m->a->kind)
            return rules[i].put(&r);
    return nb_fail(m->c->err, NB_ERR_UNSUPPORTED,
                   "config.json: %s.rope_type: \"%s\" is not supported in a GGUF file of %s",
                   r.dict, nb_show_c(type).s, m->a->name);
}
