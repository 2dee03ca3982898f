# Copies the Rust sources of this checkout into a shared folder in the cache, and locks it until the calling script
# ends. Sourced, with the checkout's root as working directory; sets $rust_home, $rust_sources and $rust_target.
#
# Cargo decides by relative path and modification time what to rebuild. Two checkouts that share a target folder would
# use each other's binaries, and a fresh clone, all of whose files are new, would rebuild everything. In the shared
# folder a file is written only when its content changes, so a build compiles what differs from the last build, of
# whichever checkout.
rust_home=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/rollbox/cargo/$(rustc --version | tr ' ()' '---')}
rust_sources=$rust_home/sources
rust_target=$rust_home/target
# The Python module is linked without an interpreter; if PyO3 searched for one, another interpreter would cause a
# rebuild.
export PYO3_NO_PYTHON=1 PYO3_BUILD_EXTENSION_MODULE=1
export CARGO_NET_RETRY=${CARGO_NET_RETRY:-5}

# Prints one line per file: digest and path.
list_sources() {
  (cd "$1" && find gateway-rs sidecar contract \( -path gateway-rs/target -o -path sidecar/target -o -path gateway-rs/fuzz/target -o -name __pycache__ \) \
    -prune -o \( -type f -o -type l \) -print0 | xargs -0 -r sha256sum | LC_ALL=C sort)
}

same_sources() {
  [ "$(list_sources .)" = "$(list_sources "$rust_sources" 2>/dev/null)" ]
}

copy_sources() {
  local wanted present
  wanted=$(list_sources .)
  present=$(list_sources "$rust_sources" 2>/dev/null || true)
  LC_ALL=C comm -13 <(echo "$wanted") <(echo "$present") | cut -c67- | (cd "$rust_sources" && xargs -d '\n' -r rm -f)
  # A file may replace a folder.
  find "$rust_sources" -mindepth 1 -type d -empty -delete
  LC_ALL=C comm -23 <(echo "$wanted") <(echo "$present") | cut -c67- |
    xargs -d '\n' -r cp --dereference --parents --remove-destination --target-directory "$rust_sources"
  # Read-only, since edits have to be made in the checkout.
  find "$rust_sources" -type f -exec chmod a-w {} +
}

# The lock is shared by builds and tests of the same sources; a checkout with other sources waits for them.
lock_sources() {
  flock --timeout 2 "$1" 9 || {
    echo "   waiting for a build or a test of another checkout" >&2
    flock "$1" 9
  }
}

mkdir -p "$rust_sources" "$rust_target"
exec 9> "$rust_home/lock"
lock_sources --shared
until same_sources; do
  lock_sources --exclusive
  copy_sources
  lock_sources --shared
done
