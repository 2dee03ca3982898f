# Which Rust sources a folder has. Sourced by sources.sh, and by what asks whether a build is of them.

# Prints one line per file: digest and path.
list_sources() {
  (cd "$1" && find gateway-rs sidecar contract \( -path gateway-rs/target -o -path sidecar/target -o -path gateway-rs/fuzz/target -o -name __pycache__ \) \
    -prune -o \( -type f -o -type l \) -print0 | xargs -0 -r sha256sum | LC_ALL=C sort)
}

# Prints one digest of them all.
digest_sources() {
  list_sources "$1" | sha256sum | cut -c1-64
}
