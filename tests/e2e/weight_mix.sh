# weight_mix.sh - random checkpoints in mixtures of published forms, families, names, shards and odd sizes: logits as of the
# same weights as floats, and `plan` counts the bytes of the tensors.
. "$2/tests/e2e/_lib.sh"
need "$src/tests/parity/v3/config.json" "no parity vectors"
writer=$src/tests/e2e/_weight_mix.py
printf '[3,141,59,265,35,89,7,93,238,46,26,43,300,8,32,79,50,28,8,41,97,169,39,93]' >"$tmp/t.json"
logits() {
    ok logits "$1" --tokens "$tmp/t.json" --kv-cache-dtype f32 --activation-dtype float --device cpu --rows 0,9,23 \
        --output "$2" --strict
}
# Cases whose quantization_config names every module that is quantised, with scales of 16 bits.
counted="w4-odd w4-odd-asym w4-odd-act w8-odd-asym preset preset-fp8 preset-mxfp4 mixed-ints mixed-floats block-words
kimi kimi-outer kimi-new-names kimi-cache modelopt modelopt-file awq awq-old gptq-dynamic gptq-8-odd round-extra stacked
experts-apart experts-plain experts-round experts-modelopt"

for case in $(python3 "$writer" list); do
    rm -rf "$tmp/m"
    python3 "$writer" make "$case" "$src/tests/parity" "$tmp/m" || die "$case: cannot be written"
    logits "$tmp/m/q" "$tmp/q.f32"
    logits "$tmp/m/f" "$tmp/f.f32"
    python3 "$writer" compare "$tmp/q.f32" "$tmp/f.f32" || die "$case: wrong logits"
    case " $(echo $counted) " in *" $case "*)
        ok plan "$tmp/m/q" --json
        python3 "$writer" bytes "$tmp/m/q" "$tmp/out" || die "$case: wrong bytes"
        ;;
    esac
done

# What is not supported is refused by the tensor's name or by the field's.
refused() {
    rm -rf "$tmp/m"
    python3 "$writer" make "$1" "$src/tests/parity" "$tmp/m" || die "$1: cannot be written"
    sed -i "$2" "$tmp/m/q/config.json"
    fails 1 "$3" logits "$tmp/m/q" --tokens "$tmp/t.json" --device cpu --output "$tmp/x.f32"
}
for bits in 2 3 5 6 7; do
    refused w4-odd "s/\"num_bits\": 4/\"num_bits\": $bits/" "config.json $bits bits"
    ok plan "$tmp/m/q"
    refused gptq-odd "s/\"bits\": 4/\"bits\": $bits/" "config.json $bits bits"
    ok plan "$tmp/m/q"
done
refused gptq-8-odd 's/"bits": 8/"bits": 4/' "tensor qweight"
refused mixed-ints 's/"num_bits": 8, "type": "int", "symmetric": true, "group_size": 64/"num_bits": 8, "group_size": 32/' "tensor groups"
refused w4-odd 's/"Linear"/"re:(("/' "config.json regular expression"
refused kimi 's/"compressed-tensors"/"bitsandbytes"/' "bitsandbytes not supported"
ok plan "$tmp/m/q"
