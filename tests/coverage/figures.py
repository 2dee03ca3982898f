"""What was counted: by file, by package and in total, as a table and as JSON."""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath

ROOT = Path(__file__).parents[2]
OUT = ROOT / "build" / "coverage"


@dataclass(frozen=True)
class Counts:
    """Lines and branches that exist, and those that ran; a branch is one way out of a decision."""

    lines: int = 0
    lines_run: int = 0
    branches: int = 0
    branches_run: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.lines + other.lines,
            self.lines_run + other.lines_run,
            self.branches + other.branches,
            self.branches_run + other.branches_run,
        )

    def row(self, name: str) -> str:
        """One line of the table."""
        lines, branches = _percent(self.lines_run, self.lines), _percent(self.branches_run, self.branches)
        return f"  {name:<42}{self.lines:>7}{lines:>8}{self.branches:>10}{branches:>8}"


@dataclass
class Figures:
    """The figures of one language.

    Attributes:
        files: path below the root -> its counts.
        notes: which tests ran, and what was not measured and why.
        complete: everything that counts ran and passed.
    """

    language: str
    files: dict[str, Counts] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    complete: bool = True

    def lacks(self, reason: str) -> Figures:
        """The same, with something that is missing from it."""
        self.notes.append(reason)
        self.complete = False
        return self

    def packages(self) -> dict[str, Counts]:
        """Folder -> the counts of the files that lie in it, without those of its subfolders."""
        found: dict[str, Counts] = {}
        for path, counts in sorted(self.files.items()):
            folder = str(PurePath(path).parent)
            found[folder] = found.get(folder, Counts()) + counts
        return found

    def table(self) -> str:
        """Packages, the total and the notes."""
        head = f"\n{self.language:<44}{'lines':>7}{'run':>8}{'branches':>10}{'run':>8}"
        rows = [counts.row(package) for package, counts in self.packages().items()]
        return "\n".join([head, *rows, self.total().row("total"), *(f"  - {note}" for note in self.notes)])

    def total(self) -> Counts:
        """All files together."""
        return sum(self.files.values(), Counts())

    def save(self) -> Path:
        """Write everything as JSON."""
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
        told = {"commit": commit.stdout.strip(), "total": asdict(self.total()), "notes": self.notes}
        told["packages"] = {name: asdict(counts) for name, counts in self.packages().items()}
        told["files"] = {name: asdict(counts) for name, counts in sorted(self.files.items())}
        path = OUT / f"{self.language}.json"
        path.write_text(json.dumps(told, indent=1) + "\n")
        return path


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"
