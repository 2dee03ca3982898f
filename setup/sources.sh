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

source "$(dirname "${BASH_SOURCE[0]}")/listed.sh"

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

# The lock is shared by builds and tests of the same sources; a checkout with other sources waits for them. Each wait for
# the exclusive lock, which gives up the shared one, ends soon to look again: what it waits for may be of this checkout,
# and build what this one wanted to copy.
mkdir -p "$rust_sources" "$rust_target"
exec 9> "$rust_home/lock"
flock --shared 9
waits=0
until same_sources; do
  if flock --exclusive --timeout 2 9; then
    copy_sources
  elif [ $((waits += 1)) = 2 ]; then
    echo "   waiting for a build or a test of another checkout" >&2
  fi
  flock --shared 9
done
