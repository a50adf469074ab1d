/* config_path.c - the configuration of a MODEL of the command line. */
#include "model/config.h"

#include "load/explain.h"

/* generation_config.json may name more end-of-text ids than config.json. */
static nb_status add_generation(nb_doc *doc, nb_model_config *c, nb_error *err)
{
    uint64_t id[NB_MAX_EOS];
    size_t n = 0;
    (void)nb_doc_u64s(doc, "eos_token_id", UINT32_MAX, id, NB_MAX_EOS, &n);
    NB_TRY(nb_doc_check(doc, err));
    for (size_t i = 0; i < n; i++) {
        bool known = false;
        for (size_t k = 0; k < c->n_eos; k++) known |= c->eos[k] == (uint32_t)id[i];
        if (!known && c->n_eos < NB_MAX_EOS) c->eos[c->n_eos++] = (uint32_t)id[i];
    }
    return NB_OK;
}

/* Older ModelOpt checkpoints describe their weights here only. */
static nb_status add_modelopt(const char *model, nb_model_config *c, bool any, nb_error *err)
{
    nb_doc *doc = NULL;
    if (c->fp8 || c->quant.method[0]) return NB_OK;
    NB_TRY(nb_doc_read_model(model, "hf_quant_config.json", true, &doc, err));
    if (!doc) return NB_OK;
    if (c->paired) {
        nb_doc_destroy(doc);
        return nb_fail(err, NB_ERR_UNSUPPORTED, "hf_quant_config.json is not supported for %s",
                       c->family);
    }
    const nb_quant_model m = { c->dense, c->n_layer, c->n_expert, c->inner };
    nb_status st = nb_quant_read_file(doc, &m, &c->quant, c->quant_of, err);
    if (st == NB_OK && c->quant.method[0]) {
        nb_error why = { 0 };
        const nb_status ok = nb_quant_check_file(doc, &why);
        c->quant.runs = ok == NB_OK;
        if (ok != NB_OK && !any) st = nb_fail(err, ok, "%s", why.msg);
    }
    nb_doc_destroy(doc);
    return st;
}

static nb_status read_path(const char *model, nb_model_config *c, bool any, nb_error *err)
{
    nb_doc *doc = NULL;
    if (!model || !*model) return nb_fail(err, NB_ERR_ARG, "no model given");
    nb_status st = nb_doc_read_model(model, "config.json", false, &doc, err);
    if (st != NB_OK) return nb_explain_model(model, st, err);
    st = any ? nb_model_config_read_any(doc, c, err) : nb_model_config_read(doc, c, err);
    nb_doc_destroy(doc);
    if (st != NB_OK) return st;
    NB_TRY(add_modelopt(model, c, any, err));
    NB_TRY(nb_doc_read_model(model, "generation_config.json", true, &doc, err));
    if (!doc) return NB_OK;
    st = add_generation(doc, c, err);
    nb_doc_destroy(doc);
    return st;
}

nb_status nb_model_config_read_path(const char *model, nb_model_config *c, nb_error *err)
{
    return read_path(model, c, false, err);
}

nb_status nb_model_config_read_path_any(const char *model, nb_model_config *c, nb_error *err)
{
    return read_path(model, c, true, err);
}
