/* convert.c - see convert.h: what is checked before a weight is read. */
#include "convert/convert.h"

#include <stdlib.h>
#include <string.h>

#include "convert/convert_internal.h"
#include "convert/gguf_out.h"
#include "convert/hf_format.h"
#include "os/file.h"

const char nb_convert_formats[] =
    "int4-g32|int4-g128|nvfp4|mxfp4|fp8|fp8-block|modelopt-nvfp4|modelopt-fp8|bf16|gguf:F32|gguf:F16|gguf:BF16|gguf:Q8_0|gguf:Q4_0|gguf:Q4_1|"
    "gguf:Q5_0|gguf:Q5_1|gguf:Q2_K|gguf:Q3_K_S|gguf:Q3_K_M|gguf:Q3_K_L|gguf:Q4_K_S|gguf:Q4_K_M|gguf:Q5_K_S|"
    "gguf:Q5_K_M|gguf:Q6_K";

/* Whether s is one of the names of "a|b". */
static bool is_one_of(const char *names, const char *s)
{
    for (const char *p = names; *p;) {
        const size_t n = strcspn(p, "|");
        if (strlen(s) == n && memcmp(p, s, n) == 0) return true;
        p += n + (p[n] == '|');
    }
    return false;
}

bool nb_convert_searches(const char *format)
{
    const bool gguf = strncmp(format, "gguf:", 5) == 0;
    const nb_hf_format *f = gguf ? NULL : nb_hf_format_of(format);
    return gguf ? nb_gguf_mix_searches(format + 5) : f && f->search;
}

nb_status nb_convert_check(const nb_convert_options *o, nb_error *err)
{
    if (!is_one_of(nb_convert_formats, o->format))
        return nb_fail(err, NB_ERR_ARG, "format '%s' is not known", nb_show_c(o->format).s);
    if (nb_path_is_dir(o->out) || nb_path_is_file(o->out) || nb_path_is_other(o->out))
        return nb_fail(err, NB_ERR_ARG, "%s: is there already; give a name that is free",
                       nb_show_path(o->out).s);
    nb_buf config = { 0 };
    const bool folder =
        nb_path_join(&config, o->model, "config.json") == NB_OK && nb_path_is_file(config.p);
    nb_buf_deinit(&config);
    if (!folder) /* a GGUF file has its configuration inside */
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "%s: convert reads a Hugging Face folder with safetensors",
                       nb_show_path(o->model).s);
    return NB_OK;
}

/* The embedding under one of the prefixes that a part of another model has. */
static bool find_embedding(const nb_conv *c, nb_tensor *t)
{
    static const char *const names[] = { "model.embed_tokens.weight",
                                         "language_model.model.embed_tokens.weight",
                                         "model.language_model.embed_tokens.weight" };
    for (size_t i = 0; i < NB_COUNT(names); i++)
        if (nb_source_peek(c->source, names[i], t)) return true;
    return false;
}

/* Forms that nibble could not read back. */
static nb_status check_family(const nb_conv *c)
{
    const char *type = json_string_value(json_object_get(c->text, "model_type"));
    if (type && !strcmp(type, "deepseek_v4") && is_one_of("fp8-block", c->o->format))
        return nb_fail(c->err, NB_ERR_UNSUPPORTED,
                       "config.json: model_type \"deepseek_v4\": --weight-format fp8-block is not supported: what the "
                       "family calls fp8 has experts in MXFP4 (expected: fp8, mxfp4, nvfp4, int4-g32, ...)");
    if (!type || strcmp(type, "longcat_flash") != 0 || is_one_of("fp8-block|bf16", c->o->format))
        return NB_OK;
    return nb_fail(c->err, NB_ERR_UNSUPPORTED,
                   "config.json: model_type \"longcat_flash\": --weight-format %s is not supported (expected: "
                   "fp8-block, bf16)",
                   c->o->format);
}

static nb_status open_model(nb_conv *c)
{
    nb_tensor t;
    nb_status st = nb_conv_json(c, "config.json", &c->config);
    if (st == NB_OK && !json_is_object(c->config))
        st = nb_fail(c->err, NB_ERR_NOT_FOUND, "%s/config.json: is missing",
                     nb_show_path(c->o->model).s);
    if (st == NB_OK) st = nb_source_open_dir(c->o->model, &c->source, c->err);
    if (st != NB_OK) return st;
    c->text = json_object_get(c->config, "text_config");
    if (!json_is_object(c->text)) c->text = c->config;
    NB_TRY(check_family(c));
    NB_TRY(nb_conv_read_model(c));
    c->v4 = nb_source_has(c->source, "embed.weight") && nb_source_has(c->source, "layers.0.attn_norm.weight");
    if (c->v4) nb_source_set_names(c->source, nb_names_v4);
    if (!find_embedding(c, &t))
        return nb_fail(c->err, NB_ERR_FORMAT, "%s: tensor 'model.embed_tokens.weight' is missing",
                       nb_show_path(c->o->model).s);
    if (1u << t.dtype & ~(1u << NB_DT_F32 | 1u << NB_DT_BF16 | 1u << NB_DT_F16))
        return nb_fail(c->err, NB_ERR_UNSUPPORTED,
                       "%s: its weights are quantised already (a GGUF file?)",
                       nb_show_path(c->o->model).s);
    return nb_conv_list(c);
}

static void close_model(nb_conv *c)
{
    const size_t n = c->pool ? nb_pool_n_thread(c->pool) : 0;
    for (size_t i = 0; c->scratch && i < n; i++) free(c->scratch[i]);
    free(c->scratch);
    free(c->importance);
    if (c->pool) nb_pool_destroy(c->pool);
    if (c->source) nb_source_close(c->source);
    json_decref(c->config);
    free(c->model);
    nb_arena_deinit(&c->now);
    nb_arena_deinit(&c->arena);
}

nb_status nb_convert(const nb_convert_options *o, nb_convert_report *out, nb_error *err)
{
    static const char gguf[] = "gguf:";
    *out = (nb_convert_report){ 0 };
    NB_TRY(nb_convert_check(o, err));
    nb_conv c = { .o = o, .report = out, .err = err };
    nb_status st = open_model(&c);
    if (st == NB_OK) st = nb_pool_create(o->n_thread, &c.pool, err);
    if (st == NB_OK) out->in_bytes = nb_source_bytes(c.source);
    if (st == NB_OK)
        st = strncmp(o->format, gguf, sizeof gguf - 1) == 0
                 ? nb_conv_gguf(&c, o->format + sizeof gguf - 1)
                 : nb_conv_hf(&c, o->format);
    if (st == NB_OK) st = nb_source_check_reads(c.source, err);
    close_model(&c);
    return st;
}
