#!/bin/sh
# Sparse attention (DSA) against its definition in float64: _dsa_reference.py makes tiny checkpoints of DeepSeek-V3.2,
# GLM-5 and GLM-5.2 (layers that share an indexer) and computes their logits with numpy.
. "$2/tests/e2e/_lib.sh"
ref=$src/tests/e2e/_dsa_reference.py
py=
for p in /usr/bin/python3 python3; do
    "$p" -c 'import numpy' 2>/dev/null && py=$p && break
done
[ -n "$py" ] || skip "no numpy"

$py -c 'import json, random
random.seed(3)
print(json.dumps([random.randrange(96) for _ in range(200)]))' >"$tmp/tokens.json"
rows=$($py -c 'print(",".join(str(i) for i in range(0, 200, 3)))')

# compare MODEL FILE BOUND: rows of logits against the reference's.
compare() {
    $py - "$tmp/$1.ref/logits.f64" "$2" "$3" "$1" <<'PY' || die "$1: logits differ"
import sys
import numpy as np
want = np.fromfile(sys.argv[1]).reshape(200, -1)[::3]
got = np.fromfile(sys.argv[2], np.float32).reshape(want.shape)
diff = np.abs(got - want).max()
print(f"{sys.argv[4]}: logits differ by {diff:.2g} of {np.abs(want).max():.2g}")
sys.exit(not diff <= float(sys.argv[3]))
PY
}

# check NAME FAMILY JSON: a checkpoint of that family with these values in its config.json has the reference's logits.
check() {
    $py "$ref" --make "$2" "$tmp/$1" "$3" || die "cannot make $1"
    mkdir "$tmp/$1.ref"
    $py "$ref" "$tmp/$1" "$tmp/tokens.json" "$tmp/$1.ref" || die "no reference of $1"
    for form in absorbed expanded; do
        for chunk in 512 7; do
            ok logits "$tmp/$1" --tokens "$tmp/tokens.json" --rows "$rows" --output "$tmp/x.f32" \
                --kv-cache-dtype f32 --mla $form --prefill-chunk $chunk --threads 2
            compare "$1" "$tmp/x.f32" 1e-4
        done
    done
}

# Shapes that no published model has: no dense layer, one choice, an indexer of one head, groups of experts, tied
# embeddings, indexers shared at odd places.
check odd deepseek_v32 '{"num_attention_heads": 1, "num_key_value_heads": 1, "q_lora_rank": 9, "kv_lora_rank": 33,
    "v_head_dim": 3, "first_k_dense_replace": 0, "n_group": 3, "topk_group": 2, "index_n_heads": 33, "index_topk": 1}'
check tied glm5 '{"num_attention_heads": 7, "num_key_value_heads": 7, "num_hidden_layers": 5, "index_n_heads": 1,
    "index_topk": 65, "index_topk_pattern": "FSSFS", "tie_word_embeddings": true, "first_k_dense_replace": 9}'
check shared glm5 '{"num_hidden_layers": 4, "indexer_types": ["full", "full", "shared", "shared"], "n_group": 2,
    "first_k_dense_replace": 0, "norm_topk_prob": false, "qk_rope_head_dim": 16, "index_head_dim": 16}'

for family in deepseek_v32 glm5 glm52; do
    check $family $family '{}'
    # what is cached changes choices that are close, and nothing else
    ok logits "$tmp/$family" --tokens "$tmp/tokens.json" --rows "$rows" --output "$tmp/x.f32" --kv-cache-dtype nvfp4
    ok logits "$tmp/$family" --tokens "$tmp/tokens.json" --rows "$rows" --output "$tmp/y.f32" --kv-cache-dtype nvfp4 \
        --prefill-chunk 5 --threads 1
    [ "$(cmp -s "$tmp/x.f32" "$tmp/y.f32" && echo same)" = same ] || die "$family: other chunks, other bits"
done

# Several ranks choose the same; so do weights in 8 bits, whatever they are.
ok logits "$tmp/glm52" --tokens "$tmp/tokens.json" --rows "$rows" --output "$tmp/x.f32" --kv-cache-dtype nvfp4 --threads 2
ok logits "$tmp/glm52" --tokens "$tmp/tokens.json" --rows "$rows" --output "$tmp/y.f32" --kv-cache-dtype nvfp4 --threads 2 \
    -tp 2
cmp -s "$tmp/x.f32" "$tmp/y.f32" || die "two ranks, other bits"
ok logits "$tmp/glm52" --tokens "$tmp/tokens.json" --output "$tmp/y.f32" --weight-dtype int8 --kv-transform hadamard

# A context of at most index_topk tokens: dense attention, bit for bit.
cp -r "$tmp/deepseek_v32" "$tmp/dense"
cp -r "$tmp/deepseek_v32" "$tmp/wide"
edit() { $py -c 'import json, sys
p = sys.argv[1] + "/config.json"
j = json.load(open(p))
j.update(json.loads(sys.argv[2]))
json.dump(j, open(p, "w"))' "$1" "$2"; }
edit "$tmp/dense" '{"model_type": "deepseek_v3", "index_topk": null}'
edit "$tmp/wide" '{"index_topk": 200}'
for kv in f32 nvfp4; do
    for form in absorbed expanded; do
        for m in dense wide; do
            ok logits "$tmp/$m" --tokens "$tmp/tokens.json" --rows "$rows" --output "$tmp/$m.f32" --kv-cache-dtype $kv \
                --mla $form
        done
        cmp -s "$tmp/dense.f32" "$tmp/wide.f32" || die "index_topk = context differs from dense attention ($kv, $form)"
    done
done

# What is not there is refused by name.
fails 1 "kv-thrift sparse" logits "$tmp/glm5" --tokens "$tmp/tokens.json" --rows 1 --output "$tmp/z" --kv-cache-dtype nvfp4 \
    --kv-thrift token
edit "$tmp/glm5" '{"kv_lora_rank": 128}'
fails 1 "fp8_ds_mla indexer" logits "$tmp/glm5/config.json" --load-format dummy --tokens "$tmp/tokens.json" --rows 1 \
    --output "$tmp/z" --kv-cache-dtype fp8_ds_mla
edit "$tmp/glm5" '{"q_lora_rank": null}'
fails 1 "q_lora_rank indexer" info "$tmp/glm5"
exit 0
