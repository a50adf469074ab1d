/* model.h - MODEL of the command line: a path, or an id in the hub cache. */
#ifndef NB_APPS_MODEL_H
#define NB_APPS_MODEL_H
#include "options/opts.h"

/* Joins --revision to the id in o->model.  Of commands that read files of MODEL it also sets o->path
 * and o->id.  CLI_OK, or another code after an error line. */
int model_find(const command *c, opts *o);

#endif
