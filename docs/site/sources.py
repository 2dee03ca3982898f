"""What pages link to outside `docs/`: the same files as pages of the site, so that the site needs no code host."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
# A link or picture of Markdown: what comes before the target, the target, its anchor and title.
LINK: Final = re.compile(r"(!?\[(?:[^\]\[]|\[[^\]]*\])*\]\()([^)#\s]+)?(#[^)\s]*)?((?:\s+\"[^\"]*\")?\))")
FENCE: Final = re.compile(r"^( *)(```+|~~~+).*?^\1\2[ ]*$", re.MULTILINE | re.DOTALL)
_LANGUAGES: Final = {
    ".py": "python",
    ".toml": "toml",
    ".yaml": "yaml",
    ".rs": "rust",
    ".go": "go",
    ".proto": "protobuf",
}


def outside(name: str) -> str:
    """Return the place in the site of a file or folder of the repository, by its name there."""
    if name == "README.md":
        return "source/README-of-the-repository.md"
    path = ROOT / name
    if path.is_dir():
        return f"source/{name}/index.md"
    if path.name == "README.md":
        return f"source/{posixpath.dirname(name)}/index.md"
    return f"source/{name}" if name.endswith(".md") else f"source/{name}.md"


def text_of(name: str) -> str:
    """Return the Markdown of the page of a file or folder of the repository."""
    path = ROOT / name
    if path.is_dir():
        if (path / "README.md").exists():
            return text_of(f"{name}/README.md")
        inside = sorted(one for one in path.iterdir() if one.name not in ("__pycache__",))
        lines = [f"- `{one.name}{'/' if one.is_dir() else ''}`" for one in inside]
        return "\n".join([f"# `{name}/`", "", *lines, ""])
    if path.suffix == ".md":
        return path.read_text()
    fence = "`" * 6
    return f"# `{name}`\n\n{fence}{_LANGUAGES.get(path.suffix, 'text')}\n{path.read_text()}{fence}\n"


def moved(markdown: str, *, at: str, place: str) -> tuple[str, set[str]]:
    """Point the links of a text at the site's pages.

    Args:
        markdown: of a page.
        at: the file of the repository that has it; links are relative to it.
        place: of the page in the site.

    Returns:
        The text, and the files outside `docs/` that it links to.
    """
    found: set[str] = set()

    def link(match: re.Match[str]) -> str:
        before, target, anchor, after = match.groups()
        if not target or ":" in target or target.startswith("/"):
            return match[0]
        name = posixpath.normpath(posixpath.join(posixpath.dirname(at), target))
        if name.startswith("docs/"):
            goal = name.removeprefix("docs/") + ("/index.md" if (ROOT / name).is_dir() else "")
        elif (ROOT / name).exists() and not name.startswith(".."):
            found.add(name)
            goal = outside(name)
        else:
            return match[0]
        return f"{before}{posixpath.relpath(goal, posixpath.dirname(place) or '.')}{anchor or ''}{after}"

    pieces = [LINK.sub(link, text) if prose else text for prose, text in _pieces(markdown)]
    return "".join(pieces), found


def _pieces(markdown: str) -> Iterator[tuple[bool, str]]:
    """Yield prose and code blocks in turn; True for prose."""
    last = 0
    for block in FENCE.finditer(markdown):
        yield True, markdown[last : block.start()]
        yield False, block[0]
        last = block.end()
    yield True, markdown[last:]
