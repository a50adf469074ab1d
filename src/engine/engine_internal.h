/* engine_internal.h - what the files of src/engine share. */
#ifndef NB_ENGINE_INTERNAL_H
#define NB_ENGINE_INTERNAL_H
#include <stdatomic.h>

#include "nibble/nibble.h"

#include "dev/dev.h"
#include "kv/block_pool.h"
#include "load/doc.h"
#include "load/source.h"
#include "model/forward.h"
#include "num/record.h"
#include "text/tokenizer.h"

/* The one sequence of the engine: what its cache holds. */
typedef struct nb_seq {
    uint32_t *tok; /* [max_model_len] ids, n_tok of them in the cache          */
    size_t n_tok;
    size_t n_prefill; /* leading tokens computed as prompt: only these are reused */
    uint32_t *block;  /* [n_block of the pool] the first n_block are held         */
    size_t n_block;
    float *tail; /* the page being filled, all layers (kv_view.h)            */
    bool rope_long;
} nb_seq;

struct nb_engine {
    nb_text *text;
    nb_source *source;
    nb_model model;
    nb_dev *dev;
    nb_record record;
    nb_forward *forward;
    nb_block_pool pool;
    unsigned char *kv; /* pool.n_block * block_bytes */
    size_t kv_bytes, block_bytes;
    nb_seq seq;
    size_t tail_bytes;
    float *logits; /* [max_row][n_vocab] */
    size_t logits_bytes, max_row;
    size_t max_model_len, prefill_chunk;
    bool prefill_absorbed, decode_absorbed;
    uint64_t n_nonfinite; /* requests failed because a value to be stored was not finite */
    atomic_bool cancel;
    char kernels[320], warnings[NB_NOTE_BYTES + 256], weights[16];
};

const nb_tokenizer *nb_text_tokenizer(const nb_text *t);

/* Where MODEL's files are: a directory, or with dummy weights also a config.json. */
nb_status nb_engine_read_config(const char *model, nb_model_config *c, nb_error *err);

/* Bytes of a block: the 64 tokens of all layers. The planner, `info` and the
 * allocator all use this one function. */
size_t nb_engine_block_bytes(const nb_model_config *c, const nb_record *r);

/* Runs tokens [seq.n_tok, n) of seq.tok through the model in steps of at most
 * prefill_chunk; logits rows as nb_chunk wants them, given as positions, each
 * delivered through sink (NULL: left in e->logits, last step's rows only). */
nb_status nb_engine_prefill(nb_engine *e, size_t n, const size_t *rows, size_t n_row,
                            nb_logits_fn *sink, void *ctx, nb_error *err);
/* One generated token: appends and computes it; its logits are in e->logits. */
nb_status nb_engine_decode(nb_engine *e, uint32_t tok, nb_error *err);
/* Keeps the first n tokens (rounded down to whole pages of what was computed as
 * prompt) and frees the rest's blocks. Returns the tokens kept. */
size_t nb_engine_truncate(nb_engine *e, size_t n);

#endif
