/* comm_internal.h - an end and what implements it: threads of one process (comm.c), processes (comm_tcp.c). */
#ifndef NB_COMM_INTERNAL_H
#define NB_COMM_INTERNAL_H
#include "comm/comm.h"

/* As the functions of comm.h with these names. */
typedef struct nb_comm_ops {
    void (*destroy)(nb_comm *c);
    size_t (*n_rank)(const nb_comm *c);
    nb_status (*split)(nb_comm *c, size_t n_group, nb_comm **out, nb_error *err);
    nb_status (*barrier)(nb_comm *c, nb_error *err);
    nb_status (*gather)(nb_comm *c, const nb_comm_block *send, const nb_comm_block *recv, nb_error *err);
    nb_status (*exchange)(nb_comm *c, const nb_comm_block *send, const nb_comm_block *recv, nb_error *err);
    nb_status (*sum)(nb_comm *c, const float *part, size_t n_part, size_t stride, size_t n, float *out,
                     nb_error *err);
    nb_status (*agree)(nb_comm *c, uint64_t value, const char *what, nb_error *err);
    void (*fail)(nb_comm *c, size_t who, const char *why);
    void (*set_alarm)(nb_comm *c, volatile uint32_t *word);
    nb_status (*check)(const nb_comm *c, nb_error *err);
    void (*set_limit)(nb_comm *c, double limit_s);
    double (*limit)(const nb_comm *c);
} nb_comm_ops;

struct nb_comm {
    const nb_comm_ops *ops;
    struct group *g;        /* threads; else NULL */
    struct nb_comm_tcp *tcp; /* processes; else NULL */
    size_t rank;
    uint64_t number; /* of its last call */
};


#endif
