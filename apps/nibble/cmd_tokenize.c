/* cmd_tokenize.c - `nibble tokenize`: text to token ids and back. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "json_out.h"
#include "options/opts.h"

enum { TEXT_MAX_BYTES = 1 << 30 };

static int decode(const opts *o, const nb_text *t)
{
    nb_error err = { 0 };
    uint32_t *ids = NULL;
    size_t n_ids = 0, n_bytes = 0;
    char *text = NULL;
    int code = cli_read_ids(o->decode, &ids, &n_ids);
    if (code != CLI_OK) return code;
    const nb_status st = nb_text_detokenize(t, ids, n_ids, o->skip_special, &text, &n_bytes, &err);
    free(ids);
    if (st != NB_OK) return cli_status(st, &err);
    if (o->json) {
        (void)fputs("{\"text\":", stdout);
        jout_str(stdout, text, n_bytes);
        (void)fputs("}\n", stdout);
    } else {
        (void)fwrite(text, 1, n_bytes, stdout);
        if (isatty(STDOUT_FILENO)) (void)fputc('\n', stdout);
    }
    nb_free(text);
    return CLI_OK;
}

/* One line per token: id, tab, its text in quotes (bytes that are no text as U+FFFD). */
static int print_pieces(const nb_text *t, const uint32_t *ids, size_t n_ids)
{
    nb_error err = { 0 };
    for (size_t i = 0; i < n_ids && cli_out_ok(); i++) {
        char *piece = NULL;
        size_t n = 0;
        const nb_status st = nb_text_detokenize(t, ids + i, 1, false, &piece, &n, &err);
        if (st != NB_OK) return cli_status(st, &err);
        (void)printf("%" PRIu32 "\t", ids[i]);
        jout_str(stdout, piece, n);
        (void)fputc('\n', stdout);
        nb_free(piece);
    }
    return CLI_OK;
}

static int encode(const opts *o, const nb_text *t)
{
    nb_error err = { 0 };
    char *data = NULL;
    size_t n_bytes = 0, n_ids = 0;
    uint32_t *ids = NULL;
    const char *file = o->file ? o->file : strcmp(o->prompt, "-") == 0 ? "-" : NULL;
    if (file) {
        const int code = cli_read_file(file, TEXT_MAX_BYTES, &data, &n_bytes);
        if (code != CLI_OK) return code;
    }
    const char *text = file ? data : o->prompt;
    if (!file) n_bytes = strlen(text);
    const unsigned flags = (o->add_special ? (unsigned)NB_TEXT_ADD_SPECIAL : 0) |
                           (o->parse_special ? (unsigned)NB_TEXT_PARSE_SPECIAL : 0);
    const nb_status st = nb_text_tokenize(t, text, n_bytes, flags, &ids, &n_ids, &err);
    free(data);
    if (st != NB_OK) return cli_status(st, &err);
    int code = CLI_OK;
    if (o->json) {
        jout_ids(stdout, ids, n_ids);
        (void)fputc('\n', stdout);
    } else {
        code = print_pieces(t, ids, n_ids);
    }
    nb_free(ids);
    return code;
}

int cmd_tokenize(const opts *o)
{
    if ((o->file != NULL) + (o->prompt != NULL) + (o->decode != NULL) != 1)
        return cli_usage("tokenize: give one of --file FILE, -p TEXT and --decode FILE");
    nb_error err = { 0 };
    nb_text *t = NULL;
    const nb_status st = nb_text_create(o->path, o->chat_template, &t, &err);
    if (st != NB_OK) return cli_status(st, &err);
    const int code = o->decode ? decode(o, t) : encode(o, t);
    nb_text_destroy(t);
    return code;
}
