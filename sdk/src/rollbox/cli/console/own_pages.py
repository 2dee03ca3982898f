"""The pages that this machine's server writes itself: of logins, and of failures. Pure; all text is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from rollbox.printable import printable

if TYPE_CHECKING:
    from rollbox._problem import SandboxError
    from rollbox.cli.console.logins import Refusal

STYLE = """:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 4rem auto; padding: 0 1.2rem }
h1 { font-size: 1.2rem } p { overflow-wrap: anywhere } .quiet { opacity: .7 }
"""
_AGAIN_S = 5
_REFUSED: dict[Refusal, tuple[str, str]] = {
    "wrong": ("This login code is not the one of this `rollbox ui`", "Open the address that it has printed."),
    "used": (
        "This login code was used before",
        "It works once. Go on in your browser that has used it; if none has, end `rollbox ui`, which ends the session.",
    ),
    "lapsed": ("This login code has lapsed", "It works for ten minutes. Start `rollbox ui` again."),
}


def logged_in() -> str:
    """Lead on to the console.

    Not a redirect: browsers follow one from a link in another site's page (a terminal in a browser, for one) without
    cookies that are SameSite=Strict.
    """
    return _page(
        "Logged in", '<p><a href="./">To the console</a></p>', head='<meta http-equiv="refresh" content="0;url=./">'
    )


def refused(why: Refusal) -> str:
    """Say why a login code is refused."""
    title, then = _REFUSED[why]
    return _page(title, f"<p>{escape(then)}</p>")


def unknown_browser() -> str:
    """Say that this browser is not logged in. A page that is kept current shows it too, once its login is over."""
    then = (
        "Its login is over, or it never was. Start <code>rollbox ui</code> again, and open the address that it prints."
    )
    return _page("This browser is not logged in", f"<p data-problem>{then}</p>")


def no_page() -> str:
    """Say that there is no such page."""
    return _page("There is no such page", '<p><a href="./">To the console</a></p>')


def failed(error: SandboxError, root: str) -> str:
    """Show an error of the platform, or why there is no answer; one that may pass is tried again by the browser.

    Args:
        error: it.
        root: the relative address of the first page.
    """
    text = escape(printable(f"{error.code}: {error.detail}"))
    hint = f"<p>{escape(printable(error.hint))}</p>" if error.hint else ""
    request = f'<p class="quiet">request {escape(printable(error.request_id))}</p>' if error.request_id else ""
    again = f'<meta http-equiv="refresh" content="{_AGAIN_S}">' if error.is_infra else ""
    tried = f'<p class="quiet">It is tried again every {_AGAIN_S} seconds.</p>' if again else ""
    back = f'<p><a href="{root or "./"}">To the first page</a></p>'
    body = f"<p data-problem>{text}</p>{hint}{tried}{request}{back}"
    return _page(
        "The platform did not answer as it should" if error.is_infra else "That cannot be shown", body, head=again
    )


def _page(title: str, body: str, *, head: str = "") -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<title>{escape(title)}</title>{head}<link rel="stylesheet" href="/own.css"></head>'
        f"<body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )
