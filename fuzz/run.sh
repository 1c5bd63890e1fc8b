#!/usr/bin/env bash
# Runs every fuzz target of a packed folder at once, one process each, and writes a line about each to OUT/summary.txt.
#     run.sh SECONDS OUT [TARGET...]
# A target that crashes or times out is started again with what is left of its time, so that one finding does not end the search.
# Inputs that crash a target or make it time out are kept in OUT/TARGET/artifacts, its log is OUT/TARGET/log.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
seconds=${1:?usage: run.sh SECONDS OUT [TARGET...]}
out=$(realpath -m "${2:?usage: run.sh SECONDS OUT [TARGET...]}")
shift 2
targets=("$@")
mkdir -p "$out/bin"
tar -C "$out/bin" -xzf "$here/bin.tar.gz" || exit 1
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls "$out/bin")

# Every input of some targets becomes a file: memory is the quickest place for it.
[ -w /dev/shm ] && export TMPDIR=/dev/shm

# Most findings of one target before it is left alone.
most_findings=20

fuzz() {
    local target=$1 folder="$out/$1" end=$((SECONDS + seconds)) left run=0
    mkdir -p "$folder/corpus" "$folder/artifacts"
    cp -n "$here/seeds/$target/"* "$folder/corpus/" 2>/dev/null
    : >"$folder/log"
    while left=$((end - SECONDS)); [ "$left" -gt 0 ] && [ $((run++)) -lt "$most_findings" ]; do
        "$out/bin/$target" "$folder/corpus" -artifact_prefix="$folder/artifacts/" -max_total_time="$left" \
            -timeout=10 -rss_limit_mb=2048 -max_len="$(longest "$target")" -print_final_stats=1 >>"$folder/log" 2>&1 && break
        # What ended the run would end the next one at once.
        drop_findings "$folder"
    done
    summary "$target"
}

# Bytes of an input. Checkpoints and tokenizers need room for their tables.
longest() {
    case $1 in
        gguf | safetensors | mlx | tokenizer_file) echo 8192 ;;
        *) echo 4096 ;;
    esac
}

# Removes inputs from the corpus that were kept as findings.
drop_findings() {
    local finding
    for finding in "$1"/artifacts/*; do
        [ -e "$finding" ] || continue
        local digest
        digest=$(sha1sum <"$finding")
        find "$1/corpus" -type f -size -"$(($(stat -c %s "$finding") / 512 + 2))" -print0 |
            while IFS= read -r -d '' file; do
                [ "$(sha1sum <"$file")" = "$digest" ] && rm -f "$file"
            done
    done
}

count() { find "$out/$1/artifacts" -name "$2*" 2>/dev/null | wc -l; }

# The sum, or the largest, of a number that libFuzzer prints at a run's end.
stat_of() {
    awk -v name="stat::$2:" -v how="$3" '$1 == name { sum += $2; if ($2 > most) most = $2 }
        END { print (how == "sum" ? sum : most) + 0 }' "$out/$1/log"
}

summary() {
    local target=$1 log="$out/$1/log" executions
    executions=$(stat_of "$target" number_of_executed_units sum)
    printf '%-15s executions %-10s coverage %-7s corpus %-6s crashes %-3s timeouts %-3s memory %-3s slow-units %-4s slowest %ss peak %s MB\n' \
        "$target" "$executions" \
        "$(grep -o 'cov: [0-9]*' "$log" | tail -1 | cut -d' ' -f2)" \
        "$(ls "$out/$target/corpus" | wc -l)" \
        "$(count "$target" crash)" "$(count "$target" timeout)" "$(count "$target" oom)" "$(count "$target" slow-unit)" \
        "$(stat_of "$target" slowest_unit_time_sec most)" "$(stat_of "$target" peak_rss_mb most)" \
        | tee "$out/$target/summary"
}

for target in "${targets[@]}"; do
    fuzz "$target" &
done
wait
rm -rf "$out/bin"
cat "$out"/*/summary | sort >"$out/summary.txt"
