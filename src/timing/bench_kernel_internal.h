/* bench_kernel_internal.h - between the files of `nibble bench kernel`.
 *
 * An operation is a function that looks up its variant, makes its data and describes one or more
 * parts; bench_kernel.c times them. */
#ifndef NB_TIMING_BENCH_KERNEL_INTERNAL_H
#define NB_TIMING_BENCH_KERNEL_INTERNAL_H
#include "base/caps.h"
#include "kernel/linear/packed.h"
#include "num/record.h"
#include "os/pool.h"
#include "timing/bench_kernel.h"

enum { KB_ROW_BLOCK = 32, KB_SPLIT_MAX = 8, KB_WAVE = 64 }; /* as src/model cuts its work */

typedef enum nb_kb_peak { KB_PEAK_NONE, KB_PEAK_F32, KB_PEAK_BF16, KB_PEAK_INT8 } nb_kb_peak;

typedef struct nb_kb_run nb_kb_run;
/* One part: step(run, item) does the whole of an item on run->b->pool. */
typedef struct nb_kb_part {
    const char *name, *variant;
    void (*step)(nb_kb_run *r, size_t item);
    double bytes, ops, context;
    nb_kb_peak peak;
} nb_kb_part;

/* A case that is being run. */
struct nb_kb_run {
    nb_kbench *b;
    const nb_kbench_case *c;
    nb_caps caps;
    /* filled by the operation */
    unsigned char *set; /* n_item items of item_bytes */
    size_t item_bytes, n_item;
    nb_kb_part part[NB_KBENCH_MAX_ROW];
    size_t n_part;
    void *op; /* the operation's own */
    /* of the step in hand, for the tasks */
    size_t item;
};

struct nb_kbench {
    nb_pool *pool;
    uint64_t seed;
    void **mem; /* everything that a case has allocated */
    size_t n_mem, cap_mem, n_bytes;
    size_t max_bytes; /* of a case: more than a machine has would only be refused when touched */
    /* floors that were measured, so that a table of rows measures each once */
    struct {
        nb_caps caps;
        double gops[4];
    } ops;
};

/* Zeroed memory aligned to 128 for the length of the case; NULL when there is none. */
void *nb_kb_alloc(nb_kbench *b, size_t n_bytes);
/* The set: items of item_bytes (rounded up to 512), one warm or enough for set_bytes cold.  Every
 * item gets the bytes of one of the n_model model items at `model`. */
nb_status nb_kb_make_set(nb_kb_run *r, const void *model, size_t n_model, size_t item_bytes,
                         nb_error *err);
/* n floats in [-1, 1) of the seed, or NULL. */
float *nb_kb_floats(nb_kbench *b, size_t n, uint64_t stream);
/* The record of the case: MLA, 512 + 64. */
nb_status nb_kb_record(const nb_kb_run *r, nb_record *out, nb_error *err);
/* A page of random values, or NULL. */
void *nb_kb_pages(nb_kb_run *r, const nb_record *rec, size_t n_page);
nb_status nb_kb_nomem(nb_error *err);

static inline const unsigned char *nb_kb_item(const nb_kb_run *r, size_t item)
{
    return r->set + item % r->n_item * r->item_bytes;
}

/* The first row of a table that caps allow; tables end at name == NULL. */
#define KB_PICK(v, table, caps)                                                                    \
    do {                                                                                           \
        (v) = (table);                                                                             \
        while ((v)->name && ((v)->space != NB_SPACE_HOST || ((v)->need & ~(caps)))) (v)++;         \
    } while (0)

typedef nb_status nb_kb_setup(nb_kb_run *r, nb_error *err);
/* bench_kernel_linear.c: the set is matrices of the case's rows, columns and type; w has no data. */
nb_status nb_kb_weight(nb_kb_run *r, nb_weight *w, nb_error *err);
/* Lets w point into an item of the set. */
void nb_kb_set_weight(nb_weight *w, const unsigned char *item);

nb_kb_setup nb_kb_attn_pages, nb_kb_attn, nb_kb_attn_score,
    nb_kb_attn_prefill;                        /* bench_kernel_attn.c, _prefill.c */
nb_kb_setup nb_kb_index_score, nb_kb_index_topk; /* bench_kernel_index.c */
nb_kb_setup nb_kb_kv_codec, nb_kb_kv_residual; /* bench_kernel_kv.c */
nb_kb_setup nb_kb_linear, nb_kb_linear_t;      /* bench_kernel_linear.c */
nb_kb_setup nb_kb_rmsnorm, nb_kb_rope, nb_kb_swiglu, nb_kb_route, nb_kb_embed,
    nb_kb_kda; /* bench_kernel_small.c */

#endif
