"""``OperatorSettings``: the operator's part of the control plane's settings; no API keys and no signing key."""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
        node_proof: ``required``: nodes that are not proven get a taint; ``lifted``: it is taken away; empty: neither.
        node_proof_selector: labels of the nodes that this is about.
    """

    place: KubernetesSettings
    redis_url: str
    node_proof: str = ""
    node_proof_selector: Mapping[str, str] = field(default_factory=dict)

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
        place = KubernetesSettings.read(read)
        proof = read("NODE_PROOF", rules.one_of("required", "lifted", ""), "")
        if not proof:
            read.refuse(("NODE_PROOF_SELECTOR",), "it says of which nodes, and NODE_PROOF does not say what")
        elif place.node_agents is None:
            read.refuse(("NODE_PROOF",), "the nodes' agents tell whether they are proven, and NODE_AGENTS names none")
        selector = read.optional("NODE_PROOF_SELECTOR", rules.labels) or {}
        return cls(place, read.secret("REDIS_URL", rules.redis_url), proof, selector)
