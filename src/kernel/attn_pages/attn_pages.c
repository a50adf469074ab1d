/* attn_pages.c - the table of variants of attn_pages. */
#include "kernel/attn_pages/attn_pages.h"

/* All tokens of a page as floats. */
static size_t page_floats(const nb_record *r)
{
    return NB_PAGE_TOK * (r->seg[0].dim + r->seg[1].dim) * sizeof(float);
}

/* Half a unit of a query in bytes, of 127, and the rounding of its factor. */
#define Q_BYTE 0x1.02p-8f + 0x1p-20f

// clang-format off
const nb_attn_pages_variant nb_attn_pages_variants[] = {
#if NB_HAVE_AMX
    { "amx", NB_SPACE_HOST, NB_CAP_AVX2 | NB_CAP_AVX512 | NB_CAP_AMX, nb_attn_pages_amx, nb_attn_pages_amx_can, nb_attn_pages_amx_scratch, 0x1p-16f, 0, 0x1p-8f },
#endif
#if NB_HAVE_AVX512BF16
    { "avx512int8", NB_SPACE_HOST, NB_CAP_AVX2 | NB_CAP_AVX512 | NB_CAP_AVX512BF16, nb_attn_pages_avx512int8, nb_attn_pages_avx512int8_can, nb_attn_pages_avx512int8_scratch, 0x1p-9f, Q_BYTE, 0x1p-8f },
    { "avx512bf16", NB_SPACE_HOST, NB_CAP_AVX2 | NB_CAP_AVX512 | NB_CAP_AVX512BF16, nb_attn_pages_avx512bf16, nb_attn_pages_avx512bf16_can, nb_attn_pages_avx512bf16_scratch, 0x1p-9f, 0, 0x1p-8f },
#endif
#if NB_HAVE_AVX512
    { "avx512", NB_SPACE_HOST, NB_CAP_AVX2 | NB_CAP_AVX512, nb_attn_pages_avx512, nb_record_is_mla, nb_attn_pages_avx512_scratch, 0, 0, 0 },
#endif
#if NB_HAVE_AVX2
#if NB_HAVE_AVXVNNI && NB_HAVE_AVX2
    { "avxvnni", NB_SPACE_HOST, NB_CAP_AVX2 | NB_CAP_AVXVNNI, nb_attn_pages_avxvnni, nb_attn_pages_avx2int8_can, nb_attn_pages_avx2int8_scratch, 0, Q_BYTE, 0x1p-6f },
#endif
    { "avx2int8", NB_SPACE_HOST, NB_CAP_AVX2, nb_attn_pages_avx2int8, nb_attn_pages_avx2int8_can, nb_attn_pages_avx2int8_scratch, 0, Q_BYTE, 0x1p-6f },
    { "avx2", NB_SPACE_HOST, NB_CAP_AVX2, nb_attn_pages_avx2, nb_record_is_mla, nb_attn_pages_avx2_scratch, 0, 0, 0 },
#endif
#if NB_HAVE_NEON
    { "neonint8", NB_SPACE_HOST, NB_CAP_NEON, nb_attn_pages_neonint8, nb_attn_pages_neonint8_can, nb_attn_pages_neonint8_scratch, 0, Q_BYTE, 0 },
    { "neon", NB_SPACE_HOST, NB_CAP_NEON, nb_attn_pages_neon, nb_record_is_mla, page_floats, 0, 0, 0 },
#endif
    { "c", NB_SPACE_HOST, 0, nb_attn_pages_c, nb_record_is_mla, page_floats, 0, 0, 0 },
    { 0 }
};
// clang-format on

const nb_attn_pages_variant *nb_attn_pages_for(nb_caps caps, const nb_record *r)
{
    const nb_attn_pages_variant *v = nb_attn_pages_variants;
    while (v->name && (v->space != NB_SPACE_HOST || (v->need & ~caps) != 0 || !v->can(r))) v++;
    return v->name ? v : NULL;
}
