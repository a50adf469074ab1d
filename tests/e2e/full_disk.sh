# full_disk.sh - a disk that fills up while a file is written: one line, exit code 1, what was there unchanged, nothing
# half written left behind.  A limit on the size of files stands for the disk; where a small file system can be mounted
# the same is done on one.
. "$2/tests/e2e/_lib.sh"

need "$model/config.json" "no bundled model"
seq 1 200 | sed 's/^/Once upon a time there was a fox number /' >"$tmp/text"
printf '[%s1]' "$(seq -s, 1 60 | sed 's/$/,/')" >"$tmp/ids.json"

# full DIR FILE COMMAND...: with at most $blocks KiB for each file.
limited() { (ulimit -f "$blocks" && exec "$nibble" "$@"); }
full() {
    local dir=$1 file=$2 rc=0 before
    shift 2
    for there in no yes; do
        rm -rf "${dir:?}"/* "$filler"
        [ $there = no ] || echo "what was there" >"$dir/$file"
        [ -z "$filler" ] || cat /dev/zero >"$filler" 2>/dev/null # to the last byte
        limited "$@" 2>"$tmp/err" </dev/null | cat >"$tmp/out"
        rc=${PIPESTATUS[0]}
        [ $rc = 1 ] || die "exit code $rc, expected 1: $*"
        [ "$(grep -c '^nibble: ' "$tmp/err")" = 1 ] || die "not one line: $(cat "$tmp/err")"
        grep -q "^nibble: .*$file.*cannot.*\(File too large\|No space left\)" "$tmp/err" || die "$file: $(cat "$tmp/err")"
        if [ $there = yes ]; then
            [ "$(cat "$dir/$file")" = "what was there" ] || die "$file was changed: $*"
            rm "$dir/$file"
        fi
        [ -z "$(ls -A "$dir")" ] || die "left behind: $(ls -A "$dir"): $*"
    done
}

outputs() { # DIR
    local d=$1
    full "$d" rows logits "$model" --tokens "$tmp/ids.json" --rows all --output "$d/rows"
    full "$d" plot.svg eval kl "$model" --text "$tmp/text" --formats int4 --context 64 --n-tokens 128 --plot "$d/plot.svg"
    full "$d" calib.json calibrate "$model" --text "$tmp/text" --context 160 --n-tokens 320 --candidates none -o "$d/calib.json"
    full "$d" plan.html plan deepseek-v3 --html "$d/plan.html"
    full "$d" result.json bench throughput "$model" --num-prompts 40 --random-input-len 8 --random-output-len 8 \
        --save-result --save-detailed --result-filename "$d/result.json"
}

blocks=1
filler=
mkdir "$tmp/d"
outputs "$tmp/d"

# Appended to: the lines before stay whole.
blocks=1
seq 1 250 >"$tmp/d/results"
cp "$tmp/d/results" "$tmp/before"
limited bench throughput "$model" --num-prompts 1 --random-input-len 8 --random-output-len 8 --append-result \
    --result-filename "$tmp/d/results" >"$tmp/out" 2>"$tmp/err"
[ $? = 1 ] || die "--append-result beyond the limit"
cmp -s "$tmp/d/results" "$tmp/before" || die "--append-result left half a line"

# A conversation that cannot be saved goes on; what was saved before stays.
echo "saved before" >"$tmp/d/chat.json"
head -c 3000 /dev/zero | tr '\0' x >"$tmp/long"
printf '/system %s\n/save %s\n/save %s\n/exit\n' "$(cat "$tmp/long")" "$tmp/d/chat.json" "$tmp/d/other.json" |
    limited chat "$model" >"$tmp/out" 2>"$tmp/err" || die "chat"
[ "$(grep -c 'cannot be written: File too large' "$tmp/err")" = 2 ] || die "chat: $(cat "$tmp/err")"
[ "$(cat "$tmp/d/chat.json")" = "saved before" ] && [ ! -e "$tmp/d/other.json" ] || die "chat left half a file"

# Standard output.
if [ -w /dev/full ]; then
    for c in "run $model -p Once -n 3" "logits $model --tokens $tmp/ids.json --output -" "info $model" "plan deepseek-v3" \
        "tokenize $model -p Once" "run $model -p Once -n 3 --json"; do
        # shellcheck disable=SC2086
        "$nibble" $c >/dev/full 2>"$tmp/err" </dev/null
        [ $? = 1 ] || die "exit code of $c on a full disk"
        [ "$(grep -c 'standard output cannot be written: No space left on device' "$tmp/err")" = 1 ] || die "$c: $(cat "$tmp/err")"
    done
    "$nibble" logits "$model" --tokens "$tmp/ids.json" --output /dev/full 2>"$tmp/err" >"$tmp/out"
    [ $? = 1 ] && grep -q '/dev/full: cannot be written: No space left' "$tmp/err" || die "logits to /dev/full"
fi

# A real file system without room.
mkdir "$tmp/small"
if mount -t tmpfs -o size=64k tmpfs "$tmp/small" 2>/dev/null; then
    trap 'umount "$tmp/small"; rm -rf "$tmp"' EXIT
    blocks=unlimited
    filler=$tmp/small/filler
    mkdir "$tmp/small/d"
    outputs "$tmp/small/d"
else
    echo "no file system could be mounted: only the limit on files was tried"
fi
exit 0
