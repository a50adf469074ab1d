/* emu_shift.h - shifts and rotations: by an immediate, by one count, by a count per lane.
 * Counts of the lane's bits and more give zero, or the sign. */
#ifndef NB_EMU_SHIFT_H
#define NB_EMU_SHIFT_H

#define EMU_SLL(L, a, c) ((uint64_t)(c) < L ? (uint##L##_t)(a) << ((c) & (L - 1)) : 0)
#define EMU_SRL(L, a, c) ((uint64_t)(c) < L ? (uint##L##_t)(a) >> ((c) & (L - 1)) : 0)
#define EMU_SRA(L, a, c) ((int##L##_t)(a) >> ((uint64_t)(c) < L ? (c) & (L - 1) : L - 1))
#define EMU_ROL(L, a, c)                                                                           \
    ((uint##L##_t)(a) << ((c) & (L - 1)) | (uint##L##_t)(a) >> ((0u - (unsigned)(c)) & (L - 1)))
#define EMU_ROR(L, a, c) EMU_ROL(L, a, 0u - (unsigned)(c))

/* By an immediate (T unsigned): P_name(a, imm). */
#define EMU_SHI(P, W, name, L, OP)                                                                 \
    EMU __m##W##i P##_##name(__m##W##i a, unsigned imm)                                            \
    {                                                                                              \
        emu_##W x = { .i = a };                                                                    \
        for (int j = 0; j < EMU_N(W, L); j++) x.u##L[j] = (uint##L##_t)OP(L, x.u##L[j], imm);      \
        return x.i;                                                                                \
    }
#define EMU_SHIFT_I(name, L, OP)                                                                   \
    EMU_SHI(_mm512, 512, name, L, OP)                                                              \
    EMU_W3(EMU_MK1X, name, i, L, unsigned)
EMU_SHIFT_I(slli_epi16, 16, EMU_SLL)
EMU_SHIFT_I(slli_epi32, 32, EMU_SLL)
EMU_SHIFT_I(slli_epi64, 64, EMU_SLL)
EMU_SHIFT_I(srli_epi16, 16, EMU_SRL)
EMU_SHIFT_I(srli_epi32, 32, EMU_SRL)
EMU_SHIFT_I(srli_epi64, 64, EMU_SRL)
EMU_SHIFT_I(srai_epi16, 16, EMU_SRA)
EMU_SHIFT_I(srai_epi32, 32, EMU_SRA)
EMU_W2(EMU_SHI, srai_epi64, 64, EMU_SRA)
EMU_SHIFT_I(srai_epi64, 64, EMU_SRA)
EMU_W2(EMU_SHI, rol_epi32, 32, EMU_ROL)
EMU_SHIFT_I(rol_epi32, 32, EMU_ROL)
EMU_W2(EMU_SHI, ror_epi32, 32, EMU_ROR)
EMU_SHIFT_I(ror_epi32, 32, EMU_ROR)
EMU_W2(EMU_SHI, rol_epi64, 64, EMU_ROL)
EMU_SHIFT_I(rol_epi64, 64, EMU_ROL)
EMU_W2(EMU_SHI, ror_epi64, 64, EMU_ROR)
EMU_SHIFT_I(ror_epi64, 64, EMU_ROR)

/* By the low 64 bits of a vector of 128. */
#define EMU_SHC(name, L, OP)                                                                       \
    EMU __m512i _mm512_##name(__m512i a, __m128i count)                                            \
    {                                                                                              \
        emu_512 x = { .i = a };                                                                    \
        const uint64_t c = (uint64_t)count[0];                                                     \
        for (int j = 0; j < EMU_N(512, L); j++) x.u##L[j] = (uint##L##_t)OP(L, x.u##L[j], c);      \
        return x.i;                                                                                \
    }                                                                                              \
    EMU_W3(EMU_MK1X, name, i, L, __m128i)
EMU_SHC(sll_epi16, 16, EMU_SLL)
EMU_SHC(sll_epi32, 32, EMU_SLL)
EMU_SHC(sll_epi64, 64, EMU_SLL)
EMU_SHC(srl_epi16, 16, EMU_SRL)
EMU_SHC(srl_epi32, 32, EMU_SRL)
EMU_SHC(srl_epi64, 64, EMU_SRL)
EMU_SHC(sra_epi16, 16, EMU_SRA)
EMU_SHC(sra_epi32, 32, EMU_SRA)

/* By a count per lane. */
#define EMU_SHV_512(name, L, OP)                                                                   \
    EMU_LANE2(_mm512, 512, name, i, L, u##L, OP(L, A, B))                                          \
    EMU_W3(EMU_MK2, name, i, L)
#define EMU_SHV_ALL(name, L, OP)                                                                   \
    EMU_W2(EMU_LANE2, name, i, L, u##L, OP(L, A, B)) EMU_SHV_512(name, L, OP)
EMU_SHV_512(sllv_epi32, 32, EMU_SLL)
EMU_SHV_512(sllv_epi64, 64, EMU_SLL)
EMU_SHV_512(srlv_epi32, 32, EMU_SRL)
EMU_SHV_512(srlv_epi64, 64, EMU_SRL)
EMU_SHV_512(srav_epi32, 32, EMU_SRA)
EMU_SHV_ALL(sllv_epi16, 16, EMU_SLL)
EMU_SHV_ALL(srlv_epi16, 16, EMU_SRL)
EMU_SHV_ALL(srav_epi16, 16, EMU_SRA)
EMU_SHV_ALL(srav_epi64, 64, EMU_SRA)
EMU_SHV_ALL(rolv_epi32, 32, EMU_ROL)
EMU_SHV_ALL(rorv_epi32, 32, EMU_ROR)
EMU_SHV_ALL(rolv_epi64, 64, EMU_ROL)
EMU_SHV_ALL(rorv_epi64, 64, EMU_ROR)

/* VBMI2: two lanes as one of twice the width; the upper (left) or lower (right) half stays. */
#define EMU_SHL2(L, a, b, c) ((c) % L ? EMU_SLL(L, a, (c) % L) | EMU_SRL(L, b, L - (c) % L) : (a))
#define EMU_SHR2(L, a, b, c) ((c) % L ? EMU_SRL(L, a, (c) % L) | EMU_SLL(L, b, L - (c) % L) : (a))
#define EMU_SHD(P, W, name, L, OP)                                                                 \
    EMU __m##W##i P##_##name##i_epi##L(__m##W##i a, __m##W##i b, int imm)                          \
    {                                                                                              \
        emu_##W x = { .i = a }, y = { .i = b };                                                    \
        const unsigned c = (unsigned)imm & 255;                                                    \
        for (int j = 0; j < EMU_N(W, L); j++)                                                      \
            x.u##L[j] = (uint##L##_t)OP(L, x.u##L[j], y.u##L[j], c);                               \
        return x.i;                                                                                \
    }                                                                                              \
    EMU __m##W##i P##_##name##v_epi##L(__m##W##i a, __m##W##i b, __m##W##i count)                  \
    {                                                                                              \
        emu_##W x = { .i = a }, y = { .i = b }, z = { .i = count };                                \
        for (int j = 0; j < EMU_N(W, L); j++)                                                      \
            x.u##L[j] = (uint##L##_t)OP(L, x.u##L[j], y.u##L[j], z.u##L[j]);                       \
        return x.i;                                                                                \
    }
EMU_W3(EMU_SHD, shld, 16, EMU_SHL2)
EMU_W3(EMU_SHD, shld, 32, EMU_SHL2)
EMU_W3(EMU_SHD, shld, 64, EMU_SHL2)
EMU_W3(EMU_SHD, shrd, 16, EMU_SHR2)
EMU_W3(EMU_SHD, shrd, 32, EMU_SHR2)
EMU_W3(EMU_SHD, shrd, 64, EMU_SHR2)

/* Bytes, within each 128 bits. */
EMU __m512i _mm512_bslli_epi128(__m512i a, int n)
{
    emu_512 x = { .i = a }, r = { .i = EMU_Z(512) };
    for (int j = 0; j < 64; j++)
        if ((j & 15) >= (n & 255)) r.u8[j] = x.u8[j - n];
    return r.i;
}
EMU __m512i _mm512_bsrli_epi128(__m512i a, int n)
{
    emu_512 x = { .i = a }, r = { .i = EMU_Z(512) };
    for (int j = 0; j < 64; j++)
        if ((j & 15) + (n & 255) < 16) r.u8[j] = x.u8[j + n];
    return r.i;
}
#endif
