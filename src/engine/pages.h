/* pages.h - the cache of an engine: where a layer's page, open page, sinks and residual plane are.
 *
 * Set when the engine is created (records.c, planes.c, pool.c), immutable afterwards.  The memory itself belongs to a
 * rank (nb_engine_rank). */
#ifndef NB_ENGINE_PAGES_H
#define NB_ENGINE_PAGES_H
#include "model/thrift.h"
#include "num/record.h"

typedef struct nb_pages {
    nb_record *record; /* [n_layer] */
    char kv_dtype[16]; /* the record asked for; layers may have others */
    char kv_layout[256];
    size_t *layer_off; /* [n_layer + 1]: where a layer's page begins in a block; the end */
    size_t *tail_off;  /* the same of open pages in a slot, in floats */
    size_t *sink_off;  /* and of sinks, in values */
    size_t n_block, block_bytes, kv_bytes; /* kv_bytes: the pool of a rank */
    size_t n_part; /* ranks that divide the blocks (decision 070): each has n_block / n_part of them; else 1 */
    size_t tail_bytes;                     /* of one slot: open pages, then states */
    size_t *state_off;       /* [n_layer + 1], in floats: where a layer's state begins; the end */
    size_t n_snap, snap_tok; /* snapshots of states; the tokens between them, 0: no states */
    size_t n_sink;                         /* first tokens of a sequence in BF16 */
    size_t sink_bytes;                     /* of the rows of sinks; virtual until used */
    /* Thrift mode */
    nb_thrift_options thrift;
    size_t *plane_off; /* [n_layer + 1]: where a layer's plane begins in a block's; the end */
    size_t plane_block, plane_row; /* bytes of a block's, of a row */
    size_t n_plane_layer;          /* layers with a plane */
} nb_pages;

#endif
