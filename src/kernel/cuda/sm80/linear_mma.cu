/* linear_mma.cu - the rows "mma" and "mma_prompt" of linear and experts: selects the kernel for a shape.
 *
 *   tokens                          kernel
 *   up to 16                        linear_few.cu: weights straight to registers
 *   17 to 64 of one matrix, Hopper  sm90/linear_cluster.cu: clusters of blocks
 *   otherwise                       linear_tile.cu: tiles in shared memory
 *   tiled weights (INT4, BYTE, FP4)  linear_codes.cu, for any number
 * All give the same bits, so the number of tokens may decide.  The exception is FP8 prompts: they have an
 * order of summation of their own, which only the large tile implements. */
#include "kernel/cuda/sm80/linear_mma.cuh"

enum { FEW_TOK = 16, CLUSTER_TOK = 64, CLUSTER_FROM = 512, CLUSTER_TO = 8192 /* rows */ };

/* Larger matrices fill the device with tiles.  The router, and products on a side stream, would take the L1 that
 * the experts need (linear_cluster.cu). */
static bool cluster(nb_cuda *g, const nb_lin &j, bool fp8, size_t n_batch)
{
#if NB_CUDA_EMULATED
    (void)g, (void)j, (void)fp8, (void)n_batch;
    return false;
#else
    if (g->cc < 90 || g->aside || n_batch > 1 || j.n_tok > CLUSTER_TOK || j.n_out < CLUSTER_FROM ||
        j.n_out > CLUSTER_TO)
        return false;
    nb_lin_cluster(g, j, fp8);
    return true;
#endif
}

bool nb_cuda_linear_mma_can(nb_wtype type, size_t n_out, size_t n_col, bool two_parts)
{
    (void)n_out;
    (void)two_parts;
    return nb_lin_mma_can(type, n_col);
}

static void linear(nb_cuda *g, const nb_cuda_linear_args *a, bool prompt)
{
    if (!a->n_tok || !a->n_out || !a->n_batch) return;
    const bool fp8 = a->w.type == NB_W_FP8B;
    const nb_lin j = nb_lin_of(a);
    if (nb_lin_tiled(a->w.type)) {
        nb_lin_codes(g, j, a->w.type, false, false, a->n_batch, a->n_tok);
        return;
    }
    if (!(fp8 && prompt)) {
        if (a->n_tok <= FEW_TOK) {
            if (nb_lin_few(g, j, fp8, false, a->n_batch, a->n_tok)) return;
        } else if (cluster(g, j, fp8, a->n_batch))
            return;
    }
    nb_lin_tile(g, j, fp8, false, a->n_batch, prompt);
}

void nb_cuda_linear_mma(nb_cuda *g, const nb_cuda_linear_args *a)
{
    linear(g, a, false);
}

void nb_cuda_linear_mma_prompt(nb_cuda *g, const nb_cuda_linear_args *a)
{
    linear(g, a, true);
}

bool nb_cuda_experts_mma_can(nb_wtype type, size_t n_out, size_t n_col)
{
    (void)n_out;
    return nb_lin_mma_can(type, n_col);
}

/* An expert has at most n_tok places, and `mean` on average. */
static void experts(nb_cuda *g, const nb_cuda_experts_args *a, bool prompt)
{
    if (!a->n_place || !a->n_out || !a->n_expert) return;
    const bool fp8 = a->gate.type == NB_W_FP8B, glu = a->up.data != NULL;
    const nb_lin j = nb_lin_of(a);
    const size_t mean = a->first ? a->n_place / a->n_expert : a->n_tok;
    const bool few = a->n_tok <= FEW_TOK || (a->first && mean <= FEW_TOK / 2);
    const size_t active = !a->first ? 1 : a->n_expert < a->n_place ? a->n_expert : a->n_place;
    const size_t at_a_time = a->first && mean <= FEW_TOK / 4 && a->n_tok > 8 ? 8 : a->n_tok;
    if (nb_lin_tiled(a->gate.type)) {
        nb_lin_codes(g, j, a->gate.type, true, glu, active, at_a_time);
        return;
    }
    if (!few || (fp8 && prompt) || !nb_lin_few(g, j, fp8, glu, active, at_a_time))
        nb_lin_tile(g, j, fp8, glu, 1, prompt);
}

void nb_cuda_experts_mma(nb_cuda *g, const nb_cuda_experts_args *a)
{
    experts(g, a, false);
}

void nb_cuda_experts_mma_prompt(nb_cuda *g, const nb_cuda_experts_args *a)
{
    experts(g, a, true);
}
