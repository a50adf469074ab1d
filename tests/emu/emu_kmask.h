/* emu_kmask.h - operations on mask registers. */
#ifndef NB_EMU_KMASK_H
#define NB_EMU_KMASK_H

#define EMU_KOPS(n)                                                                                \
    EMU __mmask##n _kand_mask##n(__mmask##n a, __mmask##n b)                                       \
    {                                                                                              \
        return (__mmask##n)(a & b);                                                                \
    }                                                                                              \
    EMU __mmask##n _kandn_mask##n(__mmask##n a, __mmask##n b)                                      \
    {                                                                                              \
        return (__mmask##n)(~a & b);                                                               \
    }                                                                                              \
    EMU __mmask##n _kor_mask##n(__mmask##n a, __mmask##n b)                                        \
    {                                                                                              \
        return (__mmask##n)(a | b);                                                                \
    }                                                                                              \
    EMU __mmask##n _kxor_mask##n(__mmask##n a, __mmask##n b)                                       \
    {                                                                                              \
        return (__mmask##n)(a ^ b);                                                                \
    }                                                                                              \
    EMU __mmask##n _kxnor_mask##n(__mmask##n a, __mmask##n b)                                      \
    {                                                                                              \
        return (__mmask##n) ~(a ^ b);                                                              \
    }                                                                                              \
    EMU __mmask##n _kadd_mask##n(__mmask##n a, __mmask##n b)                                       \
    {                                                                                              \
        return (__mmask##n)(a + b);                                                                \
    }                                                                                              \
    EMU __mmask##n _knot_mask##n(__mmask##n a)                                                     \
    {                                                                                              \
        return (__mmask##n) ~a;                                                                    \
    }                                                                                              \
    EMU __mmask##n _kshiftli_mask##n(__mmask##n a, unsigned c)                                     \
    {                                                                                              \
        return (__mmask##n)(c < n ? (uint64_t)a << c : 0);                                         \
    }                                                                                              \
    EMU __mmask##n _kshiftri_mask##n(__mmask##n a, unsigned c)                                     \
    {                                                                                              \
        return (__mmask##n)(c < n ? a >> c : 0);                                                   \
    }                                                                                              \
    EMU unsigned char _kortestz_mask##n##_u8(__mmask##n a, __mmask##n b)                           \
    {                                                                                              \
        return (a | b) == 0;                                                                       \
    }                                                                                              \
    EMU unsigned char _kortestc_mask##n##_u8(__mmask##n a, __mmask##n b)                           \
    {                                                                                              \
        return (__mmask##n)(a | b) == (__mmask##n) ~0ull;                                          \
    }                                                                                              \
    EMU unsigned char _ktestz_mask##n##_u8(__mmask##n a, __mmask##n b)                             \
    {                                                                                              \
        return (a & b) == 0;                                                                       \
    }                                                                                              \
    EMU unsigned char _ktestc_mask##n##_u8(__mmask##n a, __mmask##n b)                             \
    {                                                                                              \
        return (__mmask##n)(~a & b) == 0;                                                          \
    }                                                                                              \
    EMU __mmask##n _load_mask##n(const __mmask##n *p)                                              \
    {                                                                                              \
        return *p;                                                                                 \
    }                                                                                              \
    EMU void _store_mask##n(__mmask##n *p, __mmask##n k)                                           \
    {                                                                                              \
        *p = k;                                                                                    \
    }
EMU_KOPS(8)
EMU_KOPS(16)
EMU_KOPS(32)
EMU_KOPS(64)
#define EMU_KCVT(n, w, U)                                                                          \
    EMU U _cvtmask##n##_u##w(__mmask##n k)                                                         \
    {                                                                                              \
        return k;                                                                                  \
    }                                                                                              \
    EMU __mmask##n _cvtu##w##_mask##n(U v)                                                         \
    {                                                                                              \
        return (__mmask##n)v;                                                                      \
    }
EMU_KCVT(8, 32, unsigned)
EMU_KCVT(16, 32, unsigned)
EMU_KCVT(32, 32, unsigned)
EMU_KCVT(64, 64, unsigned long long)
EMU __mmask16 _mm512_kunpackb(__mmask16 a, __mmask16 b)
{
    return (__mmask16)((a & 255) << 8 | (b & 255));
}
EMU __mmask32 _mm512_kunpackw(__mmask32 a, __mmask32 b)
{
    return a << 16 | (b & 0xffff);
}
EMU __mmask64 _mm512_kunpackd(__mmask64 a, __mmask64 b)
{
    return a << 32 | (b & 0xffffffff);
}
EMU __mmask16 _mm512_kand(__mmask16 a, __mmask16 b)
{
    return a & b;
}
EMU __mmask16 _mm512_kandn(__mmask16 a, __mmask16 b)
{
    return (__mmask16)(~a & b);
}
EMU __mmask16 _mm512_kor(__mmask16 a, __mmask16 b)
{
    return a | b;
}
EMU __mmask16 _mm512_kxor(__mmask16 a, __mmask16 b)
{
    return a ^ b;
}
EMU __mmask16 _mm512_kxnor(__mmask16 a, __mmask16 b)
{
    return (__mmask16) ~(a ^ b);
}
EMU __mmask16 _mm512_knot(__mmask16 a)
{
    return (__mmask16)~a;
}
EMU __mmask16 _mm512_kmov(__mmask16 a)
{
    return a;
}
EMU int _mm512_kortestz(__mmask16 a, __mmask16 b)
{
    return (a | b) == 0;
}
EMU int _mm512_kortestc(__mmask16 a, __mmask16 b)
{
    return (__mmask16)(a | b) == 0xffff;
}
EMU __mmask16 _mm512_int2mask(int a)
{
    return (__mmask16)a;
}
EMU int _mm512_mask2int(__mmask16 a)
{
    return a;
}
#define _kunpackb_mask16(a, b) _mm512_kunpackb(a, b)
#define _kunpackw_mask32(a, b) _mm512_kunpackw(a, b)
#define _kunpackd_mask64(a, b) _mm512_kunpackd(a, b)
#endif
