"""What MkDocs calls while it builds the site: files outside `docs/` as pages, diagrams, and generated tables."""

from __future__ import annotations

import re
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.site import pictures, plots, reference, sequence, sources

_DIAGRAM: Final = re.compile(r"^```mermaid\n(sequenceDiagram.*?)^```$", re.MULTILINE | re.DOTALL)
# A line below a mark says where readers of the repository find what stands there on the site.
_ELSEWHERE: Final = r"(?:\n\*In the repository: .*\*)?$"
_GENERATED: Final = re.compile(r"^<!-- generated: (\S+) -->" + _ELSEWHERE, re.MULTILINE)
_SCREEN: Final = re.compile(r"^<!-- screen: (\S+) -->" + _ELSEWHERE, re.MULTILINE)
_PLOT: Final = re.compile(r"^<!-- plot: (\S+) -->$", re.MULTILINE)
_origin: dict[str, str] = {}
# Pages that stand in the navigation although their files are beside `docs/`.
ALWAYS: Final = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "sdk/README.md")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file outside `docs/` that some page links to."""
    _origin.clear()
    files.append(File.generated(config, "runbooks/index.md", content="# Alerts\n\n<!-- generated: alerts -->\n"))
    _origin["runbooks/index.md"] = "docs/runbooks/index.md"
    todo = {name for name in ALWAYS if (sources.ROOT / name).exists()}
    for file in files.documentation_pages():
        name = f"docs/{file.src_uri}"
        if file.src_uri in _origin:
            continue
        todo |= sources.moved((sources.ROOT / name).read_text(), at=name, place=file.src_uri)[1]
    while todo:
        name = todo.pop()
        place = sources.outside(name)
        if place in _origin:
            continue
        text = sources.text_of(name)
        folder = (sources.ROOT / name).is_dir()
        _origin[place] = f"{name}/README.md" if folder else name
        files.append(File.generated(config, place, content=text))
        if place.endswith(".md") and (name.endswith(".md") or folder):
            todo |= sources.moved(text, at=_origin[place], place=place)[1]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links at pages of the site, draw diagrams, and fill in what is generated."""
    del config, files
    place = page.file.src_uri
    name = _origin.get(place, f"docs/{place}")
    text = _GENERATED.sub(lambda found: reference.table(found[1]), markdown)
    text = _SCREEN.sub(lambda found: pictures.screen(found[1]), text)
    text = _PLOT.sub(lambda found: plots.plot(found[1]), text)
    text, _ = sources.moved(text, at=name, place=place)
    return _DIAGRAM.sub(lambda found: sequence.svg(found[1]), text)
