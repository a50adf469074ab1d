/* cmd_eval_compare.c - `nibble eval compare`: every measurement of a list of formats, on one page. */
#include "cmd_eval.h"

int cmd_eval_compare(const opts *o)
{
    (void)o;
    return cli_failed("eval compare is not part of this build");
}
