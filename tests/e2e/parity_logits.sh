# parity_logits.sh - `nibble logits`: values, order of rows, standard output, no half files.
. "$2/tests/e2e/_lib.sh"
m=$src/tests/parity/v3
need "$m/expected.safetensors" "no parity vectors"
expected=$src/tests/e2e/_expected.py
python3 "$expected" "$m/expected.safetensors" list tokens >"$tmp/t.json" || die "no tokens"
rows=$(python3 "$expected" "$m/expected.safetensors" row_numbers)
bytes=$((320 * 4)) # of a row
logits() { ok logits "$m" --tokens "$tmp/t.json" --kv-cache-dtype bf16 "$@"; }
row() { dd if="$1" bs=$bytes skip="$2" count=1 2>/dev/null | od -An -tx1; } # FILE NUMBER

logits --rows "$rows" --output "$tmp/a.f32"
[ -s "$tmp/out" ] && die "logits --output FILE prints on stdout"
python3 "$expected" "$m/expected.safetensors" logits "$tmp/a.f32" || die "logits differ from the reference"

logits --rows 149,0,17,0 --output "$tmp/b.f32"
[ "$(wc -c <"$tmp/b.f32")" = $((4 * bytes)) ] || die "wrong size"
[ "$(row "$tmp/b.f32" 1)" = "$(row "$tmp/a.f32" 0)" ] || die "row 0 is not where it was asked for"
[ "$(row "$tmp/b.f32" 3)" = "$(row "$tmp/a.f32" 0)" ] || die "a row asked for twice comes once"
[ "$(row "$tmp/b.f32" 2)" = "$(row "$tmp/a.f32" 2)" ] || die "row 17 is not where it was asked for"
[ "$(row "$tmp/b.f32" 0)" = "$(row "$tmp/a.f32" 9)" ] || die "row 149 is not where it was asked for"

logits --output "$tmp/last.f32"
[ "$(row "$tmp/last.f32" 0)" = "$(row "$tmp/a.f32" 9)" ] || die "the default is not the last row"
logits --rows all --output "$tmp/all.f32"
[ "$(wc -c <"$tmp/all.f32")" = $((150 * bytes)) ] || die "--rows all: wrong size"
[ "$(row "$tmp/all.f32" 149)" = "$(row "$tmp/last.f32" 0)" ] || die "--rows all: wrong order"
logits --rows 17,0 --output -
[ "$(row "$tmp/out" 0)" = "$(row "$tmp/a.f32" 2)" ] || die "--output -: wrong row"
[ "$(wc -c <"$tmp/out")" = $((2 * bytes)) ] || die "--output -: wrong size"
for n in 1 7 64 512; do
    logits --rows all --output "$tmp/chunk.f32" --prefill-chunk $n
    cmp -s "$tmp/chunk.f32" "$tmp/all.f32" || die "--prefill-chunk $n changes logits"
done

# Failures leave what was there.
printf old >"$tmp/old.f32"
fails 1 "row 150 150 0..149" logits "$m" --tokens "$tmp/t.json" --rows 3,150 --output "$tmp/old.f32"
printf '[1,2,320]' >"$tmp/high.json"
fails 1 "320" logits "$m" --tokens "$tmp/high.json" --output "$tmp/old.f32"
[ "$(cat "$tmp/old.f32")" = old ] || die "a failure changed the output file"
fails 1 "nowhere" logits "$m" --tokens "$tmp/t.json" --output "$tmp/nowhere/x.f32"
fails 1 "directory" logits "$m" --tokens "$tmp/t.json" --output "$tmp"
ln -s old.f32 "$tmp/link.f32"
logits --output "$tmp/link.f32"
[ -L "$tmp/link.f32" ] || die "a symbolic link was replaced"
cmp -s "$tmp/old.f32" "$tmp/last.f32" || die "the file behind a symbolic link was not written"
logits --output /dev/null
[ -c /dev/null ] || die "/dev/null was replaced"
if [ -w /dev/full ]; then
    fails 1 "/dev/full cannot be written" logits "$m" --tokens "$tmp/t.json" --output /dev/full
fi
left=$(find "$tmp" -name '*.tmp')
[ -z "$left" ] || die "temporary files stay: $left"
exit 0
