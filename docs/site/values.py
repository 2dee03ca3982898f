"""The values of the chart as a page: names, defaults, and the comments of `helm/values.yaml`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from docs.site.sources import ROOT

_KEY: Final = re.compile(r"^( *)([A-Za-z]\w*):(?: +(.*))?$")


@dataclass
class Value:
    """One value: its full name, what it is by default, and what is said of it."""

    name: str
    default: str
    words: str
    inside: list[Value] = field(default_factory=list)


def read(text: str) -> list[Value]:
    """Read the values of a chart, in order, with the comments before them; what only a comment has is part of it."""
    top: list[Value] = []
    above: list[tuple[int, Value]] = []
    comment: list[str] = []
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            comment.append(line.lstrip().removeprefix("#").removeprefix(" "))
        elif found := _KEY.match(line):
            depth, key, default = len(found[1]), found[2], (found[3] or "").strip()
            while above and above[-1][0] >= depth:
                above.pop()
            name = f"{above[-1][1].name}.{key}" if above else key
            value = Value(name, default, "\n".join(comment))
            (above[-1][1].inside if above else top).append(value)
            above.append((depth, value))
            comment = []
        elif not line.strip():
            comment = []
    return top


def page() -> str:
    """A section for each value of the top, and a table of what is in it."""
    lines = []
    for value in read((ROOT / "helm/values.yaml").read_text()):
        lines += [f"## {value.name} {{ #{value.name.lower()} }}", ""]
        if value.words:
            lines += [_words(value.words), ""]
        leaves = _leaves(value)
        if leaves:
            lines += ["| value | default | |", "|---|---|---|"]
            lines += [f"| `{one.name}` | {_default(one)} | {_cell(one.words)} |" for one in leaves]
        else:
            lines += [f"Default: {_default(value)}"]
        lines.append("")
    return "\n".join(lines)


def _leaves(value: Value) -> list[Value]:
    return [
        leaf for one in value.inside for leaf in ([one, *_leaves(one)] if one.words or not one.inside else _leaves(one))
    ]


def _default(value: Value) -> str:
    return f"`{value.default}`" if value.default else ""


def _cell(words: str) -> str:
    return " ".join(words.split()).replace("|", "\\|").replace("<", "&lt;")


def _words(words: str) -> str:
    """A comment as prose; an example in it as a block."""
    lines = words.splitlines()
    if lines and lines[0].endswith("for example"):
        return "\n".join([f"{lines[0]}:", "", "```yaml", *(line.removeprefix("  ") for line in lines[1:]), "```"])
    return words.replace("<", "&lt;")
