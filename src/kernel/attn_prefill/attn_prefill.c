/* attn_prefill.c - the table of variants of attn_prefill. */
#include "kernel/attn_prefill/attn_prefill.h"

#define ROW(name, level, cap, eps)                                                                 \
    {                                                                                              \
        name, NB_SPACE_HOST, cap, nb_attn_prefill_##level, nb_attn_prefill_pack_q_##level,         \
            nb_attn_prefill_pack_kv_##level, nb_attn_prefill_q_bytes_##level,                      \
            nb_attn_prefill_kv_bytes_##level, nb_attn_prefill_scratch_##level, eps                 \
    }

// clang-format off
const nb_attn_prefill_variant nb_attn_prefill_variants[] = {
#if NB_HAVE_AMX
    ROW("amx",    amx,    NB_CAP_AMX,    0x1.05p-8f), /* BF16, and the polynomial of 2^x */
#endif
#if NB_HAVE_AVX512BF16
    ROW("avx512bf16", avx512bf16, NB_CAP_AVX512BF16, 0x1.02p-8f), /* BF16 */
#endif
#if NB_HAVE_AVX512
    ROW("avx512", avx512, NB_CAP_AVX512, 0),
#endif
#if NB_HAVE_AVX2
    ROW("avx2",   avx2,   NB_CAP_AVX2,   0),
#endif
    ROW("c",      c,      0,             0),
    { 0 }
};
// clang-format on
