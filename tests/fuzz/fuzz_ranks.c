/* fuzz_ranks.c - any bytes on the port where ranks meet, and any bytes as a job from rank 0.
 *
 * The first byte chooses: a stranger's bytes, in pieces; the same behind a right hello and proof, so that an nb_intro is
 * read; or a job.  What is accepted as a job keeps to the limits. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "comm/door.h"
#include "engine/remote.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define SECRET "the fuzzer's secret"
enum { MAX_CHUNK = 4, MAX_TOK = 300, MAX_ROW = 8 };

static void need(int ok)
{
    if (!ok) abort();
}

static void come_in(nb_door *d, const unsigned char own[NB_NONCE_BYTES])
{
    unsigned char hello[NB_HELLO_BYTES] = { 0 }, proof[NB_PROOF_BYTES], answer[NB_HELLO_BYTES];
    memcpy(hello, nb_door_magic, NB_MAGIC_BYTES);
    need(nb_door_take(d, SECRET, hello, sizeof hello, answer) == NB_HELLO_BYTES);
    nb_door_prove(SECRET, false, hello + NB_MAGIC_BYTES, own, proof);
    need(nb_door_take(d, SECRET, proof, sizeof proof, answer) == NB_PROOF_BYTES);
    need(d->at == NB_DOOR_INTRO);
}

/* In pieces whose length the bytes themselves say. */
static void use_door(const uint8_t *p, size_t n, bool proved)
{
    unsigned char own[NB_NONCE_BYTES], answer[NB_HELLO_BYTES];
    nb_door d;
    memset(own, 7, sizeof own);
    nb_door_open(&d, own);
    if (proved) come_in(&d, own);
    while (n && nb_door_wants(&d)) {
        size_t m = 1u + p[0] % 96u;
        if (m > n) m = n;
        if (m > nb_door_wants(&d)) m = nb_door_wants(&d);
        need(nb_door_take(&d, SECRET, p, m, answer) <= sizeof answer);
        p += m;
        n -= m;
    }
    if (!proved) need(d.at != NB_DOOR_INTRO && d.at != NB_DOOR_IN); /* nobody guesses a proof */
    if (d.at == NB_DOOR_IN) need(memchr(d.intro.version, 0, sizeof d.intro.version) != NULL);
}

static void use_job(const uint8_t *p, size_t n)
{
    const nb_job_limits l = { .max_chunk = MAX_CHUNK,
                              .max_tok = MAX_TOK,
                              .max_row = MAX_ROW,
                              .max_pos = 1000,
                              .n_block = 50,
                              .n_vocab = 256,
                              .absorbed_only = n % 2 };
    nb_chunk chunk[MAX_CHUNK];
    size_t tok[MAX_ROW], n_tok = 0;
    nb_job_read j = { .chunk = chunk, .tok = tok };
    nb_error err = { 0 };
    const nb_status st = nb_job_parse(p, n, &l, &j, &err);
    if (st != NB_OK) {
        need(err.status == st && err.msg[0]);
        return;
    }
    if (j.kind == NB_JOB_LOGITS)
        for (size_t i = 0; i < j.n; i++) need(tok[i] < MAX_TOK);
    if (j.kind != NB_JOB_STEP) return;
    need(j.n > 0 && j.n <= MAX_CHUNK);
    for (size_t i = 0; i < j.n; i++) {
        const nb_chunk *c = &chunk[i];
        n_tok += c->n_tok;
        need(c->n_tok > 0 && c->pos0 + c->n_tok <= 1000 && c->slot < MAX_CHUNK);
        need(c->n_block >= (c->pos0 + c->n_tok) / 64 && !c->load && !c->save && !c->thrift && !c->upload);
        for (size_t k = 0; k < c->n_block; k++) need(c->block[k] < 50);
        for (size_t k = 0; k < c->n_tok; k++) need(c->tok[k] < 256);
    }
    need(n_tok <= MAX_TOK);
    /* what is read says all of it: written again it is the same */
    unsigned char *again = malloc(nb_job_bytes(&l));
    const nb_rank_job job = { .chunk = chunk, .n = j.n };
    if (!again) return;
    need(nb_job_write(&job, again) == n);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0) return 0;
    unsigned char *p = malloc(n); /* its own block: reading beyond it is found */
    if (!p) return 0;
    memcpy(p, data + 1, n - 1);
    if (data[0] % 3 == 2)
        use_job(p, n - 1);
    else
        use_door(p, n - 1, data[0] % 3 == 1);
    free(p);
    return 0;
}
