/* cmd_bench.c - `nibble bench serve` and `nibble bench throughput`. */
#include "cli.h"

int cmd_bench_serve(const struct opts *o)
{
    (void)o;
    return cli_failed("bench serve: not part of this build");
}

int cmd_bench_throughput(const struct opts *o)
{
    (void)o;
    return cli_failed("bench throughput: not part of this build");
}
