#!/usr/bin/env bash
# Measure a small sweep with a released version and pack it, as users of that version may still have it:
#     tests/released/make.sh VERSION COMMIT
# Needs the packages that the version pins in .venv, and some minutes. Logs and attempts stay out: they hold this
# machine's paths.
set -euo pipefail
version=$1 commit=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
git clone --quiet --shared "$root" "$made/then"
git -C "$made/then" checkout --quiet "$commit"
mkdir "$made/home"
cd "$made/home"
PYTHONPATH="$made/then/src" "$root/.venv/bin/python" -m accelsweep run experiment=quickstart --name old \
  accelerator=cpu devices=1 threads=1 model=mlp model.width=8,3000000 batch_size=16,64 precision=32-true,16-mixed \
  repeats=3 measure.warmup_steps=5 measure.min_steps=20 measure.max_steps=60 measure.min_seconds=0.05 \
  measure.quality_samples=512
tar --create --sort=name --owner=0 --group=0 --numeric-owner \
  --exclude=logs --exclude=attempts --exclude=run.log --exclude=published.json \
  sweeps/old | gzip --no-name >"$root/tests/released/$version.tar.gz"
