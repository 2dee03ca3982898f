"""Where audit entries go. Pure."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """Where entries go.

    Attributes:
        file: appended to, and read; None: none.
        file_bytes: of that and the one before it.
        stdout: whether they are written to stdout.
        kept: the newest that the store keeps, of all replicas; 0: none.
    """

    file: Path | None = None
    file_bytes: int = 64 << 20
    stdout: bool = False
    kept: int = 0
