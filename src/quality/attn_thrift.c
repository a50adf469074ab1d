/* attn_thrift.c - see attn_thrift.h.
 *
 * The sets of growing fractions are nested, so a method walks its ranking once: each token that is
 * refined replaces its own terms in the sums of the base's pass. */
#include "quality/attn_thrift.h"

#include <math.h>
#include <stdlib.h>

#include "num/bf16.h"
#include "num/fp16.h"
#include "quality/attn_math.h"

typedef struct ranked {
    double score;
    size_t at;
} ranked;

struct nb_thrift_scratch {
    size_t n_block, d_key; /* of one row: all KV heads */
    float *mean, *lo, *hi; /* [n_block][d_key] */
    double *s_new;         /* [n_head][n_tok], where known[t] */
    uint8_t *known;        /* [n_tok] */
    uint8_t *mark;         /* [n_kv_head][n_tok] */
    ranked *rank;          /* [n_tok] */
    double *u, *sum, *kl;  /* running sums: [n_head][sum_width], [n_head], [n_head] */
    double *tmp, *out;     /* [sum_width], [out_width] */
    size_t n_row[NB_THRIFT_MAX_FRACTIONS]; /* rows read */
};

static const struct {
    const char *name;
    nb_thrift_kind kind;
} kinds[] = {
    { "token", NB_SEL_TOKEN },
    { "token-top", NB_SEL_TOKEN_TOP },
    { "block-mean", NB_SEL_BLOCK_MEAN },
    { "block-mean-causal", NB_SEL_BLOCK_MEAN_CAUSAL },
    { "quest", NB_SEL_QUEST },
    { "local", NB_SEL_LOCAL },
    { "block-prob", NB_SEL_BLOCK_PROB },
    { "oracle", NB_SEL_ORACLE },
    { "oracle-token", NB_SEL_ORACLE_TOKEN },
};

nb_status nb_thrift_method_parse(const char *word, nb_thrift_method *out)
{
    const size_t n = strcspn(word, ":");
    for (size_t i = 0; i < NB_COUNT(kinds); i++) {
        if (!nb_str_eqc((nb_str){ word, n }, kinds[i].name)) continue;
        if (word[n] && strcmp(word + n, ":head") != 0) break;
        *out = (nb_thrift_method){ .kind = kinds[i].kind, .per_head = word[n] != 0 };
        memcpy(out->name, word, strlen(word) + 1); /* the longest is 22 */
        return NB_OK;
    }
    return NB_ERR_ARG;
}

nb_status nb_thrift_fractions(const char *list, double *out, size_t *n, nb_error *err)
{
    *n = 0;
    for (const char *p = list;; p++) {
        char *end;
        const double x = strtod(p, &end);
        const bool ok = end != p && (!*end || *end == ',') && x > 0 && x <= 1;
        if (!ok || *n == NB_THRIFT_MAX_FRACTIONS || (*n && x <= out[*n - 1]))
            return nb_fail(err, NB_ERR_ARG,
                           "fractions %s: expected up to %d ascending numbers over 0 up to 1, such "
                           "as 0.001,0.05",
                           list, NB_THRIFT_MAX_FRACTIONS);
        out[(*n)++] = x;
        p = end;
        if (!*p) return NB_OK;
    }
}

/* To the nearest whole number, halves to even, whatever the rounding mode. */
static double round_even(double x)
{
    const double f = floor(x), d = x - f;
    if (d > 0.5 || (d >= 0.5 && fmod(f, 2) > 0)) return f + 1;
    return f;
}

size_t nb_thrift_top_k(size_t n, double fraction, bool causal)
{
    const double nn = (double)n;
    if (n == 0 || !(fraction > 0)) return 0;
    if (fraction >= 1) return n;
    double k = fraction * nn;
    if (causal) {
        const double b = 2 * nn + 1;
        k = (b - sqrt(b * b - 4 * fraction * nn * (nn + 1))) / 2;
    }
    k = round_even(k);
    return k < 1 ? 1 : k > nn ? n : (size_t)k;
}

/* ---- block tables -------------------------------------------------------------- */

/* From the values that the encoder saw, in BF16. */
static nb_status block_tables(const nb_thrift_run *r, nb_arena *arena, nb_error *err)
{
    struct nb_thrift_scratch *x = r->scratch;
    const nb_capture_layer *l = r->base->l;
    const size_t d = x->d_key;
    float *all;
    double row_bytes;
    NB_TRY(nb_attn_form_refined(r->base, NB_REFINE_BF16, arena, &all, &row_bytes, err));
    for (size_t b = 0; b < x->n_block; b++) {
        float *mean = x->mean + b * d, *lo = x->lo + b * d, *hi = x->hi + b * d;
        const float *rows = all + b * NB_PAGE_TOK * l->n_values;
        for (size_t c = 0; c < d; c++) {
            float sum = 0;
            lo[c] = INFINITY;
            hi[c] = -INFINITY;
            for (size_t t = 0; t < NB_PAGE_TOK; t++) {
                const float v = rows[t * l->n_values + c];
                sum += v;
                lo[c] = fminf(lo[c], v);
                hi[c] = fmaxf(hi[c], v);
            }
            mean[c] = nb_fp16_to_f32(nb_fp16_from_f32_sat(sum / NB_PAGE_TOK));
        }
    }
    return NB_OK;
}

nb_status nb_thrift_run_init(nb_thrift_run *r, nb_arena *arena, nb_error *err)
{
    const nb_capture_layer *l = r->base->l;
    struct nb_thrift_scratch *x = nb_arena_alloc(arena, sizeof *x);
    const size_t n_case = r->n_method * r->n_fraction * l->n_q;
    r->error = nb_arena_array(arena, n_case * l->n_head, sizeof *r->error);
    r->cost = nb_arena_array(arena, n_case, sizeof *r->cost);
    r->scratch = x;
    if (!x || !r->error || !r->cost) return nb_fail(err, NB_ERR_NOMEM, "thrift: out of memory");
    x->n_block = r->base->n_page;
    x->d_key = l->is_mla ? l->n_values : l->n_vec[0] * l->dim[0];
    const size_t n_table = (x->n_block + 1) * x->d_key;
    x->mean = nb_arena_array(arena, n_table, sizeof *x->mean);
    x->lo = nb_arena_array(arena, n_table, sizeof *x->lo);
    x->hi = nb_arena_array(arena, n_table, sizeof *x->hi);
    x->s_new = nb_arena_array(arena, l->n_head * l->n_tok, sizeof *x->s_new);
    x->known = nb_arena_array(arena, l->n_tok, 1);
    x->mark = nb_arena_array(arena, l->n_kv_head * l->n_tok, 1);
    x->rank = nb_arena_array(arena, l->n_tok, sizeof *x->rank);
    x->u = nb_arena_array(arena, l->n_head * nb_attn_sum_width(l), sizeof *x->u);
    x->sum = nb_arena_array(arena, l->n_head, sizeof *x->sum);
    x->kl = nb_arena_array(arena, l->n_head, sizeof *x->kl);
    x->tmp = nb_arena_array(arena, nb_attn_sum_width(l), sizeof *x->tmp);
    x->out = nb_arena_array(arena, nb_attn_out_width(l), sizeof *x->out);
    if (!x->mean || !x->lo || !x->hi || !x->s_new || !x->known || !x->mark || !x->rank || !x->u ||
        !x->sum || !x->kl || !x->tmp || !x->out)
        return nb_fail(err, NB_ERR_NOMEM, "thrift: out of memory");
    return block_tables(r, arena, err);
}

/* ---- rankings ------------------------------------------------------------------ */

static int by_score(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->score > y->score || x->score < y->score) return x->score > y->score ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}

typedef struct heads {
    size_t first, end;
} heads;

/* Tokens by the greatest probability of any head; those of at most `floor` are left out. */
static size_t rank_tokens(const nb_attn_pass *p, size_t n_cand, heads g, double floor, ranked *out)
{
    size_t n = 0;
    for (size_t t = 0; t < n_cand; t++) {
        double best = 0;
        for (size_t h = g.first; h < g.end; h++) best = fmax(best, p->e[h * p->ld + t] / p->sum[h]);
        if (best > floor) out[n++] = (ranked){ best, t };
    }
    qsort(out, n, sizeof *out, by_score);
    return n;
}

static double block_prob(const nb_attn_pass *p, size_t b, heads g)
{
    double best = 0;
    for (size_t h = g.first; h < g.end; h++) {
        double sum = 0;
        for (size_t t = b * NB_PAGE_TOK; t < (b + 1) * NB_PAGE_TOK; t++) sum += p->e[h * p->ld + t];
        best = fmax(best, sum / p->sum[h]);
    }
    return best;
}

static double block_bound(const nb_thrift_run *r, const nb_attn_pass *p, size_t b, heads g,
                          bool quest)
{
    const struct nb_thrift_scratch *x = r->scratch;
    const nb_capture_layer *l = r->base->l;
    double best = -INFINITY;
    for (size_t h = g.first; h < g.end; h++) {
        const nb_attn_head at = nb_attn_head_of(l, h);
        const size_t first = b * x->d_key + at.key;
        const float *q = p->q + h * l->d_q;
        double s = 0;
        if (quest)
            for (size_t c = 0; c < at.d_key; c++)
                s += (double)q[c] * (q[c] >= 0 ? x->hi[first + c] : x->lo[first + c]);
        else
            s = nb_attn_dot(q, x->mean + first, at.d_key);
        best = fmax(best, s);
    }
    return best;
}

static size_t rank_blocks(const nb_thrift_run *r, nb_thrift_kind kind, const nb_attn_pass *truth,
                          const nb_attn_pass *base, size_t n_block, heads g)
{
    ranked *out = r->scratch->rank;
    for (size_t b = 0; b < n_block; b++) {
        const double s = kind == NB_SEL_LOCAL        ? (double)b
                         : kind == NB_SEL_BLOCK_PROB ? block_prob(base, b, g)
                         : kind == NB_SEL_ORACLE     ? block_prob(truth, b, g)
                                                 : block_bound(r, base, b, g, kind == NB_SEL_QUEST);
        out[b] = (ranked){ s, b };
    }
    qsort(out, n_block, sizeof *out, by_score);
    return n_block;
}

/* ---- one method ----------------------------------------------------------------- */

static void know(const nb_thrift_run *r, const nb_attn_pass *base, size_t t)
{
    struct nb_thrift_scratch *x = r->scratch;
    if (x->known[t]) return;
    const nb_capture_layer *l = r->base->l;
    nb_attn_scores(l, base->q, r->rows + t * l->n_values, 1, x->s_new + t, base->ld);
    x->known[t] = 1;
}

/* Token t refined for the heads of g. */
static void refine(const nb_thrift_run *r, const nb_attn_pass *truth, const nb_attn_pass *base,
                   size_t t, heads g)
{
    struct nb_thrift_scratch *x = r->scratch;
    const nb_capture_layer *l = r->base->l;
    const size_t d = nb_attn_sum_width(l);
    know(r, base, t);
    for (size_t h = g.first; h < g.end; h++) {
        const size_t i = h * base->ld + t, v = t * l->n_values + nb_attn_head_of(l, h).value;
        const double e_old = base->e[i], e_new = exp(x->s_new[i] - base->max[h]);
        x->sum[h] += e_new - e_old;
        nb_attn_axpy(-e_old, r->base->rows + v, d, x->u + h * d);
        nb_attn_axpy(e_new, r->rows + v, d, x->u + h * d);
        x->kl[h] -= truth->e[i] / truth->sum[h] * (x->s_new[i] - base->s[i]);
    }
}

/* A row that several heads refine is read once.  Heads come one after the other, each from the
 * smallest fraction on: mark holds 1 + the smallest at which the row was read so far. */
static void count_row(const nb_thrift_run *r, size_t t, heads g, size_t k)
{
    struct nb_thrift_scratch *x = r->scratch;
    const nb_capture_layer *l = r->base->l;
    uint8_t *mark = x->mark + g.first / (l->n_head / l->n_kv_head) * l->n_tok + t;
    const size_t before = *mark ? (size_t)*mark - 1 : r->n_fraction;
    for (size_t j = k; j < before; j++) x->n_row[j]++;
    if (k < before) *mark = (uint8_t)(k + 1);
}

static void errors(const nb_thrift_run *r, const nb_attn_pass *truth, const nb_attn_pass *base,
                   const nb_attn_error *base_error, heads g, nb_attn_error *to)
{
    const struct nb_thrift_scratch *x = r->scratch;
    const size_t d = nb_attn_sum_width(r->base->l);
    for (size_t h = g.first; h < g.end; h++) {
        memcpy(x->tmp, x->u + h * d, d * sizeof *x->tmp);
        nb_attn_compare(r->base, h, truth, x->tmp, x->sum[h], x->out, &to[h]);
        const double kl = base_error[h].kl + x->kl[h] + log(x->sum[h] / base->sum[h]);
        to[h].kl = kl > 0 ? kl : 0;
        to[h].max_dp = 0;
    }
}

static void run_method(nb_thrift_run *r, size_t im, size_t iq, const nb_attn_pass *truth,
                       const nb_attn_pass *base, const nb_attn_error *base_error)
{
    const nb_thrift_method *m = &r->method[im];
    struct nb_thrift_scratch *x = r->scratch;
    const nb_capture_layer *l = r->base->l;
    const size_t n_group = m->per_head ? l->n_head : l->n_kv_head, per = l->n_head / n_group;
    const size_t n_block = base->whole / NB_PAGE_TOK;
    const bool by_token =
        m->kind == NB_SEL_TOKEN || m->kind == NB_SEL_TOKEN_TOP || m->kind == NB_SEL_ORACLE_TOKEN;
    memcpy(x->u, base->u, l->n_head * nb_attn_sum_width(l) * sizeof *x->u);
    memcpy(x->sum, base->sum, l->n_head * sizeof *x->sum);
    memset(x->kl, 0, l->n_head * sizeof *x->kl);
    memset(x->mark, 0, l->n_kv_head * l->n_tok);
    memset(x->n_row, 0, sizeof x->n_row);
    for (size_t ig = 0; ig < n_group; ig++) {
        const heads g = { ig * per, (ig + 1) * per };
        const size_t n_rank =
            by_token ? rank_tokens(m->kind == NB_SEL_ORACLE_TOKEN ? truth : base, base->whole, g,
                                   m->kind == NB_SEL_TOKEN ? r->tau : -1, x->rank)
                     : rank_blocks(r, m->kind, truth, base, n_block, g);
        size_t done = 0;
        for (size_t k = 0; k < r->n_fraction; k++) {
            size_t want = nb_thrift_top_k(by_token ? base->whole : n_block, r->fraction[k],
                                          m->kind == NB_SEL_BLOCK_MEAN_CAUSAL);
            if (want > n_rank) want = n_rank;
            for (; done < want; done++) {
                const size_t at = x->rank[done].at, n = by_token ? 1 : NB_PAGE_TOK;
                for (size_t t = at * n; t < (at + 1) * n; t++) {
                    refine(r, truth, base, t, g);
                    count_row(r, t, g, k);
                }
            }
            const size_t c = (im * r->n_fraction + k) * l->n_q + iq;
            nb_thrift_cost *cost = &r->cost[c];
            const double rows = (double)(by_token ? done : done * NB_PAGE_TOK);
            cost->refined += rows / (double)n_group / (double)base->n;
            cost->base_bytes = (double)base->whole * r->base->bytes_per_tok +
                               (double)(base->n - base->whole) * r->base->tail_bytes;
            errors(r, truth, base, base_error, g, r->error + c * l->n_head);
        }
    }
    for (size_t k = 0; k < r->n_fraction; k++)
        r->cost[(im * r->n_fraction + k) * l->n_q + iq].refine_bytes =
            (double)x->n_row[k] * r->row_bytes / (double)l->n_kv_head;
}

void nb_thrift_run_query(nb_thrift_run *r, size_t query, const nb_attn_pass *truth,
                         const nb_attn_pass *base, const nb_attn_error *base_error)
{
    memset(r->scratch->known, 0, r->base->l->n_tok);
    for (size_t i = 0; i < r->n_method; i++) run_method(r, i, query, truth, base, base_error);
}
