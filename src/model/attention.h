/* attention.h - kinds of attention, one row each: what the attention of a layer consists of, on every device.
 *
 * A layer names its kind in the configuration (nb_layer_attn); a model may mix kinds.  A row gives the tensors
 * of a layer, the record of its cache, the widths of its buffers, what loading prepares, and what the planner
 * counts.  How a device computes it is in that device's table of operations (backend.h).
 * docs/add-an-attention.md shows how to add a row. */
#ifndef NB_MODEL_ATTENTION_H
#define NB_MODEL_ATTENTION_H
#include "model/model.h"

/* Widths, in values. */
typedef struct nb_attn_dims {
    size_t n_head;   /* query heads */
    size_t d_q;      /* of a head's projected query */
    size_t d_o;      /* of a head's output */
    size_t d_state;  /* of a head's weighted sum over cached rows */
    size_t n_values; /* of a cached token; 0: the layer has no pages */
    size_t n_state;  /* of a sequence's state, as it is after its last token; 0: there is none */
    size_t d_low;    /* of a token between two products; 0: nothing is there */
} nb_attn_dims;

/* A tensor of a layer: a matrix [rows][cols] in an nb_weight of nb_layer, or a vector [rows] in a
 * const float *. */
typedef size_t nb_tensor_dim_fn(const nb_model_config *c, const nb_attn_config *a);
typedef struct nb_tensor_row {
    const char *name;                      /* behind "model.layers.N." */
    size_t off;                            /* in nb_layer */
    nb_tensor_dim_fn *rows, *cols;         /* cols NULL: a vector */
    bool (*when)(const nb_attn_config *a); /* whether it exists; NULL: always */
    unsigned flags;                        /* NB_T_ONES, which is true, ... */
} nb_tensor_row;
enum {
    NB_T_ONES = 1,      /* a dummy vector holds ones (norms), not zeros (biases) */
    NB_T_ANY_SHAPE = 2, /* of a vector only the number of elements is checked */
    NB_T_F32 = 4,       /* checkpoints have the vector in F32 */
    NB_T_KEEP = 8       /* a matrix that keeps its type: its outputs choose, as a router's do, or no file quantises it */
};

/* What a token costs, of one layer. */
typedef struct nb_attn_cost {
    double pair_flop_prompt; /* per pair of a prompt's query and a row that it sees */
    double pair_flop_decode; /* per pair of a generated token's query and a cached row */
    double expand_flop;      /* per cached token that is expanded for a prompt; 0: never */
    size_t k_dim, v_dim;     /* of one head, as MHA would cache them */
    size_t n_kv_head;        /* heads that the cache keeps; 1 with MLA */
    /* Sparse attention: what choosing costs per pair, and how many pairs of a query are computed at most, all of them as
     * pair_flop_decode says; 0: all pairs. */
    double pair_flop_choose;
    size_t most_pairs;
} nb_attn_cost;

typedef struct nb_attention {
    const char *name;              /* "mla" */
    const char *plane[NB_MAX_SEG]; /* the segments of its record, in words */
    const nb_tensor_row *tensor;   /* [n_tensor] */
    size_t n_tensor;
    /* Prompts can be computed in two forms: absorbed (from cached rows) and expanded (keys and values rebuilt
     * per head).  False: there is one form, which counts as absorbed. */
    bool has_expanded;
    bool divides;      /* several ranks may compute some of the heads each; else one rank computes the model */
    bool has_rope_key; /* a segment of the record is stored as --kv-rope-dtype says */
    nb_attn_dims (*dims)(const nb_attn_config *a);
    /* The shape of a cached token; type, mode and rope are set.  NULL: nothing of a token is cached. */
    void (*record)(const nb_attn_config *a, nb_record_opts *o);
    /* After a layer's tensors were loaded; NULL: nothing. */
    nb_status (*loaded)(nb_model *m, size_t layer, nb_error *err);
    nb_attn_cost (*cost)(const nb_attn_config *a);
} nb_attention;

/* The row of a kind. */
const nb_attention *nb_attention_of(nb_attn_kind kind);
#define X(NAME, name) extern const nb_attention nb_attention_##name;
NB_ATTENTIONS(X)
#undef X

/* dim_fn for tables: the model's hidden size. */
nb_tensor_dim_fn nb_dim_hidden;
/* Row and dimensions of a layer. */
static inline const nb_attention *nb_layer_attention(const nb_model_config *c, size_t layer)
{
    return nb_attention_of(nb_layer_attn(c, layer)->kind);
}
static inline nb_attn_dims nb_layer_dims(const nb_model_config *c, size_t layer)
{
    return nb_layer_attention(c, layer)->dims(nb_layer_attn(c, layer));
}
/* The default of --kv-rope-dtype. */
static inline nb_rope_fmt nb_attn_rope_fmt(const nb_attn_config *a)
{
    return nb_rope_fmt_default(nb_attention_of(a->kind)->has_rope_key);
}
/* Whether some layer, or every layer, is of this kind. */
bool nb_attn_any(const nb_model_config *c, nb_attn_kind kind);
bool nb_attn_all(const nb_model_config *c, nb_attn_kind kind);
/* Whether it caches a latent and a rope key: MLA, with or without an indexer. */
static inline bool nb_attn_is_latent(const nb_attn_config *a)
{
    return a->kind == NB_ATTN_MLA || a->kind == NB_ATTN_DSA;
}
bool nb_attn_any_latent(const nb_model_config *c), nb_attn_all_latent(const nb_model_config *c);
/* Whether some layer keeps a rope key, whose format --kv-rope-dtype gives. */
bool nb_attn_any_rope_key(const nb_model_config *c);

/* Whether some layer keeps a state per sequence, and what these take: off[n_layer + 1] (may be NULL), in floats, where
 * each layer's begins; returns all of them. */
/* The first layer that has pages. */
size_t nb_attn_first_cached(const nb_model_config *c);
bool nb_attn_has_state(const nb_model_config *c);
size_t nb_attn_state_offsets(const nb_model_config *c, size_t *off);

#endif
