# weight_mix_gpu.sh - experts of one layer in several forms, on an emulated GPU (NB_TEST_CUDA: on a real one), and on two: logits
# as of the same weights as floats.
. "$2/tests/e2e/_lib.sh"
need "$src/tests/parity/v3/config.json" "no parity vectors"
lib=${NB_TEST_CUDA:-$(dirname "$nibble")/libnibble-cuda-emu.so}
need "$lib" "no CUDA library"
writer=$src/tests/e2e/_weight_mix.py
printf '[3,141,59,265,35,89,7,93,238,46,26,43,300,8,32,79,50,28,8,41,97,169,39,93]' >"$tmp/t.json"
logits() {
    ok logits "$1" --tokens "$tmp/t.json" --kv-cache-dtype f32 --activation-dtype float --device cpu --rows 0,9,23 \
        --output "$2" --strict
}
# shellcheck disable=SC2086
gpu() {
    ok logits "$1" --tokens "$tmp/t.json" --kv-cache-dtype f32 --activation-dtype float --rows 0,9,23 --output "$2" --strict \
        --device cuda --cuda-library "$lib" --mla $3
}
divided=
# Prompts attend in BF16 on a GPU, in both files alike.
for case in $(python3 "$writer" list gpu); do
    rm -rf "$tmp/m"
    python3 "$writer" make "$case" "$src/tests/parity" "$tmp/m" || die "$case: cannot be written"
    logits "$tmp/m/f" "$tmp/f.f32"
    gpu "$tmp/m/q" "$tmp/q.f32" absorbed
    python3 "$writer" compare "$tmp/q.f32" "$tmp/f.f32" || die "$case: wrong logits on a GPU"
    # two ranks divide it, to the bit; FP8 with one scale for 128 rows only where a rank has whole blocks
    if "$nibble" logits "$tmp/m/q" --tokens "$tmp/t.json" --kv-cache-dtype f32 --activation-dtype float --rows 0,9,23 \
        --output "$tmp/n.f32" --device cuda --cuda-library "$lib" --mla absorbed -tp 2 2>"$tmp/err"; then
        cmp -s "$tmp/q.f32" "$tmp/n.f32" || die "$case: other logits on two GPU ranks"
        divided="$divided $case"
    else
        grep -q "whole blocks of 128 rows of FP8" "$tmp/err" || die "$case: $(cat "$tmp/err")"
    fi
    gpu "$tmp/m/q" "$tmp/q.f32" auto
    gpu "$tmp/m/f" "$tmp/f.f32" auto
    python3 "$writer" compare "$tmp/q.f32" "$tmp/f.f32" 2e-3 || die "$case: wrong logits of a prompt on a GPU"
done
[ "$(echo $divided | wc -w)" -ge 5 ] || die "two GPU ranks divide only:$divided"
# A GGUF whose gate, up and down have three types, as recipes per tensor make them; the last also in host memory.
python3 "$writer" make experts-apart "$src/tests/parity" "$tmp/m" || die "cannot be written"
for type in Q4_K_S Q5_K_M Q6_K; do
    ok convert "$tmp/m/f" "$tmp/$type.gguf" --weight-format "gguf:$type" --gguf-pre none
done
PYTHONDONTWRITEBYTECODE=1 python3 "$src/tests/e2e/_convert.py" splice "$tmp/mix.gguf" "$tmp/Q4_K_S.gguf" \
    ffn_up_exps "$tmp/Q6_K.gguf" attn_v_b "$tmp/Q6_K.gguf" blk.1.ffn_down_exps "$tmp/Q5_K_M.gguf" || die "no mixture"
logits "$tmp/mix.gguf" "$tmp/f.f32"
gpu "$tmp/mix.gguf" "$tmp/q.f32" absorbed
python3 "$writer" compare "$tmp/q.f32" "$tmp/f.f32" || die "a GGUF of several types: wrong logits on a GPU"
gpu "$tmp/mix.gguf" "$tmp/n.f32" "absorbed -tp 2"
cmp -s "$tmp/q.f32" "$tmp/n.f32" || die "a GGUF of several types: other logits on two GPU ranks"
ok plan "$tmp/mix.gguf" --json
python3 "$src/tests/e2e/_convert.py" bytes "$tmp/mix.gguf" "$tmp/out" || die "a GGUF of several types: plan counts other bytes"
fails 1 "cpu-experts one rank" logits "$tmp/mix.gguf" --tokens "$tmp/t.json" --output "$tmp/x.f32" --device cuda --cuda-library "$lib" \
    --mla absorbed --cpu-experts all -tp 2
gpu "$tmp/mix.gguf" "$tmp/q.f32" "absorbed --cpu-experts all"
python3 "$writer" compare "$tmp/q.f32" "$tmp/f.f32" || die "a GGUF of several types: wrong logits with --cpu-experts"
exit 0
