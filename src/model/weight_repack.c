/* weight_repack.c - see weight_form.h: AWQ and GPTQ, whose codes run down the columns, and act order.
 *
 * AWQ: qweight [cols][rows / 8]; nibble i of word j is row 8 j + (0, 2, 4, 6, 1, 3, 5, 7)[i].  qzeros
 * [groups][rows / 8] likewise.  GPTQ: word (i, r) of qweight [cols * bits / 32][rows] has the columns from
 * 32 / bits * i on of row r, so that a row's words are those of compressed-tensors; qzeros [groups]
 * [rows * bits / 32], and format "gptq" (v1) stores zero points less 1.  Both have scales
 * [groups][rows], and a value is (code - zero point) * scale.  Here, too: experts that lie in one tensor. */
#include <stdio.h>
#include <string.h>

#include "model/weight_form.h"

#define DT(t) (1u << NB_DT_##t)

static const unsigned char awq_nibble[8] = { 0, 4, 1, 5, 2, 6, 3, 7 }; /* of row 8 j + c */

/* ---- act order ---- */

static unsigned get_code(const uint8_t *row, size_t c, bool nibbles)
{
    return nibbles ? (unsigned)row[c / 2] >> 4 * (c & 1) & 15u : row[c];
}

/* column[p]: the columns in the order of their groups, stable. */
static nb_status sort_columns(nb_form *f, const char *suffix, const int32_t *g_idx,
                              const nb_weight *w, uint32_t *column, uint32_t *place)
{
    const size_t n_group = nb_weight_n_group(w), size = w->group.size;
    uint32_t *at = nb_arena_array(f->arena, n_group, sizeof *at);
    if (!at) return nb_form_nomem(f);
    for (size_t k = 0; k < n_group; k++) at[k] = (uint32_t)(k * size);
    for (size_t c = 0; c < f->cols; c++) {
        const size_t k = (size_t)g_idx[c], end = (k + 1) * size;
        if (at[k] >= (end < f->cols ? end : f->cols))
            return nb_form_bad(f, suffix, "has more than %zu columns in group %zu",
                               (end < f->cols ? end : f->cols) - k * size, k);
        place[c] = at[k]++;
        column[place[c]] = (uint32_t)c;
    }
    return NB_OK;
}

nb_status nb_form_act_order(nb_form *f, const char *suffix, const int32_t *g_idx, nb_weight *w)
{
    const size_t n_group = nb_weight_n_group(w);
    bool sorted = true, unused = true;
    for (size_t c = 0; c < f->cols; c++) {
        unused &= g_idx[c] == -1;
        sorted &= g_idx[c] >= 0 && (size_t)g_idx[c] == c / w->group.size;
    }
    if (sorted || unused) return NB_OK;
    for (size_t c = 0; c < f->cols; c++)
        if (g_idx[c] < 0 || (size_t)g_idx[c] >= n_group)
            return nb_form_bad(f, suffix, "[%zu] is %d, expected a group from 0 to %zu", c,
                               (int)g_idx[c], n_group - 1);
    const size_t row_bytes = nb_wtype_row_bytes(w->type, f->cols);
    const bool nibbles = w->type == NB_W_INT4;
    uint32_t *column = nb_arena_array(f->arena, f->cols, sizeof *column);
    uint32_t *place = nb_arena_array(f->arena, f->cols, sizeof *place);
    uint8_t *data = nb_arena_array(f->arena, f->rows, row_bytes);
    if (!column || !place || !data) return nb_form_nomem(f);
    NB_TRY(sort_columns(f, suffix, g_idx, w, column, place));
    for (size_t r = 0; r < f->rows; r++) {
        const uint8_t *from = (const uint8_t *)w->data + r * row_bytes;
        uint8_t *to = data + r * row_bytes;
        for (size_t p = 0; p < f->cols; p++) {
            const unsigned code = get_code(from, column[p], nibbles);
            if (nibbles)
                to[p / 2] = (uint8_t)(to[p / 2] | code << 4 * (p & 1));
            else
                to[p] = (uint8_t)code;
        }
    }
    w->data = data;
    w->group.column = column;
    w->group.place = place;
    return NB_OK;
}

/* ---- codes ---- */

static nb_status take_awq(nb_form *f, nb_weight *w, uint32_t *code)
{
    nb_tensor t;
    const size_t nw = f->rows / 8, row = nb_wtype_row_bytes(NB_W_INT4, f->cols) / 4;
    NB_TRY(nb_form_tensor(f, "qweight", DT(I32), 2, f->cols, nw, &t));
    const uint32_t *q = t.data;
    for (size_t i = 0; i < f->cols; i += 8) {
        const size_t n = f->cols - i < 8 ? f->cols - i : 8;
        for (size_t j = 0; j < nw; j++)
            for (size_t c = 0; c < 8; c++) {
                uint32_t v = 0;
                for (size_t k = 0; k < n; k++)
                    v |= (q[(i + k) * nw + j] >> 4 * awq_nibble[c] & 15) << 4 * k;
                code[(8 * j + c) * row + i / 8] = v;
            }
    }
    w->type = NB_W_INT4;
    return NB_OK;
}

static nb_status take_gptq(nb_form *f, nb_weight *w, size_t n_word, uint32_t *code)
{
    nb_tensor t;
    NB_TRY(nb_form_tensor(f, "qweight", DT(I32), 2, n_word, f->rows, &t));
    const uint32_t *q = t.data;
    for (size_t i = 0; i < n_word; i++)
        for (size_t r = 0; r < f->rows; r++) code[r * n_word + i] = q[i * f->rows + r];
    (void)w;
    return NB_OK;
}

/* ---- scales and zero points ---- */

static nb_status take_scales(nb_form *f, nb_weight *w, size_t *n_group)
{
    nb_tensor t;
    NB_TRY(nb_form_tensor(f, "scales", DT(F16) | DT(BF16) | DT(F32), 2, 0, f->rows, &t));
    *n_group = t.dim[0];
    if (*n_group == 0) return nb_form_bad(f, "scales", "has no groups");
    NB_TRY(nb_form_group(f, "scales", *n_group, &w->group.size));
    const size_t size = nb_dtype_bytes(t.dtype);
    char *s = nb_arena_array(f->arena, f->rows * *n_group, size);
    if (!s) return nb_form_nomem(f);
    for (size_t k = 0; k < *n_group; k++)
        for (size_t r = 0; r < f->rows; r++)
            memcpy(s + (r * *n_group + k) * size, (const char *)t.data + (k * f->rows + r) * size,
                   size);
    w->group.scale = s;
    w->group.scale_type = t.dtype == NB_DT_F16    ? NB_S_F16
                          : t.dtype == NB_DT_BF16 ? NB_S_BF16
                                                  : NB_S_F32;
    w->group.outer = 1;
    return nb_form_check_scales(f, "scales", w);
}

/* As long as all are the middle of the codes, none is kept. */
static nb_status take_zeros(nb_form *f, nb_weight *w, size_t n_group, size_t bits, bool awq)
{
    nb_tensor t;
    const size_t per = 32 / bits, nw = f->rows / per;
    const unsigned add = f->quant->pack == NB_PACK_GPTQ, mask = (1u << bits) - 1;
    bool middle = true;
    NB_TRY(nb_form_tensor(f, "qzeros", DT(I32), 2, n_group, nw, &t));
    const uint32_t *q = t.data;
    uint8_t *zero = nb_arena_array(f->arena, f->rows, n_group);
    if (!zero) return nb_form_nomem(f);
    for (size_t k = 0; k < n_group; k++)
        for (size_t r = 0; r < f->rows; r++) {
            const size_t at = awq ? awq_nibble[r % 8] : r % per;
            const unsigned z = (q[k * nw + r / per] >> bits * at & mask) + add;
            if (z > 255)
                return nb_form_bad(f, "qzeros", "row %zu of group %zu is %u, expected at most 255",
                                   r, k, z);
            middle &= z == 1u << (bits - 1);
            zero[r * n_group + k] = (uint8_t)z;
        }
    if (!middle) w->group.zero = zero;
    return NB_OK;
}

/* Bits from the height of qweight, which have to be among those of config.json. */
static nb_status gptq_bits(nb_form *f, size_t *bits)
{
    nb_tensor t;
    char name[256];
    (void)snprintf(name, sizeof name, "%s.qweight", f->module);
    if (!nb_source_peek(f->source, name, &t) || t.n_dim != 2) return NB_OK; /* refused when it is taken */
    for (size_t b = 2; b <= 8; b++) {
        if (t.dim[0] != (f->cols * b + 31) / 32 || !nb_form_may_have(f, b)) continue;
        *bits = b;
        if (b == 4 || b == 8) return NB_OK;
        return nb_fail(f->err, NB_ERR_UNSUPPORTED,
                       "tensor '%s': codes of %zu bits are not supported (expected: 4, 8)", name, b);
    }
    *bits = nb_form_may_have(f, 4) ? 4 : 8;
    return NB_OK;
}

nb_status nb_form_take_repacked(nb_form *f, nb_weight *w)
{
    nb_tensor t;
    char name[256];
    size_t n_group, bits = 4;
    const bool awq = f->quant->pack == NB_PACK_AWQ;
    if (f->quant->pack == NB_PACK_ROWS)
        return nb_fail(f->err, NB_ERR_UNSUPPORTED,
                       "tensor '%s.qweight': config.json does not say whether it is AWQ or GPTQ",
                       f->module);
    if (!awq) NB_TRY(gptq_bits(f, &bits));
    const size_t n_word = (f->cols * bits + 31) / 32;
    if (f->cols % (32 / bits) || f->rows % (32 / bits))
        return nb_form_bad(f, "qweight", "is of a matrix [%zu, %zu], expected multiples of %zu",
                           f->rows, f->cols, 32 / bits);
    w->type = bits == 4 ? NB_W_INT4 : NB_W_BYTE;
    uint32_t *code = nb_arena_array(f->arena, f->rows, n_word * sizeof *code);
    if (!code) return nb_form_nomem(f);
    NB_TRY(awq ? take_awq(f, w, code) : take_gptq(f, w, n_word, code));
    w->data = code;
    NB_TRY(take_scales(f, w, &n_group));
    NB_TRY(take_zeros(f, w, n_group, bits, awq));
    (void)snprintf(name, sizeof name, "%s.g_idx", f->module);
    if (awq || !nb_source_peek(f->source, name, &t)) return NB_OK;
    NB_TRY(nb_form_tensor(f, "g_idx", DT(I32), 1, f->cols, 0, &t));
    return nb_form_act_order(f, "g_idx", t.data, w);
}

/* ---- experts in one tensor ---- */

bool nb_form_is_stacked(const nb_source *s, const char *experts)
{
    char name[256];
    (void)snprintf(name, sizeof name, "%s.gate_up_proj_blocks", experts);
    if (nb_source_has(s, name)) return true;
    (void)snprintf(name, sizeof name, "%s.gate_up_proj", experts);
    return nb_source_has(s, name);
}

/* Floats or E4M3: the rows of all gates, or of one expert's gate and up, follow each other. */
static nb_status take_plain_stack(nb_form *f, size_t j, size_t n, const char *part, nb_weight *out)
{
    enum { FLOATS = DT(F32) | DT(BF16) | DT(F16) };
    const bool down = strcmp(part, "down") == 0;
    const size_t step = down ? 1 : 2, first = !strcmp(part, "up");
    char name[288];
    nb_tensor t, s;
    (void)snprintf(name, sizeof name, "%s.%s_proj", f->module, down ? "down" : "gate_up");
    const nb_tensor_want want = { .name = name,
                                  .dtypes = FLOATS | DT(F8_E4M3),
                                  .n_dim = 3,
                                  .dim = { n, step * f->rows, f->cols } };
    NB_TRY(nb_source_take(f->source, &want, &t, f->err));
    const size_t at = (j * step + first) * f->rows * f->cols * nb_dtype_bytes(t.dtype);
    *out = (nb_weight){ .data = (const char *)t.data + at, .n_row = f->rows, .n_col = f->cols };
    out->type = t.dtype == NB_DT_F32    ? NB_W_F32
                : t.dtype == NB_DT_BF16 ? NB_W_BF16
                : t.dtype == NB_DT_F16  ? NB_W_F16
                                        : NB_W_FP8B;
    if (out->type != NB_W_FP8B) return NB_OK;
    (void)snprintf(name, sizeof name, "%s.%s_proj_scale_inv", f->module, down ? "down" : "gate_up");
    const nb_tensor_want sw = {
        .name = name, .dtypes = DT(F32) | DT(BF16), .n_dim = 3, .dim = { n, 1, 1 }
    };
    NB_TRY(nb_source_take(f->source, &sw, &s, f->err));
    return nb_form_one_scale(f, &s, j, out);
}

/* dim: [experts, rows, blocks, 16]; the last one is not there for scales. */
static nb_status take_stack(nb_form *f, const char *name, size_t n_dim, const size_t dim[4],
                            const uint8_t **out)
{
    nb_tensor t;
    nb_tensor_want want = { .name = name, .dtypes = DT(U8), .n_dim = n_dim };
    memcpy(want.dim, dim, n_dim * sizeof *dim);
    NB_TRY(nb_source_take(f->source, &want, &t, f->err));
    *out = t.data;
    return NB_OK;
}

nb_status nb_form_take_stacked(nb_form *f, size_t j, size_t n, const char *part, nb_weight *out)
{
    enum { BLOCK = 32 };
    char blocks[288];
    (void)snprintf(blocks, sizeof blocks, "%s.gate_up_proj_blocks", f->module);
    if (!nb_source_has(f->source, blocks)) return take_plain_stack(f, j, n, part, out);
    const bool down = strcmp(part, "down") == 0;
    const size_t step = down ? 1 : 2, first = !strcmp(part, "up"), n_block = f->cols / BLOCK;
    const size_t dim[4] = { n, step * f->rows, n_block, BLOCK / 2 };
    const char *const experts = f->module;
    char module[256], name[288];
    const uint8_t *code, *scale;
    (void)snprintf(module, sizeof module, "%s.%s_proj", experts, down ? "down" : "gate_up");
    f->module = module;
    if (f->cols % BLOCK)
        return nb_form_bad(f, "blocks", "%zu columns, expected a multiple of %d", f->cols, BLOCK);
    (void)snprintf(name, sizeof name, "%s_blocks", module);
    NB_TRY(take_stack(f, name, 4, dim, &code));
    (void)snprintf(name, sizeof name, "%s_scales", module);
    NB_TRY(take_stack(f, name, 3, dim, &scale));
    code += j * step * f->rows * n_block * (BLOCK / 2);
    scale += j * step * f->rows * n_block;
    if (!down) {
        uint8_t *c = nb_arena_array(f->arena, f->rows, n_block * (BLOCK / 2));
        uint8_t *s = nb_arena_array(f->arena, f->rows, n_block);
        if (!c || !s) return nb_form_nomem(f);
        for (size_t r = 0; r < f->rows; r++) {
            const size_t from = step * r + first;
            memcpy(c + r * n_block * (BLOCK / 2), code + from * n_block * (BLOCK / 2), n_block * (BLOCK / 2));
            memcpy(s + r * n_block, scale + from * n_block, n_block);
        }
        code = c;
        scale = s;
    }
    *out = (nb_weight){ .data = code, .n_row = f->rows, .n_col = f->cols, .type = NB_W_FP4 };
    out->group = (nb_wgroups){ .scale = scale, .scale_type = NB_S_E8M0, .size = BLOCK, .outer = 1 };
    NB_TRY(nb_form_check_scales(f, "scales", out));
    f->module = experts;
    return NB_OK;
}
