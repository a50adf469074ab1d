/* graph_trace.c - writes when each kernel of a program begins and ends, those inside CUDA graphs too.
 *
 * The CUDA driver loads this library if CUDA_INJECTION64_PATH names it.  A line of GRAPH_TRACE_OUT (default
 * graph_trace.txt) is a kernel: begin, end (ns), grid, threads, name; graph_trace.py makes a table of them.  A step of 120
 * kernels takes 10 % longer while it is traced.
 *
 *   gcc -O2 -shared -fPIC -o graph_trace.so lab/hopper/graph_trace.c -I$CUDA/include -L$CUDA/lib64 -lcupti
 *   CUDA_INJECTION64_PATH=$PWD/graph_trace.so build/cuda/nibble bench throughput ... */
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUFFER_BYTES = 8 << 20 };
static FILE *out;

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *n_bytes, size_t *n_record)
{
    *buffer = aligned_alloc(64, BUFFER_BYTES);
    *n_bytes = *buffer ? BUFFER_BYTES : 0;
    *n_record = 0;
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t n_bytes, size_t n_valid)
{
    CUpti_Activity *r = NULL;
    (void)context, (void)stream, (void)n_bytes;
    while (cuptiActivityGetNextRecord(buffer, n_valid, &r) == CUPTI_SUCCESS) {
        const CUpti_ActivityKernel9 *k = (const void *)r;
        if (r->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
        fprintf(out, "%llu %llu %d,%d,%d %d %s\n", (unsigned long long)k->start, (unsigned long long)k->end, k->gridX,
                k->gridY, k->gridZ, k->blockX, k->name ? k->name : "?");
    }
    free(buffer);
}

static void finish(void)
{
    cuptiActivityFlushAll(1);
    fclose(out);
}

/* The driver calls this. */
int InitializeInjection(void)
{
    const char *path = getenv("GRAPH_TRACE_OUT");
    out = fopen(path ? path : "graph_trace.txt", "w");
    if (!out) return 0;
    cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    if (cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) != CUPTI_SUCCESS)
        fprintf(stderr, "graph_trace: CUPTI records no kernels\n");
    atexit(finish);
    return 1;
}
