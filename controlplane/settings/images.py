"""``ImageSettings``: how images' names are resolved and where images are pulled from."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Self, cast

from controlplane.images import Rewrites
from controlplane.settings import rules
from controlplane.settings.reader import PREFIX, Reader, SettingError


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """Settings for images.

    Attributes:
        digests: ``auto``: names are resolved to digests where registries answer; ``required``: others are refused;
            ``never``: no registry is asked.
        rewrites: rules that say from where images are pulled.
        plain_registries: registries that are asked by http, as host or host:port.
    """

    digests: Literal["auto", "required", "never"] = "auto"
    rewrites: Rewrites = field(default_factory=Rewrites)
    plain_registries: Sequence[str] = ()

    @classmethod
    def read(cls, read: Reader) -> Self:
        """Reads them; see ``Settings.from_environment``."""
        digests = read("IMAGE_DIGESTS", rules.one_of("auto", "required", "never"), "auto")
        plain = read("PLAIN_HTTP_REGISTRIES", rules.registries, "")
        if plain and digests == "never":
            rule = "no registry is asked: IMAGE_DIGESTS=never"
            raise SettingError(f"{PREFIX}PLAIN_HTTP_REGISTRIES", ",".join(plain), rule)
        return cls(
            digests=cast("Literal['auto', 'required', 'never']", digests),
            rewrites=read("IMAGE_REWRITES", Rewrites.parse, ""),
            plain_registries=plain,
        )
