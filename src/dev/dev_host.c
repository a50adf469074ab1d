/* dev_host.c - the host device: see dev.h. */
#include <stdlib.h>

#include "dev/dev.h"
#include "os/file.h"
#include "os/places.h"
#include "os/pool.h"

struct nb_dev {
    nb_pool *pool;
    nb_machine machine;
    bool free; /* nothing but the machine says where threads may run */
    bool near; /* memory is not spread over the nodes */
};

nb_status nb_dev_create_host(size_t n_thread, nb_dev **out, nb_error *err)
{
    nb_dev *d = calloc(1, sizeof *d);
    if (!d) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    const nb_status st = nb_pool_create(n_thread, &d->pool, err);
    if (st != NB_OK) {
        free(d);
        return st;
    }
    nb_machine_here(&d->machine, &d->free);
    *out = d;
    return NB_OK;
}

nb_status nb_dev_bind_part(nb_dev *d, const char *affinity, size_t part, size_t n_part,
                           nb_error *err)
{
    uint16_t cpu[NB_MAX_CPU];
    const size_t n_own = nb_pool_n_thread(d->pool);
    size_t n;
    NB_TRY(nb_places_choose(&d->machine, affinity, d->free, n_own * n_part, cpu, &n, err));
    if (n) nb_pool_bind(d->pool, cpu + part * n_own);
    d->near = n && n_part > 1;
    return NB_OK;
}

nb_status nb_dev_bind(nb_dev *d, const char *affinity, nb_error *err)
{
    return nb_dev_bind_part(d, affinity, 0, 1, err);
}

void nb_dev_enter(nb_dev *d)
{
    nb_pool_enter(d->pool);
}

void nb_dev_spread(nb_dev *d, bool on)
{
    nb_interleave_thread(&d->machine, on);
}

void nb_dev_destroy(nb_dev *d)
{
    if (!d) return;
    nb_pool_destroy(d->pool);
    free(d);
}

size_t nb_dev_n_worker(const nb_dev *d)
{
    return nb_pool_n_thread(d->pool);
}

void nb_dev_run(nb_dev *d, nb_dev_task_fn *fn, void *ctx, size_t n_task)
{
    nb_pool_run(d->pool, fn, ctx, n_task);
}

void *nb_dev_alloc(nb_dev *d, size_t n_bytes)
{
    return d->near ? nb_pages_alloc(n_bytes ? n_bytes : 1) : nb_dev_alloc_shared(d, n_bytes);
}

void *nb_dev_alloc_shared(nb_dev *d, size_t n_bytes)
{
    void *p = nb_pages_alloc(n_bytes ? n_bytes : 1);
    nb_interleave(&d->machine, p, n_bytes);
    return p;
}

void nb_dev_free(nb_dev *d, void *p, size_t n_bytes)
{
    (void)d;
    if (p) nb_pages_free(p, n_bytes ? n_bytes : 1);
}
