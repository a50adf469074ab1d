# example_many.sh - the C example, which sees nothing but the public header: texts computed side by
# side are those that each prompt gets alone.
. "$2/tests/e2e/_lib.sh"
need "$model/config.json" "no bundled model"
many=$(dirname "$nibble")/examples/many
need "$many" "the example was not built"

set -- "Once upon a time" "The little fox" "There was a king who"
"$many" "$model" "$@" "$@" >"$tmp/out" 2>"$tmp/err" || die "exit code $? of the example"
i=0
for prompt in "$@" "$@"; do
    "$nibble" run "$model" -p "$prompt" --echo --no-stats --temperature 0 -n 24 \
        --kv-cache-dtype nvfp4 >"$tmp/alone" 2>"$tmp/err" </dev/null || die "nibble run: exit code $?"
    text=$(cat "$tmp/alone")
    grep -qF "$i: $(printf '%s\n' "$text" | head -n 1)" "$tmp/out" || die "text $i is not that of the prompt alone: $text"
    i=$((i + 1))
done

rc=0
"$many" "$tmp/none" x >"$tmp/out" 2>"$tmp/err" || rc=$?
[ $rc = 1 ] || die "exit code $rc for a model that is not there"
[ "$(wc -l <"$tmp/err")" = 1 ] || die "not one error line"
