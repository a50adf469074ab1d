/* runtime.cuh - the device itself, as table.cu lists it (contracts: nb_cuda.h). */
#ifndef NB_DEV_CUDA_RUNTIME_CUH
#define NB_DEV_CUDA_RUNTIME_CUH
#include "kernel/cuda/common/cu.cuh"

int nb_cuda_rt_n_device(nb_error *err);
nb_status nb_cuda_rt_open(int index, nb_cuda **out, nb_error *err);
void nb_cuda_rt_close(nb_cuda *g);
void nb_cuda_rt_get_info(nb_cuda *g, nb_cuda_info *info);
nb_status nb_cuda_rt_see(nb_cuda *g, nb_cuda *other, nb_error *err);
void *nb_cuda_rt_alloc(nb_cuda *g, size_t n_bytes);
void nb_cuda_rt_free(nb_cuda *g, void *p);
void *nb_cuda_rt_host_alloc(nb_cuda *g, size_t n_bytes);
void nb_cuda_rt_host_free(nb_cuda *g, void *p);
void nb_cuda_rt_upload(nb_cuda *g, void *dst, const void *src, size_t n_bytes);
void nb_cuda_rt_download(nb_cuda *g, void *dst, const void *src, size_t n_bytes);
void nb_cuda_rt_copy(nb_cuda *g, void *dst, const void *src, size_t n_bytes);
void nb_cuda_rt_fill(nb_cuda *g, void *dst, int byte, size_t n_bytes);
nb_status nb_cuda_rt_sync(nb_cuda *g, nb_error *err);
nb_status nb_cuda_rt_error(nb_cuda *g, nb_error *err);
void nb_cuda_rt_graph_begin(nb_cuda *g);
nb_cuda_graph *nb_cuda_rt_graph_end(nb_cuda *g);
void nb_cuda_rt_graph_launch(nb_cuda *g, nb_cuda_graph *x);
void nb_cuda_rt_graph_destroy(nb_cuda *g, nb_cuda_graph *x);
void nb_cuda_rt_side_begin(nb_cuda *g, bool early);
void nb_cuda_rt_side_end(nb_cuda *g);
void nb_cuda_rt_side_join(nb_cuda *g);
void nb_cuda_rt_mark(nb_cuda *g, int i);
double nb_cuda_rt_elapsed_s(nb_cuda *g, int from, int to);
nb_status nb_cuda_rt_wait(nb_cuda *g, int i, nb_error *err);

#endif
