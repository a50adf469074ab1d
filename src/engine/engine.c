/* engine.c - creating and destroying an engine: configuration, record, weights, thread; what
 * it says of itself. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "engine/remote.h"
#include "engine/tune.h"
#include "engine/weight_pages.h"
#include "load/gguf.h"
#include "model/leftover.h"
#include "nb_config.h"
#include "os/clock.h"
#include "os/cpu.h"
#include "os/file.h"
#include "os/sys.h"

const char *nb_version(void)
{
    return NB_VERSION;
}

const char *nb_cpu_levels(void)
{
    static char text[64]; /* always written with the same bytes */
    nb_buf b = { 0 };
    if (nb_cpu_caps_name(nb_cpu_caps(), &b) == NB_OK) (void)snprintf(text, sizeof text, "%s", b.p);
    nb_buf_deinit(&b);
    return text;
}

static nb_status choose_form(nb_engine *e, const char *mla, nb_error *err)
{
    /* auto, by cost: a prompt's tokens are cheaper expanded (nothing is read that others did not
     * write), a single new token is far cheaper absorbed: docs/decisions/002. */
    e->step.form = NB_FORM_AUTO;
    if (!mla || !strcmp(mla, "auto")) return NB_OK;
    if (!strcmp(mla, "absorbed"))
        e->step.form = NB_FORM_ABSORBED;
    else if (!strcmp(mla, "expanded"))
        e->step.form = NB_FORM_EXPANDED;
    else
        return nb_fail(err, NB_ERR_ARG, "--mla %s: expected auto, absorbed or expanded", mla);
    return NB_OK;
}

typedef struct prefault_ctx {
    nb_progress_fn *fn;
    void *ctx;
} prefault_ctx;

static void prefault_report(void *ctx, uint64_t done, uint64_t total, const char *file)
{
    const prefault_ctx *p = ctx;
    (void)file;
    p->fn(p->ctx, "reading weights", done, total);
}

static void on_threads(void *dev, nb_source_task_fn *task, void *ctx, size_t n_task)
{
    nb_dev_run(dev, task, ctx, n_task);
}

/* A phase of the start whose length is not known. */
static void begin_phase(const nb_engine_options *o, const char *what)
{
    if (o->progress) o->progress(o->progress_ctx, what, 0, 0);
}

static nb_status open_source(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const char *format = o->load_format ? o->load_format : "auto";
    if (!strcmp(format, "dummy"))
        return nb_source_open_dummy(o->dummy_seed, e->model.c.init_range, &e->source, err);
    if (strcmp(format, "auto") != 0 && strcmp(format, "safetensors") != 0 &&
        strcmp(format, "copy") != 0)
        return nb_fail(err, NB_ERR_ARG,
                       "--load-format %s: expected auto, safetensors, copy or dummy", format);
    if (!nb_path_is_dir(o->model) && !nb_gguf_is(o->model))
        return nb_fail(err, NB_ERR_ARG,
                       "%s is not a directory; expected the directory of a checkpoint, or a GGUF "
                       "(--load-format dummy takes a config.json alone, with random weights)",
                       o->model);
    return nb_source_open_dir(o->model, &e->source, err);
}

/* Ranks read what they compute with; the first one's threads read the rest, or everything.  A process that has one of
 * several ranks leaves the rest to its first steps: the machine may not have room for the whole model. */
static nb_status read_mapped(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    prefault_ctx p = { o->progress, o->progress_ctx };
    const size_t n_rank = e->ranks.apart ? e->ranks.n_all : e->ranks.n;
    const bool parts = n_rank > 1 && nb_source_is_mapped(e->source);
    if (parts) {
        const nb_weight_reading how = { .progress = o->progress, .progress_ctx = o->progress_ctx };
        nb_weight_piece *piece = NULL;
        size_t n = 0;
        NB_TRY(nb_weight_pieces(&e->model, n_rank, &piece, &n, err));
        if (e->ranks.apart) n = nb_weight_pieces_keep(piece, n, e->ranks.first);
        nb_dev_spread(e->dev, false); /* threads inherit it */
        const nb_status st = nb_weight_pieces_read(&e->ranks, piece, n, &how, err);
        nb_dev_spread(e->dev, true);
        free(piece);
        NB_TRY(st);
        if (e->ranks.apart) return NB_OK;
    }
    nb_source_prefault(e->source, on_threads, e->dev, parts ? NULL : prefault_report, &p);
    return NB_OK;
}

/* Weights that the configuration does not use are a sign that one of the two is wrong. */
static nb_status check_leftovers(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    char names[384], line[600];
    const size_t n = nb_model_leftovers(&e->model.c, e->source, names, sizeof names);
    if (n == 0) return NB_OK;
    (void)snprintf(line, sizeof line, "config.json does not use %zu of the %zu tensors: %s", n,
                   nb_source_n_tensor(e->source), names);
    if (o->strict) return nb_fail(err, NB_ERR_FORMAT, "%s: %s", o->model, line);
    nb_engine_warn(e, "%s", line);
    return NB_OK;
}

static nb_status load_model(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const nb_model_config c = e->model.c;
    if (o->load_format && !strcmp(o->load_format, "dummy")) begin_phase(o, "making random weights");
    prefault_ctx p = { o->progress, o->progress_ctx };
    /* A device with memory of its own has a copy in any case, but for experts that stay here. */
    const bool copy = o->load_format && !strcmp(o->load_format, "copy") &&
                      (!e->rank[0].device.kind->own_memory || nb_engine_wants_experts(e));
    if (copy) NB_TRY(nb_source_copy(e->source, o->progress ? prefault_report : NULL, &p, err));
    nb_source_expect_whole(e->source);
    NB_TRY(nb_model_load(&e->model, &c, e->source, err));
    NB_TRY(check_leftovers(e, o, err));
    if (o->progress && !copy && !e->quantized) NB_TRY(read_mapped(e, o, err));
    NB_TRY(nb_engine_fold(e, err));
    NB_TRY(nb_engine_quantize(e, o, err));
    (void)snprintf(e->stats.weights, sizeof e->stats.weights, "%s", nb_wtypes[e->model.wtype].name);
    return NB_OK;
}

static nb_status load_text(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    nb_error why = { 0 };
    if (o->no_text || (!nb_path_is_dir(o->model) && !nb_gguf_is(o->model))) return NB_OK;
    begin_phase(o, "reading the tokenizer");
    nb_status st = nb_text_create(o->model, o->chat_template, &e->text, &why);
    if (st == NB_OK)
        st = nb_text_set_formats(e->text, o->tool_call_parser, o->reasoning_parser, &why);
    if (st == NB_OK || (st == NB_ERR_NOT_FOUND && !o->chat_template)) return NB_OK;
    return nb_fail(err, st, "%s", why.msg);
}

static nb_status create_thread(nb_engine *e, nb_error *err)
{
    e->over_end = &e->over;
    if (nb_queue_init(&e->queue) != NB_OK)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for a lock");
    nb_engine_publish(e);
    if (e->ranks.first) { /* nb_engine_follow is its thread */
        e->queue.failed = true;
        (void)snprintf(e->queue.why_failed, sizeof e->queue.why_failed, "rank %zu takes no requests: rank 0 does",
                       e->ranks.first);
        return NB_OK;
    }
    return nb_thread_create(nb_engine_main, e, &e->queue.thread, err);
}

static nb_status create(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    nb_caps mask = NB_CAPS_ALL;
    e->stats.t_create = nb_clock_s();
    e->news.fn = o->on_news;
    e->news.ctx = o->on_news_ctx;
    if (o->cpu_caps) NB_TRY(nb_cpu_caps_parse(o->cpu_caps, &mask, err));
    NB_TRY(nb_engine_read_weight_dtype(e, o, err));
    NB_TRY(nb_engine_read_activation_dtype(e, o, err));
    NB_TRY(nb_model_config_read_path(o->model, &e->model.c, err));
    NB_TRY(open_source(e, o, err));
    NB_TRY(nb_engine_read_kv(e, o, err));
    NB_TRY(nb_engine_choose_records(e, o, err));
    NB_TRY(choose_form(e, o->mla, err));
    NB_TRY(nb_engine_read_thrift(e, o, err));
    NB_TRY(nb_engine_lay_out(e, o, err));
    NB_TRY(nb_engine_open_device(e, o, err));
    nb_error why = { 0 };
    if (nb_ranks_bind(&e->ranks, o->cpu_affinity, &why) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "--cpu-affinity %s", why.msg);
    NB_TRY(nb_engine_size_pool(e, o, err));
    NB_TRY(nb_engine_size_step(e, o, err));
    nb_engine_describe_layout(e);
    NB_TRY(load_text(e, o, err));
    NB_TRY(nb_remote_meet(e, o, err));
    nb_dev_spread(e->dev, true);
    const nb_status loaded = load_model(e, o, err);
    nb_dev_spread(e->dev, false);
    NB_TRY(loaded);
    NB_TRY(nb_engine_tune(e, o, nb_cpu_caps() & mask, err));
    if (e->rank[0].device.kind->own_memory) begin_phase(o, "copying weights to the GPU");
    NB_TRY(nb_engine_allocate(e, o, nb_cpu_caps() & mask, err));
    NB_TRY(nb_source_check(e->source, NULL, err)); /* on a GPU it has read them only now */
    if (!e->rank[0].device.kind->own_memory || e->experts.n_layer)
        nb_watch_start(&e->step.watch, e->source);
    nb_rank_describe(e->rank[0].rank, e->stats.kernels, sizeof e->stats.kernels);
    NB_TRY(nb_remote_compare(e, err));
    if (e->model.c.notes[0])
        nb_engine_warn(e, "config.json: unknown fields ignored: %s", e->model.c.notes);
    if (e->model.c.assumed[0])
        nb_engine_warn(e, "config.json: absent, so as the model's class has it: %s",
                       e->model.c.assumed);
    return create_thread(e, err);
}

nb_status nb_engine_create(const nb_engine_options *o, nb_engine **out, nb_error *err)
{
    if (!o || !o->model || !out) return nb_fail(err, NB_ERR_ARG, "no model given");
    nb_engine *e = calloc(1, sizeof *e);
    if (!e) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    nb_error own = { 0 };
    nb_engine_options found = *o;
    char *path = NULL;
    nb_status st = nb_model_find(o->model, &path, &own);
    found.model = path;
    if (st == NB_OK) st = create(e, &found, &own);
    free(path);
    if (st != NB_OK) {
        (void)nb_fail(err, st, "%s", own.msg[0] ? own.msg : nb_status_text(st));
        nb_remote_end(&e->ranks, own.msg);
        nb_engine_destroy(e);
        return st;
    }
    *out = e;
    return NB_OK;
}

void nb_engine_destroy(nb_engine *e)
{
    if (!e) return;
    if (e->queue.thread) {
        nb_mutex_lock(e->queue.lock);
        e->queue.stopping = true;
        nb_cond_signal(e->queue.wake);
        nb_mutex_unlock(e->queue.lock);
        nb_thread_join(e->queue.thread);
    }
    nb_engine_release(e);
    nb_queue_deinit(&e->queue);
    nb_model_deinit(&e->model);
    if (e->dev) nb_dev_free(e->dev, e->codes, e->codes_bytes);
    nb_engine_kv_deinit(&e->kvo);
    free(e->pages.record);
    free(e->pages.layer_off);
    free(e->pages.tail_off);
    free(e->pages.state_off);
    free(e->pages.sink_off);
    free(e->pages.plane_off);
    if (e->source) nb_source_close(e->source);
    for (size_t k = 0; k < NB_ENGINE_MAX_RANK; k++) nb_device_close(&e->rank[k].device);
    nb_ranks_deinit(&e->ranks);
    nb_dev_destroy(e->dev);
    nb_text_destroy(e->text);
    free(e);
}

const nb_text *nb_engine_text(const nb_engine *e)
{
    return e->text;
}

/* Values that a token adds to the cache, in all layers. */
static size_t values_per_tok(const nb_engine *e)
{
    size_t n = 0;
    for (size_t i = 0; i < e->model.c.n_layer; i++)
        n += e->pages.record[i].n_row * e->pages.record[i].n_values;
    return n / NB_PAGE_TOK;
}

void nb_engine_get_info(const nb_engine *e, nb_engine_info *info)
{
    const nb_model_config *c = &e->model.c;
    nb_model_size s;
    nb_model_config_size(c, &s);
    *info = (nb_engine_info){
        .family = c->family,
        .kv_dtype = e->pages.kv_dtype,
        .weights = e->stats.weights,
        .n_param = s.n_param,
        .n_param_active = s.n_param_active,
        .weight_bytes = e->model.weight_bytes,
        .n_layer = c->n_layer,
        .hidden = c->hidden,
        .n_head = nb_layer_attn(c, 0)->n_head,
        .vocab = c->n_vocab,
        .max_model_len = e->step.max_model_len,
        .kv_bytes_per_tok = (double)e->pages.block_bytes / NB_PAGE_TOK,
        .kv_values_per_tok = values_per_tok(e),
        .kv_pool_bytes = e->pages.kv_bytes,
        .kv_pool_tok = e->pages.n_block * NB_PAGE_TOK,
        .n_thread = e->ranks.n * nb_dev_n_worker(e->dev),
        .n_rank = e->ranks.apart ? e->ranks.n_all : e->ranks.n,
        .n_node = e->ranks.apart ? e->ranks.n_all : 1,
        .node_rank = e->ranks.first,
        .n_data_rank = e->n_shard,
        .n_block = e->pages.n_block,
        .block_tok = NB_PAGE_TOK,
        .block_bytes = e->pages.block_bytes,
        .tail_bytes =
            e->ranks.n * (e->step.max_num_seqs * e->pages.tail_bytes + nb_engine_snap_bytes(e)),
        .n_snapshot = e->pages.n_snap,
        .state_bytes = nb_engine_state_bytes(e),
        .workspace_bytes = nb_engine_workspace_bytes(e),
        .max_num_seqs = e->step.max_num_seqs,
        .max_num_batched_tokens = e->step.max_step_tok,
        .no_prefix_caching = e->no_prefix_caching,
        .kv_layout = e->pages.kv_layout,
        .kv_transform = e->kvo.transform_text,
        .kv_thrift = nb_thrift_name(e->pages.thrift.kind),
        .residual_bytes = nb_engine_plane_bytes(e, e->pages.n_block),
        .sink_bytes = e->ranks.n * e->pages.sink_bytes,
        .device = e->rank[0].device.name,
        .gpu_weight_bytes = e->rank[0].rank ? nb_rank_weight_bytes(e->rank[0].rank) : 0,
        .n_cpu_expert_layer = e->experts.n_layer,
        .cpu_expert_bytes = e->experts.n_bytes,
        .kernels = e->stats.kernels,
        .tuned = e->stats.tuned,
        .warnings = e->stats.warnings,
    };
}

/* ---- the memory of an engine that is not there yet ---- */

enum { PLAN_BLOCKS = 1024 }; /* what planes and their pool take is an average over so many */

static nb_status plan(nb_engine *e, const nb_engine_options *o, nb_memory_plan *p, nb_error *err)
{
    nb_caps mask = NB_CAPS_ALL;
    if (o->cpu_caps) NB_TRY(nb_cpu_caps_parse(o->cpu_caps, &mask, err));
    NB_TRY(nb_engine_read_weight_dtype(e, o, err));
    NB_TRY(nb_engine_read_activation_dtype(e, o, err));
    NB_TRY(nb_model_config_read_path(o->model, &e->model.c, err));
    NB_TRY(open_source(e, o, err));
    NB_TRY(nb_engine_read_kv(e, o, err));
    NB_TRY(nb_engine_choose_records(e, o, err));
    NB_TRY(choose_form(e, o->mla, err));
    NB_TRY(nb_engine_read_thrift(e, o, err));
    NB_TRY(nb_engine_lay_out(e, o, err));
    for (size_t k = 0; k < e->ranks.n; k++)
        e->rank[k].device = nb_device_of(e->ranks.seat[k].dev, NULL);
    NB_TRY(nb_engine_plan_weights(e, o, &p->weight_bytes, err));
    const nb_model_config *c = &e->model.c;
    e->step.max_model_len = c->max_pos;
    NB_TRY(nb_engine_size_step(e, o, err));
    nb_levels_all(&e->levels);
    NB_TRY(nb_remote_pretend(e, o, err));
    NB_TRY(nb_engine_create_ranks(e, nb_cpu_caps() & mask, err));
    p->memory_bytes = nb_os_ram_bytes();
    p->workspace_bytes = nb_engine_workspace_bytes(e);
    const size_t n = e->ranks.n;
    p->tail_bytes = n * (e->step.max_num_seqs * e->pages.tail_bytes + nb_engine_snap_bytes(e));
    p->n_page = e->pages.n_part > 1 ? NB_KV_UNIT_BLOCKS : 1;
    p->block_bytes = p->n_page * e->pages.block_bytes;
    p->residual_block_bytes = nb_engine_plane_bytes(e, PLAN_BLOCKS) / PLAN_BLOCKS +
                              n * nb_engine_sink_block_bytes(e) + (n - 1) * p->block_bytes;
    p->block_tok = p->n_page * e->pages.n_part * NB_PAGE_TOK;
    p->max_model_len = c->max_pos;
    (void)snprintf(p->dtype, sizeof p->dtype, "%s", c->fp8 ? "fp8" : c->dtype);
    (void)snprintf(p->kv_dtype, sizeof p->kv_dtype, "%s", e->pages.kv_dtype);
    return NB_OK;
}

nb_status nb_engine_plan_memory(const nb_engine_options *o, nb_memory_plan *out, nb_error *err)
{
    nb_memory_plan p = { 0 };
    if (!o || !o->model || !out) return nb_fail(err, NB_ERR_ARG, "no model given");
    nb_engine *e = calloc(1, sizeof *e);
    if (!e) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    nb_engine_options found = *o;
    char *path = NULL;
    nb_status st = nb_model_find(o->model, &path, err);
    found.model = path;
    if (st == NB_OK) st = plan(e, &found, &p, err);
    free(path);
    nb_engine_destroy(e);
    if (st == NB_OK) *out = p;
    return st;
}
