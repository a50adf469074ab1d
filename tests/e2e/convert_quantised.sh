# convert_quantised.sh - `nibble convert` of weights that are in codes already: the result is that of the same values as
# floats, for every published form; DeepSeek V4 from and to its own names; damaged codes.
. "$2/tests/e2e/_lib.sh"
base=$src/tests/parity/kimi_k2
v4=$src/tests/parity/v4
writer=$src/tests/e2e/_weight_forms.py
py=$src/tests/e2e/_convert.py
need "$base/model.safetensors" "no parity vectors"
need "$v4/model.safetensors" "no parity vectors"
printf '[3,41,59,26,35,89,7,93,23,46,26,43,30,8,32,79,50,28,8,41,97,19,39,93]' >"$tmp/t.json"
logits() { ok logits "$1" --tokens "$tmp/t.json" --kv-cache-dtype f32 --activation-dtype float --device cpu --rows 0,9,23 --output "$2"; }

logits "$base" "$tmp/base.f32"
# Of forms that take all columns: what does not fit becomes BF16, and floats stay.
set -- fp8 gguf:Q8_0 fp8-block bf16 modelopt-fp8 gguf:Q4_K_M
for form in $(python3 "$writer" list); do
    to=$1
    shift
    set -- "$@" "$to"
    pre=
    case $to in gguf:*) pre="--gguf-pre none" ;; esac
    python3 "$writer" "$form" "$base" "$tmp/$form" || die "$form: cannot be written"
    for k in q f; do
        # shellcheck disable=SC2086
        ok convert "$tmp/$form/$k" "$tmp/$k" --weight-format "$to" --threads 2 $pre
        logits "$tmp/$k" "$tmp/$k.f32"
        rm -rf "${tmp:?}/$k"
    done
    python3 "$writer" compare "$tmp/q.f32" "$tmp/f.f32" "$tmp/base.f32" || die "$form to $to: other values than those of the codes"
done

# Damaged codes, and ones whose form nothing says.
small_memory
python3 "$writer" broken >"$tmp/list"
while read -r name form words; do
    rm -rf "$tmp/broken" && mkdir "$tmp/broken" && cp -R "$tmp/$form/q" "$tmp/broken/"
    python3 "$writer" spoil "$name" "$tmp/broken" || die "$name ($words): cannot be spoiled"
    fails 1 "tensor" convert "$tmp/broken/q" "$tmp/x" --weight-format nvfp4
done <"$tmp/list"
cp -R "$tmp/gptq-v1/q" "$tmp/none" && sed -i 's/"model_type": "[a-z_0-9]*"/"model_type": "not_known"/' "$tmp/none/config.json"
fails 1 "is in codes not_known" convert "$tmp/none" "$tmp/x" --weight-format nvfp4
[ -e "$tmp/x" ] || [ -e "$tmp/x.partial" ] && die "a failure leaves something"

# DeepSeek V4: BF16 holds its FP8 and MXFP4 exactly, so that all forms can be made of either.
logits "$v4" "$tmp/base.f32"
ok convert "$v4" "$tmp/bf16" --weight-format bf16 --json
[ "$(json "$tmp/out" "j['left_out']")" = 3 ] || die "layers for speculation: $(cat "$tmp/out")"
logits "$tmp/bf16" "$tmp/q.f32"
cmp -s "$tmp/base.f32" "$tmp/q.f32" || die "deepseek_v4 in BF16: other logits"
for form in fp8 nvfp4 int4-g32 mxfp4 modelopt-nvfp4 modelopt-fp8; do
    ok convert "$v4" "$tmp/a" --weight-format $form
    ok convert "$tmp/bf16" "$tmp/b" --weight-format $form
    python3 "$py" same "$tmp/a" "$tmp/b" || die "deepseek_v4 in $form: not the values of BF16"
    python3 - "$src/tests/e2e" $form "$tmp" <<'END' || die "deepseek_v4 in $form: wrong tensors"
import os
import struct
import sys
sys.path.insert(0, sys.argv[1])
from _convert import FORMS
from _weight_forms import read, write
form, tmp = sys.argv[2:]
reader, g = FORMS[form][:2]
a, b, plain, n_coded = read(tmp + "/bf16/model.safetensors"), read(tmp + "/a/model.safetensors"), {}, 0
for name, t in a.items():
    if b.get(name) == t:
        plain[name] = t
        continue
    (n, k), m = t[1], name[:-len(".weight")]
    assert not "compressor" in m and not "indexer" in m and not "gate." in m, name
    y = reader(b, m, n, k, g)
    plain[name] = ("F32", [n, k], struct.pack("<%df" % len(y), *y))
    n_coded += 1
assert n_coded == 5 * (5 + 3 + 8 * 3), n_coded
os.makedirs(tmp + "/f")
write(tmp + "/f/model.safetensors", plain)
with open(tmp + "/bf16/config.json") as f, open(tmp + "/f/config.json", "w") as to:
    to.write(f.read())
with open(tmp + "/bytes", "w") as f:
    f.write(str(sum(len(t[2]) for n, t in b.items() if not n.endswith(("weight_shape", "global_scale", "scale_2")))))
END
    logits "$tmp/a" "$tmp/q.f32"
    logits "$tmp/f" "$tmp/f.f32"
    python3 "$writer" compare "$tmp/q.f32" "$tmp/f.f32" "$tmp/base.f32" || die "deepseek_v4 in $form: wrong logits"
    ok plan "$tmp/a" --json
    [ "$form" = fp8 ] || # whose scales have 16 bits in most files, and 32 in this
        [ "$(json "$tmp/out" "j['weights']['types'][0]['bytes']")" = "$(cat "$tmp/bytes")" ] || die "deepseek_v4 in $form: plan counts other bytes than $(cat "$tmp/bytes")"
    rm -rf "$tmp/a" "$tmp/b" "$tmp/f"
done
fails 1 "deepseek_v4 fp8-block not supported" convert "$v4" "$tmp/x" --weight-format fp8-block
fails 1 "deepseek_v4 GGUF" convert "$v4" "$tmp/x" --weight-format gguf:Q8_0
exit 0
