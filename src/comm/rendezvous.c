/* rendezvous.c - see rendezvous.h.
 *
 *   the one that connects: magic and nonce            -> magic and nonce
 *                          its proof                  -> proof, or zeros: another secret
 *                          nb_intro                   -> verdict
 *   rank 0, when all have come: addresses of all ranks
 *
 * All of fixed length.  Rank k listens for the ranks above it, and connects to those below. */
#include "comm/rendezvous.h"

#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#include "comm/door.h"
#include "os/clock.h"
#include "os/net.h"

enum {
    MAX_GUEST = 32,  /* connections that have not said who they are; the oldest leaves for the next */
    MAX_NOTE = 8,    /* lines about who was turned away */
    NAP_MS = 200,
    TRY_MS = 2000,   /* to connect */
    AGAIN_MS = 250
};
#define GUEST_S 5.0 /* for saying who one is */

typedef struct verdict {
    uint32_t ok;
    char why[252];
} verdict;

typedef struct place { /* of a rank, as rank 0 sees it */
    char host[NB_NET_HOST_BYTES];
    uint32_t port;
} place;

typedef struct guest {
    int s; /* -1: none */
    double until;
    nb_door door;
} guest;

typedef struct meeting {
    const nb_rendezvous *r;
    int *link;
    double until;
    size_t n_note;
    place place[NB_COMM_MAX_RANK];
    guest guest[MAX_GUEST];
} meeting;

static nb_status random_bytes(unsigned char *p, size_t n, nb_error *err)
{
    if (RAND_bytes(p, (int)n) == 1) return NB_OK;
    return nb_fail(err, NB_ERR_INTERNAL, "no random bytes for the handshake");
}

/* ---- the side that connects ---- */

/* All n bytes, until then; false: the connection has gone or time is up. */
static bool send_all(int s, const void *p, size_t n, double until)
{
    const unsigned char *at = p;
    while (n) {
        const long m = nb_net_send(s, at, n);
        if (m < 0 || (m == 0 && nb_clock_s() >= until)) return false;
        nb_net_want w = { .s = s, .write = true };
        if (m == 0) nb_net_wait(&w, 1, NAP_MS);
        at += m;
        n -= (size_t)m;
    }
    return true;
}

static bool recv_all(int s, void *p, size_t n, double until)
{
    unsigned char *at = p;
    while (n) {
        const long m = nb_net_recv(s, at, n);
        if (m < 0 || (m == 0 && nb_clock_s() >= until)) return false;
        nb_net_want w = { .s = s, .read = true };
        if (m == 0) nb_net_wait(&w, 1, NAP_MS);
        at += m;
        n -= (size_t)m;
    }
    return true;
}

typedef enum outcome { COME, AGAIN, REFUSED } outcome;

/* AGAIN: nobody answers as a rank would, which may change.  what: "10.0.0.1 port 29500". */
static outcome introduce(const nb_rendezvous *r, int s, unsigned port, const char *what, nb_error *err)
{
    unsigned char own[NB_HELLO_BYTES], theirs[NB_HELLO_BYTES], proof[NB_PROOF_BYTES], want[NB_PROOF_BYTES];
    static const unsigned char zero[NB_PROOF_BYTES];
    nb_intro in = { (uint32_t)r->rank, (uint32_t)r->n_rank, port, "" };
    verdict v;
    const double until = nb_clock_s() + GUEST_S;
    memcpy(own, nb_door_magic, NB_MAGIC_BYTES);
    if (random_bytes(own + NB_MAGIC_BYTES, NB_NONCE_BYTES, err) != NB_OK) return REFUSED;
    (void)nb_fail(err, NB_ERR_NOT_FOUND, "%s: it does not answer as a rank would", what);
    if (!send_all(s, own, sizeof own, until) || !recv_all(s, theirs, sizeof theirs, until)) return AGAIN;
    if (memcmp(theirs, nb_door_magic, NB_MAGIC_BYTES) != 0) return AGAIN;
    nb_door_prove(r->secret, false, own + NB_MAGIC_BYTES, theirs + NB_MAGIC_BYTES, proof);
    nb_door_prove(r->secret, true, own + NB_MAGIC_BYTES, theirs + NB_MAGIC_BYTES, want);
    if (!send_all(s, proof, sizeof proof, until) || !recv_all(s, proof, sizeof proof, until)) return AGAIN;
    if (!nb_door_same(proof, want)) {
        (void)nb_fail(err, NB_ERR_FAILED, "%s: %s", what,
                      nb_door_same(proof, zero) ? "the rank there has another rendezvous secret"
                                                : "it does not know the rendezvous secret");
        return REFUSED;
    }
    (void)snprintf(in.version, sizeof in.version, "%s", r->version);
    if (!send_all(s, &in, sizeof in, until) || !recv_all(s, &v, sizeof v, until)) return AGAIN;
    if (v.ok == 1) return COME;
    v.why[sizeof v.why - 1] = 0;
    (void)nb_fail(err, NB_ERR_FAILED, "%s", v.why);
    return REFUSED;
}

/* Rank 0 knows first when a rank is lost, and ends: then nobody is waited for. */
static nb_status look_at_first(const meeting *m, nb_error *err)
{
    if (m->r->rank == 0 || m->link[0] < 0 || !nb_net_is_gone(m->link[0])) return NB_OK;
    return nb_fail(err, NB_ERR_FAILED, "rank 0 of %zu: its connection was closed while ranks met", m->r->n_rank);
}

static nb_status reach(const meeting *m, size_t to, const char *host, unsigned port, unsigned own_port, int *out,
                       nb_error *err)
{
    char what[320];
    nb_error last = { 0 };
    (void)snprintf(what, sizeof what, "%.250s port %u", host, port);
    while (nb_clock_s() < m->until) {
        int s = -1;
        const nb_status st = nb_net_connect(host, port, TRY_MS, &s, &last);
        if (st != NB_OK && st != NB_ERR_NOT_FOUND) return nb_fail(err, st, "rank %zu: %s", to, last.msg);
        const outcome o = st == NB_OK ? introduce(m->r, s, own_port, what, &last) : AGAIN;
        if (o == COME) {
            *out = s;
            return NB_OK;
        }
        nb_net_close(s);
        if (o == REFUSED) return nb_fail(err, last.status, "%s", last.msg);
        NB_TRY(look_at_first(m, err));
        nb_net_wait(NULL, 0, AGAIN_MS);
    }
    return nb_fail(err, NB_ERR_NOT_FOUND, "rank %zu was not found within %g seconds: %s", to, m->r->limit_s, last.msg);
}

/* ---- the side that accepts ---- */

static void note(meeting *m, int s, const char *what)
{
    char host[NB_NET_HOST_BYTES], line[256];
    if (!m->r->note || m->n_note++ >= MAX_NOTE) return;
    nb_net_peer(s, host);
    (void)snprintf(line, sizeof line, "rank %zu: %s: %s", m->r->rank, host, what);
    m->r->note(m->r->note_ctx, line);
}

static void leave(guest *g)
{
    nb_net_close(g->s);
    g->s = -1;
}

/* Whether this is a rank that is waited for (from `first` on); else why holds what does not fit, and *fatal says that it
 * will not fit later either. */
static bool fits(const meeting *m, const nb_intro *in, size_t first, char why[sizeof((verdict){ 0 }).why], bool *fatal)
{
    const nb_rendezvous *r = m->r;
    const size_t room = sizeof((verdict){ 0 }).why;
    *fatal = true;
    if (strcmp(in->version, r->version) != 0) {
        (void)snprintf(why, room, "rank %u has version %s of nibble, rank %zu has %s", (unsigned)in->rank, in->version,
                       r->rank, r->version);
        return false;
    }
    if (in->n_rank != r->n_rank) {
        (void)snprintf(why, room, "rank %u is one of %u, rank %zu one of %zu: --nnodes differs", (unsigned)in->rank,
                       (unsigned)in->n_rank, r->rank, r->n_rank);
        return false;
    }
    *fatal = false;
    if (in->rank < first || in->rank >= r->n_rank) {
        (void)snprintf(why, room, "rank %u has come to rank %zu of %zu: each process needs a --node-rank of its own",
                       (unsigned)in->rank, r->rank, r->n_rank);
        return false;
    }
    if (m->link[in->rank] >= 0 && !nb_net_is_gone(m->link[in->rank])) {
        (void)snprintf(why, room, "rank %u has come twice: each process needs a --node-rank of its own",
                       (unsigned)in->rank);
        return false;
    }
    return true;
}

/* A guest has said who it is. */
static nb_status judge(meeting *m, guest *g, size_t first, nb_error *err)
{
    const nb_intro *in = &g->door.intro;
    verdict v = { 0 };
    bool fatal = false;
    v.ok = fits(m, in, first, v.why, &fatal);
    const bool sent = nb_net_send(g->s, &v, sizeof v) == (long)sizeof v;
    if (v.ok && sent) {
        nb_net_close(m->link[in->rank]);
        m->link[in->rank] = g->s;
        nb_net_peer(g->s, m->place[in->rank].host);
        m->place[in->rank].port = in->port;
        g->s = -1;
        return NB_OK;
    }
    if (!v.ok && !fatal) note(m, g->s, v.why);
    leave(g);
    return fatal ? nb_fail(err, NB_ERR_FAILED, "%s", v.why) : NB_OK;
}

static nb_status listen_to(meeting *m, guest *g, size_t first, nb_error *err)
{
    unsigned char in[sizeof(nb_intro)], answer[NB_HELLO_BYTES];
    while (nb_door_wants(&g->door)) {
        const long n = nb_net_recv(g->s, in, nb_door_wants(&g->door));
        if (n == 0) return NB_OK;
        const size_t n_answer = n > 0 ? nb_door_take(&g->door, m->r->secret, in, (size_t)n, answer) : 0;
        if (n < 0 || (n_answer && nb_net_send(g->s, answer, n_answer) != (long)n_answer)) {
            leave(g);
            return NB_OK;
        }
    }
    if (g->door.at == NB_DOOR_IN) return judge(m, g, first, err);
    if (g->door.at == NB_DOOR_WRONG) note(m, g->s, "turned away: it has another rendezvous secret");
    leave(g);
    return NB_OK;
}

/* A free one, else the oldest of those that have not proved that they know the secret; NULL: all have. */
static guest *place_for(meeting *m)
{
    guest *oldest = NULL;
    for (size_t i = 0; i < MAX_GUEST; i++) {
        guest *g = &m->guest[i];
        if (g->s < 0) return g;
        if (g->door.at < NB_DOOR_INTRO && (!oldest || g->until < oldest->until)) oldest = g;
    }
    return oldest;
}

static nb_status welcome(meeting *m, int door, nb_error *err)
{
    unsigned char nonce[NB_NONCE_BYTES];
    int s;
    for (size_t n = 0; n < MAX_GUEST && (s = nb_net_accept(door)) >= 0; n++) {
        guest *g = place_for(m);
        if (!g) {
            nb_net_close(s);
            continue;
        }
        leave(g);
        const nb_status st = random_bytes(nonce, sizeof nonce, err);
        if (st != NB_OK) nb_net_close(s);
        NB_TRY(st);
        g->s = s;
        g->until = nb_clock_s() + GUEST_S;
        nb_door_open(&g->door, nonce);
    }
    return NB_OK;
}

static size_t missing(const meeting *m, size_t first)
{
    while (first < m->r->n_rank && m->link[first] >= 0) first++;
    return first;
}

static nb_status admit_all(meeting *m, int door, size_t first, nb_error *err)
{
    while (missing(m, first) < m->r->n_rank) {
        nb_net_want w[MAX_GUEST + 1];
        NB_TRY(look_at_first(m, err));
        if (nb_clock_s() >= m->until)
            return nb_fail(err, NB_ERR_NOT_FOUND, "rank %zu of %zu has not come to rank %zu (port %u) within %g seconds",
                           missing(m, first), m->r->n_rank, m->r->rank, nb_net_port(door), m->r->limit_s);
        for (size_t i = 0; i < MAX_GUEST; i++) w[i] = (nb_net_want){ .s = m->guest[i].s, .read = true };
        w[MAX_GUEST] = (nb_net_want){ .s = door, .read = true };
        nb_net_wait(w, MAX_GUEST + 1, NAP_MS);
        const double now = nb_clock_s();
        for (size_t i = 0; i < MAX_GUEST; i++) {
            guest *g = &m->guest[i];
            if (g->s >= 0 && w[i].ready) NB_TRY(listen_to(m, g, first, err));
            if (g->s >= 0 && now >= g->until) leave(g);
        }
        NB_TRY(welcome(m, door, err));
    }
    return NB_OK;
}

/* The ranks above this one come to it. */
static nb_status admit(meeting *m, int door, size_t first, nb_error *err)
{
    for (size_t i = 0; i < MAX_GUEST; i++) m->guest[i].s = -1;
    const nb_status st = admit_all(m, door, first, err);
    for (size_t i = 0; i < MAX_GUEST; i++) leave(&m->guest[i]);
    return st;
}

/* ---- all of it ---- */

static bool is_loopback(const char *host)
{
    return !strncmp(host, "127.", 4) || !strcmp(host, "::1");
}

/* Where the others are.  Who came to rank 0 by its own machine's loopback is, for another machine, where rank 0 is. */
static bool send_places(meeting *m, size_t k)
{
    const size_t n = m->r->n_rank;
    place to[NB_COMM_MAX_RANK];
    char own[NB_NET_HOST_BYTES];
    nb_net_own(m->link[k], own);
    memcpy(to, m->place, n * sizeof *to);
    for (size_t j = 1; j < n; j++)
        if (is_loopback(to[j].host) && !is_loopback(own)) memcpy(to[j].host, own, sizeof own);
    return send_all(m->link[k], to, n * sizeof *to, nb_clock_s() + GUEST_S);
}

static nb_status be_first(meeting *m, nb_error *err)
{
    const nb_rendezvous *r = m->r;
    int door = -1;
    NB_TRY(nb_net_listen(r->host, r->port, &door, err));
    const nb_status st = admit(m, door, 1, err);
    nb_net_close(door);
    NB_TRY(st);
    for (size_t k = 1; k < r->n_rank; k++)
        if (!send_places(m, k))
            return nb_fail(err, NB_ERR_FAILED, "rank %zu of %zu: it has gone while rank 0 waited for others", k, r->n_rank);
    return NB_OK;
}

static nb_status join(meeting *m, int door, nb_error *err)
{
    const nb_rendezvous *r = m->r;
    const unsigned port = door >= 0 ? nb_net_port(door) : 0;
    NB_TRY(reach(m, 0, r->host, r->port, port, &m->link[0], err));
    if (!recv_all(m->link[0], m->place, r->n_rank * sizeof *m->place, m->until))
        return nb_fail(err, NB_ERR_FAILED, "rank 0 of %zu: it has gone, or others have not come within %g seconds", r->n_rank,
                       r->limit_s);
    for (size_t k = 1; k < r->rank; k++) {
        place *p = &m->place[k];
        p->host[sizeof p->host - 1] = 0;
        NB_TRY(reach(m, k, p->host, p->port, 0, &m->link[k], err));
    }
    return door >= 0 ? admit(m, door, r->rank + 1, err) : NB_OK;
}

nb_status nb_rendezvous_meet(const nb_rendezvous *r, int link[NB_COMM_MAX_RANK], nb_error *err)
{
    static const char no_secret[] = "ranks in several processes need a secret of %d to %d bytes that all of them know";
    meeting m = { .r = r, .link = link, .until = nb_clock_s() + r->limit_s };
    const size_t n = r->secret ? strlen(r->secret) : 0;
    int door = -1;
    for (size_t k = 0; k < NB_COMM_MAX_RANK; k++) link[k] = -1;
    if (n < NB_SECRET_MIN || n > NB_SECRET_MAX) return nb_fail(err, NB_ERR_ARG, no_secret, NB_SECRET_MIN, NB_SECRET_MAX);
    if (r->n_rank < 2 || r->n_rank > NB_COMM_MAX_RANK || r->rank >= r->n_rank)
        return nb_fail(err, NB_ERR_RANGE, "rank %zu of %zu: expected 2 to %d ranks, from 0 on", r->rank, r->n_rank,
                       NB_COMM_MAX_RANK);
    nb_status st = NB_OK;
    if (r->rank == 0)
        st = be_first(&m, err);
    else if (r->rank + 1 < r->n_rank)
        st = nb_net_listen(NULL, 0, &door, err);
    if (r->rank > 0 && st == NB_OK) st = join(&m, door, err);
    nb_net_close(door);
    for (size_t k = 0; st != NB_OK && k < r->n_rank; k++) {
        nb_net_close(link[k]);
        link[k] = -1;
    }
    return st;
}
