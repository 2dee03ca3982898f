"""What the engine reports about itself and its machine, and which requests it therefore cannot honour. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from controlplane.cluster.devices import refuse_gpu
from controlplane.cluster.protocol import DEFAULT_PIDS, Description
from controlplane.errors import Problem
from controlplane.model import SandboxSpec
from controlplane.model.units import in_words

# The engine's names for the limits that every sandbox needs, and the names in our error message.
LIMITS: Final = {"MemoryLimit": "memory", "PidsLimit": "processes", "CpuCfsQuota": "cpu"}


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that the engine runs on.

    Attributes:
        architecture: as images name it (``amd64``); empty when the engine does not say.
        cpus: 0 when the engine does not say.
        memory_bytes: 0 when the engine does not say.
    """

    description: Description
    architecture: str
    cpus: int
    memory_bytes: int

    @classmethod
    def of(cls, info: Mapping[str, Any], version: Mapping[str, Any]) -> Self:
        """From the engine's answers to ``/info`` and ``/version``.

        Raises:
            Problem: unsupported, if the engine would accept limits and not enforce them.
        """
        missing = [ours for theirs, ours in LIMITS.items() if info.get(theirs) is False]
        if missing:
            detail = f"the engine cannot limit {', '.join(missing)}: the machine lacks the cgroup controllers"
            raise Problem("unsupported", detail)
        architecture, cpus, memory_bytes = version.get("Arch"), info.get("NCPU"), info.get("MemTotal")
        return cls(describe(info, version), str(architecture or ""), int(cpus or 0), int(memory_bytes or 0))

    @property
    def is_docker(self) -> bool:
        """Whether it is Docker and not Podman."""
        return self.description.engine_name == "docker"

    def check(self, spec: SandboxSpec, devices: int = 0) -> None:
        """Refuses a spec that needs what this machine does not have.

        Args:
            spec: what is asked for.
            devices: how many there are for sandboxes.

        Raises:
            Problem: unsupported, naming the option.
        """
        if not devices:
            refuse_gpu(spec, "`rollbox up --gpu-devices KIND` gives sandboxes the devices of a CDI kind")
        lazy = "lazy" if spec.pull == "lazy" else ""
        foreign = {
            "disk_bytes": spec.disk_bytes,
            "node_selector": spec.node_selector,
            "pull": lazy,
            "network": spec.network,
        }
        for option, wish in foreign.items():
            if wish:
                detail = f"{option} {wish} cannot be honoured on an engine; it takes a Kubernetes cluster"
                raise Problem("unsupported", detail, option=option)
        wishes = (
            ("cpu_millicores.limit", spec.cpu_millicores.limit, self.cpus * 1000),
            ("memory_bytes.request", spec.memory_bytes.request, self.memory_bytes),
            ("gpu", spec.gpu, devices),
        )
        for option, wanted, most in wishes:
            if most and wanted > most:
                detail = (
                    f"{option}: {in_words(option, wanted)} is more than the {in_words(option, most)} of this machine"
                )
                raise Problem("unsupported", detail, option=option, most=most)


def describe(info: Mapping[str, Any], version: Mapping[str, Any]) -> Description:
    """The description of the cluster, from the engine's answers."""
    components = [str(one.get("Name", "")) for one in version.get("Components", ())]
    engine_name = "podman" if any("Podman" in one for one in components) else "docker"
    isolation = str(info.get("DefaultRuntime") or "runc")
    shared = "sandboxes share this machine's kernel; a kernel bug is a way out for hostile code"
    return Description(
        backend="engine",
        engine_name=engine_name,
        engine_version=str(version.get("Version") or info.get("ServerVersion", "")),
        isolation=isolation,
        isolation_detail=f"{isolation} (namespaces, cgroups, seccomp): {shared}",
        network="none",
        pids_limit=DEFAULT_PIDS,
    )
