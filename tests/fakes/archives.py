"""Archives made to harm: an archive of ours with members put in, taken out or changed, with a listing that fits."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelsweep.features.archives.pack import LISTING, ArchivedFile, Contents
from accelsweep.json_documents import Document


def members(path: Path) -> dict[str, bytes]:
    """Return the contents of an archive's members by their names."""
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


def contents_of(path: Path) -> Contents:
    """Return the listing that an archive begins with."""
    return Contents.unsealed(members(path)[LISTING], path)


def relisted(path: Path, target: Path, files: Mapping[str, bytes | None], **listing: Any) -> Path:
    """Write the archive at `path` to `target` with these files, by their places, and a listing that fits them.

    None takes a file out. `listing` replaces fields of the listing, unchecked.
    """
    inside = members(path)
    contents = Contents.unsealed(inside[LISTING], path)
    held = {place: inside[contents.member(place)] for place in contents.files}
    held = {place: content for place, content in {**held, **files}.items() if content is not None}
    listed = {
        place: ArchivedFile(size=len(content), sha256=hashlib.sha256(content).hexdigest())
        for place, content in held.items()
    }
    made = contents.model_copy(update={"files": listed, **listing})
    write(target, {LISTING: made.sealed(), **{made.member(place): content for place, content in held.items()}})
    return target


def write(target: Path, named: Mapping[str, bytes], **fields: Any) -> Path:
    """Write a ZIP file of these members; `fields` are set on the description of the last of them."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for number, (name, content) in enumerate(named.items(), 1):
            member = zipfile.ZipInfo(name)
            member.compress_type = zipfile.ZIP_DEFLATED
            for field, value in fields.items() if number == len(named) else ():
                setattr(member, field, value)
            archive.writestr(member, content)
    return target


def changed(document: Document, **fields: Any) -> bytes:
    """Return the sealed document with these fields changed, unchecked."""
    return document.model_copy(update=fields).sealed()
