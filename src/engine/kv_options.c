/* kv_options.c - what the --kv-* options, a calibration file and the checkpoint say together
 * about the values that are cached: transforms of the latent, scales, the type that auto means.
 *
 * Nothing here is guessed: what contradicts itself is refused with the line that says what to
 * leave out.  The records themselves are laid out in records.c. */
#include <stdio.h>
#include <string.h>

#include "engine/engine_internal.h"
#include "model/fold.h"
#include "model/kv_size.h"
#include "os/file.h"

enum { HADAMARD_MIN = 16, HADAMARD_MAX = 512 };

nb_kv_type nb_engine_auto_type(const nb_engine *e)
{
    return e->kvo.algo == NB_KV_ALGO_FP8     ? NB_KV_FP8
           : e->kvo.algo == NB_KV_ALGO_NVFP4 ? NB_KV_NVFP4
                                             : nb_kv_type_own(&e->model.c);
}

static bool is_auto(const nb_engine_options *o)
{
    return !o->kv_cache_dtype || !strcmp(o->kv_cache_dtype, "auto");
}

/* The type asked for; a name that is none is for records.c to refuse. */
static nb_kv_type asked_type(const nb_engine *e, const nb_engine_options *o)
{
    nb_kv_type t = nb_engine_auto_type(e);
    if (!is_auto(o)) (void)nb_kv_type_parse(o->kv_cache_dtype, &t);
    return t;
}

/* ---- the calibration file ---- */

static nb_status check_geometry(const nb_engine *e, const char *path, nb_error *err)
{
    const nb_model_config *c = &e->model.c;
    const nb_attn_config *attn = nb_layer_attn(c, 0);
    const nb_kv_calib *k = &e->kvo.calib;
    if (c->n_attn > 1)
        return nb_fail(
            err, NB_ERR_UNSUPPORTED,
            "--kv-calibration %s: not for a model whose layers have several kinds of attention",
            path);
    if (attn->kind == NB_ATTN_DSA)
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--kv-calibration %s: not for a model with sparse attention (%s)", path, c->family);
    const bool mla = attn->kind == NB_ATTN_MLA;
    const size_t n_values = mla ? attn->kv_lora : attn->n_kv_head * attn->head_dim;
    if (k->is_mla != mla)
        return nb_fail(err, NB_ERR_FORMAT,
                       "--kv-calibration %s: of a model %s MLA, this one (%s) is %s", path,
                       k->is_mla ? "with" : "without", c->family, mla ? "with it" : "without");
    if (k->n_layer != c->n_layer)
        return nb_fail(err, NB_ERR_FORMAT,
                       "--kv-calibration %s: of a model with %zu layers, this one (%s) has %zu",
                       path, k->n_layer, c->family, c->n_layer);
    for (size_t i = 0; i < k->n_layer; i++) {
        const nb_kv_calib_layer *l = &k->layer[i];
        if (l->n_values != n_values || (mla && l->n_pair != attn->d_rope / 2))
            return nb_fail(err, NB_ERR_FORMAT,
                           "--kv-calibration %s: layer %zu has %zu values and %zu rope pairs, this "
                           "model (%s) has %zu and %zu",
                           path, i, l->n_values, l->n_pair, c->family, n_values,
                           mla ? attn->d_rope / 2 : 0);
    }
    return NB_OK;
}

static nb_status read_calibration(nb_engine *e, const char *path, nb_error *err)
{
    if (!path || !*path) return NB_OK;
    e->kvo.calib_path = nb_arena_strdup(&e->kvo.arena, nb_str_c(path));
    if (!e->kvo.calib_path) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    NB_TRY(nb_kv_calib_read(path, &e->kvo.calib, err));
    e->kvo.have_calib = true;
    return check_geometry(e, path, err);
}

/* ---- transforms ---- */

static const struct {
    const char *name;
    unsigned bit;
} transforms[] = { { "center", NB_TRANSFORM_CENTER },
                   { "equalize", NB_TRANSFORM_EQUALIZE },
                   { "hadamard", NB_TRANSFORM_HADAMARD } };

static nb_status parse_transform(const char *text, unsigned *out, nb_error *err)
{
    unsigned bits = 0;
    if (!strcmp(text, "none")) {
        *out = 0;
        return NB_OK;
    }
    for (const char *p = text;; p++) {
        const size_t n = strcspn(p, "+");
        unsigned bit = 0;
        for (size_t i = 0; i < NB_COUNT(transforms); i++)
            if (strlen(transforms[i].name) == n && !memcmp(transforms[i].name, p, n))
                bit = transforms[i].bit;
        if (!bit || bits & bit)
            return nb_fail(err, NB_ERR_ARG,
                           "--kv-transform %s: expected none, or center, equalize and hadamard "
                           "joined by +, each once",
                           text);
        bits |= bit;
        p += n;
        if (!*p) break;
    }
    *out = bits;
    return NB_OK;
}

static void transform_name(unsigned bits, char *out, size_t cap)
{
    size_t at = 0;
    (void)snprintf(out, cap, "none");
    for (size_t i = 0; i < NB_COUNT(transforms); i++)
        if (bits & transforms[i].bit && at < cap)
            at += (size_t)snprintf(out + at, cap - at, "%s%s", at ? "+" : "", transforms[i].name);
}

/* The block of a layer's Hadamard transform, 0 when there is none to be had: the calibration's,
 * whose errors were measured with it, else the largest. */
static size_t hadamard_block(const nb_engine *e, size_t layer)
{
    const nb_engine_kv *k = &e->kvo;
    size_t b = HADAMARD_MAX;
    if (k->have_calib && k->calib.layer[layer].hadamard) return k->calib.layer[layer].hadamard;
    while (nb_layer_attn(&e->model.c, layer)->kv_lora % b != 0) b /= 2;
    return b >= HADAMARD_MIN ? b : 0;
}

static unsigned calibrated_transform(const nb_kv_calib_layer *l)
{
    return (l->use_center ? NB_TRANSFORM_CENTER : 0u) |
           (l->use_equalize ? NB_TRANSFORM_EQUALIZE : 0u) |
           (l->use_hadamard ? NB_TRANSFORM_HADAMARD : 0u);
}

static nb_status check_transform(const nb_engine *e, const nb_engine_options *o, unsigned all,
                                 nb_error *err)
{
    const nb_model_config *c = &e->model.c;
    const char *name = e->kvo.transform_text;
    if (!all) return NB_OK;
    if (!nb_attn_all_latent(c))
        return nb_fail(err, NB_ERR_UNSUPPORTED,
                       "--kv-transform %s: needs MLA in every layer, and %s has other attention",
                       name, c->family);
    if (all & (NB_TRANSFORM_CENTER | NB_TRANSFORM_EQUALIZE) && !e->kvo.have_calib)
        return nb_fail(err, NB_ERR_ARG,
                       "--kv-transform %s: means and scales are measured: --kv-calibration FILE is "
                       "missing",
                       name);
    if (!(all & NB_TRANSFORM_HADAMARD)) return NB_OK;
    for (size_t i = 0; i < c->n_layer; i++) {
        if (!(e->kvo.transform[i] & NB_TRANSFORM_HADAMARD)) continue;
        if (!hadamard_block(e, i))
            return nb_fail(err, NB_ERR_UNSUPPORTED,
                           "--kv-transform %s: the latent's %zu values are no multiple of %d", name,
                           nb_layer_attn(c, i)->kv_lora, HADAMARD_MIN);
        if (o->kv_outliers)
            return nb_fail(err, NB_ERR_ARG,
                           "--kv-transform %s and --kv-outliers %zu: there are no outlier channels "
                           "after a Hadamard transform (leave one of them out)",
                           name, o->kv_outliers);
        if (e->kvo.have_calib && e->kvo.calib.layer[i].n_outlier)
            return nb_fail(err, NB_ERR_ARG,
                           "--kv-transform %s: the calibration keeps %zu outlier channels of layer "
                           "%zu, and there are none after a Hadamard transform",
                           name, e->kvo.calib.layer[i].n_outlier, i);
    }
    return NB_OK;
}

static nb_status choose_transforms(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    nb_engine_kv *k = &e->kvo;
    const size_t n = e->model.c.n_layer;
    const bool chosen = o->kv_transform && *o->kv_transform;
    unsigned given = 0, all = 0;
    bool differ = false;
    if (chosen) NB_TRY(parse_transform(o->kv_transform, &given, err));
    k->transform = nb_arena_array(&k->arena, n, sizeof *k->transform);
    if (!k->transform) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++) {
        unsigned bits = given;
        if (!chosen && k->have_calib) bits = calibrated_transform(&k->calib.layer[i]);
        k->transform[i] = (unsigned char)bits;
        all |= bits;
        differ |= bits != k->transform[0];
    }
    if (differ)
        (void)snprintf(k->transform_text, sizeof k->transform_text, "per layer");
    else
        transform_name(all, k->transform_text, sizeof k->transform_text);
    return check_transform(e, o, all, err);
}

/* ---- the checkpoint's scales ---- */

typedef enum scales_from { SCALES_AUTO, SCALES_CHECKPOINT, SCALES_DYNAMIC } scales_from;

static nb_status parse_scales(const char *text, scales_from *out, nb_error *err)
{
    *out = SCALES_AUTO;
    if (!text || !strcmp(text, "auto")) return NB_OK;
    if (!strcmp(text, "checkpoint"))
        *out = SCALES_CHECKPOINT;
    else if (!strcmp(text, "dynamic"))
        *out = SCALES_DYNAMIC;
    else
        return nb_fail(err, NB_ERR_ARG, "--kv-scales %s: expected auto, checkpoint or dynamic",
                       text);
    return NB_OK;
}

/* The first layer without the scales that its cache would need, or n_layer. */
static size_t first_without(const nb_engine *e, const nb_kv_scale *s)
{
    const bool mla = nb_attn_is_latent(&e->model.c.attn[0]);
    size_t i = 0;
    while (i < e->model.c.n_layer && (mla ? s[i].k > 0 || s[i].v > 0 : s[i].k > 0 && s[i].v > 0))
        i++;
    return i;
}

/* Scales mean something only for the type that they were measured for; those of checkpoints that
 * name no type are of FP8, the only one there was. */
static bool scales_fit(const nb_engine *e, nb_kv_type t)
{
    return t == NB_KV_NVFP4 ? e->kvo.algo == NB_KV_ALGO_NVFP4
                            : t == NB_KV_FP8 && e->kvo.algo != NB_KV_ALGO_NVFP4;
}

static bool has_transform(const nb_engine *e)
{
    for (size_t i = 0; i < e->model.c.n_layer; i++)
        if (e->kvo.transform[i]) return true;
    return false;
}

/* One latent is key and value: the larger scale holds both (as TensorRT-LLM has it). */
static void take_scales(nb_engine *e, nb_kv_scale *s, nb_kv_type t)
{
    const size_t n = e->model.c.n_layer;
    size_t n_one = 0;
    for (size_t i = 0; i < n; i++) {
        if (nb_attn_is_latent(&e->model.c.attn[0]))
            s[i].k = s[i].v = s[i].k > s[i].v ? s[i].k : s[i].v;
        n_one += t == NB_KV_NVFP4 && (s[i].k == 1 || s[i].v == 1);
    }
    e->kvo.scale = s;
    if (n_one)
        nb_engine_warn(
            e,
            "KV scales of %zu layers are exactly 1: the checkpoint was not calibrated for NVFP4 "
            "(--kv-scales dynamic ignores them)",
            n_one);
}

static nb_status choose_scales(nb_engine *e, scales_from from, nb_kv_type t, nb_error *err)
{
    const size_t n = e->model.c.n_layer;
    size_t n_found = 0;
    nb_kv_scale *s = nb_arena_array(&e->kvo.arena, n, sizeof *s);
    if (!s) return nb_fail(err, NB_ERR_NOMEM, "out of memory");
    NB_TRY(nb_kv_scales_read(e->source, n, s, &n_found, err));
    const size_t without = first_without(e, s);
    if (from == SCALES_CHECKPOINT && without < n)
        return nb_fail(err, NB_ERR_NOT_FOUND,
                       "--kv-scales checkpoint: layer %zu has none (model.layers.%zu.self_attn."
                       "k_proj.k_scale and v_proj.v_scale, or one of their other names)",
                       without, without);
    if (from == SCALES_CHECKPOINT && !scales_fit(e, t))
        return nb_fail(err, NB_ERR_ARG,
                       "--kv-scales checkpoint: they are for --kv-cache-dtype %s, not for %s",
                       e->kvo.algo == NB_KV_ALGO_NVFP4 ? "nvfp4" : "fp8", nb_kv_type_name(t));
    if (n_found == 0 || !scales_fit(e, t)) return NB_OK;
    if (has_transform(e))
        return nb_fail(err, NB_ERR_ARG,
                       "--kv-transform %s: the checkpoint's scales were measured without it (add "
                       "--kv-scales dynamic)",
                       e->kvo.transform_text);
    if (without < n)
        nb_engine_warn(e, "the checkpoint has no KV scale for layer %zu: dynamic where it has none",
                       without);
    take_scales(e, s, t);
    return NB_OK;
}

/* ---- together ---- */

nb_status nb_engine_read_kv(nb_engine *e, const nb_engine_options *o, nb_error *err)
{
    const bool dummy = o->load_format && !strcmp(o->load_format, "dummy");
    const bool files = !dummy && e->source && nb_path_is_dir(o->model);
    scales_from from;
    NB_TRY(parse_scales(o->kv_scales, &from, err));
    if (files) {
        const nb_status st = nb_kv_algo_read(o->model, &e->kvo.algo, err);
        if (st != NB_OK && !(st == NB_ERR_UNSUPPORTED && from == SCALES_DYNAMIC)) return st;
    }
    NB_TRY(read_calibration(e, o->kv_calibration, err));
    NB_TRY(choose_transforms(e, o, err));
    if (!files && from == SCALES_CHECKPOINT)
        return nb_fail(err, NB_ERR_ARG, "--kv-scales checkpoint: dummy weights have none");
    if (!files || from == SCALES_DYNAMIC) return NB_OK;
    /* Records that the calibration chose were measured with dynamic scales. */
    if (!e->kvo.have_calib || !is_auto(o)) return choose_scales(e, from, asked_type(e, o), err);
    if (from == SCALES_CHECKPOINT)
        return nb_fail(err, NB_ERR_ARG,
                       "--kv-scales checkpoint: the calibration file chooses the records, with "
                       "dynamic scales (give --kv-cache-dtype, or leave one of them out)");
    return NB_OK;
}

static nb_status check_hash(const nb_engine *e, nb_error *err)
{
    char hex[65];
    if (!e->kvo.have_calib) return NB_OK;
    NB_TRY(nb_model_hash(&e->model, hex, err));
    if (!strcmp(hex, e->kvo.calib.model_hash)) return NB_OK;
    return nb_fail(err, NB_ERR_FORMAT,
                   "--kv-calibration %s: it was made for another model (hash %.12s, this one's is "
                   "%.12s): run nibble calibrate on this one",
                   e->kvo.calib_path, e->kvo.calib.model_hash, hex);
}

nb_status nb_engine_fold(nb_engine *e, nb_error *err)
{
    const nb_engine_kv *k = &e->kvo;
    NB_TRY(check_hash(e, err));
    for (size_t i = 0; k->transform && i < e->model.c.n_layer; i++) {
        const unsigned t = k->transform[i];
        nb_fold f = { 0 };
        if (!t) continue;
        if (t & NB_TRANSFORM_CENTER) f.mean = k->calib.layer[i].mean;
        if (t & NB_TRANSFORM_EQUALIZE) {
            f.scale_log2 = k->calib.layer[i].scale_log2;
            f.perm = k->calib.layer[i].perm;
        }
        if (t & NB_TRANSFORM_HADAMARD) f.hadamard = hadamard_block(e, i);
        NB_TRY(nb_fold_layer(&e->model, i, &f, err));
    }
    return NB_OK;
}

void nb_engine_kv_deinit(nb_engine_kv *k)
{
    if (k->have_calib) nb_kv_calib_deinit(&k->calib);
    nb_arena_deinit(&k->arena);
    *k = (nb_engine_kv){ 0 };
}
