"""The command lines that continue a sweep, add blocks to it, or measure its disturbed runs again."""

from __future__ import annotations

import shlex

from accelsweep.config.versions import command_words
from accelsweep.records.plan import Manifest


def add_blocks_command(manifest: Manifest, added: int) -> str | None:
    """Return the command line that adds the given number of blocks to this sweep; None if the number is 0.

    The number is omitted for sweeps that are still in their pilot (`repeats: auto`) and sweeps run with
    `--until-decided`, because they determine it themselves.
    """
    if not added:
        return None
    command, options = sweep_command(manifest), manifest.options
    if options.pilot or options.until_decided:
        return command
    return (
        f"{command} repeats={options.repeats + added}" if options.auto_repeats else f"{command} --add-repeats {added}"
    )


def retry_command(manifest: Manifest) -> str:
    """Return the command line that measures the disturbed runs of this sweep again."""
    return (
        f"{shlex.join(['accelsweep', 'retry', manifest.sweep, '--outcome', 'disturbed'])} && {sweep_command(manifest)}"
    )


def sweep_command(manifest: Manifest) -> str:
    """Return the command line that continues this sweep."""
    part = next(iter(manifest.parts.values()), None)
    kind = "ab-" if manifest.compared else f"{part.command}-" if part else ""
    name = manifest.searches_for or manifest.sweep
    default = manifest.entry.default_name if manifest.entry else manifest.experiment or ""
    is_known = name == kind + default.replace("/", "-") or f"name={name}" in manifest.overrides
    options = [] if is_known else ["--name", name]
    options += ["--until-decided"] if manifest.options.until_decided else []
    options = [*manifest.entry_arguments, *options, *manifest.profile_arguments]
    words = [*command_words(manifest.compared), *manifest.overrides, *options]
    if part is not None:
        words = [part.command, *words[1:], *part.words]
    return shlex.join(["accelsweep", *words])
