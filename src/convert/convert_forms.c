/* convert_forms.c - see convert_internal.h: which tensors of the source are matrices in codes, and their values.
 *
 * The model's own reader takes a module apart (model/weight_form.h), so that what is converted are the values that nibble
 * would compute with.  Names are those of a Hugging Face folder; DeepSeek V4's published ones are translated on the way
 * in and out (load/names_v4.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert/convert_internal.h"
#include "kernel/linear/linear_order.h"
#include "kernel/linear/packed.h"
#include "model/config.h"
#include "model/weight_form.h"

enum { NAME_BYTES = 256 };
#define DT(t) (1u << NB_DT_##t)

/* Tensors of a module beside its codes. */
static const char *const beside[] = {
    ".weight_scale",        ".weight_scale_inv",  ".weight_scale_2", ".weight_global_scale",
    ".weight_shape",        ".weight_zero_point", ".weight_g_idx",   ".input_scale",
    ".input_global_scale",  ".input_scale_ub",    ".qzeros",         ".scales",
    ".g_idx",               ".output_scale",
};

static bool cut(const char *name, const char *end, char stem[NAME_BYTES])
{
    const size_t n = strlen(name), k = strlen(end);
    if (n <= k || n - k >= NAME_BYTES || strcmp(name + n - k, end) != 0) return false;
    memcpy(stem, name, n - k);
    stem[n - k] = 0;
    return true;
}

static bool peek(const nb_conv *c, const char *module, const char *suffix, nb_tensor *t)
{
    char name[NAME_BYTES + 32];
    (void)snprintf(name, sizeof name, "%s.%s", module, suffix);
    return nb_source_peek(c->source, name, t);
}

/* ---- names ---- */

/* What a tensor of the source is called here, in the arena; NULL: it belongs to another one. */
static nb_status logical_name(nb_conv *c, const char *raw, char **out)
{
    static const char *const codes[] = { ".weight_packed", ".qweight" };
    char stem[NAME_BYTES], name[NAME_BYTES + 16], own[NAME_BYTES];
    *out = NULL;
    if (c->v4) {
        if (!strncmp(raw, "mtp.", 4)) { /* layers for speculation, which nibble does not load */
            c->report->n_left_out++;
            return NB_OK;
        }
        if (!nb_names_v4_back(raw, own, sizeof own))
            return nb_fail(c->err, NB_ERR_UNSUPPORTED, "tensor '%s' has no place in deepseek_v4",
                           nb_show_c(raw).s);
        raw = own;
    }
    for (size_t i = 0; i < NB_COUNT(beside); i++)
        if (cut(raw, beside[i], stem) && nb_form_is_quantised(c->source, stem)) return NB_OK;
    (void)snprintf(name, sizeof name, "%s", raw);
    if (strlen(raw) >= NAME_BYTES)
        return nb_fail(c->err, NB_ERR_LIMIT, "tensor '%s': its name is too long", nb_show_c(raw).s);
    for (size_t i = 0; i < NB_COUNT(codes); i++)
        if (cut(raw, codes[i], stem)) (void)snprintf(name, sizeof name, "%s.weight", stem);
    *out = nb_arena_strdup(&c->arena, nb_str_c(name));
    return *out ? NB_OK : nb_conv_nomem(c);
}

nb_status nb_conv_list(nb_conv *c)
{
    const size_t n = nb_source_n_tensor(c->source);
    const char *raw;
    c->name = nb_arena_array(&c->arena, n ? n : 1, sizeof *c->name);
    if (!c->name) return nb_conv_nomem(c);
    for (size_t i = 0; i < n && (raw = nb_source_leftover(c->source, i)) != NULL; i++) {
        char *own;
        NB_TRY(logical_name(c, raw, &own));
        if (own) c->name[c->n_name++] = own;
    }
    return NB_OK;
}

/* ---- sizes, from the tensors alone ---- */

static nb_status odd(nb_conv *c, const char *module, const char *what)
{
    return nb_fail(c->err, NB_ERR_FORMAT, "tensor '%s.%s': its sizes do not say those of the matrix",
                   nb_show_c(module).s, what);
}

/* qweight is [cols][rows / n] or [cols / n][rows], n codes in a word. */
static nb_status size_of_words(nb_conv *c, const char *module, const nb_tensor *t, nb_conv_matrix *m)
{
    nb_tensor s, z;
    if (t->n_dim != 2 || !peek(c, module, "scales", &s) || s.n_dim != 2 || s.dim[1] == 0)
        return odd(c, module, "qweight");
    m->rows = s.dim[1];
    if (t->dim[1] != m->rows) { /* AWQ */
        m->cols = t->dim[0];
        return NB_OK;
    }
    if (!peek(c, module, "qzeros", &z) || z.n_dim != 2 || z.dim[1] == 0 || m->rows % z.dim[1])
        return odd(c, module, "qzeros");
    m->cols = t->dim[0] * (m->rows / z.dim[1]);
    return NB_OK;
}

static nb_status size_of_packed(nb_conv *c, const char *module, const nb_tensor *t, nb_conv_matrix *m)
{
    nb_tensor s;
    if (t->n_dim != 2) return odd(c, module, "weight_packed");
    m->rows = t->dim[0];
    m->cols = 2 * t->dim[1];
    if (t->dtype == NB_DT_U8) return NB_OK;
    if (peek(c, module, "weight_shape", &s)) {
        char name[NAME_BYTES + 32];
        (void)snprintf(name, sizeof name, "%s.weight_shape", module);
        const nb_tensor_want want = { .name = name, .dtypes = DT(I64) | DT(I32), .n_dim = 1, .dim = { 2 } };
        NB_TRY(nb_source_take(c->source, &want, &s, c->err));
        const int64_t n = s.dtype == NB_DT_I64 ? ((const int64_t *)s.data)[1] : ((const int32_t *)s.data)[1];
        m->cols = n > 0 && n < INT32_MAX ? (size_t)n : 0;
        return m->cols ? NB_OK : odd(c, module, "weight_shape");
    }
    const size_t bits = c->model ? nb_quant_main(&c->model->quant)->bits : 0;
    if (bits == 0 || bits > 32) return odd(c, module, "weight_packed");
    m->cols = t->dim[1] * (32 / bits);
    return NB_OK;
}

/* *coded: a module in codes, whose sizes m gets. */
static nb_status coded_sizes(nb_conv *c, const char *module, nb_conv_matrix *m, bool *coded)
{
    nb_tensor t, s;
    *coded = nb_form_is_quantised(c->source, module);
    if (!*coded) return NB_OK;
    if (peek(c, module, "weight_packed", &t)) {
        NB_TRY(size_of_packed(c, module, &t, m));
    } else if (peek(c, module, "qweight", &t)) {
        NB_TRY(size_of_words(c, module, &t, m));
    } else {
        (void)peek(c, module, "weight", &t);
        if (t.n_dim != 2) return odd(c, module, "weight");
        const bool half = t.dtype == NB_DT_U8 || (t.dtype == NB_DT_I8 && peek(c, module, "weight_scale_inv", &s));
        m->rows = t.dim[0];
        m->cols = t.dim[1] * (half ? 2 : 1);
    }
    m->t = (nb_tensor){ .dtype = NB_DT_OTHER, .n_dim = 2, .dim = { m->rows, m->cols } };
    return NB_OK;
}

nb_status nb_conv_size(nb_conv *c, const char *name, nb_conv_matrix *m)
{
    char module[NAME_BYTES];
    *m = (nb_conv_matrix){ .name = name };
    if (cut(name, ".weight", module)) NB_TRY(coded_sizes(c, module, m, &m->coded));
    if (m->coded) return NB_OK;
    if (!nb_source_peek(c->source, name, &m->t))
        return nb_fail(c->err, NB_ERR_NOT_FOUND, "tensor '%s' is missing", nb_show_c(name).s);
    m->cols = m->t.n_dim ? m->t.dim[m->t.n_dim - 1] : 1;
    m->rows = 1;
    for (size_t i = 0; i + 1 < m->t.n_dim; i++) m->rows *= m->t.dim[i];
    return NB_OK;
}

/* ---- values ---- */

static const nb_quant *quant_of(const nb_conv *c)
{
    static const nb_quant none;
    return c->model ? &c->model->quant : &none;
}

static nb_status weight_taken(nb_conv_matrix *m, const nb_weight *w)
{
    m->w = *w;
    m->coded = true;
    m->rows = w->n_row;
    m->cols = w->n_col;
    m->t = (nb_tensor){ .data = w->data, .dtype = NB_DT_OTHER, .n_dim = 2, .dim = { w->n_row, w->n_col } };
    m->t.n_bytes = nb_weight_data_bytes(w);
    return NB_OK;
}

nb_status nb_conv_take_coded(nb_conv *c, nb_conv_matrix *m)
{
    char module[NAME_BYTES];
    nb_weight w;
    (void)cut(m->name, ".weight", module);
    if (c->no_model[0] && !c->model) /* what else than tensors says how codes lie */
        return nb_fail(c->err, NB_ERR_UNSUPPORTED, "tensor '%s' is in codes: %s", nb_show_c(m->name).s,
                       c->no_model);
    nb_form f = { c->source, &c->now, quant_of(c), module, m->rows, m->cols, c->err };
    NB_TRY(nb_form_take(&f, &w));
    return weight_taken(m, &w);
}

nb_status nb_conv_take_coded_stack(nb_conv *c, const char *experts, size_t e, size_t n, const char *part,
                                   nb_conv_matrix *m)
{
    nb_weight w;
    nb_form f = { c->source, &c->now, quant_of(c), experts, m->rows, m->cols, c->err };
    NB_TRY(nb_form_take_stacked(&f, e, n, part, &w));
    return weight_taken(m, &w);
}

void nb_conv_coded_row(const nb_conv_matrix *m, size_t r, float *out)
{
    const nb_weight *w = &m->w;
    nb_weight_codes(w, r, 0, w->n_col, out);
    if (w->type != NB_W_FP8B) return;
    for (size_t i = 0; i < w->n_col; i++) out[i] *= nb_weight_scale(w, r, i);
}

nb_status nb_conv_read_model(nb_conv *c)
{
    nb_error why = { 0 };
    c->model = malloc(sizeof *c->model);
    if (!c->model) return nb_conv_nomem(c);
    if (nb_model_config_read_path(c->o->model, c->model, &why) == NB_OK) return NB_OK;
    (void)snprintf(c->no_model, sizeof c->no_model, "%s", why.msg);
    free(c->model);
    c->model = NULL;
    return NB_OK;
}
