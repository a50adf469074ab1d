/* engine.c - creating and destroying an engine: configuration, record, weights, thread; what
 * it says of itself. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
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

void nb_free(void *p)
{
    free(p);
}

static nb_status choose_form(nb_engine *e, const char *mla, nb_error *err)
{
    /* auto, by cost: a prompt's tokens are cheaper expanded (nothing is read that others did not
     * write), a single new token is far cheaper absorbed: docs/decisions/002. */
    e->form = NB_FORM_AUTO;
    if (!mla || !strcmp(mla, "auto")) return NB_OK;
    if (!strcmp(mla, "absorbed"))
        e->form = NB_FORM_ABSORBED;
    else if (!strcmp(mla, "expanded"))
        e->form = NB_FORM_EXPANDED;
    else
        return nb_fail(err, NB_ERR_ARG, "--mla %s: expected auto, absorbed or expanded", mla);
    return NB_OK;
}

typedef struct prefault_ctx {
    nb_progress_fn *fn;
    void *ctx;
} prefault_ctx;

static void prefault_report(void *ctx, uint64_t done, uint64_t total, const char *label)
{
    const prefault_ctx *p = ctx;
    p->fn(p->ctx, label, done, total);
}

static nb_status open_source(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const char *format = o->load_format ? o->load_format : "auto";
    if (!strcmp(format, "dummy"))
        return nb_source_open_dummy(o->dummy_seed, e->model.c.init_range, &e->source, err);
    if (strcmp(format, "auto") != 0 && strcmp(format, "safetensors") != 0)
        return nb_fail(err, NB_ERR_ARG, "--load-format %s: expected auto, safetensors or dummy",
                       format);
    if (!nb_path_is_dir(o->model))
        return nb_fail(err, NB_ERR_ARG,
                       "%s is not a directory (a config.json alone needs "
                       "--load-format dummy)",
                       o->model);
    return nb_source_open_dir(o->model, &e->source, err);
}

static nb_status load_model(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const nb_model_config c = e->model.c;
    NB_TRY(nb_model_load(&e->model, &c, e->source, err));
    if (o->progress && !e->int8) { /* else it is the quantiser that reads everything */
        prefault_ctx p = { o->progress, o->progress_ctx };
        nb_source_prefault(e->source, prefault_report, &p);
    }
    NB_TRY(nb_engine_fold(e, err));
    NB_TRY(nb_engine_quantize(e, o, err));
    static const char *const names[] = { "F32", "BF16", "F16", "FP8", "INT8" };
    (void)snprintf(e->weights, sizeof e->weights, "%s", names[e->model.wtype]);
    return NB_OK;
}

static nb_status load_text(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    nb_error why = { 0 };
    if (o->no_text || !nb_path_is_dir(o->model)) return NB_OK;
    const nb_status st = nb_text_create(o->model, o->chat_template, &e->text, &why);
    if (st == NB_OK || (st == NB_ERR_NOT_FOUND && !o->chat_template)) return NB_OK;
    return nb_fail(err, st, "%s", why.msg);
}

static nb_status create_thread(nb_engine *e, nb_error *err)
{
    e->queue_end = &e->queue;
    e->calls_end = &e->calls;
    e->over_end = &e->over;
    e->max_live_tok = NB_ENGINE_MAX_PROMPT_TOK;
    if (nb_mutex_create(&e->lock) != NB_OK || nb_cond_create(&e->wake) != NB_OK ||
        nb_cond_create(&e->done) != NB_OK)
        return nb_fail(err, NB_ERR_NOMEM, "out of memory for a lock");
    nb_engine_publish(e);
    return nb_thread_create(nb_engine_main, e, &e->thread, err);
}

static nb_status create(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    nb_caps mask = NB_CAPS_ALL;
    e->t_create = nb_clock_s();
    if (o->cpu_caps) NB_TRY(nb_cpu_caps_parse(o->cpu_caps, &mask, err));
    NB_TRY(nb_engine_read_weight_dtype(e, o, err));
    NB_TRY(nb_model_config_read_path(o->model, &e->model.c, err));
    e->attn = e->model.c.attn;
    NB_TRY(open_source(e, o, err));
    NB_TRY(nb_engine_read_kv(e, o, err));
    NB_TRY(nb_engine_choose_records(e, o, err));
    NB_TRY(choose_form(e, o->mla, err));
    NB_TRY(nb_engine_read_thrift(e, o, err));
    NB_TRY(nb_engine_open_device(e, o, err));
    NB_TRY(nb_dev_create_host(o->n_thread, &e->dev, err));
    nb_error why = { 0 };
    if (nb_dev_bind(e->dev, o->cpu_affinity, &why) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "--cpu-affinity %s", why.msg);
    NB_TRY(e->gpu ? nb_engine_size_gpu(e, o, err) : nb_engine_size_pool(e, o, err));
    NB_TRY(nb_engine_size_step(e, o, err));
    nb_engine_describe_layout(e);
    NB_TRY(load_text(e, o, err));
    nb_dev_spread(e->dev, true);
    const nb_status loaded = load_model(e, o, err);
    nb_dev_spread(e->dev, false);
    NB_TRY(loaded);
    NB_TRY(nb_engine_allocate(e, o, nb_cpu_caps() & mask, err));
    nb_forward_describe(e->forward, e->kernels, sizeof e->kernels);
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
    const nb_status st = create(e, o, &own);
    if (st != NB_OK) {
        (void)nb_fail(err, st, "%s", own.msg[0] ? own.msg : nb_status_text(st));
        nb_engine_destroy(e);
        return st;
    }
    *out = e;
    return NB_OK;
}

void nb_engine_warn(nb_engine *e, const char *fmt, ...)
{
    const size_t max = sizeof e->warnings;
    size_t at = strlen(e->warnings);
    va_list ap;
    if (at) at += (size_t)snprintf(e->warnings + at, max - at, "; ");
    if (at >= max) return;
    va_start(ap, fmt);
    (void)vsnprintf(e->warnings + at, max - at, fmt, ap);
    va_end(ap);
}

void nb_engine_destroy(nb_engine *e)
{
    if (!e) return;
    if (e->thread) {
        nb_mutex_lock(e->lock);
        e->stopping = true;
        nb_cond_signal(e->wake);
        nb_mutex_unlock(e->lock);
        nb_thread_join(e->thread);
    }
    nb_engine_release(e);
    nb_mutex_destroy(e->lock);
    nb_cond_destroy(e->wake);
    nb_cond_destroy(e->done);
    nb_model_deinit(&e->model);
    if (e->dev) nb_dev_free(e->dev, e->int8_weights, e->int8_bytes);
    nb_engine_kv_deinit(&e->kvo);
    free(e->record);
    free(e->layer_off);
    if (e->source) nb_source_close(e->source);
    nb_gpu_close(e->gpu);
    nb_dev_destroy(e->dev);
    nb_text_destroy(e->text);
    free(e);
}

const nb_text *nb_engine_text(const nb_engine *e)
{
    return e->text;
}

void nb_engine_get_info(const nb_engine *e, nb_engine_info *info)
{
    const nb_model_config *c = &e->model.c;
    nb_model_size s;
    nb_model_config_size(c, &s);
    *info = (nb_engine_info){
        .family = c->family,
        .kv_dtype = e->kv_dtype,
        .weights = e->weights,
        .n_param = s.n_param,
        .n_param_active = s.n_param_active,
        .weight_bytes = e->model.weight_bytes,
        .n_layer = c->n_layer,
        .hidden = c->hidden,
        .n_head = c->n_head,
        .vocab = c->n_vocab,
        .max_model_len = e->max_model_len,
        .kv_bytes_per_tok = (double)e->block_bytes / NB_PAGE_TOK,
        .kv_values_per_tok = c->n_layer * e->record[0].n_values,
        .kv_pool_bytes = e->kv_bytes,
        .kv_pool_tok = e->n_block * NB_PAGE_TOK,
        .n_thread = nb_dev_n_worker(e->dev),
        .n_block = e->n_block,
        .block_tok = NB_PAGE_TOK,
        .block_bytes = e->block_bytes,
        .tail_bytes = e->max_num_seqs * e->tail_bytes,
        .workspace_bytes = nb_engine_workspace_bytes(e),
        .max_num_seqs = e->max_num_seqs,
        .max_num_batched_tokens = e->max_step_tok,
        .no_prefix_caching = e->no_prefix_caching,
        .kv_layout = e->kv_layout,
        .kv_transform = e->kvo.transform_text,
        .kv_thrift = nb_thrift_name(e->thrift.kind),
        .residual_bytes = nb_engine_plane_bytes(e, e->n_block),
        .sink_bytes = e->sink_bytes,
        .device = e->device,
        .gpu_weight_bytes = e->forward ? nb_forward_weight_bytes(e->forward) : 0,
        .kernels = e->kernels,
        .warnings = e->warnings,
    };
}

/* ---- the memory of an engine that is not there yet ---- */

enum { PLAN_BLOCKS = 1024 }; /* what planes and their pool take is an average over so many */

static nb_status plan(nb_engine *e, const nb_engine_options *o, nb_memory_plan *p, nb_error *err)
{
    nb_caps mask = NB_CAPS_ALL;
    if (o->cpu_caps) NB_TRY(nb_cpu_caps_parse(o->cpu_caps, &mask, err));
    NB_TRY(nb_engine_read_weight_dtype(e, o, err));
    NB_TRY(nb_model_config_read_path(o->model, &e->model.c, err));
    NB_TRY(open_source(e, o, err));
    NB_TRY(nb_engine_read_kv(e, o, err));
    NB_TRY(nb_engine_choose_records(e, o, err));
    NB_TRY(choose_form(e, o->mla, err));
    NB_TRY(nb_engine_read_thrift(e, o, err));
    NB_TRY(nb_dev_create_host(o->n_thread, &e->dev, err));
    NB_TRY(nb_engine_plan_weights(e, o, &p->weight_bytes, err));
    const nb_model_config *c = &e->model.c;
    e->max_model_len = c->max_pos;
    NB_TRY(nb_engine_size_step(e, o, err));
    NB_TRY(nb_engine_create_forward(e, nb_cpu_caps() & mask, err));
    p->memory_bytes = nb_os_ram_bytes();
    p->workspace_bytes = nb_engine_workspace_bytes(e);
    p->tail_bytes = e->max_num_seqs * e->tail_bytes;
    p->block_bytes = e->block_bytes;
    p->residual_block_bytes =
        nb_engine_plane_bytes(e, PLAN_BLOCKS) / PLAN_BLOCKS + nb_engine_sink_block_bytes(e);
    p->block_tok = NB_PAGE_TOK;
    p->max_model_len = c->max_pos;
    (void)snprintf(p->dtype, sizeof p->dtype, "%s", c->fp8 ? "fp8" : c->dtype);
    (void)snprintf(p->kv_dtype, sizeof p->kv_dtype, "%s", e->kv_dtype);
    return NB_OK;
}

nb_status nb_engine_plan_memory(const nb_engine_options *o, nb_memory_plan *out, nb_error *err)
{
    nb_memory_plan p = { 0 };
    if (!o || !o->model || !out) return nb_fail(err, NB_ERR_ARG, "no model given");
    nb_engine *e = calloc(1, sizeof *e);
    if (!e) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    const nb_status st = plan(e, o, &p, err);
    nb_engine_destroy(e);
    if (st == NB_OK) *out = p;
    return st;
}
