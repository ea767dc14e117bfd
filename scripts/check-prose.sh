#!/usr/bin/env bash
# Checks the form of comments and documentation. Prints `file:line: message` for each finding and
# exits with 1 if there are any.
#
#   scripts/check-prose.sh [--list] [PATH..]
#
# The rules, for all files that git does not ignore, or those below the given paths (relative to the
# root of the repository):
# - Comment lines and Markdown lines have at most 100 columns. Tables, code blocks, the targets of
#   links, and generated pages are exempt.
# - Sentences in README.md, ARCHITECTURE.md, CONTRIBUTING.md, CHANGELOG.md and docs/ have at most
#   40 words. A span of inline code counts as one word, and each table cell and list item is
#   checked on its own.
# - At most 20 doc lines of the workspace begin with "What" or "Whether".
#
# With `--list`, sentences of more than 25 words are printed too, as hints, also those in comments.
set -euo pipefail
cd "$(dirname "$0")/.."

list=0
if [[ ${1:-} == --list ]]; then
    list=1
    shift
fi

files=$(mktemp)
findings=$(mktemp)
trap 'rm -f "$files" "$findings"' EXIT
git ls-files --cached --others --exclude-standard -- "${@:-.}" | sort -u |
    grep -E '\.(rs|cu|cpp|h|js|toml|sh|py|md)$|^\.ci/run$' |
    while IFS= read -r file; do [[ ! -f $file ]] || printf './%s\n' "$file"; done >"$files"

# LC_ALL=C makes awk read bytes, so that all versions of awk count columns alike (see `columns`).
LC_ALL=C xargs -r -d '\n' awk -v list="$list" '
function columns(text) {
    gsub(/[\200-\277]/, "", text) # continuation bytes of UTF-8
    return length(text)
}

# Returns the text without the targets of links.
function without_targets(text) {
    gsub(/\]\([^)]*\)/, "]", text)
    gsub(/<https?:[^>]*>/, "", text)
    gsub(/https?:[^ )>]*/, "", text)
    return text
}

function words(text, parts) {
    gsub(/[^ ]*[A-Za-z0-9\200-\377][^ ]*/, "w", text)
    gsub(/[^w ]/, "", text)
    return split(text, parts, " ")
}

# Splits the paragraph collected so far into sentences and checks the length of each.
function end_paragraph(   text, end, sentence, n, limit) {
    text = paragraph
    paragraph = ""
    if (text == "" || (!limited && !list)) return
    gsub(/``[^`]*``/, "`code`", text)
    gsub(/`[^`]*`/, "`code`", text)
    text = without_targets(text)
    gsub(/[ei]\.[ge]\./, "eg", text)
    while (text != "") {
        if (match(text, /[.!?]["*)_]* +["*(_`\[]*[A-Z`]/)) {
            sentence = substr(text, 1, RSTART)
            text = substr(text, RSTART + 1)
        } else {
            sentence = text
            text = ""
        }
        n = words(sentence)
        if (limited && n > 40)
            printf "%s:%d: sentence of %d words: %s\n", name, start, n, shortened(sentence)
        else if (list && n > 25)
            printf "hint %s:%d: sentence of %d words: %s\n", name, start, n, shortened(sentence)
    }
}

function shortened(text) {
    sub(/^[ ".)*_]*/, "", text)
    return length(text) > 60 ? substr(text, 1, 60) ".." : text
}

function add(text) {
    if (paragraph == "") start = FNR
    paragraph = paragraph (paragraph == "" ? "" : " ") text
}

function long_line(text) {
    if (columns(text) > 100)
        printf "%s:%d: %d columns\n", name, FNR, columns(text)
}

# Returns the position of a comment in a line of code, or 0. Markers inside of strings do not count.
function comment_position(line, marker,   before) {
    if (!match(line, marker)) return 0
    before = substr(line, 1, RSTART)
    return gsub(/"/, "", before) % 2 == 0 ? RSTART : 0
}

FNR == 1 {
    end_paragraph()
    name = substr(FILENAME, 3)
    kind = name ~ /\.md$/ ? "markdown" : name ~ /\.(toml|sh|py)$|run$/ ? "hash" : "slashes"
    limited = name ~ /^(README|ARCHITECTURE|CONTRIBUTING|CHANGELOG)\.md$|^docs\//
    code = 0
    blank = 1
    generated = name ~ /^docs\/(operators|evaluation)\.md$/
    marker = kind == "hash" ? "(^|[ \t])#" : "(^|[ \t])//"
}

kind == "markdown" {
    if ($0 ~ /^ *(```|~~~)/) {
        end_paragraph()
        code = !code
        blank = 0
        next
    }
    if (code) next
    if ($0 ~ /^[ \t]*$/) {
        end_paragraph()
        blank = 1
        next
    }
    if (blank && $0 ~ /^(    |\t)/ && paragraph == "") next # an indented code block
    blank = 0
    if ($0 ~ /^ *\|/) {
        end_paragraph()
        n_cells = split($0, cells, "|")
        for (i = 1; i <= n_cells; i++) {
            add(cells[i])
            end_paragraph()
        }
        next
    }
    if (!generated) long_line(without_targets($0))
    if ($0 ~ /^ *([-*+]|[0-9]+\.) / || $0 ~ /^ *[#>]/) end_paragraph()
    line = $0
    sub(/^ *([-*+>#]+|[0-9]+\.) +/, "", line)
    add(line)
    if ($0 ~ /^ *#/) end_paragraph()
    next
}

{
    at = comment_position($0, marker)
    if (at == 0) {
        if (list) end_paragraph()
        next
    }
    if (columns($0) > 100) long_line(without_targets($0))
    if ($0 ~ /^[ \t]*\/\/[\/!] *(What|Whether)[^A-Za-z]/) printf "what %s:%d\n", name, FNR
    if (!list) next
    line = substr($0, at)
    sub(/^[ \t]*(\/\/[\/!]?|#+)/, "", line)
    if (line ~ /^ *```/) {
        end_paragraph()
        code = !code
        next
    }
    if (code) next
    if (line ~ /^ *$/ || line ~ /^ *([-*+]|[0-9]+\.|#+|\|) /) end_paragraph()
    add(line)
    if (line ~ /^ #+ /) end_paragraph()
}

END { end_paragraph() }
' <"$files" >"$findings"

grep '^hint ' "$findings" || true
status=0
if grep -vE '^(hint|what) ' "$findings"; then
    status=1
fi
n_what=$(grep -c '^what ' "$findings" || true)
if ((n_what > 20)); then
    sed -n 's/^what \(.*\)/\1: begins with "What" or "Whether"/p' "$findings"
    echo "$n_what doc lines begin with \"What\" or \"Whether\", at most 20 may" >&2
    status=1
elif ((list)); then
    sed -n 's/^what \(.*\)/hint \1: begins with "What" or "Whether"/p' "$findings"
fi
exit $status
