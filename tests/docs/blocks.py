"""Every block of code of every page, and what is done with it. Pure.

A block is run unless `blocks.toml` has it, with the reason. What is not run is looked at as far as that goes: command
lines of rollbox are parsed, verbs of make and values of the chart have to be there (test_checked.py).
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from docs.site.sources import FENCE, LINK

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ("README.md", "CONTRIBUTING.md", "sdk/README.md", "docs/**/*.md")
RULES: Final = Path(__file__).with_name("blocks.toml")
SHELL: Final = ("", "sh", "bash", "console")
_FENCE: Final = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block: its page by its path in the repository, its line, its language, its text."""

    page: str
    line: int
    language: str
    text: str

    @property
    def kind(self) -> str:
        """What it is: shell, program, fragment (of an `async def`), output (of the block before), drawing or data."""
        if self.language in SHELL:
            return "shell"
        if self.language == "python":
            alone = "asyncio.run(" in self.text or "rollbox.sync" in self.text
            return "program" if alone else "fragment"
        return {"text": "output", "mermaid": "drawing"}.get(self.language, "data")

    @property
    def begins(self) -> str:
        """Its first line that is no import."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return next((line for line in lines if not line.startswith(("import ", "from "))), lines[0] if lines else "")


@dataclass(frozen=True)
class Rule:
    """Blocks that are not run: those of a page, or those of it that begin so; and why."""

    page: str
    begins: str
    reason: str

    def has(self, block: Block) -> bool:
        """Whether this block is one of them."""
        return block.page == self.page and block.begins.startswith(self.begins)


def pages() -> list[str]:
    """All pages, by name."""
    return sorted({str(path.relative_to(ROOT)) for pattern in PAGES for path in ROOT.glob(pattern)})


def blocks(page: str) -> list[Block]:
    """The blocks of a page, in order."""
    text = (ROOT / page).read_text()
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found[2], re.sub(rf"^{found[1]}", "", found[3], flags=re.M))
        for found in _FENCE.finditer(text)
    ]


def rules() -> list[Rule]:
    """The blocks that are not run."""
    table = tomllib.loads(RULES.read_text())["not_run"]
    return [Rule(one["page"], one.get("begins", ""), one["reason"]) for one in table]


def why_not(block: Block, table: list[Rule]) -> str:
    """Why a block is not run; empty: it is."""
    if block.kind == "data":
        return "data: it is read, and compared with what it is for"
    return next((rule.reason for rule in table if rule.has(block)), "")


def listing() -> str:
    """The page of all blocks, run or not: for the site."""
    table = rules()
    ran, left = list[str](), list[str]()
    for page in pages():
        for block in blocks(page):
            words = block.begins.replace("|", "\\|").replace("`", "'")[:90]
            row = f"| {page}:{block.line} | {block.kind} | `{words}` |"
            reason = why_not(block, table)
            (left if reason else ran).append(f"{row} {reason} |" if reason else row)
    head = ["| where | what | begins |", "|---|---|---|"]
    more = ["| where | what | begins | why not |", "|---|---|---|---|"]
    return "\n".join([f"## Run ({len(ran)})", "", *head, *ran, "", f"## Not run ({len(left)})", "", *more, *left, ""])


def elsewhere() -> dict[str, list[str]]:
    """The links to other sites, each with the pages that have it."""
    found: dict[str, list[str]] = {}
    for page in pages():
        for _, target, anchor, _ in LINK.findall(FENCE.sub("", (ROOT / page).read_text())):
            if ":" in target:
                found.setdefault(target + anchor, []).append(page)
    return found


def links() -> str:
    """The list of them, for the site."""
    return "\n".join(f"- <{target}> ({', '.join(where)})" for target, where in sorted(elsewhere().items()))


if __name__ == "__main__":
    print(listing())
