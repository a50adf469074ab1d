/* detok.c - see detok.h.
 *
 * Three kinds of decoders.  "Bytes" (ByteLevel, tiktoken): all tokens' bytes in a
 * row, read as UTF-8 with one U+FFFD per maximal invalid subsequence.  "Chain"
 * (SentencePiece style): characters, with runs of byte tokens that are text only
 * if the whole run is valid, else one U+FFFD per byte; then a strip of leading
 * and trailing characters of the whole text.  "Join": tokens with blanks. */
#include "text/detok.h"

#include "base/utf8.h"
#include "text/tok_internal.h"

#define REPLACEMENT "\xef\xbf\xbd"

void nb_detok_init(nb_detok *d, const nb_tokenizer *tok, bool skip_special)
{
    *d = (nb_detok){ .tok = tok, .skip_special = skip_special };
    nb_detok_reset(d);
}

void nb_detok_keep(nb_detok *d, const uint32_t *ids, size_t n_ids)
{
    d->keep = ids;
    d->n_keep = n_ids;
}

void nb_detok_reset(nb_detok *d)
{
    d->n_tokens = d->n_trail_held = d->n_bad_run = d->n_tail_bytes = 0;
    d->n_lead_cut = d->tok->dec.strip ? d->tok->dec.strip_start : 0;
    d->run.n_bytes = 0;
}

void nb_detok_deinit(nb_detok *d)
{
    nb_buf_deinit(&d->run);
}

/* ---- bytes --------------------------------------------------------------- */

static nb_status push_bytes(nb_detok *d, nb_str s, nb_buf *out)
{
    size_t i = 0;
    uint32_t cp;
    while (d->n_tail_bytes && i < s.n_bytes) {
        d->tail[d->n_tail_bytes] = s.p[i];
        const int n = nb_utf8_decode(d->tail, d->n_tail_bytes + 1, &cp);
        if (n < 0) { /* the tail was all; this byte starts anew */
            d->n_tail_bytes = 0;
            NB_TRY(nb_buf_add_c(out, REPLACEMENT));
            break;
        }
        i++;
        d->n_tail_bytes++;
        if (n == 0) continue;
        NB_TRY(nb_buf_add(out, d->tail, d->n_tail_bytes));
        d->n_tail_bytes = 0;
    }
    while (i < s.n_bytes) {
        size_t j = i;
        int n = 1;
        while (j < s.n_bytes && (n = nb_utf8_decode(s.p + j, s.n_bytes - j, &cp)) > 0)
            j += (size_t)n;
        NB_TRY(nb_buf_add(out, s.p + i, j - i));
        i = j;
        if (n > 0) break;
        if (n == 0) {
            d->n_tail_bytes = s.n_bytes - i;
            memcpy(d->tail, s.p + i, d->n_tail_bytes);
            break;
        }
        NB_TRY(nb_buf_add_c(out, REPLACEMENT));
        i += nb_tok_bad_bytes(s.p + i, s.n_bytes - i);
    }
    return NB_OK;
}

/* ---- chain --------------------------------------------------------------- */

/* Text of the fused output, through the final Strip. */
static nb_status emit(nb_detok *d, nb_str s, nb_buf *out)
{
    const nb_decoder *dec = &d->tok->dec;
    if (!dec->strip) return nb_buf_add_str(out, s);
    char c[4];
    const size_t n_c = (size_t)nb_utf8_encode(dec->strip_char, c);
    for (size_t i = 0; i < s.n_bytes;) {
        const unsigned n = nb_tok_char_bytes(s.p + i);
        if (n == n_c && memcmp(s.p + i, c, n) == 0) {
            if (d->n_lead_cut)
                d->n_lead_cut--;
            else if (d->n_trail_held < dec->strip_stop)
                d->n_trail_held++;
            else
                NB_TRY(nb_buf_add(out, c, n));
        } else {
            for (d->n_lead_cut = 0; d->n_trail_held; d->n_trail_held--)
                NB_TRY(nb_buf_add(out, c, n_c));
            NB_TRY(nb_buf_add(out, s.p + i, n));
        }
        i += n;
    }
    return NB_OK;
}

static nb_status emit_bad(nb_detok *d, size_t n, nb_buf *out)
{
    for (; n; n--) NB_TRY(emit(d, nb_str_c(REPLACEMENT), out));
    return NB_OK;
}

static nb_status push_byte(nb_detok *d, char byte, nb_buf *out)
{
    uint32_t cp;
    if (d->n_bad_run) {
        d->n_bad_run++;
        return emit_bad(d, 1, out);
    }
    NB_TRY(nb_buf_add_ch(&d->run, byte));
    d->n_tail_bytes++;
    const int n = nb_utf8_decode(d->run.p + d->run.n_bytes - d->n_tail_bytes, d->n_tail_bytes, &cp);
    if (n > 0) d->n_tail_bytes = 0;
    if (n >= 0) return NB_OK;
    d->n_bad_run = d->run.n_bytes;
    d->run.n_bytes = d->n_tail_bytes = 0;
    return emit_bad(d, d->n_bad_run, out);
}

static nb_status end_run(nb_detok *d, nb_buf *out)
{
    const size_t n = d->run.n_bytes;
    const bool whole = d->n_tail_bytes == 0;
    d->n_bad_run = d->n_tail_bytes = 0;
    d->run.n_bytes = 0;
    if (!n) return NB_OK;
    return whole ? emit(d, (nb_str){ d->run.p, n }, out) : emit_bad(d, n, out);
}

static nb_status push_meta(nb_detok *d, nb_str s, bool first, nb_buf *out)
{
    const nb_decoder *dec = &d->tok->dec;
    for (size_t i = 0; i < s.n_bytes;) {
        uint32_t cp;
        const unsigned n = nb_tok_char(s.p + i, &cp);
        if (cp != dec->meta_char)
            NB_TRY(nb_buf_add(out, s.p + i, n));
        else if (!(first && dec->drop_first))
            NB_TRY(nb_buf_add_ch(out, ' '));
        i += n;
    }
    return NB_OK;
}

/* ---- public -------------------------------------------------------------- */

static bool is_kept(const nb_detok *d, uint32_t id)
{
    size_t lo = 0, hi = d->n_keep;
    while (lo < hi) {
        const size_t mid = lo + (hi - lo) / 2;
        if (d->keep[mid] == id) return true;
        if (d->keep[mid] < id)
            lo = mid + 1;
        else
            hi = mid;
    }
    return false;
}

/* Everything held back first: it precedes the token. */
static nb_status push_kept(nb_detok *d, uint32_t id, nb_buf *out)
{
    if (d->tok->dec.kind == NB_DEC_BYTES && d->n_tail_bytes) {
        d->n_tail_bytes = 0;
        NB_TRY(nb_buf_add_c(out, REPLACEMENT));
    }
    if (d->tok->dec.kind == NB_DEC_CHAIN) {
        char c[4];
        const size_t n_c = (size_t)nb_utf8_encode(d->tok->dec.strip_char, c);
        NB_TRY(end_run(d, out));
        for (; d->n_trail_held; d->n_trail_held--) NB_TRY(nb_buf_add(out, c, n_c));
    }
    return nb_buf_add_str(out, nb_tok_bytes(d->tok, d->tok->out[id]));
}

nb_status nb_detok_push(nb_detok *d, uint32_t id, nb_buf *out)
{
    const nb_tokenizer *t = d->tok;
    if (d->n_keep && nb_tokenizer_has(t, id) && is_kept(d, id)) return push_kept(d, id, out);
    if (!nb_tokenizer_has(t, id) || (d->skip_special && nb_tokenizer_is_special(t, id)))
        return NB_OK;
    const nb_str s = nb_tok_bytes(t, t->out[id]);
    const bool first = d->n_tokens++ == 0;
    switch (t->dec.kind) {
    case NB_DEC_JOIN:
        if (!first) NB_TRY(nb_buf_add_ch(out, ' '));
        return nb_buf_add_str(out, s);
    case NB_DEC_BYTES: return push_bytes(d, s, out);
    case NB_DEC_CHAIN:
        if (t->flags[id] & NB_TF_BYTE) return push_byte(d, s.p[0], out);
        NB_TRY(end_run(d, out));
        return t->dec.metaspace ? push_meta(d, s, first, out) : emit(d, s, out);
    }
    return NB_OK;
}

nb_status nb_detok_finish(nb_detok *d, nb_buf *out)
{
    nb_status st = NB_OK;
    if (d->tok->dec.kind == NB_DEC_BYTES && d->n_tail_bytes) st = nb_buf_add_c(out, REPLACEMENT);
    if (d->tok->dec.kind == NB_DEC_CHAIN) st = end_run(d, out);
    nb_detok_reset(d);
    return st;
}

nb_status nb_tokenizer_decode(const nb_tokenizer *t, const uint32_t *ids, size_t n_ids,
                              bool skip_special, nb_buf *out)
{
    nb_detok d;
    nb_status st = NB_OK;
    nb_detok_init(&d, t, skip_special);
    for (size_t i = 0; i < n_ids && st == NB_OK; i++) st = nb_detok_push(&d, ids[i], out);
    if (st == NB_OK) st = nb_detok_finish(&d, out);
    nb_detok_deinit(&d);
    return st;
}
