/* source.h - where a model's tensors come from: safetensors files, a GGUF or a generator.
 *
 * A source is opened once, asked for each tensor by name with the shape and the
 * types that the caller can take, and kept open as long as the weights are used:
 * tensors point into the mapped files.  Immutable after open but for the
 * bookkeeping of what was taken; owned by one thread while loading. */
#ifndef NB_LOAD_SOURCE_H
#define NB_LOAD_SOURCE_H
#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"
#include "load/progress.h"

typedef enum nb_dtype {
    NB_DT_F32, NB_DT_BF16, NB_DT_F16, NB_DT_F8_E4M3,
    NB_DT_F64, NB_DT_I64, NB_DT_I32, NB_DT_I16, NB_DT_I8, NB_DT_U8, NB_DT_BOOL, NB_DT_F8_E5M2, NB_DT_F8_E8M0,
    /* of GGUF: blocks of values (num/ggml.h) */
    NB_DT_Q8_0, NB_DT_Q4_0, NB_DT_Q4_1, NB_DT_Q5_0, NB_DT_Q5_1, NB_DT_Q2_K, NB_DT_Q3_K,
    NB_DT_Q4_K, NB_DT_Q5_K, NB_DT_Q6_K, NB_DT_IQ4_NL, NB_DT_IQ4_XS, NB_DT_MXFP4, NB_DT_NVFP4,
    NB_DT_IQ2_XXS, NB_DT_IQ2_XS, NB_DT_IQ2_S, NB_DT_IQ3_XXS, NB_DT_IQ3_S, NB_DT_IQ1_S, NB_DT_IQ1_M,
    NB_DT_OTHER /* known to a format, never usable here */
} nb_dtype;
const char *nb_dtype_name(nb_dtype t); /* as the format spells it: "BF16", "Q4_K", ... */
size_t nb_dtype_bytes(nb_dtype t);     /* of an element; 0 for blocks and NB_DT_OTHER */
/* Values and bytes of a block; one element of other types. */
void nb_dtype_block(nb_dtype t, size_t *n_value, size_t *n_bytes);
enum { NB_TENSOR_MAX_DIM = 8 };

typedef struct nb_tensor {
    const void *data; /* aligned to its element size; blocks are not aligned */
    nb_dtype dtype;
    size_t n_dim, dim[NB_TENSOR_MAX_DIM]; /* slowest first */
    size_t n_bytes;
} nb_tensor;

typedef struct nb_source nb_source;

/* Opens the GGUF that DIR is, or has (nb_gguf_resolve).  Else opens DIR/model.safetensors, or else
 * DIR/model.safetensors.index.json with its shards (transformers has that order), or else the same of "consolidated",
 * whose tensors get the names of a Hugging Face folder (params.h), or else the only *.safetensors file there.
 * Every header is checked whole: sizes, dtypes, shapes, offsets in range, no overlaps,
 * no holes, names unique, shard names that stay inside DIR (relative, without "..";
 * links are followed).  One error line names the file, the tensor and the expectation.
 * The index decides: a tensor it lists must be in the shard it names, and a copy in
 * another shard is ignored.  A tensor that it does not list is usable when it is in one
 * shard only; in two, it is an error. */
nb_status nb_source_open_dir(const char *dir, nb_source **out, nb_error *err);
/* One safetensors file, or a GGUF with its shards (gguf.h): tensors under the names and with the
 * shapes of a Hugging Face folder. */
nb_status nb_source_open_file(const char *path, nb_source **out, nb_error *err);
/* The bytes of one file in memory (borrowed; tests and fuzzers). */
nb_status nb_source_open_bytes(nb_str bytes, const char *name, nb_source **out, nb_error *err);
/* --load-format dummy: seeded random values, the same on every machine and in whatever
 * order tensors are taken.  Matrices are normal with deviation `stddev`
 * (initializer_range); all are views at seeded offsets, 64-byte aligned, into one pool
 * of 4 GiB of address space per element type, of which only what is used takes memory,
 * so that a model larger than memory can be run for its speed: more than any cache,
 * less than RAM.  A tensor over 4 GiB gets memory of its own.
 * NB_FILL_CODES is for U8: any bytes.  NB_FILL_NORMAL is for F32, BF16, F16 and F8_E4M3.  F8_E4M3 codes have deviation 64,
 * and an F32 tensor whose name ends in "_scale_inv" is stddev / 64 everywhere, so that
 * the products have deviation stddev. */
nb_status nb_source_open_dummy(uint64_t seed, double stddev, nb_source **out, nb_error *err);
void nb_source_close(nb_source *s);

/* What the caller needs.  dim == 0 at an index means "any". */
typedef struct nb_tensor_want {
    const char *name;
    uint32_t dtypes; /* mask of 1u << nb_dtype that are acceptable; NB_DT_Q8_0: any block of GGUF */
    size_t n_dim, dim[NB_TENSOR_MAX_DIM];
    bool any_shape;       /* dim[0] elements in any number of dimensions */
    nb_dtype dummy_dtype; /* what a dummy source makes                              */
    enum { NB_FILL_NORMAL, NB_FILL_ONES, NB_FILL_ZEROS, NB_FILL_CODES } dummy_fill;
} nb_tensor_want;

/* Dummy sources: no dim may be 0, dtypes must contain dummy_dtype. */
bool nb_source_has(const nb_source *s, const char *name); /* dummy: always true */
/* Type and sizes of a tensor, without its data; false: it is not there, or s is a dummy. */
bool nb_source_peek(const nb_source *s, const char *name, nb_tensor *out);
/* From now on every name that is asked for has this in front ("language_model."); one that begins with "model."
 * stands for the "model." of names.  It outlives s. */
void nb_source_set_prefix(nb_source *s, const char *prefix);
/* From now on every name that is asked for becomes another one in the files; a name for which fn has none is not
 * there. */
typedef bool nb_source_names_fn(const char *name, char *out, size_t n_bytes);
void nb_source_set_names(nb_source *s, nb_source_names_fn *fn);
/* DeepSeek V4's published names (names_v4.c). */
nb_source_names_fn nb_names_v4;
/* The other way; false: it is no tensor of the layers that are loaded. */
bool nb_names_v4_back(const char *theirs, char *out, size_t n_bytes);
/* NB_ERR_NOT_FOUND (missing), NB_ERR_FORMAT (wrong dtype or shape): the line names
 * file, tensor, what is there and what was expected. */
/* Taking a tensor again is allowed.  A tensor whose address its element size does not
 * divide is copied once, to memory that the source owns. */
nb_status nb_source_take(nb_source *s, const nb_tensor_want *want, nb_tensor *out, nb_error *err);
size_t nb_source_n_tensor(const nb_source *s); /* usable tensors; dummy: taken ones */
size_t nb_source_bytes(const nb_source *s);    /* tensor bytes in all files; dummy: taken */
/* The i-th tensor's name that nb_source_take was never called for, or NULL:
 * leftovers a family did not expect (i counts from 0 over leftovers). */
const char *nb_source_leftover(const nb_source *s, size_t i);
/* Whether tensors are views into mapped files. */
bool nb_source_is_mapped(const nb_source *s);
/* Calls task(ctx, i, any number) for i in 0..n_task - 1, on any threads, and returns when all are done. */
typedef void nb_source_task_fn(void *ctx, size_t task, size_t worker);
typedef void nb_source_run_fn(void *run_ctx, nb_source_task_fn *task, void *ctx, size_t n_task);
/* All mapped files will be read whole: asks the system for large pages (nb_pages_prefer_huge). */
void nb_source_expect_whole(const nb_source *s);
/* Reads every mapped page once, so that loading from a disk happens here, where it can
 * be shown, and not in the first forward pass: with run on its threads, since making page tables of what the
 * system holds already is work for processors (about 11 GB/s each).  run and report may be NULL; report is called on this thread.
 * Nothing happens for sources without files. */
void nb_source_prefault(const nb_source *s, nb_source_run_fn *run, void *run_ctx, nb_source_progress_fn *report, void *ctx);
/* Reads all mapped files into memory of the process and lets go of the mappings: what happens to the
 * files afterwards does not matter.  Before the first tensor is taken.  report may be NULL.  NB_ERR_NOMEM,
 * NB_ERR_IO. */
nb_status nb_source_copy(nb_source *s, nb_source_progress_fn *report, void *ctx, nb_error *err);
/* Whether the mapped files are still what was opened: NB_ERR_IO names one that was truncated or changed
 * in place, or whose disk fails.  *replaced (may be NULL): the name of the first file that leads to another
 * file now, or to none, which does no harm; else NULL. */
nb_status nb_source_check(nb_source *s, const char **replaced, nb_error *err);
/* Before the first nb_source_check, when the files have been read: lets it tell more changes apart.
 * False: no file is mapped, there is nothing to check. */
bool nb_source_watch(nb_source *s);
/* Only what reading has found, and without a system call.  Any thread. */
nb_status nb_source_check_reads(const nb_source *s, nb_error *err);
/* The bytes of a tensor will not be read again, for a while at least: a mapped file's pages leave
 * this process's memory (and come back from the file if they are read after all).  Other memory
 * stays as it is. */
void nb_source_drop(const nb_source *s, const void *p, size_t n_bytes);
#endif
