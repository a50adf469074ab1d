/* utf8.c - see utf8.h. */
#include "base/utf8.h"

/* Range of the second byte for each lead byte: RFC 3629, section 4. */
static int lead(unsigned char b, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xbf;
    if (b < 0x80) return 1;
    if (b >= 0xc2 && b <= 0xdf) return 2;
    if (b >= 0xe0 && b <= 0xef) {
        if (b == 0xe0) *lo = 0xa0;
        if (b == 0xed) *hi = 0x9f;
        return 3;
    }
    if (b >= 0xf0 && b <= 0xf4) {
        if (b == 0xf0) *lo = 0x90;
        if (b == 0xf4) *hi = 0x8f;
        return 4;
    }
    return -1;
}

int nb_utf8_decode(const char *s, size_t n_bytes, uint32_t *cp)
{
    const unsigned char *u = (const unsigned char *)s;
    unsigned char lo, hi;
    const int len = lead(u[0], &lo, &hi);
    if (len == 1) *cp = u[0];
    if (len <= 1) return len;
    uint32_t c = u[0] & (0x7fu >> len);
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n_bytes) return 0;
        if (u[i] < lo || u[i] > hi) return -1;
        c = c << 6 | (u[i] & 0x3fu);
        lo = 0x80;
        hi = 0xbf;
    }
    *cp = c;
    return len;
}

int nb_utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xc0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        if (cp >= 0xd800 && cp <= 0xdfff) return 0;
        out[0] = (char)(0xe0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3f));
        out[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    if (cp > 0x10ffff) return 0;
    out[0] = (char)(0xf0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3f));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3f));
    out[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

bool nb_utf8_valid(nb_str s)
{
    for (size_t i = 0; i < s.n_bytes;) {
        uint32_t cp;
        const int n = nb_utf8_decode(s.p + i, s.n_bytes - i, &cp);
        if (n <= 0) return false;
        i += (size_t)n;
    }
    return true;
}

size_t nb_utf8_incomplete_tail(nb_str s)
{
    const size_t most = s.n_bytes < 3 ? s.n_bytes : 3;
    for (size_t back = 1; back <= most; back++) {
        uint32_t cp;
        const unsigned char b = (unsigned char)s.p[s.n_bytes - back];
        if ((b & 0xc0) == 0x80) continue;
        return nb_utf8_decode(s.p + s.n_bytes - back, back, &cp) == 0 ? back : 0;
    }
    return 0;
}
