# convert.sh - `nibble convert` to a folder: what it writes is read by independent code, loads, and gives the logits
# of its own values; refusals; nothing is left behind.
. "$2/tests/e2e/_lib.sh"
parity=$src/tests/parity/kimi_k2
base=$tmp/base
py=$src/tests/e2e/_convert.py
need "$model/config.json" "no bundled model"
need "$parity/model.safetensors" "no parity vectors"
mkdir "$base" && cp "$parity/config.json" "$parity/model.safetensors" "$base"
printf '[0,141,59,265,35,89,7,93,238,46,26,43,300,8,32,79,50,28,8,41,97,169,39,93]' >"$tmp/t.json"
logits() { ok logits "$1" --tokens "$tmp/t.json" --kv-cache-dtype f32 --activation-dtype float --device cpu --rows 0,9,23 --output "$2"; }

logits "$base" "$tmp/base.f32"
for form in int4-g32 nvfp4 mxfp4 fp8 fp8-block modelopt-nvfp4 modelopt-fp8; do
    ok convert "$base" "$tmp/q" --weight-format $form --threads 2
    [ -e "$tmp/q.partial" ] && die "$form: a folder is left"
    python3 "$py" check $form "$base" "$tmp/q" "$tmp/f" || die "$form: wrong tensors"
    logits "$tmp/q" "$tmp/q.f32"
    logits "$tmp/f" "$tmp/f.f32"
    python3 "$src/tests/e2e/_weight_forms.py" compare "$tmp/q.f32" "$tmp/f.f32" "$tmp/base.f32" || die "$form: wrong logits"
    ok convert "$base" "$tmp/one" --weight-format $form --threads 1 --max-shard-size 1
    python3 "$py" same "$tmp/q" "$tmp/one" || die "$form: threads or shards change bytes"
    cp "$tmp/q.f32" "$tmp/q.$form"
    case $form in modelopt-*) # either of the two descriptions is enough, and both formats have the same codes
        for drop in config file; do
            rm -rf "$tmp/half" && cp -R "$tmp/q" "$tmp/half"
            python3 "$py" drop "$tmp/half" $drop
            logits "$tmp/half" "$tmp/half.f32"
            cmp -s "$tmp/half.f32" "$tmp/q.f32" || die "$form: other logits without the $drop"
        done
        [ $form = modelopt-nvfp4 ] || cmp -s "$tmp/q.f32" "$tmp/q.fp8" || die "$form: other logits than fp8" ;;
    esac
    rm -rf "${tmp:?}/q" "$tmp/f" "$tmp/one"
done

# FP8 blocks are a source too; bf16 undoes them; columns that do not fit and --keep stay as they are.
ok convert "$base" "$tmp/fp8" --weight-format fp8-block
ok convert "$tmp/fp8" "$tmp/bf16" --weight-format bf16
ok convert "$tmp/fp8" "$tmp/from8" --weight-format nvfp4
ok convert "$tmp/bf16" "$tmp/from16" --weight-format nvfp4
logits "$tmp/from8" "$tmp/a.f32"
logits "$tmp/from16" "$tmp/b.f32"
ok convert "$model" "$tmp/g128" --weight-format int4-g128 --max-shard-size 8 --json
[ "$(json "$tmp/out" "j['quantised'] > 0 and j['kept'] > j['quantised']")" = True ] || die "g128: $(cat "$tmp/out")"
[ -e "$tmp/g128/tokenizer.json" ] || die "the tokenizer does not go along"
[ "$(ls "$tmp/g128" | grep -c 'safetensors$')" = 3 ] || die "g128: $(ls "$tmp/g128")"
ok run "$tmp/g128" -p 'Once upon a time' -n 4
ok convert "$base" "$tmp/kept" --weight-format fp8 --keep kv_b_proj,mlp.experts.1. --json
[ "$(json "$tmp/out" "j['kept'] > 0")" = True ] || die "--keep: $(cat "$tmp/out")"
logits "$tmp/kept" "$tmp/a.f32"

# How much columns count: from a text, and from both forms of llama.cpp's files; equal weights change nothing.
imatrix() { python3 "$src/tests/e2e/_imatrix.py" "$@" blk.0.attn_q_a.weight:1:320 blk.0.attn_kv_b.weight:1:512 blk.1.ffn_gate_exps.weight:8:320 blk.1.ffn_down_exps.weight:8:96; }
for i in 1 2 3 4 5 6 7 8 9; do printf 'Once upon a time there was a fox who lived near the river, and %s owls came to see him. ' $i; done >"$tmp/text"
ok convert "$model" "$tmp/plain" --weight-format int4-g32
ok convert "$model" "$tmp/cal" --weight-format int4-g32 --calibration-text "$tmp/text" --threads 2 --json
[ "$(json "$tmp/out" "j['weighted'] > 0 and j['shared'] > 0 and j['unweighted'] == 0 and j['calibration_tokens'] > 100")" = True ] || die "calibration: $(cat "$tmp/out")"
ok convert "$model" "$tmp/one" --weight-format int4-g32 --calibration-text "$tmp/text" --threads 1
python3 "$py" same "$tmp/cal" "$tmp/one" || die "threads change what a text calibrates"
python3 "$py" same "$tmp/cal" "$tmp/plain" >/dev/null 2>&1 && die "a text changes nothing"
imatrix gguf "$tmp/flat.gguf" --flat
ok convert "$model" "$tmp/flat" --weight-format int4-g32 --imatrix "$tmp/flat.gguf"
python3 "$py" same "$tmp/flat" "$tmp/plain" || die "equal weights change bytes"
imatrix gguf "$tmp/i.gguf" && imatrix dat "$tmp/i.dat"
ok convert "$model" "$tmp/a" --weight-format int4-g32 --imatrix "$tmp/i.gguf" --json
[ "$(json "$tmp/out" "[j['weighted'], j['shared'], j['unweighted'] > 0]")" = "[18, 0, True]" ] || die "imatrix: $(cat "$tmp/out")"
ok convert "$model" "$tmp/b" --weight-format int4-g32 --imatrix "$tmp/i.dat"
python3 "$py" same "$tmp/a" "$tmp/b" || die "the two forms of an importance matrix differ"
python3 "$py" same "$tmp/a" "$tmp/plain" >/dev/null 2>&1 && die "an importance matrix changes nothing"
imatrix gguf "$tmp/few.gguf" --few 3
ok convert "$model" "$tmp/few.out" --weight-format gguf:Q4_0 --gguf-pre deepseek-v3 --imatrix "$tmp/few.gguf" --json
[ "$(json "$tmp/out" "j['shared']")" = 2 ] || die "few inputs: $(cat "$tmp/out")"
head -c 3000 "$tmp/i.dat" >"$tmp/cut.dat"
fails 1 "cut.dat importance matrix" convert "$model" "$tmp/x" --weight-format nvfp4 --imatrix "$tmp/cut.dat"
fails 1 "importance matrix imatrix" convert "$model" "$tmp/x" --weight-format nvfp4 --imatrix "$tmp/few.out"
python3 "$src/tests/e2e/_imatrix.py" gguf "$tmp/other.gguf" blk.0.attn_q_a.weight:1:64
fails 1 "attn_q_a 64 values 320 columns" convert "$model" "$tmp/x" --weight-format nvfp4 --imatrix "$tmp/other.gguf"
fails 2 "calibration-text fp8" convert "$model" "$tmp/x" --weight-format fp8 --calibration-text "$tmp/text"
fails 2 "not both" convert "$model" "$tmp/x" --weight-format nvfp4 --calibration-text "$tmp/text" --imatrix "$tmp/i.dat"
fails 2 "n-tokens" convert "$model" "$tmp/x" --weight-format nvfp4 --n-tokens 5

fails 1 "already name free" convert "$base" "$tmp/kept" --weight-format fp8
ok convert "$tmp/kept" "$tmp/again" --weight-format nvfp4
logits "$tmp/again" "$tmp/a.f32"
fails 2 "weight-format nvfp4" convert "$base" "$tmp/x" --weight-format nvfp5
fails 2 "OUT missing" convert "$base" --weight-format nvfp4
fails 2 "weight-format missing" convert "$base" "$tmp/x"
fails 1 "folder" convert "$base" "$tmp/none/x" --weight-format nvfp4
cp -R "$base" "$tmp/nan" && chmod -R u+w "$tmp/nan"
python3 - "$src/tests/e2e" "$tmp/nan/model.safetensors" <<'PY' || die "no NaN"
import sys
sys.path.insert(0, sys.argv[1])
from _weight_forms import NAN, put, read, write
t = read(sys.argv[2])
n = next(n for n in t if n.endswith("kv_b_proj.weight"))
t[n] = put(64, NAN[t[n][0]])(t[n])
write(sys.argv[2], t)
PY
fails 1 "kv_b_proj.weight not finite" convert "$tmp/nan" "$tmp/x" --weight-format nvfp4
fails 1 "kv_b_proj.weight not finite" convert "$tmp/nan" "$tmp/x" --weight-format gguf:Q8_0 --gguf-pre none
[ -e "$tmp/x" ] || [ -e "$tmp/x.partial" ] && die "a failure leaves something"
exit 0
