"""The site is built without a warning and loads nothing from elsewhere; links to other sites are encrypted."""

from __future__ import annotations

import posixpath
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from docs.site import pictures, plots, reference, sequence
from tests.docs.blocks import ROOT, elsewhere, links, pages

LOADS = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=\"(?:https?:)?//[^\"]*\"")


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, as `make docs` builds it."""
    done = subprocess.run(["make", "docs"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "WARNING" not in done.stderr
    return ROOT / "build/docs"


def test_links_to_elsewhere_are_encrypted_and_name_a_host() -> None:
    assert len(links().splitlines()) == len(elsewhere()) > 0
    for target in elsewhere():
        parts = urlsplit(target)
        assert (parts.scheme, bool(re.fullmatch(r"[a-z0-9.-]+\.[a-z]+", parts.netloc))) == ("https", True), target


def test_every_example_that_is_a_program_says_what_runs_it() -> None:
    programs = {one.stem for one in (ROOT / "sdk/examples").glob("*.py") if "__main__" in one.read_text()}
    rows = re.findall(r"^\| ([a-z, ]+) \| `(?:make |tests/)", (ROOT / "docs/blocks.md").read_text(), re.MULTILINE)
    assert programs <= set(re.findall(r"[a-z]+", " ".join(rows)))


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert LOADS.findall(page.read_text()) == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", sheet.read_text()), sheet


def test_every_name_of_the_sdk_that_a_reader_meets_is_in_the_reference(site: Path) -> None:
    text = (site / "reference/sdk.html").read_text()
    for name in ("Sandbox.create", "Sandbox.exec", "Files.upload_dir", "SandboxGroup.create", "Client.preflight"):
        assert name.rpartition(".")[2] in text, name


def test_every_diagram_is_drawn(site: Path) -> None:
    for page in pages():
        drawn = (ROOT / page).read_text().count("```mermaid\nsequenceDiagram")
        if drawn:
            built = site / posixpath.relpath(page, "docs").replace(".md", ".html")
            assert built.read_text().count('class="sequence"') == drawn, page


def test_a_diagram_is_read_and_an_unknown_line_is_named() -> None:
    source = "sequenceDiagram\n  participant A as one\n  participant B"
    source += "\n  A->>B: calls <x>\n  B-->>A: told\n  Note over A,B: n"
    diagram = sequence.parse(source)
    assert diagram.labels == ["one", "B"]
    assert [step.kind for step in diagram.steps] == ["call", "answer", "note"]
    assert "calls &lt;x&gt;" in sequence.svg(source)
    with pytest.raises(ValueError, match="loop"):
        sequence.parse(source + "\n  loop forever")


def test_the_figures_of_the_readme_are_drawn_and_screens_are_those_of_the_tests() -> None:
    drawn = pictures.headlines()
    rows = (ROOT / "README.md").read_text().partition("<!-- figures: begin -->")[2].count("ratio ")
    assert 0 < drawn.count('class="bar"') <= rows
    assert "rollbox why" in pictures.screen("why")


@pytest.mark.parametrize("scenario", ["cluster_images", "cluster_commits"])
def test_figures_are_drawn_beside_what_they_were_compared_to(scenario: str) -> None:
    section = (ROOT / "docs/figures.md").read_text().partition(f"\n## {scenario}\n")[2].partition("\n## ")[0]
    drawn = plots.plot(scenario)
    assert drawn.count('class="bar"') == drawn.count('class="base"') == section.count(", ratio ") > 0
    assert drawn.count("target missed") == section.count("| **no** |")


def test_a_plot_of_no_figures_is_refused() -> None:
    with pytest.raises(ValueError, match="no figures of nothing"):
        plots.plot("nothing")


def test_every_code_and_alert_is_in_the_index() -> None:
    index, told = reference.table("error-index"), reference.table("errors")
    for code in reference.codes():
        assert f"(../reference/errors.md#{code})" in index
        assert f"{{ #{code} }}" in told
    for page in (ROOT / "docs/runbooks").glob("*.md"):
        assert page.stem in reference.table("alerts")
