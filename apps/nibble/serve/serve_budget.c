/* serve_budget.c - how much memory the KV cache gets, and how long a request may be.
 *
 * The sizes come from the functions that allocate (nb_engine_plan_memory).  In order of
 * precedence: --num-gpu-blocks-override, --kv-cache-memory-bytes, --memory-utilization (a share of
 * the machine's memory, less weights, workspace and open pages), else 2 GiB or an eighth of the
 * memory, whichever is less, for at least one request of the longest length and at most 64.
 * --gpu-memory-utilization is about a GPU's memory only: users of vLLM give it always. */
#include <inttypes.h>

#include "../cli.h"
#include "serve_setup.h"

static const double DEFAULT_GPU_SHARE = 0.9; /* as vLLM */
static const uint64_t DEFAULT_POOL = (uint64_t)2 << 30;
enum { DEFAULT_SHARE = 8, DEFAULT_REQUESTS = 64 };

static uint64_t blocks_of(const nb_memory_plan *p, uint64_t n_tok)
{
    return (n_tok + p->block_tok - 1) / p->block_tok;
}

/* Tokens of a request that a pool can hold, at most what the model can do. */
static uint64_t tokens_in(const nb_memory_plan *p, uint64_t pool)
{
    const uint64_t n = pool / p->block_bytes * p->block_tok;
    return n < p->max_model_len ? n : p->max_model_len;
}

/* Bytes of a pool whose blocks and what lies beside them (planes of --kv-thrift, rows of --kv-sinks)
 * take `bytes`. */
static uint64_t pool_within(const nb_memory_plan *p, uint64_t bytes)
{
    return p->residual_block_bytes
               ? bytes / (p->block_bytes + p->residual_block_bytes) * p->block_bytes
               : bytes;
}

/* What the memory leaves beside workspace and open pages; weights are mapped files, which the
 * system may drop and read again. */
static uint64_t memory_left(const nb_memory_plan *p)
{
    const uint64_t other = p->workspace_bytes + p->tail_bytes;
    if (p->memory_bytes == 0) return UINT64_MAX;
    return p->memory_bytes > other ? pool_within(p, p->memory_bytes - other) : 0;
}

/* len: the longest request, 0 where the pool decides it. */
static uint64_t default_pool(const nb_memory_plan *p, uint64_t len)
{
    const uint64_t request = blocks_of(p, len ? len : p->max_model_len) * p->block_bytes;
    uint64_t pool = DEFAULT_POOL;
    if (p->memory_bytes && p->memory_bytes / DEFAULT_SHARE < pool)
        pool = p->memory_bytes / DEFAULT_SHARE;
    if (pool / DEFAULT_REQUESTS >= request) pool = DEFAULT_REQUESTS * request;
    return len && pool < request ? request : pool;
}

static int share_pool(const opts *o, const nb_memory_plan *p, uint64_t *pool)
{
    char share[CLI_FIGURE_BYTES], other[CLI_FIGURE_BYTES], all[CLI_FIGURE_BYTES];
    const uint64_t fixed = p->weight_bytes + p->workspace_bytes + p->tail_bytes;
    if (p->memory_bytes == 0)
        return cli_failed("--memory-utilization: the size of this machine's memory is not known; "
                          "give --kv-cache-memory-bytes instead");
    const double budget = o->serve.memory_utilization * (double)p->memory_bytes;
    if (budget < (double)(fixed + p->block_bytes + p->residual_block_bytes)) {
        cli_bytes_text(budget, share, sizeof share);
        cli_bytes_text((double)fixed, other, sizeof other);
        cli_bytes_text((double)p->memory_bytes, all, sizeof all);
        return cli_failed(
            "--memory-utilization %g: %s of %s, but weights, workspace and open pages "
            "take %s: no memory is left for the KV cache; expected a larger share, or "
            "smaller --max-num-seqs or --max-num-batched-tokens",
            o->serve.memory_utilization, share, all, other);
    }
    *pool = pool_within(p, (uint64_t)budget - fixed);
    return CLI_OK;
}

static int choose_pool(const opts *o, const nb_memory_plan *p, uint64_t len, uint64_t *pool)
{
    const serve_opts *v = &o->serve;
    const uint64_t page = p->block_bytes / p->n_page;
    if (v->n_block)
        *pool = v->n_block < UINT64_MAX / page ? v->n_block * page : UINT64_MAX;
    else if (v->kv_cache_bytes)
        *pool = v->kv_cache_bytes;
    else if (v->memory_utilization > 0)
        return share_pool(o, p, pool);
    else
        *pool = default_pool(p, len);
    return CLI_OK;
}

static int too_long(const nb_memory_plan *p, uint64_t len, uint64_t pool, const char *what)
{
    char need[CLI_FIGURE_BYTES], have[CLI_FIGURE_BYTES];
    cli_bytes_text((double)(blocks_of(p, len) * p->block_bytes), need, sizeof need);
    cli_bytes_text((double)pool, have, sizeof have);
    return cli_failed("a request of %" PRIu64 " tokens (the maximum length) needs %s of KV cache, "
                      "but %s is %s; the estimated maximum model length is %" PRIu64
                      " (--max-model-len, or auto)",
                      len, need, what, have, tokens_in(p, pool));
}

int serve_budget(const opts *o, const nb_memory_plan *p, nb_engine_options *e)
{
    const size_t asked = o->serve.max_model_len;
    uint64_t len = asked == OPT_AUTO ? 0 : asked ? asked : p->max_model_len, pool = 0;
    if (len > p->max_model_len)
        return cli_usage("--max-model-len %" PRIu64 ": the model's maximum is %zu", len,
                         p->max_model_len);
    const int code = choose_pool(o, p, len, &pool);
    if (code != CLI_OK) return code;
    const uint64_t left = memory_left(p);
    if (pool > left) {
        char want[CLI_FIGURE_BYTES], have[CLI_FIGURE_BYTES];
        cli_bytes_text((double)pool, want, sizeof want);
        cli_bytes_text((double)left, have, sizeof have);
        return cli_failed("a KV cache of %s does not fit into this machine's memory, which has "
                          "room for %s; the estimated maximum model length is %" PRIu64
                          " (--max-model-len, --kv-cache-memory-bytes)",
                          want, have, tokens_in(p, left));
    }
    if (len == 0) len = tokens_in(p, pool);
    if (len == 0)
        return cli_failed("a KV cache of %" PRIu64 " bytes holds no block of %zu tokens: expected "
                          "at least %" PRIu64 " bytes",
                          pool, p->block_tok, p->block_bytes);
    if (blocks_of(p, len) * p->block_bytes > pool) return too_long(p, len, pool, "the cache");
    if (pool / p->block_bytes >= UINT32_MAX)
        return cli_failed("a KV cache of %" PRIu64 " bytes has more than %u blocks", pool,
                          (unsigned)UINT32_MAX - 1);
    e->max_model_len = (size_t)len;
    e->kv_cache_bytes = pool / p->block_bytes * p->block_bytes;
    return CLI_OK;
}

void serve_budget_gpu(const opts *o, const nb_memory_plan *p, nb_engine_options *e)
{
    const serve_opts *v = &o->serve;
    e->max_model_len_auto = v->max_model_len == OPT_AUTO;
    e->max_model_len = e->max_model_len_auto ? 0 : v->max_model_len;
    e->gpu_memory_utilization = v->gpu_utilization > 0      ? v->gpu_utilization
                                : v->memory_utilization > 0 ? v->memory_utilization
                                                            : DEFAULT_GPU_SHARE;
    e->kv_cache_bytes = v->n_block && v->n_block < UINT64_MAX / p->block_bytes
                            ? v->n_block * p->block_bytes
                            : v->kv_cache_bytes;
}
