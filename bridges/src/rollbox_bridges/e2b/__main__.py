"""`rollbox bridge e2b`: serve E2B's protocol until Ctrl-C."""

from __future__ import annotations

import argparse
from pathlib import Path

from rollbox_bridges import program
from rollbox_bridges.e2b.server import Bridge
from rollbox_bridges.e2b.settings import DEFAULT_IMAGE, DEFAULT_IMAGE_KEY, Settings


def main(words: list[str] | None = None) -> None:
    """Serve until a signal comes."""
    given = parser().parse_args(words)
    with program.checked():
        settings = settings_of(given)
        program.run(lambda: Bridge(settings).runner(), given, _told)


def parser() -> argparse.ArgumentParser:
    """Its options."""
    made = program.parser_of("e2b", "E2B's protocol", "127.0.0.1:3000")
    add = made.add_argument
    add("--domain", help="Ports of sandboxes are {port}-{id} below it; else below localhost.")
    add("--image", default=DEFAULT_IMAGE, help="Image of the templates base and code-interpreter-v1.")
    add("--template", action="append", default=[], metavar="NAME=IMAGE", help="A template; may be repeated.")
    add("--image-key", default=DEFAULT_IMAGE_KEY, help="The key of metadata that names the image.")
    add("--egress", metavar="PRESET", help="Network of sandboxes whose client allows the Internet.")
    add("--build-egress", metavar="PRESET", help="Network of builds of templates; else they have none.")
    add("--private-ports", action="store_true", help="Ports of sandboxes need their credential.")
    add("--secret-file", type=Path, help=f"Seals credentials; else ${program.SECRET}, else they end with it.")
    return made


def settings_of(given: argparse.Namespace) -> Settings:
    """Read the settings.

    Raises:
        SettingError: they are not sound.
    """
    return Settings(
        url=given.url,
        secret=program.secret_of(given.secret_file),
        domain=given.domain,
        default_image=given.image,
        templates=program.pairs_of("--template", given.template),
        image_key=given.image_key,
        keys=program.keys_of(given.keys),
        egress=given.egress,
        build_egress=given.build_egress,
        public_ports=not given.private_ports,
    )


def _told(url: str) -> str:
    key = "e2b_$(printf %s YOUR_ROLLBOX_KEY | od -An -tx1 | tr -d ' \\n')"
    return f"export E2B_API_URL={url} E2B_SANDBOX_URL={url}\nexport E2B_API_KEY={key}"


if __name__ == "__main__":
    main()
