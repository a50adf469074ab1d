/* stress.c - see stress.h: parameters and their names. The tensors: stress_make.c. */
#include "quality/stress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct field {
    const char *name;
    size_t at;
    double lo, hi;
    bool whole, drawn; /* drawn: may be "auto" */
} field;
#define F(name, lo, hi, whole, drawn)                                                              \
    {                                                                                              \
#name, offsetof(nb_stress_opts, name), lo, hi, whole, drawn                                \
    }

static const field fields[] = {
    F(n_layer, 1, 256, true, false),    F(n_tok, 128, 1 << 20, true, false),
    F(n_head, 1, 256, true, false),     F(n_query, 1, 65536, true, false),
    F(kv_heads, 0, 64, true, false),    F(latent, 16, 4096, true, false),
    F(rope, 16, 512, true, false),      F(d_head, 16, 512, true, false),
    F(d_v, 0, 512, true, false),        F(gain, 1e-6, 1e6, false, true),
    F(sigma_ch, 0, 3, false, true),     F(outliers, 0, 64, true, true),
    F(rho, 0, 0.99, false, true),       F(sinks, 0, 64, true, false),
    F(sink_rate, 0, 0.5, false, false), F(rope_sd, 0, 1000, false, false),
    F(rope_pairs, 0, 8, true, true),    F(rope_offset, 0, 10000, false, true),
    F(rope_q, 0, 1000, false, false),   F(rope_logit, 0, 30, false, false),
    F(logit_sd, 0, 30, false, true),    F(balance, 0, 1, false, false),
    F(p, 1e-9, 1 - 1e-9, false, true),
};

static double *at(nb_stress_opts *o, const field *f)
{
    return (double *)(void *)((char *)o + f->at);
}
static double value(const nb_stress_opts *o, const field *f)
{
    return *(const double *)(const void *)((const char *)o + f->at);
}

void nb_stress_defaults(nb_stress_opts *o, uint64_t seed)
{
    *o = (nb_stress_opts){
        .seed = seed,
        .n_layer = 4,
        .n_tok = 16384,
        .n_head = 16,
        .n_query = 64,
        .latent = 512,
        .rope = 64,
        .d_head = 128,
        .gain = NAN,
        .sigma_ch = NAN,
        .outliers = NAN,
        .rho = NAN,
        .sinks = 4,
        .sink_rate = 0.001,
        .rope_sd = 2,
        .rope_pairs = NAN,
        .rope_offset = NAN,
        .rope_q = 3,
        .rope_logit = 0.3,
        .logit_sd = NAN,
        .balance = 0.5,
        .p = NAN,
        .offset = { -3, 0, 2, 6 },
        .n_offset = 4,
    };
}

static nb_status set_preset(nb_stress_opts *o, const char *name, nb_error *err)
{
    static const struct {
        const char *name;
        double p;
    } heads[] = { { "diffuse", .005 }, { "medium", .1 }, { "peaky", .5 }, { "sharp", .98 } };
    for (size_t i = 0; i < NB_COUNT(heads); i++)
        if (strcmp(name, heads[i].name) == 0) {
            o->p = heads[i].p;
            return NB_OK;
        }
    if (strcmp(name, "quick") == 0) {
        o->n_tok = 4096;
        o->n_query = 16;
        return NB_OK;
    }
    if (strcmp(name, "plain") == 0) {
        o->gain = o->logit_sd = 1;
        o->sigma_ch = o->outliers = o->rho = o->sinks = o->sink_rate = 0;
        o->rope_pairs = o->rope_offset = 0;
        return NB_OK;
    }
    return nb_fail(err, NB_ERR_ARG,
                   "stress: preset=%s: expected diffuse, medium, peaky, sharp, plain or quick",
                   name);
}

/* a/b/c */
static nb_status set_offsets(nb_stress_opts *o, const char *s, nb_error *err)
{
    double v[NB_STRESS_MAX_OFFSET];
    size_t n = 0;
    for (const char *p = s;; p++) {
        char *end;
        const double x = strtod(p, &end);
        if (end == p || (*end && *end != '/') || !(fabs(x) <= 100) || n == NB_STRESS_MAX_OFFSET)
            return nb_fail(err, NB_ERR_ARG,
                           "stress: offset=%s: expected up to %d numbers of -100..100, such as "
                           "-3/0/2/6",
                           s, NB_STRESS_MAX_OFFSET);
        v[n++] = x;
        p = end;
        if (!*p) break;
    }
    memcpy(o->offset, v, n * sizeof *v);
    o->n_offset = n;
    o->p = NAN;
    return NB_OK;
}

static nb_status set_seed(nb_stress_opts *o, const char *s, nb_error *err)
{
    char *end;
    const unsigned long long v = strtoull(s, &end, 10);
    if (*s < '0' || *s > '9' || *end)
        return nb_fail(err, NB_ERR_ARG, "stress: seed=%s: expected a whole number", s);
    o->seed = v;
    return NB_OK;
}

static nb_status set_one(nb_stress_opts *o, const char *name, const char *v, nb_error *err)
{
    if (strcmp(name, "preset") == 0) return set_preset(o, v, err);
    if (strcmp(name, "offset") == 0) return set_offsets(o, v, err);
    if (strcmp(name, "seed") == 0) return set_seed(o, v, err);
    for (size_t i = 0; i < NB_COUNT(fields); i++) {
        const field *f = &fields[i];
        if (strcmp(name, f->name) != 0) continue;
        char *end;
        double x = strtod(v, &end);
        const bool is_auto = strcmp(v, "auto") == 0;
        const bool ok =
            is_auto ? f->drawn
                    : end != v && !*end && x >= f->lo && x <= f->hi && (!f->whole || x == floor(x));
        if (!ok)
            return nb_fail(err, NB_ERR_ARG, "stress: %s=%s: expected %s of %g..%g%s", name, v,
                           f->whole ? "a whole number" : "a number", f->lo, f->hi,
                           f->drawn ? ", or auto" : "");
        *at(o, f) = is_auto ? NAN : x;
        return NB_OK;
    }
    nb_buf names = { 0 };
    for (size_t i = 0; i < NB_COUNT(fields); i++)
        (void)nb_buf_printf(&names, "%s, ", fields[i].name);
    const nb_status st =
        nb_fail(err, NB_ERR_ARG, "stress: %s: unknown parameter; there are %soffset, seed, preset",
                name, nb_buf_view(&names).p);
    nb_buf_deinit(&names);
    return st;
}

nb_status nb_stress_set(nb_stress_opts *o, const char *list, nb_error *err)
{
    nb_stress_opts next = *o;
    for (const char *p = list; *p;) {
        char item[256];
        const size_t n = strcspn(p, ",");
        if (n >= sizeof item)
            return nb_fail(err, NB_ERR_ARG, "stress: an item of %zu bytes: expected name=value", n);
        memcpy(item, p, n);
        item[n] = 0;
        char *eq = strchr(item, '=');
        if (!eq) return nb_fail(err, NB_ERR_ARG, "stress: %s: expected name=value", item);
        *eq = 0;
        NB_TRY(set_one(&next, item, eq + 1, err));
        p += n;
        if (*p) p++;
    }
    NB_TRY(nb_stress_check(&next, err));
    *o = next;
    return NB_OK;
}

nb_status nb_stress_check(const nb_stress_opts *o, nb_error *err)
{
    for (size_t i = 0; i < NB_COUNT(fields); i++) {
        const field *f = &fields[i];
        const double x = value(o, f);
        if (isnan(x) ? !f->drawn : !(x >= f->lo && x <= f->hi && (!f->whole || x == floor(x))))
            return nb_fail(err, NB_ERR_ARG, "stress: %s is %g: expected %g..%g", f->name, x, f->lo,
                           f->hi);
    }
    if (o->kv_heads > 0 && fmod(o->n_head, o->kv_heads) != 0)
        return nb_fail(err, NB_ERR_ARG, "stress: n_head=%g is no multiple of kv_heads=%g",
                       o->n_head, o->kv_heads);
    if (fmod(o->rope, 2) != 0)
        return nb_fail(err, NB_ERR_ARG, "stress: rope=%g: expected an even number", o->rope);
    if (o->n_offset == 0 || o->n_offset > NB_STRESS_MAX_OFFSET)
        return nb_fail(err, NB_ERR_ARG, "stress: no offsets");
    const bool mla = o->kv_heads <= 0;
    const double wide = mla ? o->latent + o->rope : 2 * o->kv_heads * o->d_head;
    const double d_q = mla ? o->latent + o->rope : o->d_head;
    const double bytes = 4 * (o->n_tok * wide + o->n_query * o->n_head * d_q +
                              (mla ? o->n_head * o->d_v * o->latent : 0));
    if (bytes > 4294967296.0)
        return nb_fail(err, NB_ERR_LIMIT,
                       "stress: a layer would take %.1f GiB: expected 4 GiB at most",
                       bytes / 1073741824.0);
    return NB_OK;
}

nb_status nb_stress_print(const nb_stress_opts *o, nb_buf *out)
{
    NB_TRY(nb_buf_printf(out, "seed=%llu", (unsigned long long)o->seed));
    for (size_t i = 0; i < NB_COUNT(fields); i++) {
        const double x = value(o, &fields[i]);
        if (strcmp(fields[i].name, "p") == 0) continue; /* after offset, which unsets it */
        NB_TRY(isnan(x) ? nb_buf_printf(out, ",%s=auto", fields[i].name)
                        : nb_buf_printf(out, ",%s=%.9g", fields[i].name, x));
    }
    for (size_t i = 0; i < o->n_offset; i++)
        NB_TRY(nb_buf_printf(out, "%s%.9g", i ? "/" : ",offset=", o->offset[i]));
    return isnan(o->p) ? NB_OK : nb_buf_printf(out, ",p=%.9g", o->p);
}
