/* linear_amx.c - the loops of linear around the tile unit, for all types of weights.
 *
 * Up to 16 or 32 tokens: parts of 32 rows, tiles read from the matrix itself, each weight once; 32
 * rows are as many sequential streams, more than the hardware's prefetchers follow well, hence
 * nb_amx_prefetch.  Two row tiles give two chains of sums for a token's BF16 parts: 2 KiB of weights
 * in 104 cycles, 20 bytes per cycle; INT8 has four, 2 KiB in 64.
 *
 * More tokens: blocks of up to 64 units (256 rows x 256 tokens of BF16, 256 x 128 of INT8) whose
 * sums rest in memory, 256 KiB of stack.  The columns are cut into panels of 16 steps: the 32
 * KiB of weights of a part are copied or converted once and stay in L1, the tokens of the block (64
 * KiB per unit and panel) in L2, and each loaded tile of tokens meets two of weights.  Per step of a
 * BF16 unit: 8 products (128 cycles), 6 loads (48), 4 KiB from L2; of an INT8 unit: 4 products (64
 * cycles), 4 loads (32), 2 KiB.  Sums are stored and loaded once per panel, 96 of 2,048 cycles.
 * What comes from beyond L2 is 256 rows and 256 tokens for 256 x 256 sums: 6 bytes per cycle.  With
 * the 32 rows of a single part it would be 32, four times what L3 gives: give this kernel calls
 * of 128 rows or more where there are more than about 64 tokens. */
#include "kernel/x86/linear_amx.h"

#include "kernel/x86/vec_avx512.h"

enum {
    UNITS = 64,
    UNIT_BYTES = 4 * NB_AMX_TILE,
    BLOCK_PARTS = 8,
    STEP_BYTES = 2 * NB_AMX_TILE /* of a panel */
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t row_bytes(const nb_linear_args *a)
{
    return a->w.n_col * nb_wtype_bytes(a->w.type);
}

/* A in tiles 4 and 5, B in 6 and 7, C in 0..3: C 2i + j has the rows of A 4 + i and the words of
 * B 6 + j. */
static void configure(const nb_amx_part *p, nb_amx_config *c)
{
    const size_t rows0 = least(p->tile_rows, 16);
    const size_t rows[2] = { rows0, p->tile_rows > 16 ? p->tile_rows - 16 : rows0 };
    const size_t bytes[2] = { 4 * p->n_tok[0], 4 * (p->x[1] ? p->n_tok[1] : p->n_tok[0]) };
    if (c->palette && c->rows[0] == rows[0] && c->rows[2] == rows[1] &&
        c->row_bytes[0] == bytes[0] && c->row_bytes[1] == bytes[1])
        return;
    c->palette = 1;
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; j < 2; j++) {
            c->rows[2 * i + j] = (uint8_t)rows[i];
            c->row_bytes[2 * i + j] = (uint16_t)bytes[j];
        }
        c->rows[4 + i] = (uint8_t)rows[i];
        c->row_bytes[4 + i] = 64;
        c->rows[6 + i] = 16;
        c->row_bytes[6 + i] = (uint16_t)bytes[i];
    }
    nb_amx_configure(c);
}

static void set_tokens(nb_amx_part *p, const nb_amx_type *type, size_t tok)
{
    const nb_linear_args *a = p->a;
    p->tok = tok;
    for (size_t j = 0; j < 2; j++) {
        const size_t t = tok + j * NB_AMX_TOK;
        const bool some = j < type->unit_blocks && t < a->n_tok;
        p->n_tok[j] = some ? least(a->n_tok - t, NB_AMX_TOK) : 0;
        p->x[j] = some ? (const uint8_t *)a->xp + nb_amx_packed_bytes(t, a->w.n_col, type->step_col)
                       : NULL;
    }
}

static void use_panel(nb_amx_part *p, const uint8_t *panel)
{
    p->w = panel;
    p->w_row = 64;
    p->w_tile = NB_AMX_TILE;
    p->w_step = STEP_BYTES;
    p->ahead = false;
    nb_amx_written();
}

static void use_matrix(nb_amx_part *p)
{
    p->w_row = row_bytes(p->a);
    p->w = (const uint8_t *)p->a->w.data + p->r * p->w_row;
    p->w_tile = 16 * p->w_row;
    p->w_step = 64;
    p->ahead = true;
}

/* ---- one unit of tokens ---- */

static void multiply_direct(nb_amx_part *p, const nb_amx_type *type)
{
    alignas(64) uint8_t last[STEP_BYTES];
    const size_t n_col = p->a->w.n_col;
    p->n_step = n_col / type->step_col;
    if (p->n_step) {
        type->multiply(p);
        p->zero = false;
    }
    if (n_col % type->step_col) {
        p->step = p->n_step;
        p->n_step = 1;
        type->panel(p, last);
        use_panel(p, last);
        type->multiply(p);
    }
}

static void one_unit(const nb_linear_args *a, const nb_amx_type *type)
{
    alignas(64) uint8_t acc[UNIT_BYTES] = { 0 };
    nb_amx_config config = { 0 };
    for (size_t r = a->row_begin; r < a->row_end; r += NB_AMX_ROWS) {
        const size_t n_row = least(a->row_end - r, NB_AMX_ROWS);
        nb_amx_part p = {
            .a = a, .r = r, .n_row = n_row, .tile_rows = n_row, .acc = acc, .zero = true
        };
        set_tokens(&p, type, 0);
        use_matrix(&p);
        configure(&p, &config);
        if (type->alone)
            type->alone(&p);
        else
            multiply_direct(&p, type);
        type->finish(&p);
    }
}

/* ---- blocks ---- */

typedef struct block {
    const nb_linear_args *a;
    const nb_amx_type *type;
    size_t r0, r1, tok0, tok1, n_step;
    nb_amx_config config;
} block;

/* Asks for share u of n of the weights of a panel. */
static void prefetch_panel(const block *b, size_t r, size_t step, size_t u, size_t n)
{
    const size_t bytes = row_bytes(b->a), n_row = r < b->r1 ? least(b->r1 - r, NB_AMX_ROWS) : NB_AMX_ROWS;
    const size_t step_bytes = b->type->step_col * nb_wtype_bytes(b->a->w.type);
    const size_t from = step * step_bytes;
    const size_t to = least(from + NB_AMX_PANEL_STEPS * step_bytes, bytes);
    const char *w = (const char *)b->a->w.data + r * bytes;
    for (size_t i = n_row * u / n; i < n_row * (u + 1) / n; i++)
        for (size_t k = from; k < to; k += 64) _mm_prefetch(w + i * bytes + k, _MM_HINT_T1);
}

/* A panel of part r at step times all tokens of the block; acc: of the part's first unit. */
static void panel_times_tokens(block *b, size_t r, size_t step, uint8_t *panel, uint8_t *acc)
{
    const size_t n_row = least(b->r1 - r, NB_AMX_ROWS), unit = NB_AMX_TOK * b->type->unit_blocks;
    const size_t n_unit = (b->tok1 - b->tok0 + unit - 1) / unit;
    const bool last_row = r + NB_AMX_ROWS >= b->r1, last_step = step + NB_AMX_PANEL_STEPS >= b->n_step;
    /* after the block: the rows behind it, which the next task of this thread will read */
    const size_t next_r = !last_row ? r + NB_AMX_ROWS : last_step ? b->r1 : b->r0;
    const size_t next_step = !last_row ? step : last_step ? 0 : step + NB_AMX_PANEL_STEPS;
    nb_amx_part p = { .a = b->a,
                      .r = r,
                      .n_row = n_row,
                      .tile_rows = n_row > 16 ? 32 : 16,
                      .step = step,
                      .n_step = least(b->n_step - step, NB_AMX_PANEL_STEPS),
                      .acc = acc,
                      .zero = step == 0 };
    b->type->panel(&p, panel);
    use_panel(&p, panel);
    for (size_t u = 0; u < n_unit; u++, p.acc += UNIT_BYTES) {
        set_tokens(&p, b->type, b->tok0 + u * unit);
        configure(&p, &b->config);
        prefetch_panel(b, next_r, next_step, u, n_unit);
        b->type->multiply(&p);
    }
}

static void finish_block(const block *b, uint8_t *acc, size_t part_bytes)
{
    const size_t unit = NB_AMX_TOK * b->type->unit_blocks;
    for (size_t r = b->r0; r < b->r1; r += NB_AMX_ROWS, acc += part_bytes) {
        nb_amx_part p = { .a = b->a, .r = r, .n_row = least(b->r1 - r, NB_AMX_ROWS), .acc = acc };
        for (size_t t = b->tok0; t < b->tok1; t += unit, p.acc += UNIT_BYTES) {
            set_tokens(&p, b->type, t);
            b->type->finish(&p);
        }
    }
}

static void all_blocks(const nb_linear_args *a, const nb_amx_type *type)
{
    alignas(64) uint8_t acc[UNITS * UNIT_BYTES];
    alignas(64) uint8_t panel[NB_AMX_PANEL_STEPS * STEP_BYTES];
    const size_t n_part = (a->row_end - a->row_begin + NB_AMX_ROWS - 1) / NB_AMX_ROWS;
    const size_t parts = least(n_part, BLOCK_PARTS), units = UNITS / parts;
    const size_t rows = parts * NB_AMX_ROWS, toks = units * NB_AMX_TOK * type->unit_blocks;
    block b = { .a = a, .type = type };
    b.n_step = (a->w.n_col + type->step_col - 1) / type->step_col;
    for (b.tok0 = 0; b.tok0 < a->n_tok; b.tok0 = b.tok1) {
        b.tok1 = b.tok0 + least(a->n_tok - b.tok0, toks);
        for (b.r0 = a->row_begin; b.r0 < a->row_end; b.r0 = b.r1) {
            b.r1 = b.r0 + least(a->row_end - b.r0, rows);
            for (size_t step = 0; step < b.n_step; step += NB_AMX_PANEL_STEPS)
                for (size_t r = b.r0; r < b.r1; r += NB_AMX_ROWS)
                    panel_times_tokens(&b, r, step, panel,
                                       acc + (r - b.r0) / NB_AMX_ROWS * units * UNIT_BYTES);
            finish_block(&b, acc, units * UNIT_BYTES);
        }
    }
}

void nb_linear_amx(const nb_linear_args *a, const nb_amx_type *type)
{
    if (a->n_tok == 0 || a->row_begin == a->row_end) return;
    if (a->n_tok <= NB_AMX_TOK * type->unit_blocks)
        one_unit(a, type);
    else
        all_blocks(a, type);
    _tile_release();
}

/* ---- what types share ---- */

void nb_amx_copy_panel(const nb_amx_part *p, uint8_t *panel)
{
    const size_t bytes = row_bytes(p->a);
    for (size_t i = 0; i < NB_AMX_ROWS; i++) {
        const uint8_t *row = (const uint8_t *)p->a->w.data + (p->r + i) * bytes;
        uint8_t *out = panel + i * 64; /* the second tile follows the first */
        for (size_t s = 0; s < p->n_step; s++) {
            const size_t at = (p->step + s) * 64, left = bytes - at;
            __m512i v = _mm512_setzero_si512();
            if (i < p->n_row)
                v = left >= 64 ? _mm512_loadu_si512(row + at)
                               : _mm512_maskz_loadu_epi8(nb_avx512_mask64(left), row + at);
            _mm512_store_si512(out + s * STEP_BYTES, v);
        }
    }
}

void nb_amx_finish_f32(const nb_amx_part *p)
{
    const nb_linear_args *a = p->a;
    alignas(64) float y[16][16];
    for (size_t i = 0; i < p->n_row; i += 16) {
        const __mmask16 mask = nb_avx512_mask16(least(p->n_row - i, 16));
        const size_t r = p->r + i;
        const __m512 bias =
            a->bias ? _mm512_maskz_loadu_ps(mask, a->bias + r) : _mm512_setzero_ps();
        for (size_t j = 0; j < 2 && p->x[j]; j++) {
            nb_avx512_transpose16(y, sizeof y[0], 0xffff, p->acc + (i / 16 * 2 + j) * NB_AMX_TILE,
                                  64);
            float *out = a->y + (p->tok + j * NB_AMX_TOK) * a->y_stride + (r - a->row_begin);
            for (size_t t = 0; t < p->n_tok[j]; t++) {
                __m512 v = _mm512_load_ps(y[t]);
                if (a->bias) v = _mm512_add_ps(v, bias);
                _mm512_mask_storeu_ps(out + t * a->y_stride, mask, v);
            }
        }
    }
}
