/* bench_wire.c - see bench_wire.h. */
#include "bench_wire.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- buffers -------------------------------------------------------------- */

void bench_buf_deinit(bench_buf *b)
{
    free(b->p);
    *b = (bench_buf){ 0 };
}

void bench_buf_add(bench_buf *b, const char *p, size_t n)
{
    if (b->failed) return;
    if (n >= b->cap - b->n) {
        const size_t cap = 2 * (b->n + n) + 256;
        char *q = realloc(b->p, cap);
        if (!q) {
            b->failed = true;
            return;
        }
        b->p = q;
        b->cap = cap;
    }
    if (n) memcpy(b->p + b->n, p, n);
    b->n += n;
    b->p[b->n] = 0;
}

void bench_buf_str(bench_buf *b, const char *s)
{
    bench_buf_add(b, s, strlen(s));
}

void bench_buf_u64(bench_buf *b, uint64_t x)
{
    char digits[20];
    size_t n = sizeof digits;
    do digits[--n] = (char)('0' + x % 10);
    while (x /= 10);
    bench_buf_add(b, digits + n, sizeof digits - n);
}

/* Bytes of the UTF-8 sequence at s, or 0 when it is none. */
static size_t utf8_bytes(const unsigned char *s, size_t n)
{
    const size_t k = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (k == 0 || k > n || s[0] > 0xf4) return 0;
    for (size_t i = 1; i < k; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return k;
}

void bench_buf_json(bench_buf *b, const char *s, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    bench_buf_str(b, "\"");
    for (size_t i = 0; i < n;) {
        const unsigned char c = (unsigned char)s[i];
        const size_t k = utf8_bytes((const unsigned char *)s + i, n - i);
        if (k == 0) {
            bench_buf_str(b, "\xef\xbf\xbd");
        } else if (c < 0x20 || c == '"' || c == '\\') {
            const char escaped[7] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15], 0 };
            bench_buf_str(b, escaped);
        } else {
            bench_buf_add(b, s + i, k);
        }
        i += k ? k : 1;
    }
    bench_buf_str(b, "\"");
}

/* ---- head ----------------------------------------------------------------- */

static void bad(bench_wire *w, const char *why)
{
    w->phase = WIRE_BAD;
    w->why = why;
}

/* HTTP/1.x NNN ... */
static void status_line(bench_wire *w, const char *s, size_t n)
{
    if (n < 12 || memcmp(s, "HTTP/1.", 7) != 0 || s[8] != ' ') {
        bad(w, "not an HTTP/1 status line");
        return;
    }
    w->close = s[7] == '0';
    w->status = 0;
    for (size_t i = 9; i < 12; i++) {
        if (s[i] < '0' || s[i] > '9') {
            bad(w, "not an HTTP/1 status line");
            return;
        }
        w->status = w->status * 10 + (s[i] - '0');
    }
    w->phase = WIRE_HEADERS;
}

/* The value when the line is the header `name`. */
static const char *value_of(const char *s, const char *name)
{
    const size_t k = strlen(name);
    if (strncasecmp(s, name, k) != 0 || s[k] != ':') return NULL;
    s += k + 1;
    return s + strspn(s, " \t");
}

static bool has_word(const char *s, const char *word)
{
    const size_t k = strlen(word);
    for (; *s; s++)
        if (strncasecmp(s, word, k) == 0) return true;
    return false;
}

/* Hexadecimal or decimal digits up to `end`; false: none, or too many. */
static bool digits_of(const char *s, size_t n, unsigned base, uint64_t *out)
{
    uint64_t x = 0;
    if (n == 0 || n > 15) return false;
    for (size_t i = 0; i < n; i++) {
        const char c = (char)(s[i] | (s[i] >= 'A' ? 0x20 : 0));
        const unsigned d = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                           : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                  : 99;
        if (d >= base) return false;
        x = x * base + d;
    }
    *out = x;
    return true;
}

static void end_of_head(bench_wire *w)
{
    if (w->status >= 100 && w->status < 200) { /* interim: the answer comes after it */
        w->phase = WIRE_STATUS;
        return;
    }
    if (w->status == 204 || w->status == 304)
        w->phase = WIRE_DONE;
    else if (w->chunked)
        w->phase = WIRE_CHUNK_SIZE;
    else if (!w->has_length)
        w->phase = WIRE_UNTIL_CLOSE;
    else
        w->phase = w->left ? WIRE_LENGTH : WIRE_DONE;
    if (w->phase == WIRE_UNTIL_CLOSE) w->close = true;
}

static void header_line(bench_wire *w, const char *s, size_t n)
{
    const char *v;
    if (n == 0) {
        end_of_head(w);
    } else if ((v = value_of(s, "content-length")) != NULL) {
        w->has_length = true;
        if (!digits_of(v, strcspn(v, " \t"), 10, &w->left)) bad(w, "Content-Length is no number");
    } else if ((v = value_of(s, "transfer-encoding")) != NULL) {
        w->chunked = has_word(v, "chunked");
    } else if ((v = value_of(s, "connection")) != NULL) {
        if (has_word(v, "close")) w->close = true;
    } else if ((v = value_of(s, "content-type")) != NULL) {
        w->events = strncasecmp(v, "text/event-stream", 17) == 0;
    }
}

/* ---- body ----------------------------------------------------------------- */

/* The data of an event is what a line `data: ...` holds: here every event is one line. */
static void event_line(const char *s, size_t n, wire_event_fn *fn, void *ctx)
{
    if (n && s[n - 1] == '\r') n--;
    if (n < 5 || memcmp(s, "data:", 5) != 0) return; /* blank, a comment, another field */
    const size_t skip = n > 5 && s[5] == ' ' ? 6 : 5;
    fn(ctx, s + skip, n - skip);
}

static void body_bytes(bench_wire *w, const char *p, size_t n, wire_event_fn *fn, void *ctx)
{
    if (!w->events) {
        if (w->body.n < WIRE_BODY_BYTES) bench_buf_add(&w->body, p, n);
        return;
    }
    while (n) {
        const char *end = memchr(p, '\n', n);
        const size_t k = end ? (size_t)(end - p) : n;
        if (end && w->line.n == 0) {
            event_line(p, k, fn, ctx); /* the usual case copies nothing */
        } else {
            bench_buf_add(&w->line, p, k);
            if (w->line.n > WIRE_LINE_BYTES || w->line.failed) {
                bad(w, "a line of the stream is too long");
                return;
            }
            if (end) {
                event_line(w->line.p, w->line.n, fn, ctx);
                w->line.n = 0;
            }
        }
        if (!end) return;
        p += k + 1;
        n -= k + 1;
    }
}

/* Takes up to `left` bytes of a body. */
static size_t counted(bench_wire *w, const char *p, size_t n, wire_event_fn *fn, void *ctx)
{
    const size_t k = w->left < n ? (size_t)w->left : n;
    const wire_phase phase = w->phase;
    body_bytes(w, p, k, fn, ctx);
    w->left -= k;
    if (w->left == 0 && w->phase == phase)
        w->phase = phase == WIRE_LENGTH ? WIRE_DONE : WIRE_CHUNK_END;
    return k;
}

static void whole_line(bench_wire *w, const char *s, size_t n)
{
    switch (w->phase) {
    case WIRE_STATUS: status_line(w, s, n); break;
    case WIRE_HEADERS: header_line(w, s, n); break;
    case WIRE_CHUNK_SIZE:
        if (!digits_of(s, strcspn(s, "; \t"), 16, &w->left))
            bad(w, "a chunk's size is no number");
        else
            w->phase = w->left ? WIRE_CHUNK : WIRE_TRAILER;
        break;
    case WIRE_CHUNK_END:
        if (n)
            bad(w, "a chunk is longer than it says");
        else
            w->phase = WIRE_CHUNK_SIZE;
        break;
    default: /* trailer */
        if (n == 0) w->phase = WIRE_DONE;
    }
}

/* A line of the head or between chunks; how many bytes it took. */
static size_t framing(bench_wire *w, const char *p, size_t n)
{
    bench_buf *line = &w->frame;
    const char *end = memchr(p, '\n', n);
    const size_t k = end ? (size_t)(end - p) + 1 : n;
    w->n_header += k;
    if (w->n_header > WIRE_HEAD_BYTES) {
        bad(w, "the head is too long");
        return 0;
    }
    bench_buf_add(line, p, end ? k - 1 : k);
    if (line->failed) {
        bad(w, "out of memory");
        return 0;
    }
    if (!end) return k;
    if (line->n && line->p[line->n - 1] == '\r') line->p[--line->n] = 0;
    if (w->phase == WIRE_CHUNK_SIZE || w->phase == WIRE_CHUNK_END) w->n_header = 0;
    whole_line(w, line->p, line->n);
    line->n = 0;
    return k;
}

size_t bench_wire_feed(bench_wire *w, const char *p, size_t n, wire_event_fn *fn, void *ctx)
{
    size_t used = 0;
    while (used < n && w->phase < WIRE_DONE) {
        if (w->phase == WIRE_LENGTH || w->phase == WIRE_CHUNK) {
            used += counted(w, p + used, n - used, fn, ctx);
        } else if (w->phase == WIRE_UNTIL_CLOSE) {
            body_bytes(w, p + used, n - used, fn, ctx);
            used = n;
        } else {
            used += framing(w, p + used, n - used);
        }
    }
    return used;
}

void bench_wire_eof(bench_wire *w)
{
    if (w->phase == WIRE_UNTIL_CLOSE) w->phase = WIRE_DONE;
}

void bench_wire_reset(bench_wire *w)
{
    bench_buf line = w->line, body = w->body, frame = w->frame;
    line.n = body.n = frame.n = 0;
    line.failed = body.failed = frame.failed = false;
    *w = (bench_wire){ .line = line, .body = body, .frame = frame };
}

void bench_wire_deinit(bench_wire *w)
{
    bench_buf_deinit(&w->line);
    bench_buf_deinit(&w->body);
    bench_buf_deinit(&w->frame);
}

/* ---- events --------------------------------------------------------------- */

/* Behind `"key":` and blanks, or NULL.  Inside a JSON string the closing quote would be escaped,
 * so that text of a model cannot be taken for a key. */
static const char *find_key(const char *s, size_t n, const char *key)
{
    const size_t k = strlen(key);
    const char *end = s + n;
    while (s < end && (s = memchr(s, '"', (size_t)(end - s))) != NULL) {
        if ((size_t)(end - s) > k && memcmp(s, key, k) == 0) {
            const char *p = s + k;
            while (p < end && *p == ' ') p++;
            if (p < end && *p == ':') {
                for (p++; p < end && *p == ' '; p++) {}
                return p < end ? p : NULL;
            }
        }
        s++;
    }
    return NULL;
}

event_kind bench_event_kind(const char *data, size_t n)
{
    if (n == 6 && memcmp(data, "[DONE]", 6) == 0) return EVENT_DONE;
    const char *p = find_key(data, n, "\"choices\"");
    if (p && *p == '[') {
        for (p++; p < data + n && *p == ' '; p++) {}
        if (p < data + n && *p != ']') return EVENT_TOKEN;
        p = find_key(data, n, "\"usage\"");
        return p && *p == '{' ? EVENT_USAGE : EVENT_OTHER;
    }
    p = find_key(data, n, "\"error\"");
    return p && *p != 'n' ? EVENT_ERROR : EVENT_OTHER;
}
