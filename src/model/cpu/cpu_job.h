/* cpu_job.h - a product to be computed, and activations in the form that it reads. */
#ifndef NB_MODEL_CPU_JOB_H
#define NB_MODEL_CPU_JOB_H
#include "kernel/linear/linear.h"

/* A product to be computed; jobs of one call run side by side. */
typedef struct nb_job {
    nb_linear_args a;
    const nb_linear_variant *v;
    size_t rows, n_row_block, first; /* rows of a task; blocks of rows; index of the first task */
    size_t pack;                     /* where v has pack: the first of its blocks of tokens */
} nb_job;

/* Activations of a block of tokens in the form that a variant reads. */
typedef struct nb_pack {
    nb_linear_pack *pack;
    char *xp;
    const float *x;
    size_t x_stride, n_tok, n_col, first; /* first: index of its first task */
    const uint32_t *column;
} nb_pack;

/* The job, of rows [row0, row0 + n_row) only: y [n_tok][y_stride] begins with the first of them. */
static inline nb_job nb_cpu_rows(nb_job j, size_t row0, size_t n_row)
{
    j.a.row_begin = row0;
    j.a.row_end = row0 + n_row;
    return j;
}

#endif
