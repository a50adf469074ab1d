# shapes.sh - every family with latent attention runs in its published shape of attention, cut in everything else, with
# dummy weights: on a CPU, and on the emulated GPU where the latent or the block has another form.
. "$2/tests/e2e/_lib.sh"
emu=$(dirname "$nibble")/libnibble-cuda-emu.so
printf '[0,141,59,265,35,89,7,93,238,46,26,43,300,8,32,79,50,28,8,41,97,169,39,93' >"$tmp/t.json"
for i in 1 2 3 4 5 6; do printf ',%d,11,302,4%d,77,1%d5,260,9' "$i" "$i" "$i" >>"$tmp/t.json"; done
printf ']' >>"$tmp/t.json"
cut_config() {
    python3 - "$src/models/configs/$1.json" "$2" <<'EOF' || die "cannot cut $1"
import json, os, sys
small = {"vocab_size": 320, "hidden_size": 128, "intermediate_size": 64, "ffn_hidden_size": 64, "moe_intermediate_size": 32,
         "expert_ffn_hidden_size": 32, "moe_shared_expert_intermediate_size": 32, "n_routed_experts": 8, "num_experts": 8,
         "zero_expert_num": 4, "num_hidden_layers": 2, "num_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4,
         "first_k_dense_replace": 1, "num_experts_per_tok": 3, "moe_topk": 3, "n_group": 1, "topk_group": 1}
c = json.load(open(sys.argv[1]))
c.update({k: v for k, v in small.items() if c.get(k) is not None})
c.pop("quantization_config", None)
if sys.argv[2].endswith("kimi_k25"):
    c = {"model_type": "kimi_k25", "text_config": c, "vision_config": {"model_type": "moonvit"}}
os.makedirs(sys.argv[2])
json.dump(c, open(f"{sys.argv[2]}/config.json", "w"))
EOF
}
run_on() {
    ok logits "$1" --load-format dummy --tokens "$tmp/t.json" --kv-cache-dtype nvfp4 --rows 0,71 --output "$tmp/$2.f32" --device "$2" $3
}
compare() {
    python3 - "$tmp/cpu.f32" "$tmp/cuda.f32" <<'EOF' || die "$1: the GPU has other logits"
import array, sys
a, b = (array.array("f", open(f, "rb").read()) for f in sys.argv[1:])
worst, most = max(abs(x - y) for x, y in zip(a, b)), max(map(abs, a))
print(worst, most)
sys.exit(not (len(a) == len(b) == 640 and most > 0.1 and worst < 0.02 * most))
EOF
}
for name in kimi-k2-thinking:kimi_k25 mistral-small-4 mistral-large-3 longcat-flash a.x-k1 sarvam-105b gigachat3-10b minicpm3-4b; do
    dir=$tmp/${name#*:}
    cut_config "${name%:*}" "$dir"
    run_on "$dir" cpu ""
    case $name in
    mistral-small-4 | longcat-flash | minicpm3-4b)
        [ -e "$emu" ] || continue
        run_on "$dir" cuda "--cuda-library $emu"
        compare "$name"
        ;;
    esac
done
if [ -e "$emu" ]; then # LongCat's experts in host memory, where the zero ones are added, too
    run_on "$tmp/longcat-flash" cpu ""
    run_on "$tmp/longcat-flash" cuda "--cuda-library $emu --cpu-experts all"
    compare "longcat-flash, --cpu-experts all"
fi
exit 0
