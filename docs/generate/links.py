"""Rewrites the links in pages outside `docs/` so that they point to pages of the site."""

from __future__ import annotations

import posixpath
import re

_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)\s]*)?\))")

SHOWN = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "reporting.md",
}
"""Files in the root of the repository, mapped to the pages of the site that show them."""

EXAMPLES = {
    f"reports/examples/{name}/reports/{name}/report.md": f"examples/{name}.html" for name in ("quickstart", "ladder")
}
"""The reports that the site includes unchanged; each is a self-contained page."""

METHOD = "../../../../../docs/method.md"
"""The relative path, in the repository, from an example's report to the page about the method."""

PLAIN = ("LICENSE", "CITATION.cff")
"""Files that the site serves unchanged."""


def for_the_site(text: str) -> str:
    """Return a page from the repository's root with its links adapted to the site's root."""

    def moved(match: re.Match[str]) -> str:
        target = match[2]
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        place = SHOWN.get(target) or EXAMPLES.get(target) or target.removeprefix("docs/")
        return f"{match[1]}{posixpath.normpath(place)}{match[3]}"

    return _LINK.sub(moved, text)
