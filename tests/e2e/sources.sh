# sources.sh - docs/sources.md is what tools/sources.py computes, and a changed figure on either side is seen.
. "$2/tests/e2e/_lib.sh"
command -v python3 >/dev/null || skip "there is no python3"
export PYTHONDONTWRITEBYTECODE=1

# compare ROOT NIBBLE: exit code of the comparison; what differs is in $tmp/out.
compare() { python3 "$src/tools/sources.py" "$2" --root "$1" --check >"$tmp/out" 2>"$tmp/err"; }
compare "$src" "$nibble" || die "docs/sources.md is out of date: tools/sources.py NIBBLE writes it
$(head -n 20 "$tmp/out")"

# From here on each answer of nibble is asked for once.
cat >"$tmp/once" <<END
#!/bin/sh
f="$tmp/once.\$(printf '%s ' "\$@" | cksum | tr ' ' .)"
[ -e "\$f" ] || "$nibble" "\$@" >"\$f" || { rm -f "\$f"; exit 1; }
cat "\$f"
END
chmod +x "$tmp/once"

# A copy in which one figure is another.
copy() {
    rm -rf "$tmp/root"
    mkdir -p "$tmp/root/bench" "$tmp/root/docs" "$tmp/root/train"
    cp -R "$src/bench/results" "$tmp/root/bench/"
    cp "$src/docs/sources.md" "$tmp/root/docs/"
    cp "$src/train/results.json" "$tmp/root/train/"
}
other() {
    compare "$tmp/root" "$2" && die "not seen: $1"
    grep -q "^+| $3 " "$tmp/out" || die "$1: row $3 is the same: $(head -n 10 "$tmp/out")"
    grep -q "Traceback" "$tmp/err" && die "$1: an exception"
}
edit() { # FILE FUNCTION-OF-j
    python3 -c 'import json, sys
with open(sys.argv[1], encoding="utf-8") as f:
    j = json.load(f)
exec(sys.argv[2])
with open(sys.argv[1], "w", encoding="utf-8") as f:
    json.dump(j, f)' "$tmp/root/bench/results/$1" "$2"
}
copy
compare "$tmp/root" "$tmp/once" || die "a copy is another"
sed -i.bak 's/9\.21 GB/9.22 GB/' "$tmp/root/docs/sources.md"
other "a figure of the document" "$tmp/once" B8
copy
edit flashmla_h100.json 'for r in j["rows"]:
    if (r["who"], r["record"], r["heads"]) == ("nibble", "nvfp4", 128): r["median_us"] *= 1.1'
other "a kernel that got slower" "$tmp/once" B55
copy
edit replay.json 'for r in j["rows"]:
    if (r["replay"], r["record"]) == ("serve", "fp8"): r["ttft_mean_s"] *= 2'
other "times of a replay" "$tmp/once" C4
copy
edit accuracy.json 'for v in j["models"]["nibble-tiny"]["kl 0"]["result"]["variants"]:
    if v["name"] == "int4": v["kl"]["mean"]["value"] *= 3'
other "an error of int4" "$tmp/once" D6

# A nibble that counts 63 bytes of RoPE key.
cat >"$tmp/nibble" <<END
#!/bin/sh
"$tmp/once" "\$@" | sed 's/"bytes_per_token_layer": *354/"bytes_per_token_layer": 353/g'
END
chmod +x "$tmp/nibble"
copy
other "bytes of a record" "$tmp/nibble" A2

# A missing row gives an error line, not an exception.
copy
edit gpu_h100.json 'j["steps"]["rows"] = []'
compare "$tmp/root" "$tmp/once" && die "no rows, and nothing is said"
grep -q "0 rows with" "$tmp/err" || die "a missing row"
printf '#!/bin/sh\necho "no such thing" >&2\nexit 1\n' >"$tmp/nibble"
compare "$src" "$tmp/nibble" && die "nibble failed, and nothing is said"
grep -q "no such thing" "$tmp/err" || die "what nibble said"
exit 0
