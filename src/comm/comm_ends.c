/* comm_ends.c - comm.h's calls, each handed to what implements the end. */
#include "comm/comm_internal.h"

size_t nb_comm_rank(const nb_comm *c)
{
    return c->rank;
}

size_t nb_comm_n_rank(const nb_comm *c)
{
    return c->ops->n_rank(c);
}

bool nb_comm_shares_memory(const nb_comm *c)
{
    return c->tcp == NULL;
}

void nb_comm_destroy(nb_comm *c)
{
    if (c) c->ops->destroy(c);
}

nb_status nb_comm_split(nb_comm *c, size_t n_group, nb_comm **out, nb_error *err)
{
    return c->ops->split(c, n_group, out, err);
}

nb_status nb_comm_barrier(nb_comm *c, nb_error *err)
{
    return c->ops->barrier(c, err);
}

nb_status nb_comm_gather(nb_comm *c, const nb_comm_block *send, const nb_comm_block *recv, nb_error *err)
{
    return c->ops->gather(c, send, recv, err);
}

nb_status nb_comm_exchange(nb_comm *c, const nb_comm_block *send, const nb_comm_block *recv, nb_error *err)
{
    return c->ops->exchange(c, send, recv, err);
}

nb_status nb_comm_sum(nb_comm *c, const float *part, size_t n_part, size_t stride, size_t n, float *out,
                      nb_error *err)
{
    return c->ops->sum(c, part, n_part, stride, n, out, err);
}

nb_status nb_comm_agree(nb_comm *c, uint64_t value, const char *what, nb_error *err)
{
    return c->ops->agree(c, value, what, err);
}

void nb_comm_fail(nb_comm *c, size_t who, const char *why)
{
    c->ops->fail(c, who, why);
}

void nb_comm_set_alarm(nb_comm *c, volatile uint32_t *word)
{
    c->ops->set_alarm(c, word);
}

nb_status nb_comm_check(const nb_comm *c, nb_error *err)
{
    return c->ops->check(c, err);
}

void nb_comm_set_limit(nb_comm *c, double limit_s)
{
    c->ops->set_limit(c, limit_s);
}

double nb_comm_limit(const nb_comm *c)
{
    return c->ops->limit(c);
}
