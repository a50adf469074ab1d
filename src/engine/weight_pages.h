/* weight_pages.h - reading mapped weights on several ranks: each rank's threads read what the rank computes with.
 *
 * A page of a file that is not in the system's cache yet comes to the memory node of the thread that reads it first.
 * So on a machine with several sockets a rank's weights are near to it.  What is in the cache stays where it is. */
#ifndef NB_ENGINE_WEIGHT_PAGES_H
#define NB_ENGINE_WEIGHT_PAGES_H
#include "nibble/nibble.h"

#include "engine/ranks.h"

/* Bytes of one matrix, at most NB_WEIGHT_PIECE of them. */
typedef struct nb_weight_piece {
    const unsigned char *p;
    size_t n_bytes, rank;
} nb_weight_piece;
enum { NB_WEIGHT_PIECE = 16 << 20 };

/* All matrices in pieces, to be freed; scales, embedding and vectors are not among them.  An expert belongs to rank
 * expert % n_rank, as in nb_rank_part; of every other matrix each rank has its part of the rows, as with
 * --tensor-parallel-size.  Where ranks or groups of them need the whole matrix, that spreads it. */
nb_status nb_weight_pieces(nb_model *m, size_t n_rank, nb_weight_piece **out, size_t *n, nb_error *err);

/* Keeps the pieces of one rank, which become rank 0's: of a process that has only this one.  Returns their number. */
size_t nb_weight_pieces_keep(nb_weight_piece *piece, size_t n, size_t rank);

/* Any thread. */
typedef void nb_weight_read_fn(void *ctx, const nb_weight_piece *piece);
typedef struct nb_weight_reading {
    nb_weight_read_fn *read; /* NULL: touch the pages */
    void *read_ctx;
    nb_progress_fn *progress; /* may be NULL; on the calling thread */
    void *progress_ctx;
} nb_weight_reading;
/* Reads every piece on the threads of its rank, all ranks side by side.  Before nb_ranks_start. */
nb_status nb_weight_pieces_read(nb_ranks *r, const nb_weight_piece *piece, size_t n, const nb_weight_reading *how,
                                nb_error *err);
#endif
