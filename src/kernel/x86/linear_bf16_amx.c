/* linear_bf16_amx.c - linear with BF16 weights on the tile unit: the weights as they lie, tokens in
 * two BF16 parts, 2 row tiles x 2 blocks of tokens.  linear_amx.h has order and bound, linear_amx.c
 * the loops. */
#include "kernel/x86/linear_amx.h"

static void multiply(const nb_amx_part *p)
{
    const bool rows2 = p->tile_rows > 16, toks2 = p->x[1] != NULL;
    const size_t w0 = 4 * p->n_tok[0], w1 = 4 * p->n_tok[1]; /* bytes of a row of B */
    const uint8_t *a = p->w, *x0 = p->x[0] + p->step * 32 * w0;
    const uint8_t *x1 = toks2 ? p->x[1] + p->step * 32 * w1 : x0;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (!p->zero) {
        _tile_loadd(0, p->acc, 64);
        if (toks2) _tile_loadd(1, p->acc + NB_AMX_TILE, 64);
        if (rows2) _tile_loadd(2, p->acc + 2 * NB_AMX_TILE, 64);
        if (rows2 && toks2) _tile_loadd(3, p->acc + 3 * NB_AMX_TILE, 64);
    }
    for (size_t s = 0; s < p->n_step; s++, a += p->w_step, x0 += 32 * w0, x1 += 32 * w1) {
        _tile_loadd(4, a, p->w_row);
        if (rows2) _tile_loadd(5, a + p->w_tile, p->w_row);
        if (p->ahead) nb_amx_prefetch(p, s, p->n_step);
        _tile_loadd(6, x0, w0);
        _tile_dpbf16ps(0, 4, 6);
        if (rows2) _tile_dpbf16ps(2, 5, 6);
        if (toks2) {
            _tile_loadd(7, x1, w1);
            _tile_dpbf16ps(1, 4, 7);
            if (rows2) _tile_dpbf16ps(3, 5, 7);
        }
        _tile_loadd(6, x0 + 16 * w0, w0);
        _tile_dpbf16ps(0, 4, 6);
        if (rows2) _tile_dpbf16ps(2, 5, 6);
        if (toks2) {
            _tile_loadd(7, x1 + 16 * w1, w1);
            _tile_dpbf16ps(1, 4, 7);
            if (rows2) _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, p->acc, 64);
    if (toks2) _tile_stored(1, p->acc + NB_AMX_TILE, 64);
    if (rows2) _tile_stored(2, p->acc + 2 * NB_AMX_TILE, 64);
    if (rows2 && toks2) _tile_stored(3, p->acc + 3 * NB_AMX_TILE, 64);
}

void nb_linear_bf16_amx(const nb_linear_args *a)
{
    static const nb_amx_type type = { .step_col = 32,
                                      .unit_blocks = 2,
                                      .panel = nb_amx_copy_panel,
                                      .multiply = multiply,
                                      .finish = nb_amx_finish_f32 };
    nb_linear_amx(a, &type);
}
