# The files of each image's build context besides its Dockerfile; sourced by build.sh. Each function fills the given
# folder.

context_gateway() {
  setup/static.sh gateway "$1"
}

context_egress() {
  setup/static.sh egress "$1"
}

context_packages() {
  cp images/packages/nginx.conf images/packages/pages.js images/packages/start "$1/"
}

context_sidecar() {
  setup/static.sh sidecar "$1"
}

context_node() {
  setup/go.sh rollbox-node "$1"
}

context_installer() {
  setup/payload.sh "$1/payload"
}

context_controlplane() {
  copy_python controlplane "$1/controlplane"
  copy_python sdk/src/rollbox "$1/rollbox"
  copy_python bridges/src/rollbox_bridges "$1/rollbox_bridges"
  local packages
  packages=$(locked_packages)
  cp -r "$packages" "$1/packages"
}

context_mirror() {
  setup/go.sh rollbox-mirror "$1"
  setup/go.sh rollbox-collector "$1"
}

context_builder() {
  setup/go.sh rollbox-builder "$1"
}

context_scheduler() { :; }
context_dns() { :; }
context_distribution() { :; }
context_redis() { :; }
context_python() { :; }
context_swe() { cp images/runtimes/swe/packages.txt "$1/"; }

copy_python() {
  mkdir -p "$2"
  tar --create --directory "$1" --exclude=__pycache__ . | tar --extract --directory "$2"
}

# Prints a folder with the lock file's packages for the image's Python. They are installed here and not in the
# Dockerfile, so that this machine's settings for its package index do not get into the image. Cached by the lock file's
# digest.
locked_packages() {
  local lock=requirements/runtime.txt folder platform platforms=()
  folder=$cache/images/packages-$(sha256sum $lock | cut -c1-12)
  if [ ! -d "$folder" ]; then
    for platform in manylinux_2_36 manylinux_2_34 manylinux_2_31 manylinux_2_28 manylinux_2_17 manylinux2014; do
      platforms+=(--platform "${platform}_$(uname -m)")
    done
    mkdir -p "$cache/images"
    rm -rf "$folder.part"
    # pip evaluates environment markers for this machine's Python, whose patch release may differ from the image's. So
    # markers for patch releases are removed, and the packages are always installed.
    sed -E "s/ ; python_full_version < '3\.11\.[0-9]+'//" $lock > "$folder.lock"
    .venv/bin/python -m pip install --quiet --no-compile --no-warn-conflicts --require-hashes --only-binary :all: --python-version 3.11 \
      "${platforms[@]}" --target "$folder.part" --requirement "$folder.lock" >&2
    rm -rf "$folder.part/bin"
    mv "$folder.part" "$folder"
  fi
  echo "$folder"
}
