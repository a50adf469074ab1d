/* kv_codec.c - the variants of the KV page codec. */
#include "kernel/kv_codec/kv_codec.h"

const nb_kv_codec_variant nb_kv_codec_variants[] = {
    { "c", NB_SPACE_HOST, 0, nb_kv_encode_c, nb_kv_decode_c }, /* runs everywhere */
    { 0 },
};
