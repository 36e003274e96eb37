"""Starts to watch the training in each Python process of `accelsweep watch` that imports torch.

Python imports this module when it starts, so it must suit old versions too, and cost next to nothing without torch.
"""

import os
import sys

_HERE = os.path.realpath(os.path.dirname(__file__))  # noqa: PTH120  pathlib takes longer to import than all of this


class _Finder:
    """Finds torch as usual, and starts to watch when it has been imported."""

    started = False

    def find_spec(self, name: str, path: object = None, target: object = None):  # type: ignore[no-untyped-def]
        if name != "torch" or _Finder.started:
            return None
        found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)  # type: ignore[arg-type]
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):  # type: ignore[no-untyped-def]
            execute(module)
            if not _Finder.started:
                _Finder.started = True
                _start()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _start() -> None:
    try:
        from accelsweep.features.watch.live_rate import LiveRate
        from accelsweep.features.watch.measured_rate import EXPECTATION_VARIABLE, Expectation

        LiveRate(Expectation.from_json(os.environ[EXPECTATION_VARIABLE])).start()
    except Exception as error:  # noqa: BLE001  the training must go on, whatever this is
        if os.environ.get("RANK", "0") == "0" and sys.stderr is not None:
            sys.stderr.write(f"accelsweep: this training is not compared: {type(error).__name__}: {error}\n")


def _import_next() -> None:
    """Import the module of the same name that this one hides."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if os.path.realpath(entry) != _HERE])
    if spec is not None and spec.loader is not None:
        module = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(module)


if not any(type(finder).__name__ == "_Finder" and finder.__module__ == __name__ for finder in sys.meta_path):
    sys.meta_path.insert(0, _Finder())
    _import_next()
