/* pace.c - the line through the last steps, and what follows from it. */
#include "sched/pace.h"

#include <math.h>

static const double new_share = 0.2; /* of the last step in a mean of D */
static const double kept = 0.9;      /* weight of a step with prompts when the next one has come */
static const double decodes = 3, fixed = 2, steps = 4; /* the derived limit: pace.h */

static size_t class_of(size_t n)
{
    size_t c = 0;
    while (n > 1 && c + 1 < NB_PACE_CLASSES) {
        n /= 2;
        c++;
    }
    return c;
}

/* D(n): of its class, else of the nearest smaller one, else of the nearest larger one; 0: nothing was seen. */
static double decode_of(const nb_pace *p, size_t n)
{
    const size_t c = class_of(n);
    for (size_t i = c + 1; i-- > 0;)
        if (p->decode_s[i] > 0) return p->decode_s[i];
    for (size_t i = c + 1; i < NB_PACE_CLASSES; i++)
        if (p->decode_s[i] > 0) return p->decode_s[i];
    return 0;
}

void nb_pace_note(nb_pace *p, size_t n_decode, double work, double seconds)
{
    if (!(seconds > 0)) return;
    if (!(work > 0)) {
        if (n_decode == 0) return;
        double *d = &p->decode_s[class_of(n_decode)];
        *d = *d > 0 ? *d + new_share * (seconds - *d) : seconds;
        return;
    }
    const double y = fmax(0, seconds - (n_decode ? decode_of(p, n_decode) : 0));
    p->n = kept * p->n + 1;
    p->x = kept * p->x + work;
    p->xx = kept * p->xx + work * work;
    p->y = kept * p->y + y;
    p->xy = kept * p->xy + work * y;
}

/* Seconds of any prompt and per token of work.  Steps of one size, and lines that make no sense, say
 * only what a token costs. */
static void line(const nb_pace *p, double *c, double *r)
{
    const double spread = p->n * p->xx - p->x * p->x;
    *c = 0;
    *r = p->x > 0 ? p->y / p->x : 0;
    if (!(spread > 1e-3 * p->n * p->xx)) return;
    const double slope = (p->n * p->xy - p->x * p->y) / spread;
    const double at_0 = (p->y - slope * p->x) / p->n;
    if (!(slope > 0) || !(at_0 > 0)) return;
    *c = at_0;
    *r = slope;
}

double nb_pace_work(const nb_pace *p, size_t n_decode, double backlog)
{
    const double d = decode_of(p, n_decode);
    double c, r;
    line(p, &c, &r);
    if (!(p->max_step_s > 0 || p->max_step_s < 0) || !(r > 0) || !(d > 0)) return (double)INFINITY;
    double most = p->max_step_s;
    if (most < 0) most = fmax(fmax(decodes * d, d + fixed * c), d + c + r * backlog / steps);
    return fmax(0, (most - d - c) / r);
}

double nb_pace_chunk(const nb_pace *p, size_t n, size_t before)
{
    const double k = (double)n, b = (double)before;
    return k + p->pair_tok * (k * b + k * (k + 1) / 2);
}

size_t nb_pace_fit(const nb_pace *p, double work, size_t n, size_t before)
{
    if (nb_pace_chunk(p, n, before) <= work) return n;
    /* n (1 + pair_tok (before + 1/2)) + n^2 pair_tok / 2 = work, without the difference of two large numbers */
    const double a = p->pair_tok / 2, b = 1 + p->pair_tok * ((double)before + 0.5);
    const double most = 2 * work / (b + sqrt(b * b + 4 * a * work));
    return most > 0 ? (size_t)fmin(most, (double)n) : 0;
}
