"""Settings of the scaler: which node pools there are, and how their providers are reached."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self, cast

from controlplane.scaling import NodePool, ScalingOptions, node_pools
from controlplane.settings import rules
from controlplane.settings.reader import PREFIX, Reader, SettingError

SCALING: Final = (
    "NODE_POOLS",
    "SCALING_DRY_RUN",
    "SCALING_HEADROOM",
    "SCALING_DOWN_AFTER_MS",
    "SCALING_KUBECONFIG",
    "SCALING_PROVIDER",
    "SCALING_PROVIDER_NAME",
    "SCALING_PROVIDER_TLS_FOLDER",
)


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """How the node provider is reached that speaks ``contract/provider.proto``.

    Attributes:
        address: host and port.
        name: in its certificate.
        tls_folder: of ``ca.crt``, and of this client's ``tls.crt`` and ``tls.key``.
    """

    address: str
    name: str
    tls_folder: Path


@dataclass(frozen=True, slots=True)
class ScalingSettings:
    """Settings of the scaler.

    Attributes:
        options: what it may do.
        kubeconfig: of the cluster that has the objects of Cluster API; None: it is the sandboxes'.
        provider: None: no pool declares one.
    """

    options: ScalingOptions
    kubeconfig: Path | None = None
    provider: ProviderSettings | None = None

    @classmethod
    def read(cls, read: Reader) -> Self | None:
        """Reads them; None: there is no scaler.

        Raises:
            SettingError: one of them is invalid, or would be ignored.
        """
        if not read.has("NODE_POOLS"):
            read.refuse(SCALING[1:], "it is about the scaler, and NODE_POOLS declares no node pool")
            return None
        pools = read("NODE_POOLS", _pools)
        kinds = {one.provider for one in pools}
        if "cluster-api" not in kinds:
            read.refuse(("SCALING_KUBECONFIG",), "it is for pools of Cluster API, and NODE_POOLS has none")
        if "grpc" not in kinds:
            read.refuse(SCALING[-3:], "it is for pools of a node provider (grpc), and NODE_POOLS has none")
        return cls(
            options=ScalingOptions(
                pools=pools,
                down_after_ms=read("SCALING_DOWN_AFTER_MS", rules.count(10_000, 86_400_000), "600000"),
                headroom=read("SCALING_HEADROOM", rules.count(0, 100_000), "0"),
                dry_run=read("SCALING_DRY_RUN", rules.one_of("true", "false"), "false") == "true",
            ),
            kubeconfig=read.optional("SCALING_KUBECONFIG", rules.file),
            provider=None if "grpc" not in kinds else _provider(read),
        )

    def check_labels(self, selector: Mapping[str, str]) -> None:
        """Refuses pools of which no node could have a sandbox.

        Args:
            selector: labels that every sandbox asks of its node.

        Raises:
            SettingError: a pool's labels contradict it.
        """
        for pool in self.options.pools:
            for key, value in selector.items():
                if pool.labels.get(key, value) != value:
                    rule = f"node pool {pool.name} has {key}={pool.labels[key]}, and sandboxes run on {key}={value}"
                    raise SettingError(f"{PREFIX}NODE_POOLS", None, rule)


def _provider(read: Reader) -> ProviderSettings:
    return ProviderSettings(
        address=read("SCALING_PROVIDER", rules.host_and_port),
        name=read("SCALING_PROVIDER_NAME", rules.word),
        tls_folder=read("SCALING_PROVIDER_TLS_FOLDER", rules.tls_folder),
    )


def _pools(text: str) -> Sequence[NodePool]:
    return node_pools(cast("Sequence[dict[str, object]]", rules.objects(text)))
