# Keeps the corpora of the fuzz targets small. Sourced by fuzz.sh, with $limits for libFuzzer; a target's FOLDER has its
# corpus and its log.

# A corpus with more inputs is minimised. They are counted and not their bytes, since nearly each takes one block of the
# disk. The inputs that cover all are a quarter as many; the others are for the values of comparisons, and are found
# again within seconds.
export MOST_INPUTS=2000

# minimise_corpus FOLDER PROGRAM: puts inputs that cover the same in the place of a corpus that has too many. A merge
# leaves out an input that ends it, and goes on: so it is done after a run without a crash only, and counts only when
# nothing has ended it.
minimise_corpus() {
  [ "$(find "$1/corpus" -type f | wc -l)" -gt "$MOST_INPUTS" ] || return 0
  rm -rf "$1/merging"
  mkdir "$1/merging"
  if "$2" $limits -merge=1 "$1/merging" "$1/corpus" >> "$1/log" 2>&1 &&
    grep -q '^MERGE-OUTER: successful in 1 attempt' "$1/log"; then
    mv "$1/merging" "$1/merged"
    replace_corpus "$1"
  else
    printf '  its corpus could not be minimised\n  log: %s\n' "$1/log"
    return 1
  fi
}

# replace_corpus FOLDER: a merge has its name `merged` once it is whole, so the next run ends a replacement that was
# interrupted.
replace_corpus() {
  [ ! -d "$1/merged" ] || { rm -rf "$1/corpus" && mv "$1/merged" "$1/corpus"; }
}
export -f minimise_corpus replace_corpus
