#!/usr/bin/env bash
# wheel.sh: installs the wheel of dist/ outside of the checkout, so that its own files are used, and plans a sweep with it.
# Then it lists what the wheel brings, without the tools that work on accelsweep takes, in dist/accelsweep.cdx.json (SBOM).
set -euo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
elsewhere=$(mktemp -d)
trap 'rm -rf "$elsewhere"' EXIT

$PYTHON -m venv "$elsewhere/venv"
PIP_CONSTRAINT=constraints.txt "$elsewhere/venv/bin/pip" install --quiet --disable-pip-version-check dist/*.whl
(cd "$elsewhere" && venv/bin/accelsweep plan experiment=quickstart)
pipx run --spec cyclonedx-bom==7.5.0 cyclonedx-py environment --pyproject pyproject.toml \
  --output-reproducible --output-file dist/accelsweep.cdx.json "$elsewhere/venv/bin/python"
echo "what the wheel brings: dist/accelsweep.cdx.json"
