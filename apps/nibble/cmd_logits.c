/* cmd_logits.c - `nibble logits`: raw rows of logits for comparing with others.
 *
 * The engine computes rows in ascending order; the file has them in the order of the
 * command line.  Everything is written to a file beside the output that is renamed at
 * the end, so that no half file stays; to a device or standard output it is copied. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "options/opts.h"
#include "out_file.h"
#include "session.h"

typedef struct rows {
    size_t *want;  /* [n] as given       */
    size_t *order; /* [n_order] ascending, each once */
    size_t n, n_order;
} rows;

static void rows_deinit(rows *r)
{
    free(r->want);
    free(r->order);
}

static int by_size(const void *a, const void *b)
{
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

/* The next number of a list 1,2,3; false at a syntax error. */
static bool list_item(const char **p, size_t *out)
{
    size_t v = 0, n = 0;
    for (; **p >= '0' && **p <= '9'; (*p)++, n++) {
        if (v > (SIZE_MAX - 9) / 10) return false;
        v = v * 10 + (size_t)(**p - '0');
    }
    *out = v;
    if (n == 0 || (**p && **p != ',')) return false;
    return true;
}

/* Syntax only, before anything is loaded; *n_item is 0 for `all` and for the default. */
static int check_rows(const char *list, size_t *n_item)
{
    *n_item = 0;
    if (!list || strcmp(list, "all") == 0) return CLI_OK;
    for (const char *p = list;; p++) {
        size_t v;
        if (!list_item(&p, &v))
            return cli_usage("--rows %s: expected positions such as 0,17, or all", list);
        (*n_item)++;
        if (!*p) return CLI_OK;
    }
}

static int make_rows(const opts *o, size_t n_item, size_t n_tok, rows *r)
{
    const bool all = o->rows && n_item == 0;
    r->n = all ? n_tok : o->rows ? n_item : 1;
    r->want = calloc(r->n, sizeof *r->want);
    r->order = calloc(r->n, sizeof *r->order);
    if (!r->want || !r->order) return cli_failed("out of memory");
    const char *p = o->rows;
    for (size_t i = 0; i < r->n; i++) {
        r->want[i] = all ? i : n_tok - 1;
        if (n_item && list_item(&p, &r->want[i])) p++; /* over the comma */
        if (r->want[i] >= n_tok)
            return cli_failed("row %zu is out of range: %s has %zu tokens (rows 0..%zu)",
                              r->want[i], o->tokens, n_tok, n_tok - 1);
    }
    memcpy(r->order, r->want, r->n * sizeof *r->order);
    qsort(r->order, r->n, sizeof *r->order, by_size);
    for (size_t i = 0; i < r->n; i++)
        if (i == 0 || r->order[i] != r->order[r->n_order - 1]) r->order[r->n_order++] = r->order[i];
    return CLI_OK;
}

/* ---- rows ------------------------------------------------------------------ */

typedef struct sink_state {
    const rows *r;
    FILE *f;
    unsigned char *bytes; /* [4 * n_vocab] */
    size_t n_vocab, n_done;
    int error; /* errno */
} sink_state;

static void to_little_endian(const float *x, size_t n, unsigned char *out)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        for (unsigned k = 0; k < 4; k++) out[4 * i + k] = (unsigned char)(u >> 8 * k);
    }
}

/* Rows come in the order of r->order; one row goes wherever it was asked for. */
static int on_row(void *ctx, size_t row, const float *logits, size_t n_vocab)
{
    sink_state *t = ctx;
    (void)row;
    const size_t at = t->r->order[t->n_done++], n_bytes = 4 * n_vocab;
    if (!t->bytes) {
        t->bytes = malloc(n_bytes);
        t->n_vocab = n_vocab;
        t->error = t->bytes ? 0 : ENOMEM;
    }
    if (!t->bytes || n_vocab != t->n_vocab) return 1;
    to_little_endian(logits, n_vocab, t->bytes);
    for (size_t i = 0; i < t->r->n; i++) {
        if (t->r->want[i] != at) continue;
        if (fseeko(t->f, (off_t)(i * n_bytes), SEEK_SET) != 0 ||
            fwrite(t->bytes, 1, n_bytes, t->f) != n_bytes) {
            t->error = errno;
            return 1;
        }
    }
    return 0;
}

static int write_rows(const opts *o, session *s, const uint32_t *ids, size_t n_ids, const rows *r)
{
    nb_error err = { 0 };
    out_file out = { 0 };
    int code = out_file_open(&out, o->output);
    if (code == CLI_OK) {
        sink_state t = { .r = r, .f = out.f };
        const nb_status st =
            nb_logits(s->engine, ids, n_ids, r->order, r->n_order, on_row, &t, &err);
        free(t.bytes);
        if (t.error)
            code = cli_failed("%s: cannot be written: %s", o->output, strerror(t.error));
        else if (st != NB_OK)
            code = cli_status(st, &err);
        else if (fflush(out.f) != 0)
            code = out_file_failed(o->output);
    }
    return out_file_close(&out, o->output, code);
}

int cmd_logits(const opts *o)
{
    size_t n_item, n_ids = 0;
    if (!o->tokens) return cli_usage("logits: --tokens FILE is missing");
    if (!o->output) return cli_usage("logits: --output FILE is missing");
    int code = check_rows(o->rows, &n_item);
    if (code != CLI_OK) return code;
    uint32_t *ids = NULL;
    rows r = { 0 };
    session s = { 0 };
    code = cli_read_ids(o->tokens, &ids, &n_ids);
    if (code == CLI_OK && n_ids == 0)
        code = cli_failed("%s: no tokens: expected at least one", o->tokens);
    if (code == CLI_OK) code = make_rows(o, n_item, n_ids, &r);
    if (code == CLI_OK) {
        opts no_text = *o; /* ids in, numbers out: no tokenizer is needed */
        no_text.skip_tokenizer_init = true;
        code = session_open(&no_text, false, &s);
    }
    if (code == CLI_OK) code = write_rows(o, &s, ids, n_ids, &r);
    session_close(&s);
    rows_deinit(&r);
    free(ids);
    return code;
}
