/* bench_kernel_internal.h - between the files of `nibble bench kernel`.
 *
 * An operation is a function that looks up its variant, makes its data and describes one or more
 * parts; bench_kernel.c times them. */
#ifndef NB_EVAL_BENCH_KERNEL_INTERNAL_H
#define NB_EVAL_BENCH_KERNEL_INTERNAL_H
#include "base/caps.h"
#include "eval/bench_kernel.h"
#include "kernel/kernel.h"
#include "num/record.h"
#include "os/pool.h"

enum { KB_ROW_BLOCK = 32, KB_SPLIT_PAGES = 4, KB_WAVE = 64 }; /* as src/model cuts its work */

typedef enum kb_peak { KB_PEAK_NONE, KB_PEAK_F32, KB_PEAK_BF16, KB_PEAK_INT8 } kb_peak;

typedef struct kb_run kb_run;
/* One part: step(run, item) does the whole of an item on run->b->pool. */
typedef struct kb_part {
    const char *name, *variant;
    void (*step)(kb_run *r, size_t item);
    double bytes, ops, context;
    kb_peak peak;
} kb_part;

/* A case that is being run. */
struct kb_run {
    nb_kbench *b;
    const nb_kbench_case *c;
    nb_caps caps;
    /* filled by the operation */
    unsigned char *set; /* n_item items of item_bytes */
    size_t item_bytes, n_item;
    kb_part part[NB_KBENCH_MAX_ROW];
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
void *kb_alloc(nb_kbench *b, size_t n_bytes);
/* The set: items of item_bytes (rounded up to 512), one warm or enough for set_bytes cold.  Every
 * item gets the bytes of one of the n_model model items at `model`. */
nb_status kb_make_set(kb_run *r, const void *model, size_t n_model, size_t item_bytes,
                      nb_error *err);
/* n floats in [-1, 1) of the seed, or NULL. */
float *kb_floats(nb_kbench *b, size_t n, uint64_t stream);
/* The record of the case: MLA, 512 + 64. */
nb_status kb_record(const kb_run *r, nb_record *out, nb_error *err);
/* A page of random values, or NULL. */
void *kb_pages(kb_run *r, const nb_record *rec, size_t n_page);
nb_status kb_nomem(nb_error *err);

static inline const unsigned char *kb_item(const kb_run *r, size_t item)
{
    return r->set + item % r->n_item * r->item_bytes;
}

/* The first row of a table that caps allow; tables end at name == NULL. */
#define KB_PICK(v, table, caps)                                                                    \
    do {                                                                                           \
        (v) = (table);                                                                             \
        while ((v)->name && ((v)->space != NB_SPACE_HOST || ((v)->need & ~(caps)))) (v)++;         \
    } while (0)

typedef nb_status kb_setup(kb_run *r, nb_error *err);
/* bench_kernel_linear.c: the set is matrices of the case's rows, columns and type; w has no data. */
nb_status kb_weight(kb_run *r, nb_weight *w, nb_error *err);

kb_setup kb_attn_pages, kb_attn, kb_attn_score,
    kb_attn_prefill;                                         /* bench_kernel_attn.c, _prefill.c */
kb_setup kb_kv_codec, kb_kv_residual;                        /* bench_kernel_kv.c */
kb_setup kb_linear, kb_linear_t;                             /* bench_kernel_linear.c */
kb_setup kb_rmsnorm, kb_rope, kb_swiglu, kb_route, kb_embed; /* bench_kernel_small.c */

#endif
