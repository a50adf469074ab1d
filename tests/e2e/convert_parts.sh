# convert_parts.sh - `nibble convert` of a language model that is a part of another: kimi_k25, and mistral4 whose experts
# share a tensor.  The result is that of the part alone; what cannot be read back is refused.
. "$2/tests/e2e/_lib.sh"
kimi=$src/tests/parity/kimi_k2
m4=$src/tests/parity/mistral4
need "$kimi/expected.safetensors" "no parity vectors"
need "$m4/expected.safetensors" "no parity vectors"
python3 "$src/tests/e2e/_expected.py" "$kimi/expected.safetensors" list tokens >"$tmp/t.json" || die "no tokens"
python3 "$src/tests/e2e/_kimi_k25.py" "$kimi" "$tmp/k25" || die "cannot make kimi_k25"
python3 "$src/tests/e2e/_mistral_params.py" "$m4" "$tmp" || die "cannot make mistral4"
logits() {
    ok logits "$1" --tokens "$tmp/t.json" --rows 0,64,149 --output "$2" --device cpu
    grep -i "not used\|unused\|ignored" "$tmp/err" && die "$1: a tensor is left over"
}
# pair NAME WHOLE PART FORM...
pair() {
    local name=$1 whole=$2 part=$3 form more
    shift 3
    for form in "$@"; do
        rm -rf "$tmp/a" "$tmp/b"
        case $form in gguf:*) more="--gguf-pre none" ;; *) more= ;; esac
        ok convert "$whole" "$tmp/a" --weight-format "$form" $more
        ok convert "$part" "$tmp/b" --weight-format "$form" $more
        logits "$tmp/a" "$tmp/a.f32"
        logits "$tmp/b" "$tmp/b.f32"
        cmp "$tmp/a.f32" "$tmp/b.f32" || die "$name, $form: other logits than the part alone"
    done
}
pair kimi_k25 "$tmp/k25" "$kimi" int4-g32 fp8-block gguf:Q8_0
pair mistral4 "$m4" "$tmp/flat" int4-g32 nvfp4 fp8 fp8-block bf16
logits "$m4" "$tmp/m4.f32"
cmp "$tmp/m4.f32" "$tmp/a.f32" || die "mistral4 in bf16 has other logits"
ok convert "$m4" "$tmp/q" --weight-format fp8 --json
[ "$(json "$tmp/out" "j['quantised'] >= 12 * 3 * 2")" = True ] || die "experts of a stack stay as they are: $(cat "$tmp/out")"
ok convert "$m4" "$tmp/kept" --weight-format int4-g32 --keep mlp.experts --json
logits "$tmp/kept" "$tmp/x.f32"
fails 1 "mistral4 GGUF deepseek_v3" convert "$m4" "$tmp/x.gguf" --weight-format gguf:Q8_0

mkdir "$tmp/longcat" && cp "$src/models/configs/longcat-flash.json" "$tmp/longcat/config.json"
cp "$kimi/model.safetensors" "$tmp/longcat"
fails 1 "longcat_flash int4-g32 fp8-block" convert "$tmp/longcat" "$tmp/x" --weight-format int4-g32

# Matrices of an indexer stay as they are, and the configuration says so.
echo "[1, 2, 3, 4]" >"$tmp/dsa.json"
for form in nvfp4 fp8-block; do
    ok convert "$src/tests/parity/v32_fp8" "$tmp/v32-$form" --weight-format $form
    ok logits "$tmp/v32-$form" --tokens "$tmp/dsa.json" --rows 3 --output "$tmp/x.f32" --threads 1
    for m in wq_b wk weights_proj; do
        grep -q "self_attn.indexer.$m\"" "$tmp/v32-$form/config.json" || die "$form: $m is not named"
    done
done
exit 0
