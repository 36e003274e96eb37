#!/usr/bin/env bash
# Measure the small sweep of tests/fakes/small_sweep.py and pack it, where a document's format has changed.
# Takes some minutes. Logs and attempts stay out: they hold this machine's paths.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
cd "$home"
"$root/.venv/bin/accelsweep" run experiment=quickstart --name old \
  accelerator=cpu devices=1 threads=1 model=mlp model.width=8,3000000 batch_size=16,64 precision=32-true,16-mixed \
  repeats=3 measure.warmup_steps=5 measure.min_steps=20 measure.max_steps=60 measure.min_seconds=0.05 \
  measure.quality_samples=512
tar --create --sort=name --owner=0 --group=0 --numeric-owner \
  --exclude=logs --exclude=attempts --exclude=run.log --exclude=published.json \
  sweeps/old | gzip --no-name >"$root/tests/fakes/small_sweep.tar.gz"
