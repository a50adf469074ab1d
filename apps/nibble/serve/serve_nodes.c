/* serve_nodes.c - --nnodes: which of several processes this one is, from options or from what started it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cli.h"
#include "serve_setup.h"

/* Variables of those who start processes; the first whose size is set is meant. */
static const struct {
    const char *size, *rank, *addr, *port;
} sources[] = { { "WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT" }, /* torchrun */
                { "LWS_GROUP_SIZE", "LWS_WORKER_INDEX", "LWS_LEADER_ADDRESS", NULL },
                { "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LAUNCH_NODE_IPADDR", NULL },
                { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", NULL, NULL } };
enum { N_SOURCE = sizeof sources / sizeof *sources, MAX_NODE = 8 };

static const char *variable(const char *name)
{
    const char *s = name ? getenv(name) : NULL;
    return s && *s ? s : NULL;
}

static int number(const char *name, unsigned long lo, unsigned long hi, size_t *out)
{
    char *end = NULL;
    const char *s = variable(name);
    if (!s) return cli_usage("--nnodes auto: the environment has no %s", name);
    errno = 0;
    const unsigned long x = strtoul(s, &end, 10);
    if (*s < '0' || *s > '9' || *end || errno || x < lo || x > hi)
        return cli_usage("--nnodes auto: %s=%.40s: expected %lu to %lu", name, s, lo, hi);
    *out = x;
    return CLI_OK;
}

/* What no option has said. */
static int from_environment(const opts *o, serve_nodes *n)
{
    size_t i = 0;
    int code;
    while (i < N_SOURCE && !variable(sources[i].size)) i++;
    if (i == N_SOURCE)
        return cli_usage("--nnodes auto: the environment has none of WORLD_SIZE, LWS_GROUP_SIZE, SLURM_NTASKS and "
                         "OMPI_COMM_WORLD_SIZE");
    code = number(sources[i].size, 1, MAX_NODE, &n->n);
    if (code == CLI_OK && n->n > 1 && !opts_given(o, CMD_SERVE, "node-rank"))
        code = number(sources[i].rank, 0, n->n - 1, &n->rank);
    if (!n->addr) n->addr = variable(sources[i].addr);
    if (!n->addr) n->addr = variable("MASTER_ADDR");
    const char *port = sources[i].port ? sources[i].port : "MASTER_PORT";
    if (code == CLI_OK && variable(port) && !opts_given(o, CMD_SERVE, "master-port"))
        code = number(port, 1, 65535, &n->port);
    return code;
}

static int read_secret(const opts *o, serve_nodes *n)
{
    const char *path = o->serve.rendezvous_secret_file, *env = variable("NIBBLE_RENDEZVOUS_SECRET");
    FILE *f = path ? fopen(path, "r") : NULL;
    if (path && !f) return cli_failed("--rendezvous-secret-file %s: %s", path, strerror(errno));
    if (f) {
        const bool ok = fgets(n->secret, sizeof n->secret, f) != NULL;
        (void)fclose(f);
        if (!ok) n->secret[0] = 0;
        n->secret[strcspn(n->secret, "\r\n")] = 0;
    } else if (env) {
        (void)snprintf(n->secret, sizeof n->secret, "%s", env);
    }
    const size_t len = strlen(n->secret);
    if (len >= 16 && len <= 1024) return CLI_OK;
    return cli_usage("--nnodes %zu needs a secret of 16 to 1024 bytes that all processes know: %s has %zu "
                     "(`openssl rand -hex 32` makes one)",
                     n->n, path ? path : "NIBBLE_RENDEZVOUS_SECRET", len);
}

int serve_nodes_init(const opts *o, serve_nodes *n)
{
    const serve_opts *v = &o->serve;
    int code = CLI_OK;
    *n = (serve_nodes){ .n = v->n_node, .rank = v->node_rank, .addr = v->master_addr, .port = v->master_port };
    if (v->n_node == OPT_AUTO) code = from_environment(o, n);
    if (code != CLI_OK || n->n > 1) return code == CLI_OK ? read_secret(o, n) : code;
    n->n = 1; /* also of commands that have no such option */
    if (v->node_rank) return cli_usage("--node-rank %zu: expected 0 without --nnodes", v->node_rank);
    return CLI_OK;
}

void serve_nodes_apply(const opts *o, const serve_nodes *n, nb_engine_options *e)
{
    e->n_node = n->n;
    e->node_rank = n->rank;
    e->master_addr = n->addr;
    e->master_port = (unsigned)n->port;
    e->rendezvous_secret = n->secret;
    e->rendezvous_s = (double)o->serve.rendezvous_s;
}
