/* gguf_types.c - the types of tensors in GGUF files: blocks, their bytes, and what nibble reads of them.
 * Numbers and sizes: ggml.h of llama.cpp; from 133 on, ggml.h of ik_llama.cpp. */
#include "load/gguf.h"

#define INTEGER "it is no type of weights"
#define RARE "it is a rare type"
#define IK "only ik_llama.cpp has it (take a file for llama.cpp)"

// clang-format off
static const nb_gguf_dtype rows[] = {
    { 0, "F32", 1, 4, NB_DT_F32, NULL, nb_ggml_f32 },
    { 1, "F16", 1, 2, NB_DT_F16, NULL, nb_ggml_f16 },
    { 30, "BF16", 1, 2, NB_DT_BF16, NULL, nb_ggml_bf16 },
    { 8, "Q8_0", 32, 34, NB_DT_Q8_0, NULL, nb_ggml_q8_0 },
    { 2, "Q4_0", 32, 18, NB_DT_Q4_0, NULL, nb_ggml_q4_0 },
    { 3, "Q4_1", 32, 20, NB_DT_Q4_1, NULL, nb_ggml_q4_1 },
    { 6, "Q5_0", 32, 22, NB_DT_Q5_0, NULL, nb_ggml_q5_0 },
    { 7, "Q5_1", 32, 24, NB_DT_Q5_1, NULL, nb_ggml_q5_1 },
    { 10, "Q2_K", 256, 84, NB_DT_Q2_K, NULL, nb_ggml_q2_k },
    { 11, "Q3_K", 256, 110, NB_DT_Q3_K, NULL, nb_ggml_q3_k },
    { 12, "Q4_K", 256, 144, NB_DT_Q4_K, NULL, nb_ggml_q4_k },
    { 13, "Q5_K", 256, 176, NB_DT_Q5_K, NULL, nb_ggml_q5_k },
    { 14, "Q6_K", 256, 210, NB_DT_Q6_K, NULL, nb_ggml_q6_k },
    { 20, "IQ4_NL", 32, 18, NB_DT_IQ4_NL, NULL, nb_ggml_iq4_nl },
    { 23, "IQ4_XS", 256, 136, NB_DT_IQ4_XS, NULL, nb_ggml_iq4_xs },
    { 39, "MXFP4", 32, 17, NB_DT_MXFP4, NULL, nb_ggml_mxfp4 },
    { 40, "NVFP4", 64, 36, NB_DT_NVFP4, NULL, nb_ggml_nvfp4 },
    { 16, "IQ2_XXS", 256, 66, NB_DT_IQ2_XXS, NULL, nb_ggml_iq2_xxs },
    { 17, "IQ2_XS", 256, 74, NB_DT_IQ2_XS, NULL, nb_ggml_iq2_xs },
    { 18, "IQ3_XXS", 256, 98, NB_DT_IQ3_XXS, NULL, nb_ggml_iq3_xxs },
    { 19, "IQ1_S", 256, 50, NB_DT_IQ1_S, NULL, nb_ggml_iq1_s },
    { 21, "IQ3_S", 256, 110, NB_DT_IQ3_S, NULL, nb_ggml_iq3_s },
    { 22, "IQ2_S", 256, 82, NB_DT_IQ2_S, NULL, nb_ggml_iq2_s },
    { 29, "IQ1_M", 256, 56, NB_DT_IQ1_M, NULL, nb_ggml_iq1_m },
    { 24, "I8", 1, 1, NB_DT_OTHER, INTEGER, NULL },
    { 25, "I16", 1, 2, NB_DT_OTHER, INTEGER, NULL },
    { 26, "I32", 1, 4, NB_DT_OTHER, INTEGER, NULL },
    { 27, "I64", 1, 8, NB_DT_OTHER, INTEGER, NULL },
    { 28, "F64", 1, 8, NB_DT_OTHER, INTEGER, NULL },
    { 34, "TQ1_0", 256, 54, NB_DT_OTHER, RARE, NULL },
    { 35, "TQ2_0", 256, 66, NB_DT_OTHER, RARE, NULL },
    { 41, "Q1_0", 0, 0, NB_DT_OTHER, RARE, NULL },
    { 42, "Q2_0", 0, 0, NB_DT_OTHER, RARE, NULL },
};
// clang-format on
static const nb_gguf_dtype ik = { 133, "133 or above", 0, 0, NB_DT_OTHER, IK, NULL };

const nb_gguf_dtype *nb_gguf_dtype_of(uint32_t type)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].type == type) return &rows[i];
    return (type >= 133 && type <= 158) || (type >= 200 && type < 400) ? &ik : NULL;
}

const nb_gguf_dtype *nb_gguf_dtype_for(nb_dtype t)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].dtype == t && rows[i].block > 1 && t != NB_DT_OTHER) return &rows[i];
    return NULL;
}
