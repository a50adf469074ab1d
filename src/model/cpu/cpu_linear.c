/* cpu_linear.c - products of a step, cut into tasks.
 *
 * A task is a block of output rows for a block of tokens.  Tasks of a token block follow each other,
 * so that a thread, which gets a run of tasks, keeps its activations in the cache and streams
 * neighbouring rows of the weight.  256 tokens of 2,048 values in 16 bits are a MiB, half of a
 * level-2 cache, and enough to hide the weights' bytes behind the arithmetic (256 operations a byte).
 * 32 rows are enough to pay for a task when there are a few tokens.  With more, a task reads its activations once for up
 * to 128 rows, if that leaves enough tasks for the threads.
 *
 * Where a variant reads activations in a form of its own, each distinct x of a call is packed
 * once before, per block of tokens.  No cut changes a bit of a result: linear.h. */
#include "model/cpu/cpu.h"

enum {
    ROWS = 32,           /* output rows per task */
    ROWS_MANY = 128,     /* at most, from MANY_TOK tokens on */
    MANY_TOK = 16,       /* tokens */
    TASKS = 8,           /* per thread, at least, where rows are more than ROWS */
    INLINE_PACK = 32768, /* values: about 5 microseconds, as long as waking others */
};

nb_job nb_cpu_job(const nb_cpu *f, const nb_weight *w, const float *bias, const float *x,
                  size_t x_stride, float *y, size_t y_stride, size_t n_tok)
{
    return (nb_job){ .a = { .y = y,
                            .x = x,
                            .w = *w,
                            .bias = bias,
                            .n_tok = n_tok,
                            .row_begin = 0,
                            .row_end = w->n_row,
                            .x_stride = x_stride,
                            .y_stride = y_stride },
                     .v = f->r.plan.linear[w->type] };
}

static size_t div_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

size_t nb_cpu_pack_bytes(const nb_linear_variant *v, size_t n_tok, size_t n_col)
{
    const size_t n = n_tok / NB_TOK_BLOCK, left = n_tok % NB_TOK_BLOCK;
    if (!v->pack) return 0;
    return n * v->pack_bytes(NB_TOK_BLOCK, n_col) + (left ? v->pack_bytes(left, n_col) : 0);
}

/* ---- packing ---- */

typedef struct pack_list {
    const nb_pack *pack;
    size_t n_pack;
} pack_list;

static void pack_some(const nb_pack *p, size_t task)
{
    const size_t t = task * NB_LINEAR_PACK_TOK, left = p->n_tok - t;
    p->pack(p->xp, p->x, p->x_stride, p->n_tok, p->n_col, p->column, t,
            t + (left < NB_LINEAR_PACK_TOK ? left : NB_LINEAR_PACK_TOK));
}

static void pack_task(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const pack_list *l = ctx;
    size_t lo = 0, hi = l->n_pack - 1; /* the last whose first task is <= task */
    while (lo < hi) {
        const size_t mid = (lo + hi + 1) / 2;
        if (l->pack[mid].first <= task)
            lo = mid;
        else
            hi = mid - 1;
    }
    pack_some(&l->pack[lo], task - l->pack[lo].first);
}

/* Are the activations of j those of the job before it, in the same form? */
static bool same_x(const nb_job *j, const nb_job *before)
{
    return before && j->a.x == before->a.x && j->a.x_stride == before->a.x_stride &&
           j->a.n_tok == before->a.n_tok && j->a.w.n_col == before->a.w.n_col &&
           j->a.w.group.column == before->a.w.group.column &&
           j->v->pack == before->v->pack;
}

static void pack_jobs(nb_cpu *f, nb_job *job, size_t n_job)
{
    size_t n_pack = 0, n_task = 0, n_value = 0, at = 0;
    const nb_job *before = NULL;
    for (size_t i = 0; i < n_job; i++) {
        nb_job *j = &job[i];
        if (!j->v->pack || j->a.n_tok == 0) continue;
        j->pack = n_pack;
        if (same_x(j, before)) {
            j->pack = before->pack;
            continue;
        }
        before = j;
        for (size_t t = 0; t < j->a.n_tok; t += NB_TOK_BLOCK) {
            const size_t left = j->a.n_tok - t, n = left < NB_TOK_BLOCK ? left : NB_TOK_BLOCK;
            NB_ASSERT(n_pack < f->max_pack);
            f->pack[n_pack++] = (nb_pack){ .pack = j->v->pack,
                                           .xp = f->xp + at,
                                           .x = j->a.x + t * j->a.x_stride,
                                           .x_stride = j->a.x_stride,
                                           .n_tok = n,
                                           .n_col = j->a.w.n_col,
                                           .column = j->a.w.group.column,
                                           .first = n_task };
            at += j->v->pack_bytes(n, j->a.w.n_col);
            n_task += div_up(n, NB_LINEAR_PACK_TOK);
            n_value += n * j->a.w.n_col;
        }
    }
    NB_ASSERT(at <= f->xp_bytes);
    pack_list l = { f->pack, n_pack };
    if (n_value > INLINE_PACK)
        nb_dev_run(f->r.o.dev, pack_task, &l, n_task);
    else
        for (size_t i = 0; i < n_task; i++) pack_task(&l, i, 0);
}

/* ---- products ---- */

typedef struct job_list {
    const nb_cpu *f;
    const nb_job *job;
    size_t n_job;
} job_list;

static void run_block(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const job_list *l = ctx;
    size_t lo = 0, hi = l->n_job - 1; /* the last job whose first task is <= task */
    while (lo < hi) {
        const size_t mid = (lo + hi + 1) / 2;
        if (l->job[mid].first <= task)
            lo = mid;
        else
            hi = mid - 1;
    }
    const nb_job *j = &l->job[lo];
    nb_linear_args a = j->a;
    const size_t tb = (task - j->first) / j->n_row_block, rb = (task - j->first) % j->n_row_block;
    const size_t r = j->a.row_begin + rb * j->rows, t = tb * NB_TOK_BLOCK, left = j->a.n_tok - t;
    a.row_begin = r;
    a.row_end = r + j->rows < j->a.row_end ? r + j->rows : j->a.row_end;
    a.n_tok = left < NB_TOK_BLOCK ? left : NB_TOK_BLOCK;
    a.x = j->a.x + t * a.x_stride;
    a.y = j->a.y + t * a.y_stride + (r - j->a.row_begin);
    if (j->v->pack) a.xp = l->f->pack[j->pack + tb].xp;
    j->v->fn(&a);
}

/* Rows of a task of many tokens. */
static size_t rows_per_task(const nb_cpu *f, const nb_job *job, size_t n_job)
{
    size_t n_block = 0; /* of ROWS rows */
    for (size_t i = 0; i < n_job; i++)
        n_block += div_up(job[i].a.row_end - job[i].a.row_begin, ROWS) * div_up(job[i].a.n_tok, NB_TOK_BLOCK);
    size_t rows = ROWS_MANY;
    while (rows > ROWS && n_block * ROWS < rows * TASKS * nb_dev_n_worker(f->r.o.dev)) rows /= 2;
    return rows;
}

void nb_cpu_run_jobs(nb_cpu *f, nb_job *job, size_t n_job)
{
    size_t n_task = 0;
    for (size_t i = 0; f->r.observe && i < n_job; i++)
        f->r.observe(f->r.observe_ctx, &job[i].a.w, SIZE_MAX, job[i].a.x, job[i].a.n_tok,
                     job[i].a.w.n_col, job[i].a.x_stride);
    pack_jobs(f, job, n_job);
    const size_t many = rows_per_task(f, job, n_job);
    for (size_t i = 0; i < n_job; i++) {
        nb_job *j = &job[i];
        j->rows = j->a.n_tok < MANY_TOK ? ROWS : many;
        j->first = n_task;
        j->n_row_block = div_up(j->a.row_end - j->a.row_begin, j->rows);
        n_task += j->n_row_block * div_up(j->a.n_tok, NB_TOK_BLOCK);
    }
    job_list l = { f, job, n_job };
    nb_dev_run(f->r.o.dev, run_block, &l, n_task);
}

void nb_cpu_linear(nb_cpu *f, const nb_weight *w, const float *bias, const float *x,
                   size_t x_stride, float *y, size_t y_stride, size_t n_tok)
{
    nb_job j = nb_cpu_job(f, w, bias, x, x_stride, y, y_stride, n_tok);
    nb_cpu_run_jobs(f, &j, 1);
}

/* ---- work on tokens ---- */

enum { TASK_TOK = 16 };

typedef struct tok_ctx {
    nb_cpu_tok_fn *fn;
    void *ctx;
    size_t n_tok;
} tok_ctx;

static void tok_task(void *ctx, size_t task, size_t worker)
{
    (void)worker;
    const tok_ctx *x = ctx;
    const size_t t = task * TASK_TOK, left = x->n_tok - t;
    x->fn(x->ctx, t, t + (left < TASK_TOK ? left : TASK_TOK));
}

void nb_cpu_tokens(nb_cpu *f, nb_cpu_tok_fn *fn, void *ctx, size_t n_tok)
{
    tok_ctx x = { fn, ctx, n_tok };
    nb_dev_run(f->r.o.dev, tok_task, &x, div_up(n_tok, TASK_TOK));
}
