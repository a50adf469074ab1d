/* fuzz_tokenizer.c - any bytes as a tokenizer file and a text.
 *
 * Input: FILE [NUL TEXT [NUL CONFIG]].  A FILE that starts with '{"config"' is a tekken.json, with '{' a tokenizer.json,
 * others are tiktoken ranks of the Kimi family.  What must hold for every tokenizer that can be made: ids are
 * known ones, decoding in one go equals decoding id by id, both valid UTF-8, and without
 * NB_TOK_PARSE_SPECIAL a text makes no control token out of more than one character. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/detok.h"
#include "text/tok_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check_error(const nb_error *e, nb_status st)
{
    const char *end = memchr(e->msg, 0, sizeof e->msg);
    if (e->status != st || !end || end == e->msg) abort();
    for (const char *p = e->msg; p < end; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) abort();
}

/* A control token that plain text may give: one character, a byte, the unknown token. */
static bool may_be_plain(const nb_tokenizer *t, uint32_t id)
{
    const nb_str key = nb_tok_bytes(t, t->key[id]);
    if (id == t->unk_id || key.n_bytes == 1) return true;
    for (int b = 0; b < 256; b++)
        if (t->fallback_id[b] == id) return true;
    for (size_t i = 0; i < t->n_added;
         i++) /* an added token of the same id that is no control one */
        if (t->added[i].id == id && !t->added[i].control) return true;
    return !t->byte_level && key.n_bytes && nb_tok_char_bytes(key.p) == key.n_bytes;
}

static void check_decode(const nb_tokenizer *t, const uint32_t *ids, size_t n, bool skip)
{
    nb_buf whole = { 0 }, parts = { 0 };
    nb_detok d;
    nb_detok_init(&d, t, skip);
    nb_status st = nb_tokenizer_decode(t, ids, n, skip, &whole);
    for (size_t i = 0; i < n && st == NB_OK; i++) {
        const size_t before = parts.n_bytes;
        st = nb_detok_push(&d, ids[i], &parts);
        if (st == NB_OK &&
            !nb_utf8_valid((nb_str){ parts.p ? parts.p + before : "", parts.n_bytes - before }))
            abort();
    }
    if (st == NB_OK) st = nb_detok_finish(&d, &parts);
    if (st == NB_OK && !nb_str_eq(nb_buf_view(&whole), nb_buf_view(&parts))) abort();
    if (st != NB_OK && st != NB_ERR_NOMEM) abort();
    nb_detok_deinit(&d);
    nb_buf_deinit(&whole);
    nb_buf_deinit(&parts);
}

static void check_text(const nb_tokenizer *t, nb_str text, unsigned flags)
{
    uint32_t *ids = NULL;
    size_t n = 0;
    nb_error err;
    const nb_status st = nb_tokenizer_encode(t, text, flags, &ids, &n, &err);
    if (st != NB_OK) {
        check_error(&err, st);
        return;
    }
    if ((n == 0) != (ids == NULL)) abort();
    for (size_t i = 0; i < n; i++) {
        if (!nb_tokenizer_has(t, ids[i])) abort();
        if (flags == 0 && nb_tokenizer_is_control(t, ids[i]) && !may_be_plain(t, ids[i])) abort();
    }
    check_decode(t, ids, n, flags & NB_TOK_PARSE_SPECIAL);
    free(ids);
}

static nb_str next_part(nb_str *rest)
{
    const char *end = rest->n_bytes ? memchr(rest->p, 0, rest->n_bytes) : NULL;
    const nb_str part = { rest->p, end ? (size_t)(end - rest->p) : rest->n_bytes };
    const size_t used = part.n_bytes + (end ? 1 : 0);
    rest->p += used;
    rest->n_bytes -= used;
    return part;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    nb_str rest = { (const char *)data, n };
    const nb_str file = next_part(&rest), text = next_part(&rest), config = next_part(&rest);
    nb_tokenizer_files files = { .tokenizer_config_json = config };
    if (file.n_bytes > 9 && !memcmp(file.p, "{\"config\"", 9)) {
        files.tekken_json = file;
    } else if (file.n_bytes && file.p[0] == '{') {
        files.tokenizer_json = file;
    } else {
        files.tiktoken_model = file;
        if (!config.n_bytes)
            files.tokenizer_config_json = nb_str_c("{\"tokenizer_class\":\"TikTokenTokenizer\"}");
    }
    nb_tokenizer *t = NULL;
    nb_error err;
    const nb_status st = nb_tokenizer_create(&files, &t, &err);
    if (st != NB_OK) {
        check_error(&err, st);
        return 0;
    }
    static const char FIXED[] =
        "Hello  wor\xc3\xa9ld 12345 <s> \xe4\xb8\xad\xe6\x96\x87 \xff<|x|>\r\n";
    for (unsigned flags = 0; flags < 4; flags++) {
        check_text(t, text, flags);
        check_text(t, nb_str_c(FIXED), flags);
    }
    const uint32_t ids[] = { 0, 1, 2, 3, 200, 255, 256, 257, 300, 400000, UINT32_MAX, 5, 5 };
    check_decode(t, ids, sizeof ids / sizeof *ids, n & 1);
    for (int r = 0; r < NB_TOK_N_ROLES; r++) (void)nb_tokenizer_role_text(t, (nb_tok_role)r);
    (void)nb_tokenizer_chat_template(t, NULL);
    (void)nb_tokenizer_find(t, text);
    nb_tokenizer_destroy(t);
    return 0;
}
