/* linear.c - the table of variants of linear and linear_t. */
#include "kernel/linear/linear_act8.h"
#include "kernel/linear/linear_units.h"

// clang-format off
/* Rows of a packed type with exact products of floats: they need its traits only.  fn_t: of the level. */
#define PACKED_C(type) { "c", NB_SPACE_HOST, 0, type, nb_linear_packed_c, nb_linear_t_packed_c, NULL, NULL, NB_ACT_FLOAT }
#if NB_HAVE_AVX2
#define PACKED_AVX2(type, t) { "avx2", NB_SPACE_HOST, NB_CAP_AVX2, type, nb_linear_packed_avx2, nb_linear_t_##t, NULL, NULL, NB_ACT_FLOAT },
#else
#define PACKED_AVX2(type, t)
#endif
#if NB_HAVE_AVX512
#define PACKED_AVX512(type, t) { "avx512", NB_SPACE_HOST, NB_CAP_AVX512, type, nb_linear_packed_avx512, nb_linear_t_##t, NULL, NULL, NB_ACT_FLOAT },
#else
#define PACKED_AVX512(type, t)
#endif
#define PACKED(type) PACKED_AVX512(type, packed_c) PACKED_AVX2(type, packed_c) PACKED_C(type)
#define EXACT(type) PACKED_AVX512(type, units_avx512) PACKED_AVX2(type, units_avx2) PACKED_C(type),

/* Types whose blocks are units of integers (linear_units.h).  Activations in 8 bits are another pack, and for VNNI half the
 * work.  WORDS: eight columns are a word (nb_packed_is_words).  UNITS16: spans of 16 columns, which leave half of a tile
 * empty. */
#define UNITS_C(type, act, pack) { "c", NB_SPACE_HOST, 0, type, nb_linear_units_c, nb_linear_t_packed_c, nb_linear_units_pack_bytes, nb_linear_units_##pack##_c, act },
#if NB_HAVE_AVX2
#define UNITS_AVX2(type, fn, pack, act) { "avx2", NB_SPACE_HOST, NB_CAP_AVX2, type, nb_linear_##fn##_avx2, nb_linear_t_units_avx2, nb_linear_units_pack_bytes, nb_linear_units_##pack##_avx2, act },
#else
#define UNITS_AVX2(type, fn, pack, act)
#endif
#if NB_HAVE_AVXVNNI && NB_HAVE_AVX2
#define UNITS_AVXVNNI(type, fn, pack, act) { "avxvnni", NB_SPACE_HOST, NB_CAP_AVX2 | NB_CAP_AVXVNNI, type, nb_linear_##fn##_avxvnni, nb_linear_t_units_avx2, nb_linear_units_pack_bytes, nb_linear_units_##pack##_avx2, act },
#else
#define UNITS_AVXVNNI(type, fn, pack, act)
#endif
#if NB_HAVE_AVX512
#define UNITS_AVX512(type, fn, pack, act) { "avx512", NB_SPACE_HOST, NB_CAP_AVX512, type, nb_linear_##fn##_avx512, nb_linear_t_units_avx512, nb_linear_units_pack_bytes, nb_linear_units_##pack##_avx512, act },
#else
#define UNITS_AVX512(type, fn, pack, act)
#endif
#if NB_HAVE_AMX && NB_HAVE_AVX512
#define UNITS_AMX(type, pack) { "amx", NB_SPACE_HOST, NB_CAP_AMX, type, nb_linear_units8_amx, nb_linear_t_units_avx512, nb_linear_units8_pack_bytes_amx, nb_linear_units8_##pack##_amx, NB_ACT_INT8 },
#else
#define UNITS_AMX(type, pack)
#endif
#if NB_HAVE_NEON
#define UNITS_NEON(type) { "neon", NB_SPACE_HOST, NB_CAP_NEON, type, nb_linear_units8_neon, nb_linear_t_packed_c, nb_linear_units_pack_bytes, nb_linear_units_pack8_neon, NB_ACT_INT8 },
#else
#define UNITS_NEON(type)
#endif
#define UNITS16(type) EXACT(type) UNITS_AVX512(type, units, pack, NB_ACT_INT16) UNITS_AVXVNNI(type, units, pack, NB_ACT_INT16) UNITS_AVX2(type, units, pack, NB_ACT_INT16) UNITS_C(type, NB_ACT_INT16, pack) \
    UNITS_AVX512(type, units8, pack8, NB_ACT_INT8) UNITS_AVXVNNI(type, units8, pack8, NB_ACT_INT8) UNITS_AVX2(type, units8, pack8, NB_ACT_INT8) UNITS_NEON(type) UNITS_C(type, NB_ACT_INT8, pack8)
#define UNITS(type) UNITS_AMX(type, pack) UNITS16(type)
#define WORDS(type) EXACT(type) UNITS_AVX512(type, units, pack_words, NB_ACT_INT16) UNITS_AVXVNNI(type, units, pack_words, NB_ACT_INT16) UNITS_AVX2(type, units, pack_words, NB_ACT_INT16) UNITS_C(type, NB_ACT_INT16, pack) \
    UNITS_AMX(type, pack_words) UNITS_AVX512(type, units8, pack8_words, NB_ACT_INT8) UNITS_AVXVNNI(type, units8, pack8_words, NB_ACT_INT8) UNITS_AVX2(type, units8, pack8_words, NB_ACT_INT8) UNITS_NEON(type) UNITS_C(type, NB_ACT_INT8, pack8)

const nb_linear_variant nb_linear_variants[] = {
#if NB_HAVE_AMX && NB_HAVE_AVX512
    { "amx", NB_SPACE_HOST, NB_CAP_AMX, NB_W_BF16, nb_linear_bf16_amx, nb_linear_t_bf16_avx512, nb_linear_split_pack_bytes_amx, nb_linear_split_pack_amx, NB_ACT_FLOAT },
    { "amx", NB_SPACE_HOST, NB_CAP_AMX, NB_W_FP8B, nb_linear_fp8b_amx, nb_linear_t_fp8b_avx512, nb_linear_split_pack_bytes_amx, nb_linear_split_pack_amx, NB_ACT_FLOAT },
    { "amx", NB_SPACE_HOST, NB_CAP_AMX, NB_W_INT8, nb_linear_int8_amx, nb_linear_t_int8_avx512, nb_linear_int8_pack_bytes_amx, nb_linear_int8_pack_amx, NB_ACT_FLOAT },
#endif
#if NB_HAVE_AVX512BF16
    { "avx512bf16", NB_SPACE_HOST, NB_CAP_AVX512BF16, NB_W_FP8B, nb_linear_fp8b_avx512bf16, nb_linear_t_fp8b_avx512, NULL, NULL, NB_ACT_FLOAT },
#endif
#if NB_HAVE_AVX512
    { "avx512", NB_SPACE_HOST, NB_CAP_AVX512, NB_W_F32,  nb_linear_f32_avx512,  nb_linear_t_f32_avx512, NULL, NULL, NB_ACT_FLOAT },
    { "avx512", NB_SPACE_HOST, NB_CAP_AVX512, NB_W_BF16, nb_linear_bf16_avx512, nb_linear_t_bf16_avx512, NULL, NULL, NB_ACT_FLOAT },
    { "avx512", NB_SPACE_HOST, NB_CAP_AVX512, NB_W_F16,  nb_linear_f16_avx512,  nb_linear_t_f16_avx512, NULL, NULL, NB_ACT_FLOAT },
    { "avx512", NB_SPACE_HOST, NB_CAP_AVX512, NB_W_FP8B, nb_linear_fp8b_avx512, nb_linear_t_fp8b_avx512, NULL, NULL, NB_ACT_FLOAT },
    { "avx512", NB_SPACE_HOST, NB_CAP_AVX512, NB_W_INT8, nb_linear_int8_avx512, nb_linear_t_int8_avx512, nb_linear_int8_pack_bytes, nb_linear_int8_pack_avx512, NB_ACT_FLOAT },
#endif
#if NB_HAVE_AVX2
    { "avx2", NB_SPACE_HOST, NB_CAP_AVX2, NB_W_F32,  nb_linear_f32_avx2,  nb_linear_t_f32_avx2, NULL, NULL, NB_ACT_FLOAT },
    { "avx2", NB_SPACE_HOST, NB_CAP_AVX2, NB_W_BF16, nb_linear_bf16_avx2, nb_linear_t_bf16_avx2, NULL, NULL, NB_ACT_FLOAT },
    { "avx2", NB_SPACE_HOST, NB_CAP_AVX2, NB_W_F16,  nb_linear_f16_avx2,  nb_linear_t_f16_avx2, NULL, NULL, NB_ACT_FLOAT },
    { "avx2", NB_SPACE_HOST, NB_CAP_AVX2, NB_W_FP8B, nb_linear_fp8b_avx2, nb_linear_t_fp8b_avx2, NULL, NULL, NB_ACT_FLOAT },
    { "avx2", NB_SPACE_HOST, NB_CAP_AVX2, NB_W_INT8, nb_linear_int8_avx2, nb_linear_t_int8_avx2, nb_linear_int8_pack_bytes, nb_linear_int8_pack_avx2, NB_ACT_FLOAT },
#endif
#if NB_HAVE_NEON
    { "neon", NB_SPACE_HOST, NB_CAP_NEON, NB_W_BF16, nb_linear_bf16_neon, nb_linear_t_bf16_neon, NULL, NULL, NB_ACT_FLOAT },
    { "neon", NB_SPACE_HOST, NB_CAP_NEON, NB_W_FP8B, nb_linear_fp8b_neon, nb_linear_t_fp8b_neon, NULL, NULL, NB_ACT_FLOAT },
    { "neon", NB_SPACE_HOST, NB_CAP_NEON, NB_W_INT8, nb_linear_int8_neon, nb_linear_t_int8_neon, nb_linear_int8_pack_bytes, nb_linear_int8_pack_neon, NB_ACT_FLOAT },
#endif
    { "c",    NB_SPACE_HOST, 0,           NB_W_F32,  nb_linear_f32_c,     nb_linear_t_f32_c, NULL, NULL, NB_ACT_FLOAT },
    { "c",    NB_SPACE_HOST, 0,           NB_W_BF16, nb_linear_bf16_c,    nb_linear_t_bf16_c, NULL, NULL, NB_ACT_FLOAT },
    { "c",    NB_SPACE_HOST, 0,           NB_W_F16,  nb_linear_f16_c,     nb_linear_t_f16_c, NULL, NULL, NB_ACT_FLOAT },
    { "c",    NB_SPACE_HOST, 0,           NB_W_FP8B, nb_linear_fp8b_c,    nb_linear_t_fp8b_c, NULL, NULL, NB_ACT_FLOAT },
    { "c",    NB_SPACE_HOST, 0,           NB_W_INT8, nb_linear_int8_c,    nb_linear_t_int8_c, nb_linear_int8_pack_bytes, nb_linear_int8_pack_c, NB_ACT_FLOAT },
    WORDS(NB_W_INT4)
    WORDS(NB_W_FP4)
    UNITS(NB_W_BYTE)
    UNITS(NB_W_Q8_0)
    UNITS(NB_W_Q4_0)
    UNITS(NB_W_Q4_1)
    UNITS(NB_W_Q5_0)
    UNITS(NB_W_Q5_1)
    UNITS16(NB_W_Q2_K)
    UNITS16(NB_W_Q3_K)
    UNITS(NB_W_Q4_K)
    UNITS(NB_W_Q5_K)
    UNITS16(NB_W_Q6_K)
    UNITS(NB_W_IQ4_NL)
    UNITS(NB_W_IQ4_XS)
    UNITS(NB_W_MXFP4)
    UNITS16(NB_W_GGUF_NVFP4)
    PACKED(NB_W_IQ2_XXS),
    PACKED(NB_W_IQ2_XS),
    PACKED(NB_W_IQ2_S),
    PACKED(NB_W_IQ3_XXS),
    PACKED(NB_W_IQ3_S),
    PACKED(NB_W_IQ1_S),
    PACKED(NB_W_IQ1_M),
#if NB_HAVE_AVX512BF16
    { "avx512bf16", NB_SPACE_HOST, NB_CAP_AVX512BF16, NB_W_BF16, nb_linear_bf16_act16_avx512bf16, nb_linear_t_bf16_avx512, nb_linear_act16_pack_bytes, nb_linear_act16_pack_avx512bf16, NB_ACT_BF16 },
#endif
    { "c", NB_SPACE_HOST, 0, NB_W_BF16, nb_linear_bf16_act16_c, nb_linear_t_bf16_c, nb_linear_act16_pack_bytes_c, nb_linear_act16_pack_c, NB_ACT_BF16 },
    /* activations in 8 bits (linear_act8.h) */
#if NB_HAVE_AVX512
    { "avx512", NB_SPACE_HOST, NB_CAP_AVX512, NB_W_INT8, nb_linear_int8_act8_avx512, nb_linear_t_int8_avx512, nb_linear_act8_pack_bytes, nb_linear_act8_pack_avx512, NB_ACT_INT8 },
#endif
#if NB_HAVE_AVXVNNI && NB_HAVE_AVX2
    { "avxvnni", NB_SPACE_HOST, NB_CAP_AVX2 | NB_CAP_AVXVNNI, NB_W_INT8, nb_linear_int8_act8_avxvnni, nb_linear_t_int8_avx2, nb_linear_act8_pack_bytes, nb_linear_act8_pack_avxvnni, NB_ACT_INT8 },
#endif
#if NB_HAVE_NEON
    { "neon", NB_SPACE_HOST, NB_CAP_NEON, NB_W_INT8, nb_linear_int8_act8_neon, nb_linear_t_int8_neon, nb_linear_act8_pack_bytes, nb_linear_act8_pack_neon, NB_ACT_INT8 },
#endif
    { "c", NB_SPACE_HOST, 0, NB_W_INT8, nb_linear_int8_act8_c, nb_linear_t_int8_c, nb_linear_act8_pack_bytes, nb_linear_act8_pack_c, NB_ACT_INT8 },
    { 0 }
};
// clang-format on

const nb_linear_variant *nb_linear_find(nb_wtype type, nb_act act, nb_caps caps)
{
    const nb_linear_variant *plain = NULL, *best = NULL, *more = NULL; /* more: of 16 bits */
    for (const nb_linear_variant *v = nb_linear_variants; v->name; v++) {
        if (v->type != type || v->space != NB_SPACE_HOST || (v->need & ~caps) != 0) continue;
        if (!best && v->act == act) best = v;
        if (!more && v->act == NB_ACT_INT16) more = v;
        if (!plain && v->act == NB_ACT_FLOAT) plain = v;
    }
    if (act != NB_ACT_FLOAT && more) plain = more;
    if (!best || act == NB_ACT_FLOAT) return plain; /* every type has a portable row */
    /* Portable rows are for machines that have nothing else; and tiles multiply two digits, or two parts, faster
     * than vectors multiply one. */
    const bool slower = (!best->need && plain->need) || (plain->need & ~best->need & NB_CAP_AMX);
    return slower ? plain : best;
}
