"""Kernels that a kubelet does not stop: each is ended once, and what no agent answered is asked again."""

from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.cluster.kubernetes.pods.unstopped import Unstopped
from controlplane.errors import Problem
from controlplane.operator.kernels import AT_ONCE, Kernels

PODS = {f"sb-{n}": {"metadata": {"name": f"sb-{n}"}} for n in range(AT_ONCE + 2)}
ONE = Unstopped("sb-1", "node-1", 130_000)


class Written:
    """Events that are kept."""

    def __init__(self) -> None:
        self.pods: list[tuple[str, str]] = []
        self.nodes: list[tuple[str, str]] = []

    async def write(self, pod: Mapping[str, Any], reason: str, message: str) -> None:
        self.pods.append((str(pod["metadata"]["name"]), f"{reason}: {message}"))

    async def write_for_node(self, node: str, reason: str, message: str) -> None:
        self.nodes.append((node, reason))


class Played:
    """Agents whose answers are given."""

    def __init__(self, *answers: Sequence[int] | Problem) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[str, str]] = []

    async def kill(self, node: str, sandbox_id: str) -> Sequence[int]:
        self.asked.append((node, sandbox_id))
        answer = self._answers.pop(0) if self._answers else [4711]
        if isinstance(answer, Problem):
            raise answer
        return answer


async def test_a_kernel_is_ended_once_and_both_are_told() -> None:
    agents, written = Played([4711]), Written()
    kernels = Kernels(agents, written)
    for _ in range(3):
        await kernels.end([ONE], PODS)
    assert agents.asked == [("node-1", "sb-1")]
    assert written.nodes == [("node-1", "SandboxKernelKilled")]
    ((name, words),) = written.pods
    assert (name, "had not stopped for 130 s" in words) == ("sb-1", True)


async def test_a_sandbox_of_which_nothing_runs_is_told_to_nobody() -> None:
    agents, written = Played([]), Written()
    kernels = Kernels(agents, written)
    for _ in range(2):
        await kernels.end([ONE], PODS)
    assert (len(agents.asked), written.pods) == (1, [])


async def test_an_agent_that_does_not_answer_is_asked_again() -> None:
    agents = Played(Problem("upstream_timeout", "away"), [1])
    kernels = Kernels(agents, Written())
    for _ in range(3):
        await kernels.end([ONE], PODS)
    assert len(agents.asked) == 2


async def test_what_stays_wrong_is_asked_once() -> None:
    agents = Played(Problem("unsupported", "runs under runc"))
    kernels = Kernels(agents, Written())
    for _ in range(3):
        await kernels.end([ONE], PODS)
    assert len(agents.asked) == 1


async def test_a_bounded_number_is_ended_at_once_and_the_rest_later() -> None:
    agents = Played()
    kernels = Kernels(agents, Written())
    unstopped = [Unstopped(name, "node-1", 130_000) for name in PODS]
    await kernels.end(unstopped, PODS)
    assert len(agents.asked) == AT_ONCE
    await kernels.end(unstopped, PODS)
    assert {name for _, name in agents.asked} == PODS.keys()
    await kernels.end([], PODS)
    await kernels.end([ONE], PODS)
    assert len(agents.asked) == len(PODS) + 1, "a pod of the same name later is another one"
