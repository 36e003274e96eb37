"""The commands that continue a sweep can be pasted into a shell, and name only what the sweep does not know itself."""

from __future__ import annotations

import shlex
from types import ModuleType

from accelsweep.records.layout import SweepFolder
from accelsweep.records.plan import Manifest
from accelsweep.records.sweep_commands import add_blocks_command, sweep_command


def test_the_command_quotes_what_a_shell_would_take_apart(example_sweep: SweepFolder) -> None:
    manifest = Manifest.read(example_sweep.manifest).model_copy(
        update={"overrides": ("model.name='a; rm -rf $(HOME)'",), "sweep": "other"}
    )
    assert shlex.split(sweep_command(manifest)) == ["accelsweep", "run", *manifest.overrides, "--name", "other"]


def test_a_sweep_with_automatic_repeats_is_advised_no_option_that_is_refused_there(simulated: ModuleType) -> None:
    manifest = simulated.make_manifest([{"batch_size": 8}, {"batch_size": 16}], 3)
    for repeats, advised in ((3, ""), (6, " repeats=8")):
        options = manifest.options.model_copy(update={"auto_repeats": True, "repeats": repeats})
        plan = manifest.model_copy(update={"options": options})
        assert add_blocks_command(plan, 2) == f"accelsweep run experiment=simulated{advised}"
        assert add_blocks_command(plan, 0) is None


def test_a_name_is_stated_only_where_it_is_neither_the_experiments_own_nor_typed(simulated: ModuleType) -> None:
    """The folder of experiment=claims/vgg16 is claims-vgg16 without --name."""
    manifest = simulated.make_manifest([{"batch_size": 8}], 1)
    names = {"experiment": "claims/vgg16", "sweep": "claims-vgg16", "overrides": ("experiment=claims/vgg16",)}
    assert sweep_command(manifest.model_copy(update=names)) == "accelsweep run experiment=claims/vgg16"
    renamed = manifest.model_copy(update={**names, "sweep": "mine"})
    assert sweep_command(renamed) == "accelsweep run experiment=claims/vgg16 --name mine"
    typed = manifest.model_copy(update={**names, "sweep": "mine", "overrides": ("batch_size=8", "name=mine")})
    assert sweep_command(typed) == "accelsweep run batch_size=8 name=mine"
