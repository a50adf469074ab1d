/* json_out.c - see json_out.h. */
#include "json_out.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>

/* Length of the UTF-8 sequence at s (RFC 3629), or 0 when there is none. */
static size_t utf8_length(const unsigned char *s, size_t n)
{
    const unsigned char c = s[0];
    if (c < 0x80) return 1;
    const size_t len = c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (len == 0 || len > n) return 0;
    for (size_t i = 1; i < len; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    const bool overlong = (c == 0xe0 && s[1] < 0xa0) || (c == 0xf0 && s[1] < 0x90);
    const bool surrogate = c == 0xed && s[1] > 0x9f, beyond = c == 0xf4 && s[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : len;
}

static void ascii(FILE *f, unsigned char c)
{
    static const char named[][2] = { { '"', '"' },  { '\\', '\\' }, { '\n', 'n' }, { '\r', 'r' },
                                     { '\t', 't' }, { '\b', 'b' },  { '\f', 'f' } };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++) {
        if ((unsigned char)named[i][0] != c) continue;
        (void)fputc('\\', f);
        (void)fputc(named[i][1], f);
        return;
    }
    if (c < 0x20 || c == 0x7f)
        (void)fprintf(f, "\\u%04x", c);
    else
        (void)fputc(c, f);
}

void jout_str(FILE *f, const char *s, size_t n_bytes)
{
    const unsigned char *p = (const unsigned char *)s;
    (void)fputc('"', f);
    while (n_bytes) {
        size_t len = utf8_length(p, n_bytes);
        if (len == 1)
            ascii(f, *p);
        else if (len)
            (void)fwrite(p, 1, len, f);
        else
            (void)fputs("\xef\xbf\xbd", f);
        if (len == 0) len = 1;
        p += len;
        n_bytes -= len;
    }
    (void)fputc('"', f);
}

void jout_ids(FILE *f, const uint32_t *ids, size_t n_ids)
{
    (void)fputc('[', f);
    for (size_t i = 0; i < n_ids; i++) (void)fprintf(f, i ? ",%" PRIu32 : "%" PRIu32, ids[i]);
    (void)fputc(']', f);
}

void jout_logprob(FILE *f, float x)
{
    (void)fprintf(f, "%.9g", isfinite(x) ? (double)x : -9999.0);
}
