"""Every page of the repository as a code host shows it: links lead somewhere, pictures are there, no block is empty."""

from __future__ import annotations

import posixpath
import re
import subprocess
from pathlib import Path

import pytest

from docs.site.sources import FENCE, LINK

ROOT = Path(__file__).parents[3]
PAGES = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
ENDS = re.compile(r"[^\w\- ]")
HTML = re.compile(r"<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=\"([^\"#:]+)(?:#[^\"]*)?\"")
REFERENCE = re.compile(r"^\[[^\]]+\]:\s*([^\s#:]+)(?:#\S*)?\s*$", re.MULTILINE)
# The site puts a table in the place of both lines; elsewhere the second says where it is made of.
GENERATED = re.compile(r"^<!-- (?:generated|screen): \S+ -->\n(.*)$", re.MULTILINE)
ELSEWHERE = re.compile(r"\*In the repository: .*\[[^\]]+\]\([^)]+\).*\*")


def anchors(text: str) -> set[str]:
    """The anchors of a page: of its headings, as code hosts make them, and those that it names itself."""
    found: set[str] = set()
    for line in FENCE.sub("", text).splitlines():
        if heading := re.match(r"#+ (.+)", line):
            title, _, named = heading[1].partition(" { #")
            plain = re.sub(r"[`*]|\]\([^)]*\)|\[", "", title).strip().lower()
            found.add(named.rstrip("} ") if named else ENDS.sub("", plain).replace(" ", "-"))
    return found | set(re.findall(r'(?:id|name)="([^"]+)"', text))


def wrong_links(page: str, text: str) -> list[str]:
    """The links and pictures of a page that lead nowhere."""
    prose = FENCE.sub("", text)
    found = [(target, anchor) for _, target, anchor, _ in LINK.findall(prose) if ":" not in target]
    found += [(target, "") for pattern in (HTML, REFERENCE) for target in pattern.findall(prose)]
    wrong = []
    for target, anchor in found:
        path = ROOT / posixpath.normpath(posixpath.join(posixpath.dirname(page), target)) if target else ROOT / page
        whole = path.read_text() if path.suffix == ".md" and path.exists() else ""
        generated = "<!-- generated:" in whole
        if not path.exists() or (anchor and whole and not generated and anchor[1:] not in anchors(whole)):
            wrong.append(target + anchor)
    return wrong


def empty_blocks(text: str) -> list[str]:
    """The generated blocks that say nothing to a reader of the repository."""
    return [found[0] for found in GENERATED.finditer(FENCE.sub("", text)) if not ELSEWHERE.fullmatch(found[1])]


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_somewhere(page: str) -> None:
    assert wrong_links(page, (ROOT / page).read_text()) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_block_says_where_it_is_in_the_repository(page: str) -> None:
    assert empty_blocks((ROOT / page).read_text()) == []


@pytest.mark.parametrize(
    "text",
    ["![a](none.png)", "[a](README.md#none)", "[a][b]\n\n[b]: none.md", '<img alt="" src="none.png">', "[a](#none)"],
)
def test_what_leads_nowhere_is_noticed(text: str) -> None:
    assert len(wrong_links("CONTRIBUTING.md", text)) == 1
    assert wrong_links("CONTRIBUTING.md", f"```\n{text}\n```\n") == []


@pytest.mark.parametrize("then", ["", "\n## Next", "words", "*In the repository: nowhere.*"])
def test_an_empty_block_is_noticed(then: str) -> None:
    assert len(empty_blocks(f"# A\n\n<!-- generated: x -->\n{then}\n")) == 1
