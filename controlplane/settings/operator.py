"""``OperatorSettings``: the operator's part of the control plane's settings; no API keys and no signing key."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from controlplane.settings import rules
from controlplane.settings.backends import KubernetesSettings
from controlplane.settings.reader import PREFIX, Reader, SettingError


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """Settings of the operator.

    Attributes:
        place: the cluster that sandboxes run on.
        redis_url: the store that all replicas share.
    """

    place: KubernetesSettings
    redis_url: str

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Reads all settings.

        Raises:
            SettingError: the first one that is missing or invalid.
        """
        read = Reader(environ)
        backend = read("BACKEND", rules.one_of("engine", "kubernetes"), "engine")
        if backend != "kubernetes":
            raise SettingError(f"{PREFIX}BACKEND", backend, "the operator is for kubernetes")
        if not read.has("REDIS_URL"):
            raise SettingError(f"{PREFIX}REDIS_URL", None, "the operator needs the store that all replicas share")
        return cls(KubernetesSettings.read(read), read.secret("REDIS_URL", rules.redis_url))
