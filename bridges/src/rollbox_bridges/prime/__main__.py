"""`rollbox bridge prime`: serve Prime's protocol until Ctrl-C."""

from __future__ import annotations

import argparse
from pathlib import Path

from rollbox_bridges import program
from rollbox_bridges.prime.server import Bridge
from rollbox_bridges.prime.settings import DEFAULT_ARCH, DEFAULT_REGION_LABEL, Settings


def main(words: list[str] | None = None) -> None:
    """Serve until a signal comes."""
    given = parser().parse_args(words)
    with program.checked():
        settings = settings_of(given)
        program.run(lambda: Bridge(settings).runner(), given, _told)


def parser() -> argparse.ArgumentParser:
    """Its options."""
    made = program.parser_of("prime", "the protocol of Prime Sandboxes", "127.0.0.1:3100")
    add = made.add_argument
    add("--public-url", metavar="URL", help="Where clients reach the bridge; else where a request came to.")
    add("--image", action="append", default=[], metavar="NAME=IMAGE", help="What a docker_image is; may be repeated.")
    add("--egress", metavar="PRESET", help="Network of sandboxes whose client gives no list.")
    add("--arch", default=DEFAULT_ARCH, help="Of the nodes; another one is asked for by the node's label.")
    add("--region-label", default=DEFAULT_REGION_LABEL, metavar="KEY", help="Label of nodes that is their region.")
    add("--gpu-label", metavar="KEY", help="Label of nodes that is the type of their GPUs.")
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
        public_url=None if given.public_url is None else given.public_url.rstrip("/"),
        images=program.pairs_of("--image", given.image),
        keys=program.keys_of(given.keys),
        egress=given.egress,
        arch=given.arch,
        region_label=given.region_label,
        gpu_label=given.gpu_label,
    )


def _told(url: str) -> str:
    return f"export PRIME_API_BASE_URL={url}\nexport PRIME_API_KEY=YOUR_ROLLBOX_KEY"


if __name__ == "__main__":
    main()
