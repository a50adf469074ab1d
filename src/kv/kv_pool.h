/* kv_pool.h - where the bytes of one rank's cache are.
 *
 * A block is 64 tokens of all layers of the rank, a page is one layer of it.  A request that runs has a slot,
 * which holds its open page: the rows of the page that is not full yet.  Borrowed; the engine owns the memory,
 * which is the device's where the rank is on a GPU (but for planes, which are pinned host memory). */
#ifndef NB_KV_POOL_H
#define NB_KV_POOL_H
#include <stddef.h>
#include <stdint.h>

typedef struct nb_kv_pool {
    unsigned char *page; /* block b, layer i: page + b * block_bytes + page_off[i] */
    size_t block_bytes;
    size_t n_block; /* where ranks divide the blocks (decision 070): block b is block b % n_block of rank b / n_block; 0: every
                       rank has all */
    const size_t *page_off; /* [n_layer]; pages differ in size where records do */
    float *tail; /* slot s, layer i: tail + s * tail_floats + tail_off[i], rows [64][n_values] of
                               values rounded to BF16 (f32 records: not rounded) */
    size_t tail_floats;
    const size_t *tail_off; /* [n_layer] */
    /* States of the layers that keep one per sequence (decision 052): slot s, layer i at
     * tail + s * tail_floats + state0 + state_off[i].  Snapshot k, counted from 1, has those of all layers:
     * snap + (k - 1) * state_floats.  A chunk from position 0 begins with zeros. */
    size_t state0, state_floats; /* 0 floats: there are none */
    const size_t *state_off;     /* [n_layer] */
    float *snap;
    uint16_t
        *sink; /* --kv-sinks: BF16 rows [n_sink][n_values] of a sequence's first tokens, for its
                               first block b, layer i: sink + b * sink_block + sink_off[i]; NULL without */
    size_t sink_block;      /* elements */
    const size_t *sink_off; /* [n_layer], elements */
    unsigned char
        *plane;         /* Thrift mode: residual planes, block b, layer i: plane + b * plane_block +
                               plane_off[i]; NULL without */
    size_t plane_block; /* bytes */
    const size_t *plane_off; /* [n_layer] */
} nb_kv_pool;

#endif
