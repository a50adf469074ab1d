#!/bin/sh
# DeepSeek V4 in shapes that no published model has, against the reference in float64 (tests/parity/v4_ref.py): other head
# counts, ranks that are no multiple of 64, windows longer than the context, first layers with an indexer, one stream.
. "$2/tests/e2e/_lib.sh"
py=
for p in /usr/bin/python3 python3; do
    "$p" -c 'import numpy' 2>/dev/null && py=$p && break
done
[ -n "$py" ] || skip "no numpy"

# make NAME N_TOKENS JSON: a checkpoint with these values in its config.json, tokens, and logits of all rows.
make() {
    mkdir "$tmp/$1" && $py - "$src/tests/parity" "$tmp/$1" "$2" "$3" <<'PY' || die "cannot make $1"
import json
import random
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import v4_ref

where, n = sys.argv[2], int(sys.argv[3])
config = {**v4_ref.CONFIG, **json.loads(sys.argv[4])}
v4_ref.save(where + "/model.safetensors", v4_ref.make_weights(config, 5))
with open(where + "/config.json", "w") as f:
    json.dump(config, f)
tokens = [random.Random(3).randrange(config["vocab_size"]) for _ in range(n)]
with open(where + "/tokens.json", "w") as f:
    json.dump(tokens, f)
logits, _ = v4_ref.Reference(config, v4_ref.load(where + "/model.safetensors")).forward(tokens)
logits.astype("<f8").tofile(where + "/logits.f64")
with open(where + "/rows", "w") as f:
    f.write(",".join(str(i) for i in range(n)))
PY
}

compare() {
    $py - "$tmp/$1/logits.f64" "$2" "$1" <<'PY' || die "$1: logits differ"
import sys
import numpy as np
want = np.fromfile(sys.argv[1])
got = np.fromfile(sys.argv[2], np.float32)
diff = np.abs(got - want).max()
print(f"{sys.argv[3]}: logits differ by {diff:.2g} of {np.abs(want).max():.2g}")
sys.exit(not diff <= 1e-4)
PY
}

make heads 150 '{"num_attention_heads": 3, "head_dim": 72, "qk_rope_head_dim": 2, "o_groups": 3, "o_lora_rank": 5,
    "q_lora_rank": 17, "index_n_heads": 33, "index_head_dim": 20, "index_topk": 2, "compress_ratios": [4, 128, 4],
    "num_hidden_layers": 3, "num_nextn_predict_layers": 0, "num_hash_layers": 0}'
make window 300 '{"sliding_window": 700, "hc_mult": 1, "compress_ratios": [128, 4, 0], "num_hidden_layers": 3,
    "num_nextn_predict_layers": 0, "num_hash_layers": 3, "index_topk": 63, "q_lora_rank": 130, "hidden_size": 96}'
make narrow 200 '{"sliding_window": 1, "hc_mult": 5, "hc_sinkhorn_iters": 1, "compress_ratios": [4, 4],
    "num_hidden_layers": 2, "num_nextn_predict_layers": 0, "index_topk": 1, "num_attention_heads": 1, "o_groups": 1,
    "index_n_heads": 1, "index_head_dim": 8, "rope_scaling": null, "n_routed_experts": 7, "num_experts_per_tok": 6}'
make short 5 '{"sliding_window": 63, "index_topk": 500, "moe_intermediate_size": 160}'

for name in heads window narrow short; do
    for chunk in 512 7; do
        ok logits "$tmp/$name" --tokens "$tmp/$name/tokens.json" --rows "$(cat "$tmp/$name/rows")" \
            --output "$tmp/x.f32" --kv-cache-dtype f32 --prefill-chunk $chunk --threads 2
        compare $name "$tmp/x.f32"
    done
done
