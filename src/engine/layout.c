/* layout.c - --tensor-parallel-size: how many ranks there are, and their threads. */
#include "engine/engine_internal.h"
#include "os/pool.h"

/* What several ranks do not do. */
static nb_status check(const nb_engine *e, size_t n, nb_error *err)
{
    nb_error why = { 0 };
    if (n > NB_ENGINE_MAX_RANK)
        return nb_fail(err, NB_ERR_RANGE, "--tensor-parallel-size %zu: expected 1 to %d", n,
                       NB_ENGINE_MAX_RANK);
    if (n == 1) return NB_OK;
    if (e->pages.thrift.kind != NB_THRIFT_OFF)
        return nb_fail(
            err, NB_ERR_UNSUPPORTED,
            "--tensor-parallel-size %zu: --kv-thrift chooses tokens with all heads, and a rank has "
            "some of them; one of the two must go",
            n);
    const nb_status st = nb_rank_can_divide(&e->model.c, n, &why);
    return st == NB_OK ? NB_OK : nb_fail(err, st, "--tensor-parallel-size %zu: %s", n, why.msg);
}

nb_status nb_engine_lay_out(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const size_t n = o->tensor_parallel_size ? o->tensor_parallel_size : 1;
    NB_TRY(check(e, n, err));
    const size_t all = o->n_thread ? o->n_thread : nb_os_n_core();
    return nb_ranks_create(&e->ranks, n, all > n ? all / n : 1, &e->dev, err);
}
