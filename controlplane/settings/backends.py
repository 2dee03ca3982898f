"""Settings that only one backend needs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from controlplane.egress import NO_NETWORKS, DirectNetworks, read_networks
from controlplane.images import StoreLimit
from controlplane.settings import rules
from controlplane.settings.reader import PREFIX, Reader, SettingError
from controlplane.settings.scaling import SCALING, ScalingSettings

ENGINE_ONLY: Final = ("STATE_DIR", "ENGINE_URL", "SIDECAR_BINARY", "TARGET_BINARY")
KUBERNETES_ONLY: Final = (
    "NAMESPACE",
    "INSTALLATION",
    "SIDECAR_IMAGE",
    "READY_URL",
    "RUNTIME_CLASS",
    "REQUIRED_KERNEL",
    "DNS_SHARDS",
    "STARTS_PER_NODE",
    "PENDING_PODS",
    "CORDON_DRAINS",
    "PRIORITY_CLASS",
    "SCHEDULER",
    "NODE_SELECTOR",
    "TOLERATIONS",
    "IMAGE_PULL_SECRETS",
    "KUBECONFIG",
    "AGENT_SANDBOX",
    "DATASET_FOLDERS",
    "IMAGE_VOLUMES",
    "SCRATCH_CLASS",
    "REGISTRY",
    "MIRROR",
    "MIRROR_NAME",
    "MIRROR_TLS_FOLDER",
    "REGISTRY_PUSH",
    "REGISTRY_ACCOUNT_FILE",
    "REGISTRY_CA",
    "REGISTRY_COMMITS",
    "REGISTRY_COMMITS_CA",
    "REGISTRY_TOKENS",
    "COLLECTOR",
    "COLLECTOR_NAME",
    "REGISTRY_BUDGET",
    "REGISTRY_WHEN_FULL",
    "OWNER_PULL_SECRETS",
    "LAZY_RUNTIME_CLASS",
    "LAZY_IMAGES",
    "NODE_AGENTS",
    "NODE_AGENTS_NAME",
    "NODE_AGENTS_TLS",
    "NODE_IMAGES",
    "BUILDER_IMAGE",
    "BUILDER_CPU_MILLICORES",
    "BUILDER_MEMORY_BYTES",
    "BUILDER_DISK_BYTES",
    "BUILDER_STATE",
    "DIRECT_NETWORKS_FILE",
    "GPU_DEVICE_CLASS",
    "GPU_CLAIM_TEMPLATE",
    "GPU_RUNTIME_CLASS",
    *SCALING,
)


@dataclass(frozen=True, slots=True)
class NodeAgentSettings:
    """How the agents of the nodes are found, and how both sides know one another.

    Attributes:
        namespace, service: the headless Service whose endpoints they are.
        name: in their certificate.
        tls: the folder of ``ca.crt``, and of this client's ``tls.crt`` and ``tls.key``.
        images: the most that sandboxes' images may take on each node.
    """

    namespace: str
    service: str
    name: str
    tls: Path
    images: StoreLimit = field(default_factory=StoreLimit)

    @classmethod
    def read(cls, read: Reader) -> Self | None:
        """Reads them; None: this installation has no node agents."""
        if (at := read.optional("NODE_AGENTS", rules.namespaced)) is None:
            read.refuse(
                ("NODE_AGENTS_NAME", "NODE_AGENTS_TLS", "NODE_IMAGES"),
                "it is about node agents, and NODE_AGENTS names none",
            )
            return None
        return cls(
            *at,
            name=read("NODE_AGENTS_NAME", rules.word),
            tls=read("NODE_AGENTS_TLS", rules.certificates),
            images=read("NODE_IMAGES", StoreLimit.parse, "0"),
        )


@dataclass(frozen=True, slots=True)
class BuildSettings:
    """How images are built from Dockerfiles.

    Attributes:
        image: of the builder.
        cpu_millicores, memory_bytes: the most that a build takes.
        disk_bytes: the most that its files take, with the images that it reads.
        in_memory: they are in the pod's memory, and not on its node's disk.
        keep_ms: how long a builder waits for the next build of its owner; 0: each build has a new one.
    """

    image: str
    cpu_millicores: int
    memory_bytes: int
    disk_bytes: int
    in_memory: bool = False
    keep_ms: int = 0

    @classmethod
    def read(cls, read: Reader) -> Self | None:
        """Reads them; None: none are built."""
        if not read.has("BUILDER_IMAGE"):
            rule = "it is about builds, and BUILDER_IMAGE does not name the builder"
            about = ("CPU_MILLICORES", "MEMORY_BYTES", "DISK_BYTES", "STATE", "KEEP_MS")
            read.refuse(tuple(f"BUILDER_{one}" for one in about), rule)
            return None
        if not read.has("REGISTRY_COMMITS"):
            rule = "it needs REGISTRY_COMMITS, where images are put"
            read.refuse(("BUILDER_IMAGE",), rule)
        return cls(
            image=read("BUILDER_IMAGE", rules.word),
            cpu_millicores=read("BUILDER_CPU_MILLICORES", rules.count(100, 1_000_000), "2000"),
            memory_bytes=read("BUILDER_MEMORY_BYTES", rules.count(256 << 20, 1 << 40), str(4 << 30)),
            disk_bytes=read("BUILDER_DISK_BYTES", rules.count(256 << 20, 1 << 44), str(16 << 30)),
            in_memory=read("BUILDER_STATE", rules.one_of("disk", "memory"), "disk") == "memory",
            # Its program ends two minutes after the last request.
            keep_ms=read("BUILDER_KEEP_MS", rules.count(0, 100_000), "60000"),
        )


@dataclass(frozen=True, slots=True)
class DeviceSettings:
    """How sandboxes with `gpu` get devices.

    Attributes:
        device_class: the DeviceClass whose devices they get.
        claim_template: the ResourceClaimTemplate for one of them, in the sandboxes' namespace.
        runtime_class: their RuntimeClass; empty = that of all others.
    """

    device_class: str
    claim_template: str
    runtime_class: str = ""

    @classmethod
    def read(cls, read: Reader) -> Self | None:
        """Reads them; None: sandboxes get no devices."""
        if not read.has("GPU_DEVICE_CLASS"):
            rule = "it is about devices of sandboxes, and GPU_DEVICE_CLASS does not say which"
            read.refuse(("GPU_CLAIM_TEMPLATE", "GPU_RUNTIME_CLASS"), rule)
            return None
        return cls(
            device_class=read("GPU_DEVICE_CLASS", rules.word),
            claim_template=read("GPU_CLAIM_TEMPLATE", rules.word),
            runtime_class=read("GPU_RUNTIME_CLASS", str.strip, ""),
        )


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings of a control plane on a container engine.

    Attributes:
        state_dir: holds the sandboxes' sockets; must be short, since the path of a Unix socket is limited.
        engine_url: ``unix:///path`` of a Docker Engine API.
        datasets: what sandboxes may mount, by name, in the form of declared data sets.
        gpu_devices: the CDI kind of the devices that sandboxes with `gpu` get; empty: none.
    """

    state_dir: Path
    engine_url: str
    sidecar_binary: Path
    target_binary: Path
    datasets: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    gpu_devices: str = ""

    @classmethod
    def read(cls, read: Reader) -> Self:
        """Reads them; see ``Settings.from_environment``."""
        read.refuse(KUBERNETES_ONLY, "it is for BACKEND=kubernetes, and this is BACKEND=engine")
        return cls(
            state_dir=read("STATE_DIR", rules.absolute_path),
            engine_url=f"unix://{read('ENGINE_URL', rules.socket_path)}",
            sidecar_binary=read("SIDECAR_BINARY", rules.file),
            target_binary=read("TARGET_BINARY", rules.file),
        )


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """Settings of a control plane on Kubernetes.

    Attributes:
        namespace: the namespace of the sandboxes' pods.
        installation: a name that distinguishes this installation's pods from others'.
        sidecar_image: holds the binaries of the sidecar and of the target.
        ready_url: ``http://host:port``, to which sidecars push readiness.
        runtime_class: the pods' RuntimeClass.
        required_kernel: text that the kernel's name in a sandbox must contain; ``any`` = not checked.
        dns_shards: the number of headless Services that the pods' DNS names are spread over.
        starts_per_node: how many sandboxes may start on one node at a time; ``store/slots.py`` explains the rule.
        pending_pods: how many starts of each replica may have pods that fit on no node; 0 = nodes cannot be added.
        cordon_drains: whether a node that is cordoned is emptied, whoever has cordoned it.
        priority_class: the pods' PriorityClass; empty = the cluster's default.
        scheduler: that places the pods, and packs; empty = the cluster's default.
        kubeconfig: None = the pod's own service account.
        agent_sandbox: whether SandboxWarmPools of kubernetes-sigs/agent-sandbox are kept filled too.
        lazy_runtime_class: the RuntimeClass of pods whose images are mounted lazily; empty = none are.
        lazy_images: beginnings of the names of images that nodes mount lazily.
        node_agents: None = there are none.
        scaling: None = this installation adds and removes no nodes.
        networks: direct ones that sandboxes may have.
        dataset_folders: beginnings of folders of nodes that data sets may name.
        image_volumes: whether nodes mount images as volumes.
        builds: None = no images are built from Dockerfiles.
        devices: None = sandboxes get no devices.
        scratch_class: the StorageClass of scratch, whose volumes many nodes write; empty: there is no scratch.
    """

    namespace: str
    installation: str
    sidecar_image: str
    ready_url: str
    runtime_class: str
    required_kernel: str
    dns_shards: int
    starts_per_node: int
    priority_class: str
    node_selector: Mapping[str, str]
    tolerations: Sequence[Mapping[str, object]]
    image_pull_secrets: Sequence[str]
    kubeconfig: Path | None
    pending_pods: int = 0
    cordon_drains: bool = False
    scheduler: str = ""
    agent_sandbox: bool = False
    lazy_runtime_class: str = ""
    lazy_images: Sequence[str] = ()
    node_agents: NodeAgentSettings | None = None
    scaling: ScalingSettings | None = None
    networks: DirectNetworks = NO_NETWORKS
    dataset_folders: Sequence[str] = ()
    image_volumes: bool = False
    builds: BuildSettings | None = None
    devices: DeviceSettings | None = None
    scratch_class: str = ""

    @classmethod
    def read(cls, read: Reader) -> Self:
        """Reads them; see ``Settings.from_environment``."""
        read.refuse(ENGINE_ONLY, "it is for BACKEND=engine, and this is BACKEND=kubernetes")
        lazy_runtime_class = read("LAZY_RUNTIME_CLASS", str.strip, "")
        if not lazy_runtime_class:
            read.refuse(("LAZY_IMAGES",), "it says what is mounted lazily, and LAZY_RUNTIME_CLASS does not say how")
        node_selector = read.optional("NODE_SELECTOR", rules.labels) or {}
        scaling = ScalingSettings.read(read)
        if scaling is not None:
            scaling.check_labels(node_selector)
        return cls(
            namespace=read("NAMESPACE", rules.word),
            installation=read("INSTALLATION", rules.word),
            sidecar_image=read("SIDECAR_IMAGE", rules.word),
            ready_url=read("READY_URL", rules.http_url),
            runtime_class=read("RUNTIME_CLASS", rules.word, "gvisor"),
            required_kernel=read("REQUIRED_KERNEL", rules.word, "gVisor"),
            dns_shards=read("DNS_SHARDS", rules.count(1, 256), "16"),
            starts_per_node=read("STARTS_PER_NODE", rules.count(1, 1024), "8"),
            priority_class=read("PRIORITY_CLASS", str.strip, ""),
            scheduler=read("SCHEDULER", str.strip, ""),
            node_selector=node_selector,
            tolerations=read.optional("TOLERATIONS", rules.objects) or (),
            image_pull_secrets=read("IMAGE_PULL_SECRETS", rules.words, ""),
            kubeconfig=read.optional("KUBECONFIG", rules.file),
            pending_pods=read("PENDING_PODS", rules.count(0, 10_000), "0"),
            cordon_drains=read("CORDON_DRAINS", rules.one_of("true", "false"), "false") == "true",
            agent_sandbox=read("AGENT_SANDBOX", rules.one_of("true", "false"), "false") == "true",
            lazy_runtime_class=lazy_runtime_class,
            lazy_images=read("LAZY_IMAGES", rules.repositories) if lazy_runtime_class else (),
            node_agents=NodeAgentSettings.read(read),
            scaling=scaling,
            networks=_networks(read),
            dataset_folders=read("DATASET_FOLDERS", rules.folders, ""),
            image_volumes=read("IMAGE_VOLUMES", rules.one_of("true", "false"), "false") == "true",
            builds=BuildSettings.read(read),
            devices=DeviceSettings.read(read),
            scratch_class=read("SCRATCH_CLASS", str.strip, ""),
        )


def _networks(read: Reader) -> DirectNetworks:
    file = read.optional("DIRECT_NETWORKS_FILE", rules.file)
    if file is None:
        return NO_NETWORKS
    try:
        return read_networks(file.read_text())
    except (OSError, ValueError) as error:
        raise SettingError(f"{PREFIX}DIRECT_NETWORKS_FILE", str(file), str(error)) from error
