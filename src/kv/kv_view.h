/* kv_view.h - what the forward pass sees of a sequence's cache: names of blocks
 * and where the bytes are.  Borrowed for one step; the engine owns all of it. */
#ifndef NB_KV_VIEW_H
#define NB_KV_VIEW_H
#include <stddef.h>
#include <stdint.h>

typedef struct nb_kv_view {
    unsigned char *pool; /* block b, layer i: pool + b * block_bytes + layer_off[i]       */
    size_t block_bytes;
    const size_t *layer_off; /* [n_layer]; pages differ in size where records do              */
    const uint32_t *block; /* [n_block] in order of position                                */
    size_t n_block;        /* must cover every page that the step completes                 */
    float *tail;           /* [n_layer][64][n_values] rows of the page being filled: values
                               rounded to BF16, but for f32 records                         */
    uint16_t *sink;        /* --kv-sinks: BF16 rows of the first tokens of a sequence, for its
                               first block b, layer i: sink + b * sink_block +
                               i * n_sink * n_values; NULL without                          */
    size_t sink_block;     /* elements */
    unsigned char *plane;  /* Thrift mode: residual planes, block b, layer i: plane +
                              b * plane_block + plane_off[i]; NULL without                 */
    size_t plane_block;    /* bytes */
    const size_t *plane_off; /* [n_layer] */
} nb_kv_view;

#endif
