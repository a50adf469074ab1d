/* tok_internal.h - the parts of a tokenizer, shared by the tok_*.c files.
 *
 * Bytes of a token come in two spellings.  `key` is what the BPE model sees: for
 * byte-level models the raw bytes (the 256 printable stand-ins of GPT-2 are
 * undone when the vocabulary is read), else the UTF-8 of the entry.  `out` is
 * what the token contributes to decoded text. */
#ifndef NB_TEXT_TOK_INTERNAL_H
#define NB_TEXT_TOK_INTERNAL_H
#include <jansson.h>

#include "text/tok_regex.h"
#include "text/tok_unicode.h"
#include "text/tokenizer.h"

/* Bytes inside nb_tokenizer.blob. */
typedef struct nb_tok_view {
    uint32_t off, n_bytes;
} nb_tok_view;

enum {
    NB_TF_EXISTS = 1 << 0,
    NB_TF_SPECIAL = 1 << 1, /* skipped by decode                                     */
    NB_TF_ADDED = 1 << 2,
    NB_TF_CONTROL = 1 << 3, /* not recognised in text without NB_TOK_PARSE_SPECIAL   */
    NB_TF_MODEL = 1 << 4,   /* entry of the model's vocabulary                       */
    NB_TF_BYTE = 1 << 5     /* decoder sees <0xHH>; out is that byte                 */
};

/* ---- tables (tok_vocab.c) ------------------------------------------------ */

/* Open addressing from bytes to a value; up to 8 bytes are stored in the slot. */
typedef struct nb_tok_slot {
    uint64_t word; /* the bytes themselves, or their hash when more than 8 */
    uint32_t value;
    uint32_t meta; /* NB_SLOT_*; 0: empty                                  */
} nb_tok_slot;
enum {
    NB_SLOT_LEN = 0xffff, /* length of the key                              */
    NB_SLOT_USED = 1 << 16,
    NB_SLOT_DIRECT = 1 << 17, /* BPE turns these bytes into exactly this token  */
    NB_SLOT_CONTROL = 1 << 18 /* a control token                                */
};
typedef struct nb_tok_map {
    nb_tok_slot *slots;
    size_t n_slots, n_used; /* n_slots: power of two, or 0 */
} nb_tok_map;

void nb_tok_map_deinit(nb_tok_map *m);
/* Adds or finds; *slot points to it, *added tells which.  views: key of each
 * value in `blob`.  NB_ERR_NOMEM, NB_ERR_LIMIT (too many collisions). */
nb_status nb_tok_map_put(nb_tok_map *m, const nb_tok_view *views, const nb_buf *blob, nb_str key,
                         uint32_t value, nb_tok_slot **slot, bool *added);

static inline uint64_t nb_tok_load(const char *p, size_t n_bytes) /* n_bytes <= 8 */
{
    uint32_t a, b;
    if (n_bytes == 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        return w;
    }
    if (n_bytes >= 4) {
        memcpy(&a, p, 4);
        memcpy(&b, p + n_bytes - 4, 4);
        return a | (uint64_t)b << (8 * (n_bytes - 4));
    }
    if (n_bytes == 0) return 0;
    const unsigned char *u = (const unsigned char *)p;
    return u[0] | (uint64_t)u[n_bytes / 2] << (8 * (n_bytes / 2)) |
           (uint64_t)u[n_bytes - 1] << (8 * (n_bytes - 1));
}
static inline uint64_t nb_tok_hash(const char *p, size_t n_bytes, uint64_t *word)
{
    uint64_t w;
    if (n_bytes <= 8) {
        w = nb_tok_load(p, n_bytes);
    } else {
        w = n_bytes * 0x9e3779b97f4a7c15u;
        size_t i = 0;
        for (; i + 8 < n_bytes; i += 8) {
            w = (w ^ nb_tok_load(p + i, 8)) * 0xbf58476d1ce4e5b9u;
            w ^= w >> 29;
        }
        w = (w ^ nb_tok_load(p + n_bytes - 8, 8)) * 0x94d049bb133111ebu;
    }
    *word = w;
    uint64_t h = (w ^ (uint64_t)n_bytes << 56) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
}
static inline const nb_tok_slot *nb_tok_map_get(const nb_tok_map *m, const nb_tok_view *views,
                                                const nb_buf *blob, const char *p, size_t n_bytes)
{
    uint64_t word;
    if (!m->n_slots || n_bytes > NB_SLOT_LEN) return NULL;
    for (size_t i = nb_tok_hash(p, n_bytes, &word) & (m->n_slots - 1);;
         i = (i + 1) & (m->n_slots - 1)) {
        const nb_tok_slot *s = &m->slots[i];
        if (!s->meta) return NULL;
        if (s->word == word && (s->meta & NB_SLOT_LEN) == n_bytes &&
            (n_bytes <= 8 || memcmp(blob->p + views[s->value].off, p, n_bytes) == 0))
            return s;
    }
}

/* Merges: (left id, right id) -> rank and the id of the result. */
typedef struct nb_tok_merge {
    uint64_t pair; /* left << 32 | right; UINT64_MAX: empty */
    uint32_t rank, id;
} nb_tok_merge;
typedef struct nb_tok_merges {
    nb_tok_merge *slots;
    size_t n_slots, n_used;
} nb_tok_merges;
void nb_tok_merges_deinit(nb_tok_merges *m);
/* A pair that is there already gets the new rank.  NB_ERR_NOMEM, NB_ERR_LIMIT. */
nb_status nb_tok_merges_put(nb_tok_merges *m, uint32_t left, uint32_t right, uint32_t rank,
                            uint32_t id);
static inline const nb_tok_merge *nb_tok_merges_get(const nb_tok_merges *m, uint32_t left,
                                                    uint32_t right)
{
    if (!m->n_slots) return NULL;
    const uint64_t pair = (uint64_t)left << 32 | right;
    uint64_t h = pair * 0x9e3779b97f4a7c15u;
    h ^= h >> 32;
    for (size_t i = h & (m->n_slots - 1);; i = (i + 1) & (m->n_slots - 1)) {
        if (m->slots[i].pair == pair) return &m->slots[i];
        if (m->slots[i].pair == UINT64_MAX) return NULL;
    }
}

/* ---- pipeline (tok_pipe.c) ----------------------------------------------- */

typedef enum nb_norm_kind {
    NB_NORM_FORM, /* NFC, NFD, NFKC, NFKD */
    NB_NORM_PREPEND,
    NB_NORM_REPLACE,
    NB_NORM_STRIP,
    NB_NORM_LOWER,
    NB_NORM_STRIP_CHAR /* the decoder's Strip, of single tokens */
} nb_norm_kind;
typedef struct nb_norm_step {
    nb_norm_kind kind;
    nb_tok_form form;
    bool use_regex, left, right; /* Replace with a regex; Strip's sides */
    nb_tok_regex regex;
    char *pattern, *text; /* literal pattern; Prepend's or Replace's text */
    size_t n_pattern_bytes, n_text_bytes;
    uint32_t strip_char; /* STRIP_CHAR */
    size_t strip_start, strip_stop;
} nb_norm_step;

typedef enum nb_split_behavior {
    NB_SPLIT_ISOLATED,
    NB_SPLIT_REMOVED,
    NB_SPLIT_CONTIGUOUS,
    NB_SPLIT_MERGED_PREVIOUS,
    NB_SPLIT_MERGED_NEXT
} nb_split_behavior;
typedef enum nb_pre_kind {
    NB_PRE_REGEX,
    NB_PRE_LITERAL,
    NB_PRE_BYTELEVEL, /* optional prefix space, then the regex (GPT-2's) if use_regex */
    NB_PRE_METASPACE, /* blanks to `text`, prefix, then split before `text` if split  */
    NB_PRE_RUNS       /* Kimi's cut of huge inputs                                    */
} nb_pre_kind;
typedef enum nb_prepend { NB_PREPEND_NEVER, NB_PREPEND_FIRST, NB_PREPEND_ALWAYS } nb_prepend;
typedef struct nb_pre_step {
    nb_pre_kind kind;
    nb_split_behavior behavior;
    bool invert, use_regex, prefix_space, split;
    nb_prepend prepend;
    nb_tok_regex regex;
    char *text; /* literal pattern or Metaspace's replacement */
    size_t n_text_bytes;
} nb_pre_step;

typedef enum nb_dec_kind {
    NB_DEC_JOIN,  /* no decoder: tokens with a blank between them                    */
    NB_DEC_BYTES, /* all bytes in a row, then read as UTF-8                          */
    NB_DEC_CHAIN  /* characters, with byte fallback, Metaspace, Strip after Fuse     */
} nb_dec_kind;
typedef struct nb_decoder {
    nb_dec_kind kind;
    bool byte_fallback, metaspace, drop_first; /* Metaspace: drop_first in the first token */
    bool strip;                                /* Strip after Fuse */
    uint32_t strip_char;
    size_t strip_start, strip_stop;
    uint32_t meta_char;
    bool raw_added;      /* tiktoken: an added token's bytes are its text, never stand-ins   */
    nb_norm_step *steps; /* Replace and Strip of single tokens, done when `out` is made      */
    size_t n_steps, cap_steps;
} nb_decoder;

enum {
    NB_TOK_MAX_STEPS = 32,
    NB_TOK_MAX_LITERAL_BYTES = 256,
    NB_TOK_MAX_TEMPLATE_IDS = 16,
    NB_TOK_MAX_ADDED_BYTES = 512 /* bounds the work per character of text */
};

typedef struct nb_added {
    uint32_t id;
    nb_tok_view content;
    nb_tok_view pattern; /* content, normalized where `normalized` says so */
    bool special, normalized, lstrip, rstrip, single_word, control;
} nb_added;

/* A set of added tokens to look for: indices into nb_tokenizer.added, sorted by
 * pattern. */
typedef struct nb_added_set {
    uint32_t *item;
    size_t n_items;
    bool first[256]; /* first bytes of the patterns */
} nb_added_set;

typedef struct nb_named_template {
    char *name, *text;
    size_t n_text_bytes;
} nb_named_template;

struct nb_tokenizer {
    nb_buf blob;
    /* per id */
    nb_tok_view *key, *out;
    uint8_t *flags;
    size_t n_ids, cap_ids; /* n_ids = highest id + 1 */

    /* model */
    bool byte_level, ignore_merges, byte_fallback, fuse_unk, merges_make_control;
    bool has_unk;    /* the model names an unk_token ... */
    uint32_t unk_id; /* ... NB_TOK_NONE: which its vocabulary lacks */
    nb_tok_map keys; /* key -> id, model entries only */
    nb_tok_merges merges;
    size_t max_key_bytes;
    uint32_t byte_id[256];     /* id of each single byte (byte-level models) */
    uint32_t fallback_id[256]; /* id of "<0xHH>"                             */

    /* added tokens and vocabulary entries outside the byte alphabet */
    nb_added *added;
    size_t n_added, cap_added;
    nb_tok_view *name;              /* content of value v of `names` */
    uint32_t *name_id, *name_added; /* id; index into added, or NB_TOK_NONE */
    size_t n_names, cap_names, cap_name_ids, cap_name_added;
    nb_tok_map names;
    nb_added_set sets[2][2]; /* [parse special][normalized] */

    nb_norm_step *norm;
    size_t n_norm, cap_norm;
    nb_pre_step *pre;
    size_t n_pre, cap_pre;
    bool needs_run_check; /* some step runs in PCRE2 */
    nb_decoder dec;
    uint32_t prefix[NB_TOK_MAX_TEMPLATE_IDS], suffix[NB_TOK_MAX_TEMPLATE_IDS];
    size_t n_prefix, n_suffix;

    bool tiktoken_kimi; /* tiktoken files: the family, and the first special id */
    uint32_t tiktoken_ranks;

    char *role_text[NB_TOK_N_ROLES];
    uint32_t role_id[NB_TOK_N_ROLES];
    nb_named_template *templates;
    size_t n_templates, cap_templates;

    uint16_t *classes; /* [NB_CC_TABLE_ITEMS] */
};

static inline nb_str nb_tok_bytes(const nb_tokenizer *t, nb_tok_view v)
{
    return (nb_str){ t->blob.p ? t->blob.p + v.off : "", v.n_bytes };
}
static inline nb_str nb_tok_json_str(const json_t *s)
{
    return (nb_str){ json_string_value(s), json_string_length(s) };
}
nb_status nb_tok_blob_add(nb_tokenizer *t, nb_str s, nb_tok_view *out);
/* Makes room for `id` (NB_ERR_LIMIT above NB_TOK_MAX_VOCAB). */
nb_status nb_tok_reserve_id(nb_tokenizer *t, uint64_t id, const char *where, nb_error *err);
/* Registers the name of an added token (its index), or of a vocabulary entry
 * outside the byte alphabet (NB_TOK_NONE); a name that is known is changed. */
nb_status nb_tok_name_add(nb_tokenizer *t, nb_str name, uint32_t id, uint32_t added_index);
/* Index of the name, or NB_TOK_NONE; and its id. */
uint32_t nb_tok_name_index(const nb_tokenizer *t, nb_str name);
uint32_t nb_tok_name_find(const nb_tokenizer *t, nb_str name);
/* Id of a model vocabulary entry as the file spells it. */
uint32_t nb_tok_model_find(const nb_tokenizer *t, nb_str spelling);
/* The byte that a stand-in character of GPT-2's alphabet means, or -1. */
int nb_tok_standin_byte(uint32_t cp);
/* Its stand-in for a byte. */
uint32_t nb_tok_standin(unsigned char byte);
/* Appends the bytes of a string over that alphabet; *all false if a character
 * is outside of it (then nothing is appended). */
nb_status nb_tok_standin_decode(nb_str s, nb_buf *out, bool *all);
/* malloc'ed copy with a final 0. */
char *nb_tok_strdup(nb_str s);

/* An error record that a failing call left empty gets the status's own text. */
void nb_tok_error_clear(nb_error *err);
nb_status nb_tok_error_fill(nb_error *err, nb_status st, const char *what);

/* ---- loading ------------------------------------------------------------- */

nb_status nb_tok_load_model(nb_tokenizer *t, const json_t *root, nb_error *err);
/* normalizer, pre_tokenizer, decoder; before the model, which needs byte_level */
nb_status nb_tok_load_pipeline(nb_tokenizer *t, const json_t *root, nb_error *err);
/* The steps of a pre-tokenizer that llama.cpp has a name for (GGUF files); NB_ERR_UNSUPPORTED. */
nb_status nb_tok_load_named_pre(nb_tokenizer *t, nb_str name, nb_error *err);
/* Merges from scores, for each id a number or null (GGUF files): two neighbours merge if together they are a
 * token with a score, the one with the highest first, the leftmost of equal ones. */
nb_status nb_tok_load_scores(nb_tokenizer *t, const json_t *scores, nb_error *err);
nb_status nb_tok_load_post(nb_tokenizer *t, const json_t *root, nb_error *err);
/* byte_id and fallback_id, once the vocabulary is there. */
void nb_tok_byte_tables(nb_tokenizer *t);
/* Model, pipeline and own special tokens; config (may be NULL) tells the family. */
nb_status nb_tok_load_tiktoken(nb_tokenizer *t, nb_str file, const json_t *config, nb_error *err);
/* The family's special tokens that the configuration did not name. */
nb_status nb_tok_tiktoken_special(nb_tokenizer *t, nb_error *err);
/* A token by its rank, text in base64; where: in front of error lines; buf: scratch.  NB_ERR_ARG: no base64. */
nb_status nb_tok_put_rank(nb_tokenizer *t, nb_str text, uint64_t id, const char *where, nb_buf *buf,
                          nb_error *err);
/* A merge for every cut of every token into two tokens. */
nb_status nb_tok_rank_merges(nb_tokenizer *t, const char *where, nb_error *err);
/* Model, pipeline and control tokens of a tekken.json. */
nb_status nb_tok_load_tekken(nb_tokenizer *t, const json_t *root, nb_error *err);
/* Adds a token, or changes one with this content: a->id counts only where the
 * content has none yet.  The flags of a token that is there already are replaced
 * with update true, except that special stays. */
nb_status nb_tok_add_token(nb_tokenizer *t, const nb_added *a, nb_str content, bool update,
                           const char *where, nb_error *err);
nb_status nb_tok_load_added(nb_tokenizer *t, const json_t *root, nb_error *err);
/* Roles, flags, templates, BOS/EOS; each may be NULL. */
nb_status nb_tok_load_config(nb_tokenizer *t, const json_t *config, const json_t *map,
                             const json_t *added, nb_error *err);
/* Sorts the added tokens into sets and sets control flags. */
nb_status nb_tok_build_added(nb_tokenizer *t, nb_error *err);
/* `out` of every id, from its spelling. */
nb_status nb_tok_build_out(nb_tokenizer *t, nb_error *err);
/* Marks the keys that BPE reaches directly. */
nb_status nb_tok_build_direct(nb_tokenizer *t, nb_error *err);

void nb_norm_step_deinit(nb_norm_step *s);
void nb_pre_step_deinit(nb_pre_step *s);

/* ---- encoding ------------------------------------------------------------ */

typedef struct nb_bpe_symbol {
    uint32_t id; /* NB_TOK_NONE: merged away */
    uint32_t prev, next;
} nb_bpe_symbol;
typedef struct nb_bpe_entry {
    uint64_t order; /* rank << 32 | position */
    uint32_t id;
} nb_bpe_entry;

/* One encode call. */
typedef struct nb_tok_enc {
    const nb_tokenizer *t;
    bool parse; /* control tokens are looked for */
    bool guard; /* merges must not make one */
    nb_str text;        /* all of it */
    const size_t *mark; /* [n_mark] ascending offsets: no control token is found across them */
    size_t n_mark;
    uint32_t *ids;
    size_t n_ids, cap_ids;
    uint32_t *init; /* a piece's characters as ids, before merging */
    size_t cap_init;
    nb_bpe_symbol *sym;
    size_t cap_sym;
    nb_bpe_entry *heap;
    size_t n_heap, cap_heap;
    nb_tok_regex_run run;
    nb_error *err;
} nb_tok_enc;
void nb_tok_enc_deinit(nb_tok_enc *e); /* frees all but ids */

/* Appends the ids of one piece (valid UTF-8, or any bytes for byte-level). */
nb_status nb_bpe_piece(nb_tok_enc *e, nb_str piece);
/* The same without the shortcut for whole tokens. */
nb_status nb_bpe_merge(nb_tok_enc *e, nb_str piece);
static inline nb_status nb_tok_emit(nb_tok_enc *e, uint32_t id)
{
    if (e->n_ids == e->cap_ids) NB_TRY(NB_GROW(e->ids, e->cap_ids, e->n_ids));
    e->ids[e->n_ids++] = id;
    return NB_OK;
}
/* Runs the normalizer into *out. */
nb_status nb_tok_normalize_run(const nb_tokenizer *t, nb_tok_regex_run *run, nb_str s, nb_buf *out,
                               nb_error *err);
/* Runs the decoder's steps for single tokens into *out. */
nb_status nb_tok_decode_steps(const nb_tokenizer *t, nb_tok_regex_run *run, nb_str s, nb_buf *out,
                              nb_error *err);
/* Applies one step to s. */
nb_status nb_norm_apply(const nb_tokenizer *t, const nb_norm_step *step, nb_tok_regex_run *run,
                        nb_str s, nb_buf *out, nb_error *err);
/* Runs the pre-tokenizer on s and BPE on each piece; at_start: s begins where
 * the text begins. */
nb_status nb_tok_pretokenize(nb_tok_enc *e, nb_str s, bool at_start);

/* Iterates the matches of a regex the way tokenizers does: an empty match right
 * after another match is skipped. */
typedef struct nb_tok_finder {
    nb_str s;
    size_t at, last_end;
    bool have_last, done;
} nb_tok_finder;
nb_status nb_tok_find_next(nb_tok_finder *f, const nb_tok_regex *re, nb_tok_regex_run *run,
                           const nb_tokenizer *t, bool *found, size_t *start, size_t *end,
                           nb_error *err);
/* First occurrence of a literal in s at or after `from`; s.n_bytes if none. */
size_t nb_tok_find_literal(nb_str s, size_t from, const char *lit, size_t n_lit_bytes);

#endif
