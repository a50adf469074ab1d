/* bench_wire.h - the bytes of an HTTP answer, as they come: status and headers, chunks, events
 * of a stream.  Nothing is read from a socket here. */
#ifndef NB_APPS_BENCH_WIRE_H
#define NB_APPS_BENCH_WIRE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A growable buffer, terminated; zero-initialise.  After a failure `failed` stays set and
 * nothing more is added. */
typedef struct bench_buf {
    char *p;
    size_t n, cap;
    bool failed;
} bench_buf;
void bench_buf_deinit(bench_buf *b);
void bench_buf_add(bench_buf *b, const char *p, size_t n);
void bench_buf_str(bench_buf *b, const char *s);
void bench_buf_u64(bench_buf *b, uint64_t x);
void bench_buf_json(bench_buf *b, const char *s, size_t n); /* quoted; bad UTF-8 becomes U+FFFD */

typedef enum wire_phase {
    WIRE_STATUS, /* the status line */
    WIRE_HEADERS,
    WIRE_LENGTH, /* a body of `left` bytes */
    WIRE_CHUNK_SIZE,
    WIRE_CHUNK,
    WIRE_CHUNK_END,
    WIRE_TRAILER,
    WIRE_UNTIL_CLOSE,
    WIRE_DONE,
    WIRE_BAD /* `why` says what is wrong */
} wire_phase;

typedef void wire_event_fn(void *ctx, const char *data, size_t n); /* the data of one event */

typedef struct bench_wire {
    wire_phase phase;
    int status;
    bool chunked, has_length, close, events; /* close: the server closes after this answer */
    uint64_t left;
    size_t n_header; /* bytes of the head so far */
    bench_buf frame; /* unfinished line of the head or between chunks */
    bench_buf line;  /* unfinished line of the stream; at most WIRE_LINE_BYTES */
    bench_buf body;  /* of what is not a stream of events; at most WIRE_BODY_BYTES are kept */
    const char *why;
} bench_wire;
enum { WIRE_HEAD_BYTES = 65536, WIRE_LINE_BYTES = 16 << 20, WIRE_BODY_BYTES = 64 << 20 };

/* Takes bytes; how many were used, which is fewer than n only behind the end of the answer or a
 * mistake in it. */
size_t bench_wire_feed(bench_wire *w, const char *p, size_t n, wire_event_fn *fn, void *ctx);
/* The connection has ended: the phase becomes WIRE_DONE if that ends the answer. */
void bench_wire_eof(bench_wire *w);
void bench_wire_reset(bench_wire *w); /* for the next answer; keeps memory */
void bench_wire_deinit(bench_wire *w);

typedef enum event_kind {
    EVENT_TOKEN, /* choices that are not empty  */
    EVENT_USAGE, /* empty choices, and usage    */
    EVENT_ERROR,
    EVENT_DONE, /* [DONE]                       */
    EVENT_OTHER
} event_kind;
/* Of the data of an event of completions or chat, without parsing JSON: a chunk of a token must
 * cost nothing. */
event_kind bench_event_kind(const char *data, size_t n);

#endif
