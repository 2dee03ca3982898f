"""``OperatorSettings``: the control plane's variables as far as maintenance needs them: no API keys, no signing key."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from controlplane.settings import rules
from controlplane.settings.backends import KubernetesSettings
from controlplane.settings.reader import PREFIX, Reader, SettingError


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """What the operator runs with.

    Attributes:
        place: where sandboxes run.
        redis_url: the store of all replicas.
    """

    place: KubernetesSettings
    redis_url: str

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Reads them.

        Raises:
            SettingError: the first one that is missing or breaks its rule.
        """
        read = Reader(environ)
        backend = read("BACKEND", rules.one_of("engine", "kubernetes"), "engine")
        if backend != "kubernetes":
            raise SettingError(f"{PREFIX}BACKEND", backend, "the operator is for kubernetes")
        if not read.has("REDIS_URL"):
            raise SettingError(f"{PREFIX}REDIS_URL", None, "the operator needs the store that all replicas share")
        return cls(KubernetesSettings.read(read), read.secret("REDIS_URL", rules.redis_url))
