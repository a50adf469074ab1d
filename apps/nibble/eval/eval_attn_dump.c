/* eval_attn_dump.c - the tensors of `nibble eval attn` as files, so that its figures can be
 * computed elsewhere. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "eval_attn.h"

static int write_floats(const char *path, const float *x, size_t n)
{
    unsigned char block[4096];
    out_file out = { 0 };
    int code = out_file_open(&out, path);
    for (size_t i = 0; code == CLI_OK && i < n;) {
        const size_t m = n - i < sizeof block / 4 ? n - i : sizeof block / 4;
        for (size_t j = 0; j < m; j++) {
            uint32_t u;
            memcpy(&u, &x[i + j], sizeof u);
            for (unsigned k = 0; k < 4; k++) block[4 * j + k] = (unsigned char)(u >> 8 * k);
        }
        if (fwrite(block, 4, m, out.f) != m) code = out_file_failed(path);
        i += m;
    }
    return out_file_close(&out, path, code);
}

static json_t *sizes(const size_t *x, size_t n)
{
    json_t *a = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(a, json_integer((json_int_t)x[i]));
    return a;
}

static json_t *describe(const char *name, const nb_capture_layer *l)
{
    char file[3][128];
    for (size_t i = 0; i < 3; i++)
        (void)snprintf(file[i], sizeof file[i], "%.100s.%s.f32", name,
                       (const char *[]){ "kv", "q", "w_uv" }[i]);
    const size_t kv[] = { l->n_tok, l->n_values }, q[] = { l->n_q, l->n_head, l->d_q },
                 w[] = { l->n_head, l->d_v, l->dim[0] };
    json_t *j = json_object();
    json_object_set_new(j, "layer", json_integer((json_int_t)l->layer));
    json_object_set_new(j, "is_mla", json_boolean(l->is_mla));
    json_object_set_new(j, "n_kv_head", json_integer((json_int_t)l->n_kv_head));
    json_object_set_new(j, "dim", sizes(l->dim, 2));
    json_object_set_new(j, "n_vec", sizes(l->n_vec, 2));
    json_object_set_new(j, "d_v", json_integer((json_int_t)l->d_v));
    json_object_set_new(j, "scale", json_real((double)l->scale));
    json_object_set_new(j, "positions", sizes(l->pos, l->n_q));
    json_object_set_new(j, "page_tokens", json_integer(64));
    json_object_set_new(j, "kv", json_pack("{s:s, s:o}", "file", file[0], "shape", sizes(kv, 2)));
    json_object_set_new(j, "q", json_pack("{s:s, s:o}", "file", file[1], "shape", sizes(q, 3)));
    json_object_set_new(j, "w_uv",
                        l->w_uv ? json_pack("{s:s, s:o}", "file", file[2], "shape", sizes(w, 3))
                                : json_null());
    return j;
}

int eval_attn_dump(const char *dir, const char *name, const nb_capture_layer *l)
{
    const struct {
        const char *ending;
        const float *x;
        size_t n;
    } part[] = { { "kv", l->kv, l->n_tok * l->n_values },
                 { "q", l->q, l->n_q * l->n_head * l->d_q },
                 { "w_uv", l->w_uv, l->n_head * l->d_v * l->dim[0] } };
    nb_buf path = { 0 };
    int code = CLI_OK;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return cli_failed("%s: cannot be made: %s", dir, strerror(errno));
    for (size_t i = 0; i < 3 && code == CLI_OK; i++) {
        if (!part[i].x) continue;
        path.n_bytes = 0;
        if (nb_buf_printf(&path, "%s/%s.%s.f32", dir, name, part[i].ending) != NB_OK)
            code = cli_failed("out of memory");
        else
            code = write_floats(path.p, part[i].x, part[i].n);
    }
    json_t *j = code == CLI_OK ? describe(name, l) : NULL;
    char *text = j ? json_dumps(j, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    path.n_bytes = 0;
    if (code == CLI_OK && (!text || nb_buf_printf(&path, "%s/%s.json", dir, name) != NB_OK))
        code = cli_failed("out of memory");
    if (code == CLI_OK) code = out_file_write(path.p, text, strlen(text));
    free(text);
    json_decref(j);
    nb_buf_deinit(&path);
    return code;
}
