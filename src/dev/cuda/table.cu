/* table.cu - what the library gives: the device, every operation, the rows of those with several. */
#include "dev/cuda/runtime.cuh"
#include "kernel/cuda/common/ops.cuh"

/* Best first; the first row whose cc and can fit is used. */
const nb_cuda_linear_row nb_cuda_linear_rows[] = {
    { "mma", 80, NB_CUDA_DIRECT, false, nb_cuda_linear_mma_can, nb_cuda_linear_mma },
    { "simt", 80, NB_CUDA_DIRECT, true, nb_cuda_linear_simt_can, nb_cuda_linear_simt },
#if !NB_CUDA_EMULATED
    { "wgmma_codes", 90, NB_CUDA_PROMPT, false, nb_cuda_linear_wgmma_codes_can, nb_cuda_linear_wgmma_codes, true },
    { "cublaslt", 80, NB_CUDA_PROMPT, false, nb_cuda_linear_cublaslt_can, nb_cuda_linear_cublaslt },
    { "wgmma", 90, NB_CUDA_PROMPT, false, nb_cuda_linear_wgmma_can, nb_cuda_linear_wgmma },
#endif
    { "mma_prompt", 80, NB_CUDA_PROMPT, false, nb_cuda_linear_mma_can, nb_cuda_linear_mma_prompt },
    { "simt", 80, NB_CUDA_PROMPT, true, nb_cuda_linear_simt_can, nb_cuda_linear_simt },
    { NULL, 0, NB_CUDA_DIRECT, false, NULL, NULL },
};
const nb_cuda_experts_row nb_cuda_experts_rows[] = {
    { "mma", 80, NB_CUDA_DIRECT, false, nb_cuda_experts_mma_can, nb_cuda_experts_mma },
    { "simt", 80, NB_CUDA_DIRECT, true, nb_cuda_experts_simt_can, nb_cuda_experts_simt },
#if !NB_CUDA_EMULATED
    { "wgmma_codes", 90, NB_CUDA_PROMPT, false, nb_cuda_experts_wgmma_codes_can, nb_cuda_experts_wgmma_codes, true },
    { "wgmma", 90, NB_CUDA_PROMPT, false, nb_cuda_experts_wgmma_can, nb_cuda_experts_wgmma },
#endif
    { "mma_prompt", 80, NB_CUDA_PROMPT, false, nb_cuda_experts_mma_can, nb_cuda_experts_mma_prompt },
    { "simt", 80, NB_CUDA_PROMPT, true, nb_cuda_experts_simt_can, nb_cuda_experts_simt },
    { NULL, 0, NB_CUDA_DIRECT, false, NULL, NULL },
};
const nb_cuda_mla_row nb_cuda_mla_rows[] = {
#if !NB_CUDA_EMULATED
    { "wgmma_few", 90, NB_CUDA_MLA_FEW_UNITS, 4e-3f, false, true, nb_cuda_mla_few_can,
      nb_cuda_mla_few_scratch, nb_cuda_mla_few },
    { "wgmma_many", 90, NB_CUDA_MLA_MANY_UNITS, 2e-2f, false, true, nb_cuda_mla_many_can,
      nb_cuda_mla_many_scratch, nb_cuda_mla_many },
#endif
    { "mma_codes", 80, NB_CUDA_MLA_CODES_UNITS, 4e-3f, false, true, nb_cuda_mla_codes_can,
      nb_cuda_mla_codes_scratch, nb_cuda_mla_codes },
    { "mma", 80, NB_CUDA_MLA_MMA_UNITS, 5e-4f, true, true, nb_cuda_mla_mma_can,
      nb_cuda_mla_mma_scratch, nb_cuda_mla_mma },
    { NULL, 0, NB_CUDA_MLA_MMA_UNITS, 0, false, false, NULL, NULL, NULL },
};
const nb_cuda_index_row nb_cuda_index_rows[] = {
    { "mma", 80, true, 0x1p-11f, nb_cuda_index_score_mma_can, nb_cuda_index_score_mma },
    { "simt", 80, false, 0, nb_cuda_index_score_simt_can, nb_cuda_index_score_simt },
    { NULL, 0, false, 0, NULL, NULL },
};

const nb_cuda_csa_row nb_cuda_csa_rows[] = {
    { "mma", 80, 1e-4f, nb_cuda_csa_mma_can, nb_cuda_csa_mma },
    { "simt", 80, 1e-5f, nb_cuda_csa_simt_can, nb_cuda_csa_simt },
    { NULL, 0, 0, NULL, NULL },
};

extern "C" __attribute__((visibility("default"))) const nb_cuda_api *nb_cuda_get_api(void)
{
    static const nb_cuda_api api = {
        NB_CUDA_VERSION,         sizeof(nb_cuda_api),
        nb_cuda_rt_n_device,     nb_cuda_rt_open,
        nb_cuda_rt_close,        nb_cuda_rt_get_info,
        nb_cuda_rt_see,
        nb_cuda_rt_alloc,        nb_cuda_rt_free,
        nb_cuda_rt_host_alloc,   nb_cuda_rt_host_free,
        nb_cuda_rt_upload,       nb_cuda_rt_download,
        nb_cuda_rt_copy,         nb_cuda_rt_fill,
        nb_cuda_rt_sync,         nb_cuda_rt_error,
        nb_cuda_rt_graph_begin,  nb_cuda_rt_graph_end,
        nb_cuda_rt_graph_launch, nb_cuda_rt_graph_destroy,
        nb_cuda_rt_side_begin,   nb_cuda_rt_side_end,
        nb_cuda_rt_side_join,    nb_cuda_rt_mark,
        nb_cuda_rt_elapsed_s,    nb_cuda_rt_wait,
        nb_cuda_embed,           nb_cuda_norm,
        nb_cuda_rope_table,      nb_cuda_mla_finish,
        nb_cuda_gqa_finish,      nb_cuda_swiglu,
        nb_cuda_split,           nb_cuda_quantise,        nb_cuda_route,
        nb_cuda_moe_sum,         nb_cuda_zero_experts,    nb_cuda_kv_append,
        nb_cuda_kv_decode,       nb_cuda_mla_tail,
        nb_cuda_mla_combine,        nb_cuda_thrift,
        nb_cuda_gqa,             nb_cuda_prefill,
        nb_cuda_index_finish,    nb_cuda_index_topk,      nb_cuda_gather,
        nb_cuda_csa_turn,        nb_cuda_csa_append,
        nb_cuda_csa_keep,        nb_cuda_streams,
        nb_cuda_sample,          nb_cuda_exchange,        nb_cuda_linear_rows,
        nb_cuda_experts_rows,    nb_cuda_mla_rows,        nb_cuda_index_rows,
        nb_cuda_csa_rows,
        nb_cuda_can_cache,
    };
    return &api;
}
