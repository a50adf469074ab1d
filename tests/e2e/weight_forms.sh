# weight_forms.sh - checkpoints in every published form of quantised weights: the logits are those of the same
# weights as floats, on the CPU and on an emulated GPU (NB_TEST_CUDA: on a real one).
. "$2/tests/e2e/_lib.sh"
base=$src/tests/parity/kimi_k2
writer=$src/tests/e2e/_weight_forms.py
need "$base/model.safetensors" "no parity vectors"
printf '[3,141,59,265,35,89,7,93,238,46,26,43,300,8,32,79,50,28,8,41,97,169,39,93]' >"$tmp/t.json"
logits() { ok logits "$1" --tokens "$tmp/t.json" --kv-cache-dtype f32 --activation-dtype float --device cpu --rows 0,9,23 \
        --output "$2" $3; }

lib=${NB_TEST_CUDA:-$(dirname "$nibble")/libnibble-cuda-emu.so}

logits "$base" "$tmp/base.f32" ""
for form in $(python3 "$writer" list); do
    python3 "$writer" "$form" "$base" "$tmp/$form" || die "$form: cannot be written"
    logits "$tmp/$form/q" "$tmp/q.f32" --strict
    logits "$tmp/$form/f" "$tmp/f.f32" ""
    python3 "$writer" compare "$tmp/q.f32" "$tmp/f.f32" "$tmp/base.f32" || die "$form: wrong logits"
    if [ -e "$lib" ]; then # act order and odd groups become floats there
        logits "$tmp/$form/q" "$tmp/g.f32" "--mla absorbed --device cuda --cuda-library $lib"
        python3 "$writer" compare "$tmp/g.f32" "$tmp/f.f32" "$tmp/base.f32" || die "$form: wrong logits on a GPU"
    fi
    rm -rf "${tmp:?}/$form/f"
done

# INT4 stays as it is where the rest becomes INT8.
logits "$tmp/kimi/q" "$tmp/q.f32" "--weight-dtype int8"
logits "$tmp/w4-act/q" "$tmp/q.f32" "--weight-dtype int8"
if [ -e "$lib" ]; then
    # The rest in 8 bits.  With int8 a CPU multiplies integers, which moves logits by more than the sums do.
    for case in "fp8 1e-4" "int8 1e-3"; do
        # shellcheck disable=SC2086
        set -- $case
        logits "$tmp/kimi/q" "$tmp/q.f32" "--weight-dtype $1 --mla absorbed"
        logits "$tmp/kimi/q" "$tmp/g.f32" "--weight-dtype $1 --mla absorbed --device cuda --cuda-library $lib"
        python3 - "$tmp/q.f32" "$tmp/g.f32" "$2" <<'END' || die "$1: wrong logits on a GPU"
import array
import sys
a, b = (array.array("f", open(f, "rb").read()) for f in sys.argv[1:3])
sys.exit(not max(abs(x - y) for x, y in zip(a, b)) <= float(sys.argv[3]) * max(map(abs, a)))
END
    done
fi

# Damaged tensors and contradictions are refused by name, in one line.
small_memory
refused() { fails 1 "$2" logits "$1" --tokens "$tmp/t.json" --device cpu --output "$tmp/x.f32"; }
while read -r name form words; do
    rm -rf "$tmp/broken" && mkdir "$tmp/broken" && cp -R "$tmp/$form/q" "$tmp/broken/"
    python3 "$writer" spoil "$name" "$tmp/broken" || die "$name: cannot be spoiled"
    refused "$tmp/broken/q" "tensor $words"
done <<END
$(python3 "$writer" broken)
END
edit() { rm -rf "$tmp/edit" && cp -R "$tmp/$1/q" "$tmp/edit" && sed -i "$2" "$tmp/edit/config.json"; }
edit w4-asym 's/"num_bits": 4/"num_bits": 8/'
refused "$tmp/edit" "tensor words 8 bits"
edit w4-asym 's/"num_bits": 4/"num_bits": 3/'
refused "$tmp/edit" "3 bits not supported"
edit w4-asym 's/"group_size": 32/"group_size": 16/'
refused "$tmp/edit" "tensor groups"
edit w4-asym 's/pack-quantized/marlin-24/'
refused "$tmp/edit" "marlin-24 not supported"
edit awq 's/"version": "gemm"/"version": "gemv"/'
refused "$tmp/edit" "gemv not supported"
edit fp8-modelopt 's/"quant_algo": "FP8"/"quant_algo": "W4A8_AWQ"/'
refused "$tmp/edit" "W4A8_AWQ not supported"
cp "$base/config.json" "$tmp/edit/config.json"
refused "$tmp/edit" "tensor quantised quantization_config"
