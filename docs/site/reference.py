"""What is made of the contract and the chart: `<!-- generated: NAME -->` in a page is replaced by a table."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from typing import Any, Final

from docs.site import http_api, pictures, values
from docs.site.sources import ROOT
from tests.docs import blocks

FAULTS: Final = {
    "caller": "your request",
    "workload": "the code in the sandbox",
    "capacity": "a lack of room",
    "platform": "the platform",
}
RETRIES: Final = {
    "never": "Do not repeat it as it is.",
    "later": "Repeat it later; the SDK does so by itself where it is safe.",
    "resume": "Repeat it with its id: nothing runs twice.",
    "new_sandbox": "Go on in a new sandbox.",
}
# In the index, for codes without a hint: an error of such a code has one that belongs to its reason.
SAID: Final = "What the error itself says."


def codes() -> Mapping[str, Mapping[str, Any]]:
    """Return the table of error codes, by code."""
    table: Mapping[str, Mapping[str, Any]] = tomllib.loads((ROOT / "contract/errors.toml").read_text())["code"]
    return table


def table(name: str) -> str:
    """Return what stands in the place of a mark.

    Raises:
        KeyError: there is no such table.
    """
    return _TABLES[name]()


def errors() -> str:
    """Every error code: what it means, whose fault it is, what to do."""
    parts = []
    for fault, words in FAULTS.items():
        parts.append(f"## Caused by {words}\n")
        for code, entry in codes().items():
            if entry["fault"] != fault:
                continue
            mask = "left out of the loss" if entry["mask_sample"] else "scored"
            parts.append(f"### {code} {{ #{code} }}\n")
            hint = f"\n\n**What to do:** {entry['hint']}" if entry["hint"] else ""
            parts.append(f"{entry['title']}{hint}\n")
            told = f"HTTP {entry['http']} · gRPC `{entry['grpc']}` · the sample is {mask} · {RETRIES[entry['retry']]}"
            parts.append(told + "\n")
    return "\n".join(parts)


def index() -> str:
    """Error codes by name, each with its hint; those of many reasons have none, and their errors say it themselves."""
    rows = [
        f"| [`{code}`](../reference/errors.md#{code}) | {FAULTS[entry['fault']]} | {entry['hint'] or SAID} |"
        for code, entry in sorted(codes().items())
    ]
    return "\n".join(["| code | caused by | what to do |", "|---|---|---|", *rows])


def alerts() -> str:
    """The page of each alert of the chart."""
    pages = sorted((ROOT / "docs/runbooks").glob("*.md"))
    rows = []
    for page in pages:
        text = [line for line in page.read_text().splitlines() if line and not line.startswith("#")]
        words = text[0].removeprefix("**What it means.** ").split(". ")[0].rstrip(".")
        rows.append(f"| [{page.stem}](../runbooks/{page.name}) | {words}. |")
    return "\n".join(["| alert | what it says |", "|---|---|", *rows])


_TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "errors": errors,
    "error-index": index,
    "alerts": alerts,
    "blocks": blocks.listing,
    "links": blocks.links,
    "headlines": pictures.headlines,
    "http-api": http_api.page,
    "chart-values": values.page,
}
