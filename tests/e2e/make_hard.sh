# make_hard.sh - bench/accuracy/make_hard.py: hard variants of the bundled model compute what it computes.
# Powers of two are exact: the same bits.  A permutation changes the order of sums.
. "$2/tests/e2e/_lib.sh"
need "$model/config.json" "no bundled model"
export PYTHONDONTWRITEBYTECODE=1
hard() { # NAME OPTIONS...
    local name=$1
    shift
    python3 "$src/bench/accuracy/make_hard.py" "$model" "$tmp/$name" "$@" >"$tmp/out" 2>"$tmp/err"
}
logits() { ok logits "$1" --tokens "$tmp/t.json" --rows all --kv-cache-dtype "$2" --threads 1 --output "$3"; }
printf '[%s]' "$(seq -s, 40 135)" >"$tmp/t.json" # 96 tokens: a page and a half
logits "$model" f32 "$tmp/a.f32"
logits "$model" nvfp4 "$tmp/a4.f32"

for case in "outliers --outliers 4:16" "spread --spread 1" "rope --rope 2:32"; do
    name=${case%% *}
    hard $case || die "make_hard.py ${case#* }"
    logits "$tmp/$name" f32 "$tmp/b.f32"
    cmp -s "$tmp/a.f32" "$tmp/b.f32" || die "$name: other logits than the model's"
    logits "$tmp/$name" nvfp4 "$tmp/b.f32"
    same=no
    cmp -s "$tmp/a4.f32" "$tmp/b.f32" && same=yes
    # Pairs of the rope key are brought to one size at load, so that this variant is none.
    [ "$name $same" = "rope yes" ] || [ "$name $same" = "outliers no" ] || [ "$name $same" = "spread no" ] ||
        die "$name: in nvfp4 as the model: $same"
    rm -rf "${tmp:?}/$name"
done

hard all --outliers 4:16 --spread 1 --rope 2:32 --permute --seed 2 || die "make_hard.py --permute"
logits "$tmp/all" f32 "$tmp/b.f32"
cmp -s "$tmp/a.f32" "$tmp/b.f32" && die "all: not even the order of sums has changed"
python3 - "$tmp/a.f32" "$tmp/b.f32" >"$tmp/score" <<'PY' || die "all: $(cat "$tmp/score")"
import array, sys
x, y = (array.array("f", open(p, "rb").read()) for p in sys.argv[1:])
d = max(abs(p - q) for p, q in zip(x, y))
print(f"logits differ by up to {d:.2g}")
sys.exit(not (len(x) == len(y) == 96 * 4096 and d < 2e-4))
PY
cat "$tmp/score"

hard again --outliers 4:16 --spread 1 --rope 2:32 --permute --seed 2 || die "make_hard.py, again"
for f in "$tmp"/all/*.safetensors; do cmp -s "$f" "$tmp/again/$(basename "$f")" || die "not the same on every run"; done
hard bad --outliers 4:15 && die "a factor that is not a power of two was taken"
grep -q "power of two" "$tmp/err" || die "no word about the factor"
hard bad --rope 33:2 && die "33 of 32 pairs were taken"
hard bad --outliers 1:2 --spread 9 && die "a spread of 9 was taken"
python3 "$src/bench/accuracy/make_hard.py" "$src/tests/parity/llama3" "$tmp/bad" --outliers 4:16 >"$tmp/out" 2>"$tmp/err" && die "a model without a latent was taken"
grep -q "multi-head latent attention" "$tmp/err" || die "no word about the model"
exit 0
