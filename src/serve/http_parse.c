/* http_parse.c - see http_parse.h.
 *
 * A head is first found (nb_http_head_end: looks at each byte once, however it
 * arrives, and refuses control characters on sight), then parsed in one go.  Bodies in
 * chunks go through a small state machine, since they come in pieces of any size. */
#include "serve/http_parse.h"

#include <string.h>

/* Bytes of extensions of all chunks of a body and of its trailers: nobody sends any. */
enum { MAX_CHUNK_LINE_BYTES = 8192, MAX_SIZE_DIGITS = 16 };

static bool is_tchar(unsigned char c)
{
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return true;
    return c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int hex_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* Tabs, visible ASCII, blanks and bytes from 0x80 on. */
static bool is_text(unsigned char c)
{
    return c == '\t' || (c >= 0x20 && c != 0x7f);
}

static unsigned char lower(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

bool nb_http_same(nb_str a, nb_str b)
{
    if (a.n_bytes != b.n_bytes) return false;
    for (size_t i = 0; i < a.n_bytes; i++)
        if (lower(a.p[i]) != lower(b.p[i])) return false;
    return true;
}

bool nb_http_is_token(nb_str s)
{
    for (size_t i = 0; i < s.n_bytes; i++)
        if (!is_tchar((unsigned char)s.p[i])) return false;
    return s.n_bytes > 0;
}

bool nb_http_is_value(nb_str s)
{
    for (size_t i = 0; i < s.n_bytes; i++)
        if (!is_text((unsigned char)s.p[i])) return false;
    return true;
}

static nb_str trim(nb_str s)
{
    while (s.n_bytes && (s.p[0] == ' ' || s.p[0] == '\t')) {
        s.p++;
        s.n_bytes--;
    }
    while (s.n_bytes && (s.p[s.n_bytes - 1] == ' ' || s.p[s.n_bytes - 1] == '\t')) s.n_bytes--;
    return s;
}

/* Cuts the part before the next `sep` off *rest; false when nothing is left. */
static bool next_part(nb_str *rest, char sep, nb_str *part)
{
    if (!rest->p) return false;
    const char *end = rest->n_bytes ? memchr(rest->p, sep, rest->n_bytes) : NULL;
    part->p = rest->p;
    part->n_bytes = end ? (size_t)(end - rest->p) : rest->n_bytes;
    if (end)
        *rest = (nb_str){ end + 1, rest->n_bytes - part->n_bytes - 1 };
    else
        *rest = (nb_str){ 0 };
    return true;
}

bool nb_http_list_has(nb_str list, const char *token)
{
    nb_str part;
    while (next_part(&list, ',', &part))
        if (nb_http_same(trim(part), nb_str_c(token))) return true;
    return false;
}

static int refuse(const char **why, int status, const char *text)
{
    *why = text;
    return status;
}

int nb_http_head_end(const char *p, size_t n, size_t *scanned, size_t *head_bytes, const char **why)
{
    size_t i = *scanned;
    *head_bytes = 0;
    for (; i < n; i++) {
        const unsigned char c = (unsigned char)p[i];
        if (c == '\n') {
            if (i == 0 || p[i - 1] != '\r')
                return refuse(why, 400, "a line of the request ends with LF alone, not CR LF");
            if (i >= 3 && p[i - 2] == '\n') {
                *scanned = i + 1;
                *head_bytes = i + 1;
                return 0;
            }
        } else if (i > 0 && p[i - 1] == '\r') {
            return refuse(why, 400, "the request has a CR that is not followed by LF");
        } else if (c != '\r' && !is_text(c)) {
            return refuse(why, 400, "the request's head has a control character");
        }
    }
    *scanned = i;
    return 0;
}

bool nb_http_decode(nb_str in, bool plus, char *out, size_t *n_out)
{
    size_t n = 0;
    for (size_t i = 0; i < in.n_bytes; i++) {
        char c = in.p[i];
        if (c == '%') {
            if (in.n_bytes - i < 3 || hex_of(in.p[i + 1]) < 0 || hex_of(in.p[i + 2]) < 0)
                return false;
            c = (char)(hex_of(in.p[i + 1]) * 16 + hex_of(in.p[i + 2]));
            i += 2;
        } else if (c == '+' && plus) {
            c = ' ';
        }
        if ((unsigned char)c < 0x20 || c == 0x7f) return false;
        out[n++] = c;
    }
    *n_out = n;
    return true;
}

bool nb_http_query_find(nb_str query, const char *name, char *out, size_t *n_out)
{
    nb_str part, key;
    while (query.n_bytes && next_part(&query, '&', &part)) {
        (void)next_part(&part, '=', &key);
        if (!nb_http_decode(key, true, out, n_out)) continue;
        if (!nb_str_eqc((nb_str){ out, *n_out }, name)) continue;
        return nb_http_decode(part, true, out, n_out); /* no '=': an empty value */
    }
    return false;
}

static bool is_port(nb_str s)
{
    unsigned long v = 0;
    if (s.n_bytes > 5) return false;
    for (size_t i = 0; i < s.n_bytes; i++) {
        if (!is_digit(s.p[i])) return false;
        v = v * 10 + (unsigned long)(s.p[i] - '0');
    }
    return v <= 65535;
}

bool nb_http_split_host(nb_str a, nb_str *host)
{
    size_t i = 0;
    if (a.n_bytes && a.p[0] == '[') {
        const char *end = memchr(a.p, ']', a.n_bytes);
        if (!end) return false;
        *host = (nb_str){ a.p + 1, (size_t)(end - a.p) - 1 };
        for (size_t k = 0; k < host->n_bytes; k++)
            if (hex_of(host->p[k]) < 0 && host->p[k] != ':' && host->p[k] != '.') return false;
        if (host->n_bytes < 2) return false;
        i = host->n_bytes + 2;
    } else {
        while (i < a.n_bytes && a.p[i] != ':') {
            const char c = a.p[i++];
            const bool ok = (lower(c) >= 'a' && lower(c) <= 'z') || is_digit(c) || c == '.' ||
                            c == '-' || c == '_';
            if (!ok) return false;
        }
        *host = (nb_str){ a.p, i };
    }
    if (i == a.n_bytes) return true;
    return a.p[i] == ':' && is_port((nb_str){ a.p + i + 1, a.n_bytes - i - 1 });
}

/* ---- the first line ---- */

static bool starts_with(nb_str s, const char *prefix)
{
    const size_t n = strlen(prefix);
    return s.n_bytes >= n && nb_http_same((nb_str){ s.p, n }, nb_str_c(prefix));
}

static int parse_target(nb_str t, nb_http_head *out, const char **why)
{
    for (size_t i = 0; i < t.n_bytes; i++)
        if ((unsigned char)t.p[i] <= 0x20 || (unsigned char)t.p[i] >= 0x7f || t.p[i] == '#')
            return refuse(why, 400, "the request's target has a character that a URL must encode");
    const bool absolute = starts_with(t, "http://") || starts_with(t, "https://");
    if (absolute) {
        const size_t skip = starts_with(t, "http://") ? 7 : 8;
        t = (nb_str){ t.p + skip, t.n_bytes - skip };
        size_t n = 0;
        while (n < t.n_bytes && t.p[n] != '/' && t.p[n] != '?') n++;
        out->host = (nb_str){ t.p, n };
        t = (nb_str){ t.p + n, t.n_bytes - n };
        if (n == 0) return refuse(why, 400, "the request's target has no host");
    }
    nb_str path;
    const bool star = nb_str_eqc(t, "*") && nb_str_eqc(out->method, "OPTIONS");
    if (!absolute && !star && (t.n_bytes == 0 || t.p[0] != '/'))
        return refuse(why, 400, "the request's target is neither a path nor a URL");
    out->query = t;
    (void)next_part(&out->query, '?', &path);
    out->path = path.n_bytes ? path : nb_str_c("/");
    return 0;
}

static int parse_first_line(nb_str line, nb_http_head *out, const char **why)
{
    static const char bad[] = "the request's first line is not METHOD TARGET HTTP/1.1";
    nb_str target = { 0 };
    if (!next_part(&line, ' ', &out->method) || !next_part(&line, ' ', &target) || !line.p)
        return refuse(why, 400, bad);
    if (!nb_http_is_token(out->method) || target.n_bytes == 0) return refuse(why, 400, bad);
    if (line.n_bytes != 8 || memcmp(line.p, "HTTP/", 5) != 0 || !is_digit(line.p[5]) ||
        line.p[6] != '.' || !is_digit(line.p[7]))
        return refuse(why, 400, bad);
    if (line.p[5] != '1') return refuse(why, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
    out->minor = line.p[7] == '0' ? 0 : 1;
    if (out->method.n_bytes > NB_HTTP_MAX_METHOD || nb_str_eqc(out->method, "CONNECT"))
        return refuse(why, 501, "this method is not supported");
    return parse_target(target, out, why);
}

/* ---- the fields ---- */

static int parse_length(nb_str v, nb_http_head *out, const char **why)
{
    if (out->has_length) return refuse(why, 400, "the request has more than one Content-Length");
    if (v.n_bytes == 0) return refuse(why, 400, "Content-Length is not a number");
    uint64_t n = 0;
    for (size_t i = 0; i < v.n_bytes; i++) {
        if (!is_digit(v.p[i])) return refuse(why, 400, "Content-Length is not a number");
        const uint64_t d = (uint64_t)(v.p[i] - '0');
        n = n > (UINT64_MAX - d) / 10 ? UINT64_MAX : n * 10 + d; /* stays there: 10 * max > max */
    }
    out->has_length = true;
    out->length = n;
    return 0;
}

static int parse_coding(nb_str v, nb_http_head *out, const char **why)
{
    if (out->chunked) return refuse(why, 400, "the request has more than one Transfer-Encoding");
    if (out->minor == 0) return refuse(why, 400, "HTTP/1.0 has no Transfer-Encoding");
    nb_str rest = v, part = { 0 };
    size_t n = 0, n_chunked = 0;
    while (next_part(&rest, ',', &part)) {
        n++;
        if (nb_http_same(trim(part), nb_str_c("chunked"))) n_chunked++;
    }
    if (n_chunked != 1 || !nb_http_same(trim(part), nb_str_c("chunked")))
        return refuse(why, 400, "Transfer-Encoding does not end with one chunked");
    if (n != 1) return refuse(why, 501, "no Transfer-Encoding but chunked is supported");
    out->chunked = true;
    return 0;
}

typedef struct seen {
    bool host, coding, close, keep;
} seen;

static int look_at_field(const nb_http_field *f, nb_http_head *out, seen *s, const char **why)
{
    if (nb_http_same(f->name, nb_str_c("content-length"))) return parse_length(f->value, out, why);
    if (nb_http_same(f->name, nb_str_c("transfer-encoding"))) {
        s->coding = true;
        return parse_coding(f->value, out, why);
    }
    if (nb_http_same(f->name, nb_str_c("host"))) {
        if (s->host) return refuse(why, 400, "the request has more than one Host");
        s->host = true;
        if (!out->host.p) out->host = f->value; /* an absolute target has precedence */
    } else if (nb_http_same(f->name, nb_str_c("connection"))) {
        s->close = s->close || nb_http_list_has(f->value, "close");
        s->keep = s->keep || nb_http_list_has(f->value, "keep-alive");
    } else if (nb_http_same(f->name, nb_str_c("expect"))) {
        if (!nb_http_same(f->value, nb_str_c("100-continue")))
            return refuse(why, 417, "no expectation but 100-continue is supported");
        out->expect_continue = out->minor > 0;
    }
    return 0;
}

static int parse_field(nb_str line, nb_http_field *f, const char **why)
{
    if (line.p[0] == ' ' || line.p[0] == '\t')
        return refuse(why, 400, "folded header lines are not supported");
    nb_str rest = line;
    (void)next_part(&rest, ':', &f->name);
    if (!rest.p || !nb_http_is_token(f->name))
        return refuse(why, 400, "a header line is not NAME: VALUE");
    f->value = trim(rest);
    return nb_http_is_value(f->value)
               ? 0
               : refuse(why, 400, "the value of a header has a control character");
}

/* The line at *p, without its CR LF; behind it afterwards. */
static nb_str take_line(const char **p, const char *end)
{
    const char *lf = memchr(*p, '\n', (size_t)(end - *p));
    const nb_str line = { *p, lf && lf > *p ? (size_t)(lf - *p) - 1 : 0 };
    *p = lf ? lf + 1 : end;
    return line;
}

int nb_http_head_parse(const char *p, size_t n, nb_http_head *out, const char **why)
{
    const char *const end = p + n;
    seen s = { 0 };
    nb_str host;
    out->method = out->path = out->query = out->host = (nb_str){ 0 };
    out->chunked = out->has_length = out->keep_alive = out->expect_continue = false;
    out->length = 0;
    out->n_field = 0;
    out->minor = 1;
    int status = parse_first_line(take_line(&p, end), out, why);
    while (status == 0) {
        const nb_str line = take_line(&p, end);
        if (line.n_bytes == 0) break;
        if (out->n_field == NB_HTTP_MAX_FIELDS)
            return refuse(why, 431, "the request has more than 100 header lines");
        nb_http_field *f = &out->field[out->n_field];
        status = parse_field(line, f, why);
        if (status == 0) status = look_at_field(f, out, &s, why);
        out->n_field++;
    }
    if (status) return status;
    if (s.coding && out->has_length)
        return refuse(why, 400, "the request has both Content-Length and Transfer-Encoding");
    if (out->minor > 0 && !s.host) return refuse(why, 400, "the request has no Host");
    if (out->host.p && !nb_http_split_host(out->host, &host))
        return refuse(why, 400, "the Host of the request is not a host and port");
    out->keep_alive = !s.close && (out->minor > 0 || s.keep);
    return 0;
}

/* ---- chunks ---- */

enum { SIZE, EXT, SIZE_LF, DATA, DATA_CR, DATA_LF, LINE, NAME, VALUE, VALUE_LF, LAST_LF };

static int in_size(nb_http_chunks *c, char ch, const char **why)
{
    const int d = hex_of(ch);
    if (d >= 0) {
        if (c->n_digit == MAX_SIZE_DIGITS)
            return refuse(why, 400, "the size of a chunk has more than 16 digits");
        c->n_digit++;
        c->left_bytes = c->left_bytes * 16 + (uint64_t)d;
        return 0;
    }
    if (c->n_digit == 0 || (ch != '\r' && ch != ';'))
        return refuse(why, 400, "the size of a chunk is not a hexadecimal number");
    c->state = ch == ';' ? EXT : SIZE_LF;
    return 0;
}

/* Extensions and trailers: looked at for what they must not hold, and forgotten. */
static int in_line(nb_http_chunks *c, char ch, const char **why)
{
    if (++c->n_line > MAX_CHUNK_LINE_BYTES)
        return refuse(why, 431, "extensions and trailers of the chunked body are too long");
    if (ch == '\r' && c->state != NAME) {
        c->state = c->state == EXT ? SIZE_LF : c->state == LINE ? LAST_LF : VALUE_LF;
        return 0;
    }
    if (c->state == LINE || c->state == NAME) {
        if (c->state == NAME && ch == ':')
            c->state = VALUE;
        else if (is_tchar((unsigned char)ch))
            c->state = NAME;
        else
            return refuse(why, 400, "a trailer of the chunked body is not NAME: VALUE");
    } else if (!is_text((unsigned char)ch)) {
        return refuse(why, 400, "the chunked body has a control character between its chunks");
    }
    return 0;
}

/* One byte outside the data. */
static int in_frame(nb_http_chunks *c, char ch, const char **why)
{
    static const uint8_t after_lf[] = { [DATA_LF] = SIZE, [VALUE_LF] = LINE, [LAST_LF] = LINE };
    switch (c->state) {
    case SIZE: return in_size(c, ch, why);
    case EXT:
    case LINE:
    case NAME:
    case VALUE: return in_line(c, ch, why);
    case DATA_CR:
        if (ch != '\r') return refuse(why, 400, "a chunk is longer than its size says");
        c->state = DATA_LF;
        return 0;
    default: break;
    }
    if (ch != '\n') return refuse(why, 400, "the chunked body has a CR that no LF follows");
    if (c->state == SIZE_LF) {
        c->state = c->left_bytes ? DATA : LINE;
    } else {
        c->done = c->state == LAST_LF;
        c->state = after_lf[c->state];
    }
    c->n_digit = 0;
    return 0;
}

int nb_http_chunks_next(nb_http_chunks *c, const char *p, size_t n, size_t *used, nb_str *piece,
                        const char **why)
{
    size_t i = 0;
    *piece = (nb_str){ 0 };
    while (i < n && !c->done && c->state != DATA) {
        const int status = in_frame(c, p[i++], why);
        if (status) return status;
    }
    if (c->state == DATA && i < n) {
        const size_t take = n - i < c->left_bytes ? n - i : (size_t)c->left_bytes;
        *piece = (nb_str){ p + i, take };
        c->left_bytes -= take;
        if (c->left_bytes == 0) c->state = DATA_CR;
        i += take;
    }
    *used = i;
    return 0;
}
