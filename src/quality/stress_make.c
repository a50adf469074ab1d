/* stress_make.c - the tensors of stress.h.
 *
 * Every value has a random stream of its own, (seed, layer, purpose) and a counter, so that one
 * parameter does not shift the numbers of the others. */
#include <math.h>

#include "base/rng.h"
#include "quality/attn_math.h"
#include "quality/stress.h"

static const double PI = 3.14159265358979323846;
static const double ROPE_BASE = 10000;

typedef enum purpose {
    P_DRAW,
    P_CHANNEL,
    P_NOISE,
    P_CENTRE,
    P_SINK,
    P_ROPE,
    P_QUERY,
    P_VALUE,
    P_WUV
} purpose;

typedef struct stream {
    uint64_t seed, i;
} stream;

static stream stream_of(const nb_stress_opts *o, size_t layer, purpose p)
{
    return (stream){ nb_rng_u64(nb_rng_u64(o->seed, layer), (uint64_t)p), 0 };
}
static double unit(stream *s)
{
    return nb_rng_unit(s->seed, s->i++);
}
static double gauss(stream *s)
{
    const double u = 1 - unit(s), v = unit(s);
    return sqrt(-2 * log(u)) * cos(2 * PI * v);
}
static double pick(stream *s, const double *set, size_t n)
{
    const size_t i = (size_t)(unit(s) * (double)n);
    return set[i < n ? i : n - 1];
}

/* 70% Gaussian, 20% Laplace, 10% Student t with 4 degrees of freedom (variance 2), unit variance. */
static double noise(stream *s)
{
    const double kind = unit(s);
    if (kind < 0.7) return gauss(s);
    if (kind < 0.9) {
        const double u = unit(s) - 0.5;
        return -copysign(log1p(-2 * fabs(u)), u) * sqrt(0.5);
    }
    double chi = 0;
    const double g = gauss(s);
    for (int i = 0; i < 4; i++) {
        const double x = gauss(s);
        chi += x * x;
    }
    return g / sqrt(chi / 4) * sqrt(0.5);
}

typedef struct maker {
    nb_stress_opts o; /* drawn */
    size_t layer, n_tok, n_ch, n_rope, n_head, n_kv, n_q, d_q;
    double *mean, *sd, *angle, *amp; /* [n_ch], [n_rope / 2] */
    uint8_t *is_sink;
    float *kv, *q;
    size_t n_values, *target, *pos;
} maker;

static void draw(nb_stress_opts *o, size_t layer)
{
    stream s = stream_of(o, layer, P_DRAW);
    static const double sigma[] = { 0, .5, 1 }, outliers[] = { 0, 2, 4, 6 },
                        rho[] = { 0, .1, .3, .6 }, amp[] = { 0, 10, 50, 200, 1000 },
                        pairs[] = { 0, 1, 2, 3, 4 }, sd[] = { .5, 1, 3 };
    const double g = exp(log(.004) + unit(&s) * log(1.2 / .004));
    const struct {
        double *to;
        const double *set;
        size_t n;
    } fields[] = { { &o->sigma_ch, sigma, 3 },  { &o->outliers, outliers, 4 },
                   { &o->rho, rho, 4 },         { &o->rope_pairs, pairs, 5 },
                   { &o->rope_offset, amp, 5 }, { &o->logit_sd, sd, 3 } };
    if (isnan(o->gain)) o->gain = g;
    for (size_t i = 0; i < NB_COUNT(fields); i++) {
        const double v = pick(&s, fields[i].set, fields[i].n); /* also where it is not needed */
        if (isnan(*fields[i].to)) *fields[i].to = v;
    }
    if (!isnan(o->p)) {
        o->n_offset = 1;
        o->offset[0] = o->logit_sd * o->logit_sd / 2 + log(o->p / (1 - o->p));
    }
}

static void make_channels(maker *m)
{
    stream s = stream_of(&m->o, m->layer, P_CHANNEL);
    const size_t n_out = (size_t)m->o.outliers;
    for (size_t c = 0; c < m->n_ch; c++) {
        m->sd[c] = m->o.gain * exp(m->o.sigma_ch * gauss(&s));
        m->mean[c] = 0;
    }
    for (size_t i = 0; i < n_out && i < m->n_ch; i++) {
        size_t c = 0;
        do /* another channel: marked by its mean until all are placed */
            c = (size_t)(unit(&s) * (double)m->n_ch) % m->n_ch;
        while (m->mean[c] < 0 || m->mean[c] > 0);
        const double wide = 10 + 10 * unit(&s), sign = unit(&s) < 0.5 ? -1 : 1;
        if (i < (n_out + 1) / 2) {
            m->sd[c] *= wide;
            m->mean[c] = 1e-30;
        } else {
            m->mean[c] = sign * 12 * m->sd[c];
        }
    }
    for (size_t c = 0; c < m->n_ch; c++)
        if (fabs(m->mean[c]) <= 1e-30) m->mean[c] = 0;
}

/* 80% of the usual squared norm in two channels, the others smaller so that the norm stays. */
static void make_sink(const maker *m, const size_t ch[2], const double sign[2], float *x)
{
    double usual = 0, rest = 0;
    for (size_t c = 0; c < m->n_ch; c++) {
        usual += m->sd[c] * m->sd[c] + m->mean[c] * m->mean[c];
        if (c != ch[0] && c != ch[1]) rest += (double)x[c] * x[c];
    }
    const double scale = rest > 0 ? sqrt(0.2 * usual / rest) : 0;
    for (size_t c = 0; c < m->n_ch; c++) x[c] = (float)(scale * x[c]);
    for (int k = 0; k < 2; k++) x[ch[k]] = (float)(sign[k] * sqrt(0.4 * usual));
}

static nb_status make_latents(maker *m, nb_arena *arena)
{
    stream z = stream_of(&m->o, m->layer, P_NOISE), ce = stream_of(&m->o, m->layer, P_CENTRE),
           si = stream_of(&m->o, m->layer, P_SINK), va = stream_of(&m->o, m->layer, P_VALUE);
    double *centre = nb_arena_array(arena, m->n_ch, sizeof *centre);
    if (!centre) return NB_ERR_NOMEM;
    const double a = sqrt(m->o.rho), b = sqrt(1 - m->o.rho);
    size_t ch[2] = { (size_t)(unit(&si) * (double)m->n_ch) % m->n_ch, 0 };
    ch[1] = (ch[0] + 1 + (size_t)(unit(&si) * (double)(m->n_ch - 1))) % m->n_ch;
    if (ch[1] == ch[0]) ch[1] = (ch[0] + 1) % m->n_ch;
    const double s0 = unit(&si) < .5 ? -1 : 1, s1 = unit(&si) < .5 ? -1 : 1;
    const double sign[2] = { s0, s1 };
    for (size_t t = 0; t < m->n_tok; t++) {
        float *x = m->kv + t * m->n_values;
        for (size_t c = 0; t % 64 == 0 && c < m->n_ch; c++) centre[c] = gauss(&ce);
        for (size_t c = 0; c < m->n_ch; c++)
            x[c] = (float)(m->mean[c] + m->sd[c] * (a * centre[c] + b * noise(&z)));
        const double rare = unit(&si);
        m->is_sink[t] = (double)t < m->o.sinks || rare < m->o.sink_rate;
        if (m->is_sink[t]) make_sink(m, ch, sign, x);
        const double v = m->o.gain * (m->is_sink[t] ? 0.1 : 1); /* GQA: sinks have small values */
        for (size_t c = 0; m->o.kv_heads > 0 && c < m->n_ch; c++)
            x[m->n_ch + c] = (float)(v * noise(&va));
    }
    return NB_OK;
}

/* (re, im) turned by position t of pair i. */
static void turn(const maker *m, size_t i, size_t t, double re, double im, float *out)
{
    const double w = (double)t * pow(ROPE_BASE, -2.0 * (double)i / (double)m->n_rope);
    out[0] = (float)(re * cos(w) - im * sin(w));
    out[1] = (float)(re * sin(w) + im * cos(w));
}

static void make_rope(maker *m)
{
    stream s = stream_of(&m->o, m->layer, P_ROPE);
    const size_t n_pair = m->n_rope / 2, n_low = n_pair < 8 ? n_pair : 8;
    size_t n_off = (size_t)m->o.rope_pairs;
    if (n_off > n_low) n_off = n_low;
    for (size_t k = 0; k < n_off && m->o.rope_offset > 0; k++) {
        size_t i;
        do i = n_pair - 1 - (size_t)(unit(&s) * (double)n_low) % n_low;
        while (m->amp[i] > 0);
        m->amp[i] = m->o.rope_offset;
        m->angle[i] = 2 * PI * unit(&s);
    }
    for (size_t t = 0; t < m->n_tok; t++)
        for (size_t i = 0; i < n_pair; i++) {
            const double re = m->o.rope_sd * gauss(&s) + m->amp[i] * cos(m->angle[i]),
                         im = m->o.rope_sd * gauss(&s) + m->amp[i] * sin(m->angle[i]);
            turn(m, i, t, re, im, m->kv + t * m->n_values + m->n_ch + 2 * i);
        }
}

/* ---- queries ------------------------------------------------------------------ */

static double sum_lse(const double *s, size_t n)
{
    double top = s[0], sum = 0;
    for (size_t i = 1; i < n; i++) top = fmax(top, s[i]);
    for (size_t i = 0; i < n; i++) sum += exp(s[i] - top);
    return top + log(sum);
}

/* Query of head h: background b, the same for every width of the channel but for `balance`, plus
 * alpha times the target's deviation.  w: scratch [n_ch], s: [n_tok]. */
static void make_query(maker *m, stream *s, size_t iq, size_t h, float scale, double *s_bg)
{
    const size_t d = m->o.kv_heads > 0 ? m->n_ch / m->n_kv : m->n_ch;
    const size_t first = m->o.kv_heads > 0 ? h / (m->n_head / m->n_kv) * d : 0;
    const double *mean = m->mean + first, *sd = m->sd + first;
    float *q = m->q + (iq * m->n_head + h) * m->d_q;
    double norm = 0;
    for (size_t c = 0; c < d; c++) norm += pow(sd[c], 2 - 2 * m->o.balance);
    norm = sqrt(norm / (double)d); /* r_c = sd^(1 - balance) / norm has mean square 1 */
    const size_t span = (size_t)m->pos[iq] + 1, t = (size_t)(unit(s) * (double)span) % span;
    const float *x = m->kv + t * m->n_values + first;
    m->target[iq * m->n_head + h] = t;
    for (size_t c = 0; c < d; c++)
        q[c] = (float)(m->o.logit_sd / sqrt((double)d) * gauss(s) * pow(sd[c], -m->o.balance) /
                       norm / scale);
    for (size_t i = 0; i < m->n_rope / 2; i++) {
        const double sd_q = m->o.rope_sd > 0 && m->amp[i] <= 0
                                ? m->o.rope_logit / (m->o.rope_sd * sqrt((double)m->n_rope) * scale)
                                : 0;
        const double off = m->amp[i] > 0 ? m->o.rope_q : 0;
        const double re = sd_q * gauss(s) + off * cos(m->angle[i]),
                     im = sd_q * gauss(s) + off * sin(m->angle[i]);
        turn(m, i, m->pos[iq], re, im, q + m->n_ch + 2 * i);
    }
    /* Scores of the background: the target is placed above their mean, or, where they are not
     * Gaussian, above what a Gaussian of the same log-sum-exp would have. */
    for (size_t j = 0; j < span; j++)
        s_bg[j] = scale * nb_attn_dot(q, m->kv + j * m->n_values + first, m->d_q);
    const bool gaussian = m->o.sinks <= 0 && m->o.sink_rate <= 0 && m->o.rope_pairs <= 0;
    double base = 0;
    if (gaussian) {
        for (size_t j = 0; j < span; j++) base += s_bg[j];
        base = base / (double)span + log((double)span);
    } else {
        base = sum_lse(s_bg, span) - m->o.logit_sd * m->o.logit_sd / 2;
    }
    const double want = base + m->o.offset[h % m->o.n_offset];
    double u2 = 0;
    for (size_t c = 0; c < d; c++) {
        const double r = pow(sd[c], 1 - m->o.balance) / norm, w = (x[c] - mean[c]) / sd[c];
        u2 += r * r * w * w;
    }
    const double alpha = u2 > 0 ? (want - s_bg[t]) / u2 : 0;
    for (size_t c = 0; c < d; c++) {
        const double r = pow(sd[c], 1 - m->o.balance) / norm, w = (x[c] - mean[c]) / sd[c];
        /* s changes by alpha sum r^2 w^2 for the target (up to its mean's share) */
        q[c] = (float)(q[c] + alpha * r * r * w / sd[c] / scale);
    }
}

static nb_status make_queries(maker *m, float scale, nb_arena *arena)
{
    stream s = stream_of(&m->o, m->layer, P_QUERY);
    double *s_bg = nb_arena_array(arena, m->n_tok, sizeof *s_bg);
    if (!s_bg) return NB_ERR_NOMEM;
    for (size_t iq = 0; iq < m->n_q; iq++) m->pos[iq] = m->n_tok - 1;
    for (size_t iq = 0; iq < m->n_q; iq++)
        for (size_t h = 0; h < m->n_head; h++) make_query(m, &s, iq, h, scale, s_bg);
    return NB_OK;
}

static const float *make_w_uv(const maker *m, nb_arena *arena)
{
    stream s = stream_of(&m->o, m->layer, P_WUV);
    const size_t n = m->n_head * (size_t)m->o.d_v * m->n_ch;
    float *w = nb_arena_array(arena, n, sizeof *w);
    for (size_t i = 0; w && i < n; i++)
        w[i] = (float)(gauss(&s) / sqrt((double)m->n_ch) * pow(m->sd[i % m->n_ch], -m->o.balance));
    return w;
}

nb_status nb_stress_make(const nb_stress_opts *o, size_t layer, nb_arena *arena,
                         nb_stress_layer *out, nb_error *err)
{
    NB_TRY(nb_stress_check(o, err));
    const bool mla = o->kv_heads <= 0;
    maker m = { .o = *o,
                .layer = layer,
                .n_tok = (size_t)o->n_tok,
                .n_head = (size_t)o->n_head,
                .n_q = (size_t)o->n_query };
    draw(&m.o, layer);
    const size_t d_head = (size_t)o->d_head;
    m.n_kv = mla ? 1 : (size_t)o->kv_heads;
    m.n_ch = mla ? (size_t)o->latent : m.n_kv * d_head;
    m.n_rope = mla ? (size_t)o->rope : 0;
    m.n_values = mla ? m.n_ch + m.n_rope : 2 * m.n_ch;
    m.d_q = mla ? m.n_values : d_head;
    m.mean = nb_arena_array(arena, m.n_ch, sizeof *m.mean);
    m.sd = nb_arena_array(arena, m.n_ch, sizeof *m.sd);
    m.angle = nb_arena_array(arena, m.n_rope / 2 + 1, sizeof *m.angle);
    m.amp = nb_arena_array(arena, m.n_rope / 2 + 1, sizeof *m.amp);
    m.is_sink = nb_arena_array(arena, m.n_tok, 1);
    m.kv = nb_arena_array(arena, m.n_tok * m.n_values, sizeof *m.kv);
    m.q = nb_arena_array(arena, m.n_q * m.n_head * m.d_q, sizeof *m.q);
    m.target = nb_arena_array(arena, m.n_q * m.n_head, sizeof *m.target);
    m.pos = nb_arena_array(arena, m.n_q, sizeof *m.pos);
    if (!m.mean || !m.sd || !m.angle || !m.amp || !m.is_sink || !m.kv || !m.q || !m.target ||
        !m.pos)
        return nb_fail(err, NB_ERR_NOMEM, "stress: out of memory");
    /* As a model of these widths would have it: nope of 128 and the rope part; GQA: the head. */
    const float scale = (float)(1 / sqrt(mla ? 128.0 + (double)m.n_rope : (double)d_head));
    make_channels(&m);
    nb_status st = make_latents(&m, arena);
    if (st == NB_OK) {
        make_rope(&m);
        st = make_queries(&m, scale, arena);
    }
    const float *w_uv = st == NB_OK && mla && o->d_v > 0 ? make_w_uv(&m, arena) : NULL;
    if (st != NB_OK || (mla && o->d_v > 0 && !w_uv))
        return nb_fail(err, NB_ERR_NOMEM, "stress: out of memory");
    *out = (nb_stress_layer){
        .view = { .layer = layer,
                  .n_layer = (size_t)o->n_layer,
                  .is_mla = mla,
                  .n_tok = m.n_tok,
                  .n_q = m.n_q,
                  .n_head = m.n_head,
                  .n_kv_head = m.n_kv,
                  .dim = { mla ? m.n_ch : d_head, mla ? m.n_rope : d_head },
                  .n_vec = { m.n_kv, m.n_kv },
                  .n_values = m.n_values,
                  .d_q = m.d_q,
                  .d_v = !mla   ? d_head
                         : w_uv ? (size_t)o->d_v
                                : m.n_ch,
                  .scale = scale,
                  .kv = m.kv,
                  .pos = m.pos,
                  .q = m.q,
                  .w_uv = w_uv },
        .drawn = m.o,
        .mean = m.mean,
        .sd = m.sd,
        .is_sink = m.is_sink,
        .target = m.target,
    };
    return NB_OK;
}
