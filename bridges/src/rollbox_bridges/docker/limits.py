"""`HostConfig`: what a container may use and reach, and why what is not honoured is not. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from rollbox_bridges.docker import fields
from rollbox_bridges.docker.bindings import Binding, bindings_of
from rollbox_bridges.docker.words import Refusal, not_honoured

_DEFAULT_NETWORKS: Final = frozenset({"default", "bridge"})
_OFFLINE: Final = "none"
_PERIOD_US: Final = 100_000
_NANO: Final = 10**9
_SIZE: Final = re.compile(r"(\d{1,12})([kmgt]?)(?:i?b)?", re.IGNORECASE)
_KNOWN: Final = frozenset(
    {
        "Memory",
        "MemorySwap",
        "MemoryReservation",
        "NanoCpus",
        "CpuQuota",
        "CpuPeriod",
        "PidsLimit",
        "StorageOpt",
        "NetworkMode",
        "PortBindings",
        "PublishAllPorts",
        "AutoRemove",
        "ConsoleSize",
        "LogConfig",
        "SecurityOpt",
    }
)
# Values that ask for what every container has.
_HARMLESS: Final[dict[str, tuple[Any, ...]]] = {
    "RestartPolicy": ({"Name": "no", "MaximumRetryCount": 0}, {"Name": "no"}, {"Name": "", "MaximumRetryCount": 0}),
    "MemorySwappiness": (-1,),
    "IpcMode": ("private",),
    "CgroupnsMode": ("private",),
    # What a sandbox runs is reaped.
    "Init": (True,),
    "Isolation": ("default",),
}
_NO_HOST: Final = "a sandbox shares nothing with a host"
_NO_FOLDER: Final = "it is a folder of another machine's; copy files with `docker cp`, or mount data sets by the SDK"
_NO_DEVICE: Final = "a sandbox has no devices of its host"
_NO_RIGHTS: Final = "a sandbox has a fixed set of rights"
_NO_WEIGHT: Final = "there are limits alone (Memory, NanoCpus), no weights or places"
_BY_POLICY: Final = "what a sandbox reaches is its network policy: `rollbox bridge docker --egress`, or network none"
REASONS: Final = {
    **dict.fromkeys(("Binds", "Mounts", "VolumesFrom", "VolumeDriver"), _NO_FOLDER),
    **dict.fromkeys(("Privileged", "CapAdd", "CapDrop", "GroupAdd", "Ulimits", "Sysctls"), _NO_RIGHTS),
    **dict.fromkeys(("Devices", "DeviceRequests", "DeviceCgroupRules"), _NO_DEVICE),
    **dict.fromkeys(("PidMode", "IpcMode", "UTSMode", "UsernsMode", "CgroupnsMode", "Cgroup"), _NO_HOST),
    **dict.fromkeys(("CpuShares", "CpusetCpus", "CpusetMems", "BlkioWeight", "CpuCount", "CpuPercent"), _NO_WEIGHT),
    **dict.fromkeys(("Dns", "DnsOptions", "DnsSearch", "ExtraHosts", "Links"), _BY_POLICY),
    "CgroupParent": _NO_HOST,
    "RestartPolicy": "a container that has ended stays so until it is started",
    "ReadonlyRootfs": "a sandbox's files can be written",
    "Tmpfs": "folders in memory cannot be added; /dev/shm is one",
    "ShmSize": "the size of /dev/shm is the installation's",
    "Runtime": "the runtime is the installation's",
    "OomKillDisable": "what takes more memory than its limit is killed",
    "OomScoreAdj": "what takes more memory than its limit is killed",
}

"""Why a field is not honoured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a container may use and reach.

    Attributes:
        memory: bytes, a limit or (request, limit); None: the platform's default.
        cpu: cores; None: the platform's default.
        pids, disk_bytes: None: the installation's defaults.
        offline: whether it reaches nothing.
        ports: published ones, of those that are named.
        publish_all: whether those that the image and the create expose are published too.
        auto_remove: whether it is removed when it has ended.
        size: of its terminal, columns and rows.
    """

    memory: int | tuple[int, int] | None = None
    cpu: float | None = None
    pids: int | None = None
    disk_bytes: int | None = None
    offline: bool = False
    ports: tuple[Binding, ...] = ()
    publish_all: bool = False
    auto_remove: bool = False
    size: tuple[int, int] | None = None


def limits_of(body: Any) -> Limits:  # noqa: ANN401 - JSON
    """Read a `HostConfig`.

    Raises:
        Refusal: it is malformed, or asks for what there is not.
    """
    asked = fields.taken("HostConfig.", body, _KNOWN, _HARMLESS, REASONS)
    _check_log(asked.get("LogConfig"))
    _check_security(asked.get("SecurityOpt"))
    return Limits(
        memory=_memory(asked),
        cpu=_cpu(asked),
        pids=_pids(asked.get("PidsLimit")),
        disk_bytes=_disk(asked.get("StorageOpt")),
        offline=offline(asked.get("NetworkMode")),
        ports=bindings_of(asked.get("PortBindings")),
        publish_all=fields.flag("PublishAllPorts", asked.get("PublishAllPorts")),
        auto_remove=fields.flag("AutoRemove", asked.get("AutoRemove")),
        size=fields.size_of("ConsoleSize", asked.get("ConsoleSize")),
    )


def offline(mode: Any) -> bool:  # noqa: ANN401 - JSON
    """Whether a network is that which reaches nothing.

    Raises:
        Refusal: it is no network that there is.
    """
    name = fields.text("NetworkMode", mode) or "default"
    if name != _OFFLINE and name not in _DEFAULT_NETWORKS:
        why = _NO_HOST if name == "host" or name.startswith("container:") else "there are bridge and none alone"
        raise not_honoured(f"network {name!r}", why)
    return name == _OFFLINE


def _memory(asked: dict[str, Any]) -> int | tuple[int, int] | None:
    limit, swap = fields.whole("Memory", asked.get("Memory")), asked.get("MemorySwap")
    reserved = fields.whole("MemoryReservation", asked.get("MemoryReservation"))
    if swap is not None and swap != limit:
        raise not_honoured(f"MemorySwap {swap!r}", "a sandbox has no swap: leave it out, or make it equal to Memory")
    if reserved and not limit:
        raise not_honoured("MemoryReservation without Memory", "name both")
    if reserved > limit:
        raise Refusal(400, "Minimum memory limit can not be less than memory reservation limit")
    return (reserved, limit) if reserved else limit or None


def _cpu(asked: dict[str, Any]) -> float | None:
    nano, quota = fields.whole("NanoCpus", asked.get("NanoCpus")), asked.get("CpuQuota")
    period = fields.whole("CpuPeriod", asked.get("CpuPeriod")) or _PERIOD_US
    if nano and (quota is not None or "CpuPeriod" in asked):
        raise Refusal(400, "Conflicting options: Nano CPUs and CPU Period cannot both be set")
    if nano:
        return nano / _NANO
    # -1: no limit.
    return None if quota in (None, -1) else fields.whole("CpuQuota", quota, least=1) / period


def _pids(asked: Any) -> int | None:  # noqa: ANN401 - JSON
    return None if asked in (None, -1) else fields.whole("PidsLimit", asked) or None


def _disk(asked: Any) -> int | None:  # noqa: ANN401 - JSON
    options = fields.texts("StorageOpt", asked)
    text = options.pop("size", "")
    if options:
        raise not_honoured(f"StorageOpt {next(iter(options))!r}", "its size alone is")
    if not text:
        return None
    found = _SIZE.fullmatch(text)
    if found is None:
        raise Refusal(400, f"StorageOpt size {text!r} is no size, like 10G")
    return int(found[1]) << 10 * " kmgt".index(found[2].lower() or " ")


def _check_log(asked: Any) -> None:  # noqa: ANN401 - JSON
    config = fields.taken("HostConfig.LogConfig.", asked, {"Type"}, {}, {"Config": "the log is that of the platform"})
    if config.get("Type", "json-file") not in {"json-file", "local"}:
        raise not_honoured(f"LogConfig.Type {config['Type']!r}", "the log is that of the platform")


def _check_security(asked: Any) -> None:  # noqa: ANN401 - JSON
    for one in fields.words("SecurityOpt", asked):
        raise not_honoured(f"SecurityOpt {one!r}", _NO_RIGHTS)
