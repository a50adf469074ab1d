/* kv_view.h - what the forward pass sees of a sequence's cache: names of blocks
 * and where the bytes are.  Borrowed for one step; the engine owns all of it. */
#ifndef NB_KV_VIEW_H
#define NB_KV_VIEW_H
#include <stddef.h>
#include <stdint.h>

typedef struct nb_kv_view {
    unsigned char *pool; /* block b, layer i: pool + b * block_bytes + i * page_bytes     */
    size_t block_bytes, page_bytes;
    const uint32_t *block; /* [n_block] in order of position                                */
    size_t n_block;        /* must cover every page that the step completes                 */
    float *tail;           /* [n_layer][64][n_values] rows of the page being filled: values
                               rounded to BF16, but for f32 records                         */
} nb_kv_view;

#endif
