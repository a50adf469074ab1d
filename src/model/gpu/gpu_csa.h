/* gpu_csa.h - compressed attention on a GPU (gpu_csa.c): its workspace, and what creating a rank asks of it. */
#ifndef NB_MODEL_GPU_CSA_H
#define NB_MODEL_GPU_CSA_H
#include "model/backend.h"
#include "model/gpu/gpu_index.h"

typedef struct nb_gpu_csa {
    bool any;                            /* some layer has it; then all have */
    const nb_cuda_csa_row **row; /* [n_layer] */
    size_t rows;       /* of a group, which the buffers are for */
    size_t n_unit;     /* states of a row, at most */
    size_t comp_width, out_width; /* of the widest layer */
    float *comp;       /* device: kv and gates of a pass */
    nb_cuda_rows y;    /* the heads' outputs of a pass */
} nb_gpu_csa;
enum { NB_GPU_CSA_SLOTS = NB_GPU_INDEX_SLOTS + 1 };

/* Whether GPUs have what layers of this kind need; the line says what is missing. */
nb_status nb_gpu_csa_can(const nb_attn_config *a, nb_error *err);
/* In order of creation: the layer's kernels; after nb_gpu_index_size, sizes, and states of a row at most (0: no layer is
 * compressed); rows of a group, once max_part is known; buffers but for y, for passes of at most max_row rows. */
nb_status nb_gpu_csa_choose(nb_gpu_rank *f, size_t layer, nb_error *err);
size_t nb_gpu_csa_states(nb_gpu_rank *f);
void nb_gpu_csa_size(nb_gpu_rank *f);
size_t nb_gpu_csa_slots(nb_gpu_rank *f, size_t max_row, nb_gpu_slot *out);

/* States per sequence: copied before and after a step, as on the CPU (cpu_state.h), in the order of the stream. */
void nb_gpu_states_begin(nb_gpu_rank *f, const nb_chunk *chunk, size_t n_chunk);
void nb_gpu_states_end(nb_gpu_rank *f, const nb_chunk *chunk, size_t n_chunk);

#endif
