# manual.sh - manual pages and shell completions, generated from the tables of options: one page per command,
# each option in it, no warning of roff; each shell parses its file, bash and fish complete.
. "$2/tests/e2e/_lib.sh"

ok docs "$tmp/share"
man=$tmp/share/man/man1
"$nibble" --help | sed -n '/^Commands/,/^$/s/^  \([a-z][a-z ]\{16\}\).*/\1/p' | sed 's/ *$//' >"$tmp/commands"
[ "$(wc -l <"$tmp/commands")" -ge 19 ] || die "--help lists too few commands"
# names FILE: the long options in it, whose dashes may be escaped.
names() { sed 's/\\-/-/g; s/\[no-\]//g; s/ -l / --/g' "$1" | grep -o -- '--[a-z][a-z0-9-]*' | sort -u; }
for f in bash-completion/completions/nibble zsh/site-functions/_nibble fish/vendor_completions.d/nibble.fish; do
    names "$tmp/share/$f" >"$tmp/names-$(basename "$f")"
done
while read -r c; do
    page=$man/nibble-$(echo "$c" | tr ' ' -).1
    [ -s "$page" ] || die "no page of $c"
    # shellcheck disable=SC2086 # words of a command
    "$nibble" $c --help | sed -n 's/^\(  -[a-zA-Z]*, \|      \)\(--.*\)/\2/p' | cut -d ' ' -f 1 >"$tmp/help"
    names "$tmp/help" >"$tmp/options"
    [ -s "$tmp/options" ] || die "$c --help has no options"
    names "$page" >"$tmp/names-page"
    for f in "$tmp"/names-*; do
        missing=$(comm -23 "$tmp/options" "$f")
        [ -z "$missing" ] || die "$(basename "$f") does not have of $c:" $missing
    done
done <"$tmp/commands"
[ "$(find "$man" -type f | wc -l)" = $(($(wc -l <"$tmp/commands") + 1)) ] || die "pages of other commands: $(ls "$man")"
grep -q '^\.TH NIBBLE 1 .*"nibble [0-9]' "$man/nibble.1" || die "nibble.1: no title with the version"

if command -v groff >/dev/null; then
    for page in "$man"/*.1; do
        groff -man -Tutf8 -ww -z "$page" 2>"$tmp/err" || die "$page: groff"
        [ -s "$tmp/err" ] && die "$page: warnings"
    done
fi

bash=$tmp/share/bash-completion/completions/nibble
complete_bash() { # WANTED WORDS...: what is completed for the last of the words
    local wanted=$1 got
    shift
    got=$(bash -c '. "$0"; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _nibble; echo "${COMPREPLY[*]}"' "$bash" "$@")
    case " $got " in *" $wanted "*) ;; *) die "bash: $* gives: $got" ;; esac
}
complete_bash serve nibble s
complete_bash throughput nibble bench ''
complete_bash --kv-cache-dtype nibble serve m --kv-ca
complete_bash nvfp4 nibble serve m --kv-cache-dtype = n
complete_bash nvfp4 nibble bench throughput m --kv-cache-dtype nv
complete_bash --no-stats nibble run m --no-s

if command -v zsh >/dev/null; then
    zsh -n "$tmp/share/zsh/site-functions/_nibble" || die "zsh does not parse its file"
fi
if command -v fish >/dev/null; then
    fish=$tmp/share/fish/vendor_completions.d/nibble.fish
    HOME=$tmp fish -n "$fish" || die "fish does not parse its file"
    complete_fish() { # WANTED LINE
        HOME=$tmp fish -c 'source $argv[1]; complete -C $argv[2]' "$fish" "$2" | cut -f 1 | grep -qx -- "$1" ||
            die "fish: '$2' does not give $1"
    }
    complete_fish serve 'nibble s'
    complete_fish kernel 'nibble bench '
    complete_fish nvfp4 'nibble serve m --kv-cache-dtype n'
    complete_fish --depth 'nibble bench throughput m --dep'
fi

fails 1 "/dev/null/x directory" docs /dev/null/x
exit 0
