"""Pages from views, by Jinja2; the files that pages load; the headers that bound what a page may do. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from controlplane.console.chart import HIGH, STRIP, WIDE
from controlplane.console.overview import Overview
from controlplane.console.sandbox import SandboxStory
from controlplane.console.words import harmless, moment

_HERE: Final = Path(__file__).parent
_KINDS: Final = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
# A page loads a style sheet, a script and a picture from where it is, and asks nobody else for anything.
POLICY: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class File:
    """A file that pages load."""

    content: bytes
    media_type: str


class Pages:
    """Renders pages. Cost of one: a compiled template; 3 ms of the event loop for fifty sandboxes."""

    def __init__(self) -> None:
        # `finalize` sees every expression before it is escaped, so no template can forget it.
        self._templates = Environment(
            loader=FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            finalize=harmless,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._templates.filters["moment"] = moment
        self._files = {
            one.name: File(one.read_bytes(), _KINDS[one.suffix]) for one in sorted((_HERE / "static").iterdir())
        }
        # A changed file has another address, so that a page never meets the script of another version.
        digest = sha256(b"".join(one.content for one in self._files.values())).hexdigest()
        self._templates.globals |= {"build": digest[:12], "wide": WIDE, "high": HIGH, "strip": STRIP}
        self._overview = self._templates.get_template("overview.html")
        self._sandbox = self._templates.get_template("sandbox.html")

    def overview(self, view: Overview) -> str:
        """The first page."""
        return self._overview.render(view=view, root="")

    def sandbox(self, view: SandboxStory) -> str:
        """The page of one sandbox."""
        return self._sandbox.render(view=view, root="../")

    def file(self, name: str) -> File | None:
        """A file that pages load; None: there is none of this name."""
        return self._files.get(name)
