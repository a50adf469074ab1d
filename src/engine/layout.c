/* layout.c - --tensor-parallel-size, --decode-context-parallel-size and --data-parallel-size: how many ranks there are, and their threads. */
#include "engine/engine_internal.h"
#include "engine/remote.h"
#include "os/pool.h"

/* What several ranks do not do, whatever they share. */
static nb_status check(const nb_engine *e, const char *name, size_t n, nb_error *err)
{
    if (n > NB_ENGINE_MAX_RANK)
        return nb_fail(err, NB_ERR_RANGE, "%s %zu: expected 1 to %d", name, n, NB_ENGINE_MAX_RANK);
    if (n > 1 && e->pages.thrift.kind != NB_THRIFT_OFF)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s %zu: --kv-thrift chooses tokens with all heads and has one residual plane, so it takes one "
                       "rank; one of the two must go",
                       name, n);
    return NB_OK;
}

static nb_status check_data(const nb_engine *e, const nb_engine_options *o, size_t n_tensor, size_t n, nb_error *err)
{
    bool experts = false;
    for (size_t i = 0; i < e->model.c.n_layer; i++) experts |= nb_layer_has_experts(&e->model.c, i);
    NB_TRY(check(e, "--data-parallel-size", n, err));
    if (n * n_tensor > NB_ENGINE_MAX_RANK)
        return nb_fail(err, NB_ERR_RANGE,
                       "--data-parallel-size %zu with --tensor-parallel-size %zu: %zu ranks in all, expected at most %d", n,
                       n_tensor, n * n_tensor, NB_ENGINE_MAX_RANK);
    if (n > 1 && experts && !o->enable_expert_parallel)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--data-parallel-size %zu: the ranks of a model with routed experts divide these, which needs "
                       "--enable-expert-parallel",
                       n);
    return NB_OK;
}

static nb_status check_context(const nb_engine *e, const nb_engine_options *o, size_t n_tensor, size_t n, nb_error *err)
{
    nb_error why = { 0 };
    if (n == 1) return NB_OK;
    if (n != n_tensor)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--decode-context-parallel-size %zu: all ranks of --tensor-parallel-size divide the context or none "
                       "does; expected 1 or %zu",
                       n, n_tensor);
    if (o->data_parallel_size > 1)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--decode-context-parallel-size %zu: not with --data-parallel-size %zu; one of the two must be 1", n,
                       o->data_parallel_size);
    if (o->n_node > 1)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--decode-context-parallel-size %zu: ranks of --nnodes %zu do not divide a context; one of the two must go",
                       n, o->n_node);
    if (e->pages.n_sink)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--decode-context-parallel-size %zu: rows of --kv-sinks %zu are kept on every rank; one of the two "
                       "must go",
                       n, e->pages.n_sink);
    if (nb_rank_can_divide_context(&e->model.c, &why) == NB_OK) return NB_OK;
    return nb_fail(err, NB_ERR_UNSUPPORTED, "--decode-context-parallel-size %zu: %s", n, why.msg);
}

nb_status nb_engine_lay_out(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const size_t n_tensor = o->tensor_parallel_size ? o->tensor_parallel_size : 1;
    const size_t n_data = o->data_parallel_size ? o->data_parallel_size : 1;
    const size_t n_context = o->decode_context_parallel_size ? o->decode_context_parallel_size : 1;
    nb_error why = { 0 };
    NB_TRY(check(e, "--tensor-parallel-size", n_tensor, err));
    NB_TRY(check_data(e, o, n_tensor, n_data, err));
    const nb_status st = n_tensor > 1 ? nb_rank_can_divide(&e->model.c, n_tensor, &why) : NB_OK;
    if (st != NB_OK) return nb_fail(err, st, "--tensor-parallel-size %zu: %s", n_tensor, why.msg);
    NB_TRY(check_context(e, o, n_tensor, n_context, err));
    NB_TRY(nb_remote_check(o, n_tensor, n_data, err));
    e->n_shard = n_data;
    e->pages.n_part = n_context;
    if (o->n_node > 1) { /* one of the ranks is in this process, and has its threads */
        e->ranks.apart = true;
        e->ranks.n_all = o->n_node;
        e->ranks.first = o->node_rank;
        return nb_ranks_create(&e->ranks, 1, 1, o->n_thread ? o->n_thread : nb_os_n_core(), &e->dev, err);
    }
    const size_t n = n_data * n_tensor, all = o->n_thread ? o->n_thread : nb_os_n_core();
    return nb_ranks_create(&e->ranks, n_data, n_tensor, all > n ? all / n : 1, &e->dev, err);
}
