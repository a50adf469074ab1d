/* bench_depth.h - `nibble bench throughput --depth`: points at given lengths of the context. */
#ifndef NB_APPS_BENCH_DEPTH_H
#define NB_APPS_BENCH_DEPTH_H
#include "../options/opts.h"

int bench_depth_run(const opts *o); /* CLI_* */

#endif
