/* ops.cuh - declares every operation of the library.
 *
 * Operations with several variants have one row per variant in src/dev/cuda/table.cu; the functions of each row are
 * declared here.  Those of sm90/ are inside the #if, because the emulation lacks them:
 *   nb_cuda_linear_<name>, nb_cuda_linear_<name>_can        (likewise experts, mla)
 *   nb_cuda_mla_<name>_scratch */
#ifndef NB_KERNEL_CUDA_COMMON_OPS_CUH
#define NB_KERNEL_CUDA_COMMON_OPS_CUH
#include "kernel/cuda/common/cu.cuh"

/* How each attention row splits the context into units (nb_cuda_units.h); constants of the kernels.  FEW and MANY have
 * the same: one sequence of 4,096 tokens has 8 units, one of 32,768 has 36 (docs/decisions/046). */
constexpr nb_cuda_units NB_CUDA_MLA_MMA_UNITS = { 16, 4, 16, 64, 1, UINT32_MAX, 2 },
                        NB_CUDA_MLA_CODES_UNITS = { 16, 4, 8, 32, 2, UINT32_MAX, 2 },
                        NB_CUDA_MLA_FEW_UNITS = { 8, 8, 16, 64, 1, UINT32_MAX, 2 },
                        NB_CUDA_MLA_MANY_UNITS = { 8, 8, 16, 64, 1, 64, 4 };

/* Operations with one variant. */
void nb_cuda_embed(nb_cuda *g, const nb_cuda_embed_args *a);
void nb_cuda_norm(nb_cuda *g, const nb_cuda_norm_args *a);
void nb_cuda_rope_table(nb_cuda *g, const nb_cuda_rope_table_args *a);
void nb_cuda_mla_finish(nb_cuda *g, const nb_cuda_mla_finish_args *a);
void nb_cuda_gqa_finish(nb_cuda *g, const nb_cuda_gqa_finish_args *a);
void nb_cuda_swiglu(nb_cuda *g, const nb_cuda_swiglu_args *a);
void nb_cuda_split(nb_cuda *g, const nb_cuda_split_args *a);
void nb_cuda_quantise(nb_cuda *g, const nb_cuda_quantise_args *a);
void nb_cuda_route(nb_cuda *g, const nb_cuda_route_args *a);
void nb_cuda_moe_sum(nb_cuda *g, const nb_cuda_moe_sum_args *a);
void nb_cuda_zero_experts(nb_cuda *g, const nb_cuda_zero_experts_args *a);
bool nb_cuda_can_cache(const nb_record *r);
void nb_cuda_kv_append(nb_cuda *g, const nb_cuda_kv_append_args *a);
void nb_cuda_kv_decode(nb_cuda *g, const nb_cuda_kv_decode_args *a);
void nb_cuda_mla_tail(nb_cuda *g, const nb_cuda_mla_args *a);
void nb_cuda_mla_combine(nb_cuda *g, const nb_cuda_mla_args *a);
void nb_cuda_thrift(nb_cuda *g, const nb_cuda_thrift_args *a);
void nb_cuda_gqa(nb_cuda *g, const nb_cuda_gqa_args *a);
void nb_cuda_prefill(nb_cuda *g, const nb_cuda_prefill_args *a);
void nb_cuda_index_finish(nb_cuda *g, const nb_cuda_index_finish_args *a);
void nb_cuda_index_topk(nb_cuda *g, const nb_cuda_index_topk_args *a);
void nb_cuda_gather(nb_cuda *g, const nb_cuda_gather_args *a);
void nb_cuda_csa_turn(nb_cuda *g, const nb_cuda_csa_turn_args *a);
void nb_cuda_csa_append(nb_cuda *g, const nb_cuda_csa_append_args *a);
void nb_cuda_csa_keep(nb_cuda *g, const nb_cuda_csa_keep_args *a);
void nb_cuda_streams(nb_cuda *g, const nb_cuda_streams_args *a);
void nb_cuda_sample(nb_cuda *g, const nb_cuda_sample_args *a);
void nb_cuda_exchange(nb_cuda *g, const nb_cuda_exchange_args *a);

/* Operations with several variants: the functions of table.cu's rows. */
typedef void nb_cuda_linear_fn(nb_cuda *g, const nb_cuda_linear_args *a);
typedef bool nb_cuda_linear_can_fn(nb_wtype type, size_t n_out, size_t n_col, bool two_parts);
typedef void nb_cuda_experts_fn(nb_cuda *g, const nb_cuda_experts_args *a);
typedef bool nb_cuda_experts_can_fn(nb_wtype type, size_t n_out, size_t n_col);
nb_cuda_linear_fn nb_cuda_linear_mma, nb_cuda_linear_mma_prompt, nb_cuda_linear_simt;
nb_cuda_linear_can_fn nb_cuda_linear_mma_can, nb_cuda_linear_simt_can;
nb_cuda_experts_fn nb_cuda_experts_mma, nb_cuda_experts_mma_prompt, nb_cuda_experts_simt;
nb_cuda_experts_can_fn nb_cuda_experts_mma_can, nb_cuda_experts_simt_can;
#if !NB_CUDA_EMULATED
bool nb_cuda_mla_few_can(const nb_record *r, size_t n_head);
size_t nb_cuda_mla_few_scratch(const nb_record *r, size_t n_head, size_t n_row);
void nb_cuda_mla_few(nb_cuda *g, const nb_cuda_mla_args *a);
bool nb_cuda_mla_many_can(const nb_record *r, size_t n_head);
size_t nb_cuda_mla_many_scratch(const nb_record *r, size_t n_head, size_t n_row);
void nb_cuda_mla_many(nb_cuda *g, const nb_cuda_mla_args *a);
#endif
bool nb_cuda_mla_codes_can(const nb_record *r, size_t n_head);
size_t nb_cuda_mla_codes_scratch(const nb_record *r, size_t n_head, size_t n_row);
void nb_cuda_mla_codes(nb_cuda *g, const nb_cuda_mla_args *a);
bool nb_cuda_mla_mma_can(const nb_record *r, size_t n_head);
size_t nb_cuda_mla_mma_scratch(const nb_record *r, size_t n_head, size_t n_row);
void nb_cuda_mla_mma(nb_cuda *g, const nb_cuda_mla_args *a);

bool nb_cuda_index_score_mma_can(const nb_record *r, size_t seg, size_t n_head);
void nb_cuda_index_score_mma(nb_cuda *g, const nb_cuda_index_score_args *a);
bool nb_cuda_index_score_simt_can(const nb_record *r, size_t seg, size_t n_head);
void nb_cuda_index_score_simt(nb_cuda *g, const nb_cuda_index_score_args *a);

/* combine: the end of every row, after its states. */
void nb_cuda_csa_combine(nb_cuda *g, const nb_cuda_csa_attend_args *a);
bool nb_cuda_csa_mma_can(const nb_record *r, size_t ratio, size_t dim, size_t n_head);
void nb_cuda_csa_mma(nb_cuda *g, const nb_cuda_csa_attend_args *a);
bool nb_cuda_csa_simt_can(const nb_record *r, size_t ratio, size_t dim, size_t n_head);
void nb_cuda_csa_simt(nb_cuda *g, const nb_cuda_csa_attend_args *a);

#if !NB_CUDA_EMULATED
/* cuBLASLt, if it is installed: opened and closed with the device; its version, or 0. */
void nb_cuda_blas_open(nb_cuda *g);
void nb_cuda_blas_close(nb_cuda *g);
size_t nb_cuda_blas_version(const nb_cuda *g);
nb_cuda_linear_fn nb_cuda_linear_cublaslt, nb_cuda_linear_wgmma, nb_cuda_linear_wgmma_codes;
nb_cuda_linear_can_fn nb_cuda_linear_cublaslt_can, nb_cuda_linear_wgmma_can, nb_cuda_linear_wgmma_codes_can;
nb_cuda_experts_fn nb_cuda_experts_wgmma, nb_cuda_experts_wgmma_codes;
nb_cuda_experts_can_fn nb_cuda_experts_wgmma_can, nb_cuda_experts_wgmma_codes_can;
#endif

/* The tables, best row first, terminated by name == NULL. */
extern const nb_cuda_linear_row nb_cuda_linear_rows[];
extern const nb_cuda_experts_row nb_cuda_experts_rows[];
extern const nb_cuda_mla_row nb_cuda_mla_rows[];
extern const nb_cuda_index_row nb_cuda_index_rows[];
extern const nb_cuda_csa_row nb_cuda_csa_rows[];

#endif
