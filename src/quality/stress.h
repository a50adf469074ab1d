/* stress.h - generated attention inputs that break low bits: every phenomenon that is reported of
 * real caches, each with a parameter.
 *
 * One layer at a time, from (seed, layer): channels with a spread of deviations and outliers, noise
 * of mixed tails, tokens of a block that resemble each other, sinks that put their norm into two
 * channels, rope keys with large constant offsets (rotated by their true positions), and queries
 * with background scores and one target token per head.  A parameter that is "drawn" takes a value
 * of its set for each layer; what was drawn is printed.
 *
 * Channel c of token t:  mu_c + s_c (sqrt(rho) m_{c,t/64} + sqrt(1 - rho) z), z with unit variance:
 * 70% Gaussian, 20% Laplace, 10% Student t with 4 degrees of freedom.
 * The score of a query: background (deviation logit_sd) plus a multiple of its target's own
 * deviation from mu, so that the target's score is ln(n_tok) + offset above the background's mean.
 * Where the background is not Gaussian (rope offsets, sinks) ln(n_tok) is its log-sum-exp less
 * logit_sd^2 / 2, which is the same thing for a Gaussian one.
 *
 * Equal on every run and machine but for the last bits of libm. */
#ifndef NB_QUALITY_STRESS_H
#define NB_QUALITY_STRESS_H
#include "base/arena.h"
#include "nibble/measure.h"

enum { NB_STRESS_MAX_OFFSET = 16 };

/* Numbers that are NaN are drawn per layer. */
typedef struct nb_stress_opts {
    uint64_t seed;
    double n_layer, n_tok, n_head, n_query; /* whole numbers */
    double kv_heads; /* 0: MLA (a latent and a rope key); else K and V of so many heads */
    double latent, rope, d_head; /* widths: MLA's two, GQA's one */
    double d_v;                  /* MLA: width of a head's value through random w_uv; 0: none */
    double gain;                 /* g: of all channels; drawn: log-uniform in .004..1.2 */
    double sigma_ch;             /* spread of ln s_c; drawn of 0, .5, 1 */
    double outliers;    /* channels; drawn of 0, 2, 4, 6; the first half 10..20 times as wide, the
                          others with a mean of +-12 deviations */
    double rho;         /* correlation in blocks of 64; drawn of 0, .1, .3, .6 */
    double sinks;       /* first tokens that are sinks */
    double sink_rate;   /* share of later tokens that are */
    double rope_sd;     /* deviation of rope key values */
    double rope_pairs;  /* pairs with an offset, of the 8 of lowest frequency; drawn of 0..4 */
    double rope_offset; /* its amplitude; drawn of 0, 10, 50, 200, 1000 */
    double rope_q;      /* amplitude of the query in these pairs */
    double rope_logit;  /* deviation of scores that the rope part adds elsewhere */
    double logit_sd;    /* of the background; drawn of .5, 1, 3 */
    double balance;     /* 1: every channel moves scores alike; 0: by its deviation */
    double p;           /* NaN, or the target's probability: it stands for `offset` */
    double offset[NB_STRESS_MAX_OFFSET]; /* head h has offset[h % n_offset] */
    size_t n_offset;
} nb_stress_opts;

/* Defaults: 4 layers of 16 heads, 16384 tokens, 64 queries, a latent of 512 with 64, everything
 * drawn, offsets -3, 0, 2, 6. */
void nb_stress_defaults(nb_stress_opts *o, uint64_t seed);
/* name=value,... of the fields above ("auto": drawn; offset=-3/0/2/6), and preset=NAME:
 *   diffuse, medium, peaky, sharp   p = .005, .1, .5, .98
 *   plain      nothing drawn: gain 1, no spread, outliers, correlation, sinks, offsets; logit_sd 1
 *   quick      4096 tokens, 16 queries
 * Later ones count.  The line of an error names the parameter and what it takes. */
nb_status nb_stress_set(nb_stress_opts *o, const char *list, nb_error *err);
/* The ranges of all fields together; NB_ERR_LIMIT when a layer would take more than 4 GiB. */
nb_status nb_stress_check(const nb_stress_opts *o, nb_error *err);

/* One layer; everything is in the arena. */
typedef struct nb_stress_layer {
    nb_capture_layer view;
    nb_stress_opts drawn;    /* what the layer was made with: no NaN but p */
    const double *mean, *sd; /* [channels of segment 0] */
    const uint8_t *is_sink;  /* [n_tok] */
    const size_t *target;    /* [n_query][n_head] */
} nb_stress_layer;
nb_status nb_stress_make(const nb_stress_opts *o, size_t layer, nb_arena *arena,
                         nb_stress_layer *out, nb_error *err);

/* All parameters as name=value, separated by commas: nb_stress_set takes it back. */
nb_status nb_stress_print(const nb_stress_opts *o, nb_buf *out);

#endif
