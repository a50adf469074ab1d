/* gguf_mix.c - the mixtures of types that llama.cpp's quantiser makes without an importance matrix, so that a file
 * of that name is what users expect.  Source: src/llama-quant.cpp of llama.cpp. */
#include <string.h>

#include "convert/gguf_out.h"

/* Numbers of ggml. */
enum {
    F32 = 0,
    F16 = 1,
    Q4_0 = 2,
    Q4_1 = 3,
    Q5_0 = 6,
    Q5_1 = 7,
    Q8_0 = 8,
    Q2_K = 10,
    Q3_K = 11,
    Q4_K = 12,
    Q5_K = 13,
    Q6_K = 14,
    BF16 = 30,
    SAME = -1
};

struct nb_gguf_mix {
    const char *name;
    uint32_t number; /* llama.cpp's, of the file */
    int base;
    int down_first; /* ffn_down of the first layers_first-th part of the layers */
    size_t part;    /* n_layer / part layers; 0: none */
    int down_often; /* of the layers that get more bits */
    int down;       /* of the others */
    int output;     /* attn_output, of models without exactly 8 experts */
    int output_8;   /* of those with 8 */
    size_t v_n;     /* attn_v and attn_kv_b: of the first v_n layers, */
    int v_first;
    int v_often;  /* of the layers that get more bits, */
    int v;        /* of the others, */
    int v_shared; /* and of these where four query heads or more share a key head */
};

// clang-format off
static const nb_gguf_mix mixes[] = {
    /*  name      no  base  down of the first   often  others  output  8   v of the first  often  others  shared */
    { "F32",      0, F32,  SAME,  0, SAME, SAME, SAME, SAME,  0, SAME, SAME, SAME, SAME },
    { "F16",      1, F16,  SAME,  0, SAME, SAME, SAME, SAME,  0, SAME, SAME, SAME, SAME },
    { "BF16",    32, BF16, SAME,  0, SAME, SAME, SAME, SAME,  0, SAME, SAME, SAME, SAME },
    { "Q8_0",     7, Q8_0, SAME,  0, SAME, SAME, SAME, SAME,  0, SAME, SAME, SAME, SAME },
    { "Q4_0",     2, Q4_0, SAME,  0, SAME, SAME, SAME, SAME,  0, SAME, SAME, SAME, SAME },
    { "Q4_1",     3, Q4_1, SAME,  0, SAME, SAME, SAME, SAME,  0, SAME, SAME, SAME, SAME },
    { "Q5_0",     8, Q5_0, SAME,  0, SAME, SAME, SAME, SAME,  0, SAME, SAME, SAME, SAME },
    { "Q5_1",     9, Q5_1, SAME,  0, SAME, SAME, SAME, SAME,  0, SAME, SAME, SAME, SAME },
    { "Q2_K",    10, Q2_K, SAME,  0, Q3_K, Q3_K, Q3_K, Q5_K,  0, SAME, SAME, Q3_K, Q4_K },
    { "Q3_K_S",  11, Q3_K, SAME,  0, SAME, SAME, SAME, Q5_K,  0, SAME, SAME, SAME, SAME },
    { "Q3_K_M",  12, Q3_K, Q5_K, 16, Q4_K, Q4_K, Q4_K, Q5_K,  2, Q5_K, SAME, Q4_K, Q4_K },
    { "Q3_K_L",  13, Q3_K, SAME,  0, Q5_K, Q5_K, Q5_K, SAME,  0, SAME, SAME, Q5_K, Q5_K },
    { "Q4_K_S",  14, Q4_K, Q5_K,  8, SAME, SAME, SAME, Q5_K,  4, Q5_K, SAME, SAME, SAME },
    { "Q4_K_M",  15, Q4_K, SAME,  0, Q6_K, SAME, SAME, Q5_K,  0, SAME, Q6_K, SAME, SAME },
    { "Q5_K_S",  16, Q5_K, SAME,  0, SAME, SAME, SAME, SAME,  0, SAME, SAME, SAME, SAME },
    { "Q5_K_M",  17, Q5_K, SAME,  0, Q6_K, SAME, SAME, SAME,  0, SAME, Q6_K, SAME, SAME },
    { "Q6_K",    18, Q6_K, SAME,  0, SAME, SAME, SAME, SAME,  0, SAME, SAME, SAME, SAME },
};
/* What is taken where the columns are no multiple of 256. */
static const int fallbacks[][2] = { { Q2_K, Q4_0 }, { Q3_K, Q4_0 }, { Q4_K, Q5_0 }, { Q5_K, Q5_1 }, { Q6_K, Q8_0 } };
// clang-format on

const nb_gguf_mix *nb_gguf_mix_of(const char *name)
{
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++)
        if (strcmp(mixes[i].name, name) == 0) return &mixes[i];
    return NULL;
}

bool nb_gguf_mix_searches(const char *name)
{
    const nb_gguf_mix *m = nb_gguf_mix_of(name);
    return m && nb_gguf_dtype_of((uint32_t)m->base)->block > 1;
}

uint32_t nb_gguf_mix_number(const nb_gguf_mix *m)
{
    return m->number;
}

/* The first and last eighth of the layers, and every third between. */
static bool more_bits(size_t i, size_t n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

/* Of the values, or of what they are made of. */
static int type_of_v(const nb_gguf_mix *m, const nb_gguf_place *p)
{
    int t = p->layer < m->v_n                                       ? m->v_first
            : more_bits(p->layer, p->n_layer) && m->v_often != SAME ? m->v_often
            : p->shared_by >= 4                                     ? m->v_shared
                                                                    : m->v;
    if (t == SAME) t = m->base;
    if (p->large && (t == Q3_K || t == Q4_K)) t = Q5_K;
    return p->n_expert == 8 ? Q8_0 : t;
}

static int type_of(const nb_gguf_mix *m, const nb_gguf_place *p)
{
    const nb_gguf_dtype *base = nb_gguf_dtype_of((uint32_t)m->base);
    int t = SAME;
    if (base->block == 1) return m->base;
    if (p->head) return p->cols % base->block || m->base == Q8_0 ? Q8_0 : Q6_K;
    if (strcmp(p->name, "attn_v.weight") == 0 || strcmp(p->name, "attn_kv_b.weight") == 0)
        t = type_of_v(m, p);
    else if (strncmp(p->name, "ffn_down", 8) == 0)
        t = m->part && p->layer < p->n_layer / m->part ? m->down_first
            : more_bits(p->layer, p->n_layer)          ? m->down_often
                                                       : m->down;
    else if (strncmp(p->name, "attn_output.", 12) == 0)
        t = p->n_expert == 8 ? m->output_8 : m->output;
    return t == SAME ? m->base : t;
}

const nb_gguf_dtype *nb_gguf_mix_type(const nb_gguf_mix *m, const nb_gguf_place *p, bool *fallback)
{
    const int want = type_of(m, p);
    const nb_gguf_dtype *t = nb_gguf_dtype_of((uint32_t)want);
    *fallback = p->cols % t->block != 0;
    for (size_t i = 0; *fallback && i < sizeof fallbacks / sizeof *fallbacks; i++)
        if (fallbacks[i][0] == want) t = nb_gguf_dtype_of((uint32_t)fallbacks[i][1]);
    return p->cols % t->block ? nb_gguf_dtype_of(F16) : t;
}
