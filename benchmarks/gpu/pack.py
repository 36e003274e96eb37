"""Pack everything that a bare machine needs for the acceptance: `python benchmarks/gpu/pack.py FOLDER`.

`site.tar.xz` holds the packages that a machine with a torch image lacks (`wheels.py`), installed for its Python.
`tree.tar.xz` holds this checkout as it stands, tracked files and new ones. Packed together, the packages take half the
size of their wheels. The shell commands that start the acceptance there are printed; they need only Python, a shell and
tar.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
from importlib import metadata
from pathlib import Path

from wheels import HERE, PLATFORMS, ROOT, fetch_missing

STARTER = """\
g=/tmp/gpu
for part in site tree; do mkdir -p $g/$part && python3 -m tarfile -e {name}/$part.tar.xz $g/$part || exit; done
export PYTHONPATH=$g/tree/src:$g/site PYTHONUNBUFFERED=1
python3 $g/tree/benchmarks/gpu --device cuda --minutes ${{MINUTES:-14}} --home $g/home --out $BACK/evidence; code=$?
tar czf $BACK/home.tar.gz --exclude=.snakemake -C $g home; exit $code
"""
"""`$BACK` is the folder that comes back from that machine; the home holds every record for later inspection."""

MOST_BYTES = 64 * 2**20
"""What may be carried to a machine that is lent."""

FOREIGN_SOLVERS = "pulp/solverdir"
"""Solvers for five platforms, which Snakemake's greedy scheduler does not use."""


def installed(wheels: Path, python: str, site: Path) -> None:
    """Install the wheels unchanged for another Python than this one."""
    target = [f"--python-version={python}", "--implementation=cp", "--only-binary=:all:", "--target", str(site)]
    target += [f"--platform={platform}" for platform in PLATFORMS]
    quiet = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile"]
    files = sorted(map(str, wheels.glob("*.whl")))
    subprocess.run([sys.executable, "-m", "pip", "install", *quiet, *target, *files], check=True)
    shutil.rmtree(site / FOREIGN_SOLVERS, ignore_errors=True)


def named(site: Path) -> None:
    """Say in `site` what accelsweep is and needs, as an installation would: its code lies in the tree."""
    found = metadata.distribution("accelsweep")
    folder = site / f"accelsweep-{found.version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(found.read_text("METADATA") or "", "utf-8")


def tree(archive: Path) -> None:
    """Pack the checkout's files, without those that git ignores."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    with tarfile.open(archive, "w:xz") as packed:
        for name in sorted(filter(None, names)):
            if (ROOT / name).exists():
                packed.add(ROOT / name, name)


def main() -> int:
    """Pack, and print the parts' sizes and how they are used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="the version on the other machine")
    parser.add_argument("--present", type=Path, default=HERE / "present.txt", help="what that machine has, one a line")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        names = fetch_missing(Path(folder) / "wheels", options.python, options.present)
        installed(Path(folder) / "wheels", options.python, Path(folder) / "site")
        named(Path(folder) / "site")
        with tarfile.open(options.folder / "site.tar.xz", "w:xz") as packed:
            packed.add(Path(folder) / "site", ".")
    tree(options.folder / "tree.tar.xz")
    print(f"{len(names)} packages: {' '.join(names)}")
    sizes = {archive: archive.stat().st_size for archive in sorted(options.folder.glob("*.tar.xz"))}
    for archive, size in sizes.items():
        print(f"{size / 2**20:6.1f} MiB  {archive}")
    print("\n" + STARTER.format(name=options.folder))
    if sum(sizes.values()) > MOST_BYTES:
        print(f"too much to carry: {MOST_BYTES / 2**20:.0f} MiB is the limit")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
