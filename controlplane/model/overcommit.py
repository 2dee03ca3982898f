"""``Overcommit``: what is set aside for a sandbox whose create gives limits alone."""

from dataclasses import dataclass
from typing import Final

from controlplane.model.base import MIB
from controlplane.model.spec import Range, SandboxSpec

# Less is set aside for no sandbox that asks for it in this way: a shell does not start in less.
LEAST_MILLICORES: Final = 10
LEAST_MEMORY_BYTES: Final = 32 * MIB
_WHOLE: Final = 1000


@dataclass(frozen=True, slots=True)
class Overcommit:
    """The shares of limits that are requested, in thousandths.

    Attributes:
        cpu: of a limit of cpu.
        memory: of a limit of memory.
    """

    cpu: int = 50
    memory: int = 125

    def filled(self, spec: SandboxSpec) -> SandboxSpec:
        """The spec with a request for each limit that has none."""
        cpu, memory = spec.cpu_millicores, spec.memory_bytes
        if cpu.request and memory.request:
            return spec
        update = {
            "cpu_millicores": cpu if cpu.request else self._cpu(cpu.limit),
            "memory_bytes": memory if memory.request else self._memory(memory.limit),
        }
        return spec.model_copy(update=update)

    def words(self, spec: SandboxSpec) -> str:
        """What is set aside for a sandbox, and why so much where it is what this rule gives; for people.

        Args:
            spec: with its requests.
        """
        cpu, memory = spec.cpu_millicores, spec.memory_bytes
        cores = f"{cpu.request / 1000:g} of {cpu.limit / 1000:g} cpu"
        size = f"{_mib(memory.request)} of {_mib(memory.limit)} MiB of memory"
        why_cores = self._why(cpu, self._cpu(cpu.limit), self.cpu)
        why_size = self._why(memory, self._memory(memory.limit), self.memory)
        return f"{cores}{why_cores} and {size}{why_size}"

    def _cpu(self, limit: int) -> Range:
        return _part(limit, self.cpu, LEAST_MILLICORES)

    def _memory(self, limit: int) -> Range:
        return _part(limit, self.memory, LEAST_MEMORY_BYTES)

    def _why(self, given: Range, ruled: Range, thousandths: int) -> str:
        return f" ({thousandths / 10:g} % of the limit, as where no request is given)" if given == ruled else ""


def _part(limit: int, thousandths: int, least: int) -> Range:
    return Range(request=min(limit, max(least, -(-limit * thousandths // _WHOLE))), limit=limit)


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / MIB:.1f}".removesuffix(".0")
