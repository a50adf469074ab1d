/* device.h - the memory of one device, the host's or a GPU's, behind one table.
 *
 * The engine allocates the cache of a rank with it and never asks which device it is on.  Owned by one thread at a
 * time.  Errors of a GPU are sticky (kernel/cuda/api/nb_cuda.h): they come out of sync. */
#ifndef NB_DEV_DEVICE_H
#define NB_DEV_DEVICE_H
#include "dev/dev.h"
#include "dev/gpu.h"

typedef struct nb_device nb_device;

typedef struct nb_device_kind {
    const char *name; /* "cpu", "cuda" */
    bool own_memory;  /* beside the host's: weights are copied, files are not read in a step */
    size_t
        prefill_chunk; /* prompt tokens of one request in a step, unless the user says otherwise */
    void *(*alloc)(nb_device *d, size_t n_bytes); /* zeroed, NULL when refused */
    void (*free)(nb_device *d, void *p, size_t n_bytes);
    /* Memory of the host that the device reads and writes without staging. */
    void *(*host_alloc)(nb_device *d, size_t n_bytes); /* any content */
    void (*host_free)(nb_device *d, void *p, size_t n_bytes);
    void (*read)(nb_device *d, void *host, const void *src,
                 size_t n_bytes); /* zeros once it has failed */
    void (*copy)(nb_device *d, void *dst, const void *src, size_t n_bytes);
    void (*clear)(nb_device *d, void *dst, size_t n_bytes); /* to zeros */
    nb_status (*sync)(nb_device *d, nb_error *err);
    void (*memory)(nb_device *d, uint64_t *all, uint64_t *free_now); /* 0: unknown */
} nb_device_kind;

struct nb_device {
    const nb_device_kind *kind;
    nb_dev *dev;   /* the host's threads and memory */
    nb_gpu *gpu;   /* NULL on the host; owned */
    char name[96]; /* "cpu", or the GPU's */
};

/* The host, or the GPU that was opened: gpu is the device's from here on, also when this fails.  dev is borrowed. */
nb_device nb_device_of(nb_dev *dev, nb_gpu *gpu);
void nb_device_close(nb_device *d);

#endif
