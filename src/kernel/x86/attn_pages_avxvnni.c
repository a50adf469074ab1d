/* attn_pages_avxvnni.c - attention over pages of 4-bit latents in integers: attn_pages_avx2.c with the products of AVX-VNNI. */
#define I8_VNNI 1
#include "kernel/x86/attn_dots_avx2.h"

void nb_attn_pages_avxvnni(const nb_attn_pages_args *a)
{
    nb_attn_pages_dots_avx2(a, &dots);
}
