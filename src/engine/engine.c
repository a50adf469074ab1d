/* engine.c - creating an engine: configuration, weights, record, pool, workspace. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "nb_config.h"
#include "os/cpu.h"
#include "os/file.h"
#include "os/sys.h"

enum { DEFAULT_PREFILL_CHUNK = 512, MAX_PREFILL_CHUNK = 65536 };

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

size_t nb_engine_block_bytes(const nb_model_config *c, const nb_record *r)
{
    return c->n_layer * r->page_bytes;
}

static nb_status config_path(const char *model, nb_buf *path)
{
    if (nb_path_is_dir(model)) return nb_path_join(path, model, "config.json");
    path->n_bytes = 0;
    return nb_buf_add_c(path, model);
}

/* generation_config.json may name more end-of-text ids than config.json. */
static nb_status read_generation_config(const char *model, nb_model_config *c, nb_error *err)
{
    nb_buf path = { 0 };
    nb_doc *doc = NULL;
    nb_status st =
        nb_path_is_dir(model) ? nb_path_join(&path, model, "generation_config.json") : NB_OK;
    if (st == NB_OK && path.n_bytes && nb_path_is_file(path.p)) st = nb_doc_read(path.p, &doc, err);
    if (st == NB_OK && doc) {
        uint64_t id[NB_MAX_EOS];
        size_t n = 0;
        (void)nb_doc_u64s(doc, "eos_token_id", UINT32_MAX, id, NB_MAX_EOS, &n);
        st = nb_doc_check(doc, err);
        for (size_t i = 0; st == NB_OK && i < n; i++) {
            bool known = false;
            for (size_t k = 0; k < c->n_eos; k++) known |= c->eos[k] == (uint32_t)id[i];
            if (!known && c->n_eos < NB_MAX_EOS) c->eos[c->n_eos++] = (uint32_t)id[i];
        }
    }
    nb_doc_destroy(doc);
    nb_buf_deinit(&path);
    return st;
}

nb_status nb_engine_read_config(const char *model, nb_model_config *c, nb_error *err)
{
    nb_buf path = { 0 };
    nb_doc *doc = NULL;
    if (!model || !*model) return nb_fail(err, NB_ERR_ARG, "no model given");
    nb_status st = config_path(model, &path);
    if (st == NB_OK) st = nb_doc_read(path.p, &doc, err);
    if (st == NB_OK) st = nb_model_config_read(doc, c, err);
    nb_doc_destroy(doc);
    nb_buf_deinit(&path);
    return st == NB_OK ? read_generation_config(model, c, err) : st;
}

static nb_status choose_record(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const char *dtype = o->kv_cache_dtype ? o->kv_cache_dtype : "auto";
    const char *rope = o->kv_rope_dtype ? o->kv_rope_dtype : "fp8";
    /* auto: the model's own type, as in vLLM; float16 latents are kept in BF16, whose range holds */
    nb_kv_type type = e->model.c.dtype[5] == '3' ? NB_KV_F32 : NB_KV_BF16;
    if (strcmp(dtype, "auto") != 0 && nb_kv_type_parse(dtype, &type) != NB_OK)
        return nb_fail(err, NB_ERR_ARG,
                       "--kv-cache-dtype %s: expected auto, f32, bf16, fp8, nvfp4, "
                       "if4, mxfp4, int4 or fp8_ds_mla",
                       dtype);
    nb_kv_mode mode = type == NB_KV_IF4 ? NB_KV_SEARCH : NB_KV_4OVER6;
    if (o->kv_cache_mode && nb_kv_mode_parse(o->kv_cache_mode, &mode) != NB_OK)
        return nb_fail(err, NB_ERR_ARG, "--kv-cache-mode %s: expected basic, 4over6 or search",
                       o->kv_cache_mode);
    if (strcmp(rope, "fp8") != 0 && strcmp(rope, "bf16") != 0)
        return nb_fail(err, NB_ERR_ARG, "--kv-rope-dtype %s: expected fp8 or bf16", rope);
    nb_record_opts ro;
    nb_model_record_opts(&e->model.c, type, mode, !strcmp(rope, "bf16"), &ro);
    return nb_record_init(&e->record, &ro, err);
}

static nb_status choose_forms(nb_engine *e, const char *mla, nb_error *err)
{
    if (!mla) mla = "auto";
    /* By cost: a prompt's tokens are cheaper expanded (nothing is read that others did not
     * write), a single new token is far cheaper absorbed.  The form depends on what a token is,
     * not on the step it falls into: docs/decisions/002. */
    e->prefill_absorbed = !strcmp(mla, "absorbed");
    e->decode_absorbed = strcmp(mla, "expanded") != 0;
    if (strcmp(mla, "auto") != 0 && strcmp(mla, "absorbed") != 0 && strcmp(mla, "expanded") != 0)
        return nb_fail(err, NB_ERR_ARG, "--mla %s: expected auto, absorbed or expanded", mla);
    return NB_OK;
}

static nb_status create_pool(nb_engine *e, size_t max_model_len, nb_error *err)
{
    const nb_model_config *c = &e->model.c;
    e->block_bytes = nb_engine_block_bytes(c, &e->record);
    const uint64_t ram = nb_os_ram_bytes();
    if (max_model_len > c->max_pos)
        return nb_fail(err, NB_ERR_RANGE, "--max-model-len %zu: the model's maximum is %zu",
                       max_model_len, c->max_pos);
    e->max_model_len = max_model_len;
    if (e->max_model_len == 0) {
        e->max_model_len = c->max_pos;
        /* Pages are committed when written, but do not promise more than half of the memory. */
        const size_t fit = ram ? (size_t)(ram / 2 / e->block_bytes) * NB_PAGE_TOK : SIZE_MAX;
        if (fit >= NB_PAGE_TOK && e->max_model_len > fit) {
            e->max_model_len = fit;
            (void)snprintf(e->warnings, sizeof e->warnings,
                           "context limited to %zu tokens by half of the memory (the model's "
                           "maximum is %zu; --max-model-len decides)",
                           fit, c->max_pos);
        }
    }
    const size_t n_block = (e->max_model_len + NB_PAGE_TOK - 1) / NB_PAGE_TOK;
    if (e->block_bytes > SIZE_MAX / 2 / n_block)
        return nb_fail(err, NB_ERR_LIMIT, "a KV cache of %zu tokens is too large",
                       e->max_model_len);
    e->kv_bytes = n_block * e->block_bytes;
    e->tail_bytes = c->n_layer * NB_PAGE_TOK * e->record.n_values * sizeof *e->seq.tail;
    NB_TRY(nb_block_pool_init(&e->pool, n_block));
    e->kv = nb_dev_alloc(e->dev, e->kv_bytes);
    e->seq.tail = nb_dev_alloc(e->dev, e->tail_bytes);
    e->seq.tok = calloc(e->max_model_len + 1, sizeof *e->seq.tok);
    e->seq.block = calloc(n_block, sizeof *e->seq.block);
    if (!e->kv || !e->seq.tail || !e->seq.tok || !e->seq.block)
        return nb_fail(err, NB_ERR_NOMEM,
                       "no memory for a KV cache of %zu MiB (--max-model-len "
                       "takes a smaller context)",
                       e->kv_bytes >> 20);
    return NB_OK;
}

static nb_status create_forward(nb_engine *e, const nb_engine_options *o, nb_caps caps,
                                nb_error *err)
{
    if (o->prefill_chunk > MAX_PREFILL_CHUNK)
        return nb_fail(err, NB_ERR_RANGE, "--prefill-chunk %zu: expected 1 to %d", o->prefill_chunk,
                       MAX_PREFILL_CHUNK);
    e->prefill_chunk = o->prefill_chunk ? o->prefill_chunk : DEFAULT_PREFILL_CHUNK;
    if (e->prefill_chunk > e->max_model_len) e->prefill_chunk = e->max_model_len;
    /* Rows of logits per step: about 64 MiB of them, at least one. */
    e->max_row = ((size_t)64 << 20) / sizeof(float) / e->model.c.n_vocab;
    if (e->max_row == 0) e->max_row = 1;
    if (e->max_row > e->prefill_chunk) e->max_row = e->prefill_chunk;
    const nb_forward_options fo = { .model = &e->model,
                                    .dev = e->dev,
                                    .record = &e->record,
                                    .caps = caps,
                                    .max_tok = e->prefill_chunk };
    NB_TRY(nb_forward_create(&fo, &e->forward, err));
    e->logits_bytes = e->max_row * e->model.c.n_vocab * sizeof *e->logits;
    e->logits = nb_dev_alloc(e->dev, e->logits_bytes);
    if (!e->logits) return nb_fail(err, NB_ERR_NOMEM, "out of memory for logits");
    nb_plan_describe(nb_forward_plan(e->forward), e->kernels, sizeof e->kernels);
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
    NB_TRY(open_source(e, o, err));
    NB_TRY(nb_model_load(&e->model, &c, e->source, err));
    if (o->progress) {
        prefault_ctx p = { o->progress, o->progress_ctx };
        nb_source_prefault(e->source, prefault_report, &p);
    }
    static const char *const names[] = { "F32", "BF16", "F16", "FP8" };
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

static nb_status create(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    nb_caps mask = NB_CAPS_ALL;
    if (o->cpu_caps) NB_TRY(nb_cpu_caps_parse(o->cpu_caps, &mask, err));
    NB_TRY(nb_engine_read_config(o->model, &e->model.c, err));
    NB_TRY(choose_record(e, o, err));
    NB_TRY(choose_forms(e, o->mla, err));
    NB_TRY(nb_dev_create_host(o->n_thread, &e->dev, err));
    NB_TRY(load_text(e, o, err));
    NB_TRY(load_model(e, o, err));
    NB_TRY(create_pool(e, o->max_model_len, err));
    NB_TRY(create_forward(e, o, nb_cpu_caps() & mask, err));
    const size_t at = strlen(e->warnings);
    if (e->model.c.notes[0])
        (void)snprintf(e->warnings + at, sizeof e->warnings - at,
                       "%sconfig.json: unknown fields ignored: %s", at ? "; " : "",
                       e->model.c.notes);
    return NB_OK;
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

void nb_engine_destroy(nb_engine *e)
{
    if (!e) return;
    nb_forward_destroy(e->forward);
    if (e->dev) {
        nb_dev_free(e->dev, e->kv, e->kv_bytes);
        nb_dev_free(e->dev, e->seq.tail, e->tail_bytes);
        nb_dev_free(e->dev, e->logits, e->logits_bytes);
    }
    free(e->seq.tok);
    free(e->seq.block);
    nb_block_pool_deinit(&e->pool);
    nb_model_deinit(&e->model);
    if (e->source) nb_source_close(e->source);
    nb_dev_destroy(e->dev);
    nb_text_destroy(e->text);
    free(e);
}

const nb_text *nb_engine_text(const nb_engine *e)
{
    return e->text;
}

void nb_engine_cancel(nb_engine *e)
{
    atomic_store_explicit(&e->cancel, true, memory_order_relaxed);
}

void nb_engine_get_info(const nb_engine *e, nb_engine_info *info)
{
    const nb_model_config *c = &e->model.c;
    nb_model_size s;
    nb_model_config_size(c, &s);
    *info = (nb_engine_info){
        .family = c->family,
        .kv_dtype = nb_kv_type_name(e->record.type),
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
        .kv_pool_bytes = e->kv_bytes,
        .kv_pool_tok = e->pool.n_block * NB_PAGE_TOK,
        .n_thread = nb_dev_n_worker(e->dev),
        .kernels = e->kernels,
        .warnings = e->warnings,
    };
}

/* ---- the memory of an engine that is not there yet ---- */

static uint64_t plan_weights(nb_engine *e, const nb_engine_options *o, nb_status *st, nb_error *err)
{
    if (o->load_format && !strcmp(o->load_format, "dummy")) { /* would make them all */
        nb_model_size s;
        nb_model_config_size(&e->model.c, &s);
        return s.n_param * (e->model.c.dtype[5] == '3' ? 4 : 2);
    }
    nb_engine_options quiet = *o;
    quiet.progress = NULL; /* nor reads them */
    *st = load_model(e, &quiet, err);
    return e->model.weight_bytes;
}

static nb_status plan(nb_engine *e, const nb_engine_options *o, nb_memory_plan *p, nb_error *err)
{
    nb_caps mask = NB_CAPS_ALL;
    nb_status st = NB_OK;
    const size_t n_seq = o->max_num_seqs ? o->max_num_seqs : 1;
    if (o->cpu_caps) NB_TRY(nb_cpu_caps_parse(o->cpu_caps, &mask, err));
    NB_TRY(nb_engine_read_config(o->model, &e->model.c, err));
    NB_TRY(choose_record(e, o, err));
    NB_TRY(choose_forms(e, o->mla, err));
    NB_TRY(nb_dev_create_host(o->n_thread, &e->dev, err));
    p->weight_bytes = plan_weights(e, o, &st, err);
    NB_TRY(st);
    const nb_model_config *c = &e->model.c;
    e->max_model_len = c->max_pos;
    NB_TRY(create_forward(e, o, nb_cpu_caps() & mask, err));
    p->memory_bytes = nb_os_ram_bytes();
    p->workspace_bytes = nb_forward_bytes(e->forward) + e->logits_bytes;
    p->tail_bytes = n_seq * c->n_layer * NB_PAGE_TOK * e->record.n_values * sizeof(float);
    p->block_bytes = nb_engine_block_bytes(c, &e->record);
    p->block_tok = NB_PAGE_TOK;
    p->max_model_len = c->max_pos;
    (void)snprintf(p->dtype, sizeof p->dtype, "%s", c->fp8 ? "fp8" : c->dtype);
    (void)snprintf(p->kv_dtype, sizeof p->kv_dtype, "%s", nb_kv_type_name(e->record.type));
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
