#!/usr/bin/env bash
# container.sh: builds the image of the Containerfile with podman, and runs `accelsweep doctor` and a small quickstart in it.
# BASE is the image to build on, the Containerfile's own if it is not set. BASE=debootstrap makes one of Debian's packages
# first, where no registry can be reached (root, Debian's package debootstrap).
# PODMAN, BUILD_OPTIONS and RUN_OPTIONS fit it to the machine; PIP_OPTIONS are pip's, inside the build.
set -euo pipefail
cd "$(dirname "$0")/.."

PODMAN=${PODMAN:-podman}
IMAGE=${IMAGE:-accelsweep}
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT

if [ "${BASE:-}" = debootstrap ]; then
  BASE=localhost/accelsweep-base
  if ! $PODMAN image exists $BASE; then
    debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$home/root" >"$home/log" ||
      { tail -5 "$home/log" >&2; exit 1; }
    tar -C "$home/root" -c . | $PODMAN import --change 'CMD ["bash"]' - $BASE >/dev/null
    rm -rf "$home/root"
  fi
fi
# shellcheck disable=SC2086 # options are words
$PODMAN build ${BUILD_OPTIONS:-} ${BASE:+--build-arg "BASE=$BASE"} --build-arg "PIP_OPTIONS=${PIP_OPTIONS:-}" -t "$IMAGE" .

mkdir "$home/work"
inside() {
  # shellcheck disable=SC2086
  $PODMAN run --rm ${RUN_OPTIONS:-} -v "$home/work:/work" "$IMAGE" "$@"
}
inside accelsweep doctor
inside accelsweep run experiment=quickstart accelerator=cpu devices=1 batch_size=32,64 precision=32-true repeats=1
inside accelsweep status quickstart
for left in reports/quickstart/index.html mlflow.db; do
  test -s "$home/work/$left" || { echo "the container left no $left" >&2; exit 1; }
done
echo "the image $IMAGE measures and reports"
