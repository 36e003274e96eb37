"""Starts to watch the training in each Python process of `accelsweep watch`, once it has imported torch's optimisers.

Python imports this module when it starts. It must suit every Python 3, and cost next to nothing without torch.
"""

import os
import sys

_MODULE = "torch.optim.optimizer"
_HERE = os.path.realpath(os.path.dirname(__file__))  # noqa: PTH120  pathlib takes longer to import than all of this


class _Finder:
    """Finds torch's optimisers as usual, and starts to watch when they have been imported."""

    def find_spec(self, name: str, path: object = None, target: object = None):  # type: ignore[no-untyped-def]
        del path, target
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        from importlib.util import find_spec

        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):  # type: ignore[no-untyped-def]
            execute(module)
            _start()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _start() -> None:
    try:
        from accelsweep.features.watch.live_rate import LiveRate
        from accelsweep.features.watch.measured_rate import VARIABLE, Expectation

        LiveRate(Expectation.parse(os.environ[VARIABLE])).start()
    except Exception as error:  # noqa: BLE001  the training must go on, whatever this is
        sys.stderr.write(f"accelsweep: this training is not compared: {type(error).__name__}: {error}\n")


def _import_next() -> None:
    """Import the module of the same name that this one hides."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    spec = PathFinder.find_spec("sitecustomize", [entry for entry in sys.path if os.path.realpath(entry) != _HERE])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


sys.meta_path.insert(0, _Finder())
_import_next()
