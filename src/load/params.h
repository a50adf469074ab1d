/* params.h - checkpoints in Mistral's own layout: params.json, and consolidated*.safetensors with names of its own.
 *
 * Both are put into the words of a Hugging Face folder, so that nothing behind src/load knows them.  Only models with
 * latent attention (Mistral Large 3, Mistral Small 4) are read in this form.
 *
 * Sources: params.json of mistralai/Mistral-Large-3-675B-Instruct-2512; names and keys as vLLM reads them. */
#ifndef NB_LOAD_PARAMS_H
#define NB_LOAD_PARAMS_H
#include "base/str.h"

/* config.json's text from that of params.json, appended to *out.  name: in front of error lines.  Keys at the
 * top that are not known stay, so that the configuration's reader notes or refuses them.  NB_ERR_FORMAT,
 * NB_ERR_UNSUPPORTED (with the key), NB_ERR_NOMEM. */
nb_status nb_params_config(nb_str params, const char *name, nb_buf *out, nb_error *err);

/* The name of a tensor in a Hugging Face folder; false: it has none there, or is longer than n_bytes. */
bool nb_params_tensor(const char *name, char *out, size_t n_bytes);

#endif
