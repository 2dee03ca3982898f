#!/usr/bin/env bash
# Builds the fuzz targets (gateway-rs/fuzz) and runs each one for SECONDS_EACH seconds, as many at once as there are
# processors: fuzz.sh [TARGET [INPUT]]. With an input it runs that one alone, again.
#
# libFuzzer takes any program whose compares and branches are counted, which a stable compiler can do by LLVM's own
# pass. Corpora, logs and inputs that crash a target are kept in the cache.
set -euo pipefail
cd "$(dirname "$0")/.."
export SECONDS_EACH=${SECONDS_EACH:-60}
command -v c++ > /dev/null || setup/packages.sh g++
source setup/sources.sh

# The last of the passes' options keeps the compiler from turning memcmp into loads, which hide from libFuzzer what a
# text is compared with.
flags=(
  -Cpasses=sancov-module
  -Cllvm-args=-sanitizer-coverage-{level=4,inline-8bit-counters,pc-table,trace-compares}
  -Cllvm-args=-max-loads-per-memcmp=0
  --cfg fuzzing
)
host=$(rustc -vV | sed -n 's/^host: //p')
build() {
  (cd "$rust_sources/gateway-rs/fuzz" && RUSTFLAGS="${flags[*]}" cargo "$1" --quiet --locked --release --target "$host" \
    --target-dir "$rust_home/fuzz" "${@:2}")
}
build clippy -- -D warnings
build build

# Links to the programs of these sources: another checkout may build its own meanwhile.
programs=$(mktemp -d -p "$rust_home")
trap 'rm -rf "$programs"' EXIT
targets=$(cd gateway-rs/fuzz/src/bin && ls -- *.rs | sed 's/\.rs$//')
for target in $targets; do
  ln "$rust_home/fuzz/$host/release/$target" "$programs/"
done
exec 9>&-
export programs home=${XDG_CACHE_HOME:-$HOME/.cache}/rollbox/fuzz
export limits='-timeout=30 -rss_limit_mb=1024'
source setup/corpora.sh

run() {
  local folder=$home/$1 code=0
  replace_corpus "$folder"
  mkdir -p "$folder"/{corpus,crashes}
  ROLLBOX_FUZZ_SEEDS=$folder/corpus "$programs/$1" $limits -max_total_time="$SECONDS_EACH" \
    -max_len=4096 -use_value_profile=1 -print_final_stats=1 -artifact_prefix="$folder/crashes/" "$folder/corpus" \
    > "$folder/log" 2>&1 9>&- || code=$?
  local executions coverage input
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/log")
  coverage=$(grep -o ' cov: [0-9]*' "$folder/log" | tail -1 | tr -dc 0-9 || true)
  printf '%-13s %10s executions, %6s edges, %s\n' "$1" "${executions:-?}" "${coverage:-?}" \
    "$([ $code = 0 ] && echo 'no crash' || echo 'CRASHED')"
  if [ $code = 0 ]; then
    minimise_corpus "$folder" "$programs/$1"
    return
  fi
  input=$(sed -n 's/^.*Test unit written to //p' "$folder/log" | tail -1)
  grep -m 1 -A 2 -e 'panicked at' -e '^==[0-9]*== *ERROR' "$folder/log" || tail -5 "$folder/log"
  printf '  again: setup/fuzz.sh %s %s\n  log: %s\n' "$1" "$input" "$folder/log"
  return 1
}
export -f run

if [ $# = 2 ]; then
  "$programs/$1" $limits "$2"
else
  printf '%s\n' ${1:-$targets} | xargs -P "$(nproc)" -I{} bash -c 'run {}'
fi
