"""`rollbox bridge fusion`: serve SandboxFusion's protocol until Ctrl-C."""

from __future__ import annotations

import argparse

from rollbox_bridges import program
from rollbox_bridges.fusion.server import Bridge
from rollbox_bridges.fusion.settings import DEFAULT_IMAGE, Settings


def main(words: list[str] | None = None) -> None:
    """Serve until a signal comes."""
    given = parser().parse_args(words)
    with program.checked():
        settings = settings_of(given)
        program.run(lambda: Bridge(settings).runner(), given, lambda url: _told(url, keyless=settings.keyless))


def parser() -> argparse.ArgumentParser:
    """Its options."""
    made = program.parser_of("fusion", "SandboxFusion's protocol", "127.0.0.1:8080")
    add = made.add_argument
    add("--keyless", action="store_true", help="Requests without a key are for the owner of the bridge's own key.")
    add("--image", default=DEFAULT_IMAGE, help="Image of all languages that have none of their own.")
    add("--language", action="append", default=[], metavar="NAME=IMAGE", help="A language's image; may be repeated.")
    add("--memory", metavar="SIZE", help="Of sandboxes whose request has no limit.")
    add("--egress", metavar="PRESET", help="Network of the sandboxes; else the installation's default.")
    add("--warm", type=int, default=4, metavar="N", help="Sandboxes kept ready for each image and memory in use.")
    add("--at-once", type=int, default=64, metavar="N", help="Requests that run at a time.")
    add("--waiting", type=int, default=1000, metavar="N", help="Requests more that wait for their turn.")
    return made


def settings_of(given: argparse.Namespace) -> Settings:
    """Read the settings.

    Raises:
        SettingError: they are not sound.
    """
    try:
        return Settings(
            url=given.url,
            keys=program.keys_of(given.keys),
            keyless=given.keyless,
            image=given.image,
            images=program.pairs_of("--language", given.language),
            memory=given.memory,
            egress=given.egress,
            warm=given.warm,
            at_once=given.at_once,
            waiting=given.waiting,
        )
    except ValueError as error:
        raise program.SettingError(str(error)) from error


def _told(url: str, *, keyless: bool) -> str:
    address = url if keyless else url.replace("://", "://rollbox:$ROLLBOX_API_KEY@")
    return f'export SANDBOX_FUSION_ENDPOINT="{address}" SANDBOX_URL="{address}/run_code"'


if __name__ == "__main__":
    main()
