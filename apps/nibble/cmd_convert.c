/* cmd_convert.c - `nibble convert`: a checkpoint with its weights in another form. */
#include <jansson.h>
#include <string.h>

#include "cli.h"
#include "convert/convert.h"
#include "options/opts.h"

static int print(const opts *o, const nb_convert_report *r, double seconds)
{
    if (o->json) {
        json_t *j =
            json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "out", o->convert.out,
                      "weight_format", o->convert.format, "quantised", (json_int_t)r->n_quantised,
                      "kept", (json_int_t)r->n_kept, "fallback", (json_int_t)r->n_fallback,
                      "left_out", (json_int_t)r->n_left_out, "in_bytes", (json_int_t)r->in_bytes,
                      "out_bytes", (json_int_t)r->out_bytes, "seconds", seconds);
        if (!j) return cli_failed("out of memory");
        (void)json_dumpf(j, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
        (void)fputc('\n', stdout);
        json_decref(j);
        return CLI_OK;
    }
    char in[CLI_FIGURE_BYTES], out[CLI_FIGURE_BYTES];
    cli_bytes_text((double)r->in_bytes, in, sizeof in);
    cli_bytes_text((double)r->out_bytes, out, sizeof out);
    (void)printf("%s: %zu matrices of the layers in %s, %s instead of %s, %.1f s\n", o->convert.out,
                 r->n_quantised, o->convert.format, out, in, seconds);
    if (r->n_kept) (void)printf("%zu matrices are as they were\n", r->n_kept);
    if (r->n_fallback)
        (void)printf(
            "%zu matrices have another type, because their columns are no multiple of 256\n",
            r->n_fallback);
    if (r->n_left_out)
        (void)printf("%zu tensors of layers for speculation are left out\n", r->n_left_out);
    return CLI_OK;
}

int cmd_convert(const opts *o)
{
    if (!o->convert.out)
        return cli_usage("convert: OUT is missing; `nibble convert --help` says more");
    if (!o->convert.format) return cli_usage("convert: --weight-format NAME is missing");
    const bool gguf = strncmp(o->convert.format, "gguf:", 5) == 0;
    if (gguf && o->convert.keep)
        return cli_usage("convert: --keep is for folders, not for gguf:...");
    if (!gguf && o->convert.gguf_pre) return cli_usage("convert: --gguf-pre is for gguf:...");
    const nb_convert_options c = { .model = o->path,
                                   .out = o->convert.out,
                                   .format = o->convert.format,
                                   .keep = o->convert.keep,
                                   .gguf_pre = o->convert.gguf_pre,
                                   .max_shard_bytes = (uint64_t)o->convert.max_shard_mb * 1000000,
                                   .n_thread = o->threads,
                                   .progress = cli_progress };
    nb_convert_report r;
    nb_error err = { 0 };
    const double begin = cli_seconds();
    const nb_status st = nb_convert(&c, &r, &err);
    cli_progress_end();
    return st == NB_OK ? print(o, &r, cli_seconds() - begin) : cli_status(st, &err);
}
