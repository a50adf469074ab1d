/* trace_stream.c - traces of lines: Mooncake's JSON and Azure's CSV; see trace.h.
 *
 * The file is mapped and left behind in pieces, so that its size does not matter. */
#include <stdlib.h>

#include "capacity/trace.h"
#include "capacity/trace_scan.h"
#include "os/file.h"

enum { DROP_BYTES = 1 << 24 };

static const char csv_head[] = "TIMESTAMP,ContextTokens,GeneratedTokens";

struct nb_trace {
    nb_file_map map; /* empty when the bytes are the caller's */
    const char *begin, *p, *end, *dropped;
    char *name;
    size_t line; /* of p */
    nb_trace_format format;
    bool any;
    double first_s, last_s;
    uint64_t *id;
    size_t cap_id;
};

/* ---- open, close ---- */

/* The next line that is not empty, without its end; false at the end of the file. */
static bool next_line(nb_trace *t, nb_str *line)
{
    while (t->p < t->end) {
        const char *from = t->p, *nl = memchr(from, '\n', (size_t)(t->end - from));
        size_t n = (size_t)((nl ? nl : t->end) - from);
        t->p = nl ? nl + 1 : t->end;
        t->line++;
        if (n && from[n - 1] == '\r') n--;
        *line = (nb_str){ from, n };
        if (n) return true;
    }
    return false;
}

void nb_trace_rewind(nb_trace *t)
{
    nb_str head;
    t->p = t->dropped = t->begin;
    t->line = 0;
    t->any = false;
    if (t->format == NB_TRACE_AZURE) (void)next_line(t, &head);
}

static nb_status detect(nb_trace *t, nb_error *err)
{
    nb_str line = { "", 0 };
    (void)next_line(t, &line);
    if (line.n_bytes && line.p[0] == '{') {
        t->format = NB_TRACE_MOONCAKE;
    } else if (nb_str_eqc(line, csv_head)) {
        t->format = NB_TRACE_AZURE;
    } else {
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s:%zu: expected a line of JSON with a timestamp, or the head \"%s\"",
                       t->name, t->line, csv_head);
    }
    nb_trace_rewind(t);
    return NB_OK;
}

nb_status nb_trace_open_text(const char *p, size_t n_bytes, const char *name, nb_trace **out,
                             nb_error *err)
{
    nb_trace *t = calloc(1, sizeof *t);
    const size_t n_name = strlen(name) + 1;
    if (t) t->name = malloc(n_name);
    if (!t || !t->name) {
        free(t);
        return nb_fail(err, NB_ERR_NOMEM, "%s: out of memory", name);
    }
    memcpy(t->name, name, n_name);
    t->begin = t->p = p;
    t->end = p + n_bytes;
    const nb_status st = detect(t, err);
    if (st != NB_OK) {
        nb_trace_close(t);
        return st;
    }
    *out = t;
    return NB_OK;
}

nb_status nb_trace_open(const char *path, nb_trace **out, nb_error *err)
{
    nb_file_map map;
    NB_TRY(nb_file_mmap(path, &map, err));
    const nb_status st =
        nb_trace_open_text(map.p ? (const char *)map.p : "", map.n_bytes, path, out, err);
    if (st == NB_OK)
        (*out)->map = map;
    else
        nb_file_unmap(&map);
    return st;
}

void nb_trace_close(nb_trace *t)
{
    if (!t) return;
    if (t->map.p) nb_file_unmap(&t->map);
    free(t->id);
    free(t->name);
    free(t);
}

nb_trace_format nb_trace_format_of(const nb_trace *t)
{
    return t->format;
}

/* ---- Mooncake ---- */

static nb_status read_ids(nb_trace *t, nb_scan *s, size_t *n_out)
{
    size_t n = 0;
    bool more;
    NB_TRY(nb_scan_open(s, '[', "hash_ids as an array"));
    for (;; n++) {
        NB_TRY(nb_scan_more(s, ']', n == 0, &more));
        if (!more) break;
        if (n == NB_TRACE_MAX_ID) return nb_scan_fail(s, "at most 1048576 hash_ids");
        if (NB_GROW(t->id, t->cap_id, n) != NB_OK)
            return nb_fail(s->err, NB_ERR_NOMEM, "%s:%zu: out of memory", s->name, s->line);
        NB_TRY(nb_scan_count(s, "hash_ids of whole numbers up to 2^53", NB_TRACE_MAX_ID_VALUE,
                             &t->id[n]));
    }
    *n_out = n;
    return NB_OK;
}

static nb_status mooncake_line(nb_trace *t, nb_str line, nb_trace_req *r, nb_error *err)
{
    static const char *const names[] = { "timestamp", "input_length", "output_length", "hash_ids" };
    nb_scan s = nb_scan_text(line.p, line.n_bytes, t->name, t->line, err);
    unsigned have = 0;
    double ms = 0;
    uint64_t n_in = 0, n_out = 0;
    bool more, first = true;
    NB_TRY(nb_scan_open(&s, '{', "an object per line"));
    for (;; first = false) {
        nb_str key;
        size_t i = 0;
        NB_TRY(nb_scan_more(&s, '}', first, &more));
        if (!more) break;
        NB_TRY(nb_scan_key(&s, &key));
        while (i < 4 && !nb_str_eqc(key, names[i])) i++;
        have |= 1u << i;
        switch (i) {
        case 0: NB_TRY(nb_scan_number(&s, "timestamp as a number of milliseconds", &ms)); break;
        case 1:
            NB_TRY(nb_scan_count(&s, "input_length of 0 to 16777216", NB_TRACE_MAX_TOK, &n_in));
            break;
        case 2:
            NB_TRY(nb_scan_count(&s, "output_length of 0 to 16777216", NB_TRACE_MAX_TOK, &n_out));
            break;
        case 3: NB_TRY(read_ids(t, &s, &r->n_id)); break;
        default: NB_TRY(nb_scan_skip(&s));
        }
    }
    NB_TRY(nb_scan_end(&s));
    for (size_t i = 0; i < 3; i++)
        if (!(have >> i & 1))
            return nb_fail(err, NB_ERR_FORMAT, "%s:%zu: expected a field \"%s\"", t->name, t->line,
                           names[i]);
    r->t_s = ms / 1000;
    r->n_in = (size_t)n_in;
    r->n_out = (size_t)n_out;
    r->id = t->id;
    r->id_tok = 512;
    return NB_OK;
}

/* ---- Azure ---- */

/* n digits at *p. */
static bool digits(const char **p, const char *end, size_t n, unsigned *out)
{
    unsigned v = 0;
    if ((size_t)(end - *p) < n) return false;
    for (size_t i = 0; i < n; i++) {
        const char c = (*p)[i];
        if (c < '0' || c > '9') return false;
        v = v * 10 + (unsigned)(c - '0');
    }
    *p += n;
    *out = v;
    return true;
}
static bool letter(const char **p, const char *end, char c)
{
    if (*p == end || **p != c) return false;
    ++*p;
    return true;
}

/* Days since 0000-03-01 of the Gregorian calendar. */
static long days(unsigned year, unsigned month, unsigned day)
{
    const long y = (long)year - (month <= 2), m = (long)(month + 9) % 12;
    return 365 * y + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + (long)day;
}

/* 2023-11-16 18:17:03.9799600, also with Z or +00:00 behind it. */
static bool stamp(const char **at, const char *end, double *out)
{
    const char *p = *at;
    unsigned year, month, day, hour, minute, second;
    if (!digits(&p, end, 4, &year) || !letter(&p, end, '-') || !digits(&p, end, 2, &month) ||
        !letter(&p, end, '-') || !digits(&p, end, 2, &day) ||
        !(letter(&p, end, ' ') || letter(&p, end, 'T')) || !digits(&p, end, 2, &hour) ||
        !letter(&p, end, ':') || !digits(&p, end, 2, &minute) || !letter(&p, end, ':') ||
        !digits(&p, end, 2, &second))
        return false;
    if (month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60)
        return false;
    double fraction = 0, unit = 0.1;
    if (letter(&p, end, '.'))
        for (; p < end && *p >= '0' && *p <= '9'; p++, unit /= 10) fraction += unit * (*p - '0');
    if (!letter(&p, end, 'Z') && end - p >= 6 && memcmp(p, "+00:00", 6) == 0) p += 6;
    *out = (double)(((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second) + fraction;
    *at = p;
    return true;
}

static bool csv_count(const char **at, const char *end, size_t *out)
{
    size_t v = 0;
    const char *p = *at;
    if (!letter(&p, end, ',') || p == end) return false;
    for (; p < end && *p >= '0' && *p <= '9'; p++) {
        v = v * 10 + (size_t)(*p - '0');
        if (v > NB_TRACE_MAX_TOK) return false;
    }
    if (p[-1] == ',') return false;
    *out = v;
    *at = p;
    return true;
}

static nb_status azure_line(nb_trace *t, nb_str line, nb_trace_req *r, nb_error *err)
{
    const char *p = line.p, *end = line.p + line.n_bytes;
    if (!stamp(&p, end, &r->t_s))
        return nb_fail(err, NB_ERR_FORMAT, "%s:%zu: expected a time as 2023-11-16 18:17:03.9799600",
                       t->name, t->line);
    if (!csv_count(&p, end, &r->n_in) || !csv_count(&p, end, &r->n_out) || p != end)
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s:%zu: expected two columns of tokens behind the time, 0 to %d each",
                       t->name, t->line, NB_TRACE_MAX_TOK);
    return NB_OK;
}

/* ---- both ---- */

nb_status nb_trace_next(nb_trace *t, nb_trace_req *r, bool *more, nb_error *err)
{
    nb_str line;
    nb_trace_req got = { 0 };
    if (t->map.p && t->p - t->dropped > DROP_BYTES) {
        nb_pages_drop(t->dropped, (size_t)(t->p - t->dropped));
        t->dropped = t->p;
    }
    if (!next_line(t, &line)) {
        *more = false;
        return NB_OK;
    }
    if (line.n_bytes > NB_TRACE_MAX_LINE)
        return nb_fail(err, NB_ERR_LIMIT, "%s:%zu: a line of %zu bytes; expected at most %d",
                       t->name, t->line, line.n_bytes, NB_TRACE_MAX_LINE);
    if (t->format == NB_TRACE_MOONCAKE)
        NB_TRY(mooncake_line(t, line, &got, err));
    else
        NB_TRY(azure_line(t, line, &got, err));
    if (!t->any) t->first_s = t->last_s = got.t_s;
    if (got.t_s < t->last_s)
        return nb_fail(err, NB_ERR_FORMAT,
                       "%s:%zu: %g s before the line above; expected ascending times", t->name,
                       t->line, t->last_s - got.t_s);
    t->any = true;
    t->last_s = got.t_s;
    got.t_s -= t->first_s;
    *r = got;
    *more = true;
    return NB_OK;
}
