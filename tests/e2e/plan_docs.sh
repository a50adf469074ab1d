# plan_docs.sh - README.md, docs/models.md and docs/capacity.md have the figures that tools/plan_docs.py computes, and a changed figure
# on either side is seen.
. "$2/tests/e2e/_lib.sh"
command -v python3 >/dev/null || skip "there is no python3"
export PYTHONDONTWRITEBYTECODE=1

# compare ROOT NIBBLE: exit code of the comparison; the difference is in $tmp/out.
compare() { python3 "$src/tools/plan_docs.py" "$2" --root "$1" --check >"$tmp/out" 2>"$tmp/err"; }
compare "$src" "$nibble" || die "README.md, docs/models.md, docs/capacity.md: tools/plan_docs.py NIBBLE writes their figures
$(head -n 20 "$tmp/out")"

# A copy of the pages in which one thing is changed by sed.
changed() { # FILE SED-SCRIPT
    rm -rf "$tmp/root"
    mkdir -p "$tmp/root/docs" "$tmp/root/bench/results"
    cp "$src/README.md" "$tmp/root/"
    cp "$src/docs/models.md" "$src/docs/capacity.md" "$tmp/root/docs/"
    for f in flashmla_h100 gpu_h100 gpu_h100_runs peer_cpu accuracy; do
        cp "$src/bench/results/$f.json" "$tmp/root/bench/results/"
    done
    sed "$2" "$src/$1" >"$tmp/root/$1"
    cmp -s "$src/$1" "$tmp/root/$1" && die "$2 changes nothing in $1"
    compare "$tmp/root" "$nibble" && die "not seen: $2 in $1"
    grep -q Traceback "$tmp/err" && die "$2: an exception"
    return 0
}
changed docs/models.md 's/| Youtu-2B | 3\.8 /| Youtu-2B | 3.9 /'
grep -q '^+| Youtu-2B | 3\.8 ' "$tmp/out" || die "the row is not shown: $(cat "$tmp/out")"
changed README.md 's/| 49,724 |/| 49,725 |/'
changed docs/capacity.md 's/each of 32 gets [0-9]*/each of 32 gets 999/'
changed docs/capacity.md 's/2,200,128/2,200,129/'
changed docs/capacity.md 's/^Then watch/At 1,592 tokens a second, watch/'
grep -qF 'At 1,592 tokens' "$tmp/err" || die "a stray figure is not named"
changed docs/capacity.md 's/<!-- gain -->/<!-- gains -->/'
grep -qF 'gains' "$tmp/err" || die "an unknown block is not named"
changed docs/capacity.md '/<!-- cost -->/,/<!-- end -->/d'
grep -qF 'cost' "$tmp/err" || die "a missing block is not named"

# A nibble that counts other bytes.
printf '#!/bin/sh\n"%s" "$@" | sed '"'s/\"users\": *135/\"users\": 136/g'"'\n' "$nibble" >"$tmp/nibble"
chmod +x "$tmp/nibble"
compare "$src" "$tmp/nibble" && die "another number of users is not seen"
grep -q '^+| nvfp4 .* 136 ' "$tmp/out" || die "the row of nvfp4: $(cat "$tmp/out")"
printf '#!/bin/sh\necho "no such thing" >&2\nexit 1\n' >"$tmp/nibble"
compare "$src" "$tmp/nibble" && die "nibble failed, and nothing is said"
grep -q "no such thing" "$tmp/err" || die "the error line of nibble is missing"
exit 0
