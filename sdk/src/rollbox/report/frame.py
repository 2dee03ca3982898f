"""The frame of a report's page: its head, its style and its policy. Pure; all text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape

_STYLE = """
:root { color-scheme: light }
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; max-width: 860px; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
.sub { color: #555; margin: .2rem 0 1.2rem }
.cards { display: flex; flex-wrap: wrap; gap: .7rem }
.cards div { border: 1px solid #ddd; border-radius: 6px; padding: .5rem .9rem; min-width: 6rem }
.cards b { display: block; font-size: 1.3rem; font-variant-numeric: tabular-nums }
.cards .bad { border-color: #d55e00; background: #fff4ec }
svg { width: 100%; min-width: 560px; height: auto; display: block } svg text { font-size: 11px; fill: #555 }
svg[aria-label^=parts] { min-width: 0 }
.grid { stroke: #e3e3e3; stroke-width: 1 }
.scroll { overflow-x: auto } table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid #eee; vertical-align: top }
th { font-weight: 600; color: #555 } td.n, th.n { text-align: right; white-space: nowrap }
td.n:first-child, th.n:first-child { width: 4rem } td { overflow-wrap: anywhere } code { font-size: .85em }
.scroll td:first-child { white-space: nowrap; overflow-wrap: normal }
i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .45em }
.legend span { margin-right: 1.2em; white-space: nowrap; font-size: .85rem } .legend { margin: .3rem 0 0 }
td.said { min-width: 11rem }
details { margin: .2rem 0 } summary { cursor: pointer }
"""
# Nothing is loaded and nothing runs, whatever a name in the report holds.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def document(title: str, sub: str, cards: str, sections: Iterable[tuple[str, str]]) -> str:
    """Write a page.

    Args:
        title: of the page, as text.
        sub: what stands below it, as text.
        cards: its headline numbers, as markup.
        sections: title, as text, and markup of each; one without markup is left out.
    """
    body = "".join(f"<section><h2>{escape(name)}</h2>{content}</section>" for name, content in sections if content)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(title)}</h1>"
        f'<p class="sub">{escape(sub)}</p>{cards}{body}</body></html>\n'
    )


def cards(told: Iterable[tuple[str, object, bool]]) -> str:
    """Write headline numbers: what each is, its value, and whether it is bad."""
    boxes = (
        f"<div{' class=bad' if bad else ''}><b>{escape(str(value))}</b>{escape(name)}</div>"
        for name, value, bad in told
    )
    return f'<div class="cards">{"".join(boxes)}</div>'


def clock(at_ms: float) -> str:
    """Write a Unix time, ms."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
