"""``KeptBuilders``: pods of builds that wait for the next build of their owner. Pure.

A builder that has built has its bases unpacked and the layers of its steps, so that the next image of a data set begins
where the first one differs. What a step could do to its builder the next build there would meet, so one builder is for
builds of one owner that may reach the same, and for none with secrets.
"""

from dataclasses import dataclass, field
from typing import Final

from controlplane.cluster.kubernetes.builds.pod import REUSED_FOR_S

# Pods of builds of one control plane: those that build, and those that wait.
MOST_BUILDERS: Final = 4


@dataclass(frozen=True, slots=True)
class Use:
    """What builds have in common that may have the same builder.

    Attributes:
        owner: whose they are.
        architecture: of the node.
        policy: what their steps may reach; empty: nothing.
        is_alone: the builder is for this build and no other one.
    """

    owner: str
    architecture: str
    policy: str = ""
    is_alone: bool = False


@dataclass(slots=True)
class BuilderPod:
    """The pod of a builder.

    Attributes:
        address: of its program.
        token: what a caller has to show there.
        made_ms, free_ms: when it was made, and when it has built last (Unix ms).
        brought: digests of what it was given.
        builds: how many it has built.
    """

    name: str
    token: str
    use: Use
    made_ms: float
    address: str = ""
    free_ms: float = 0
    brought: set[str] = field(default_factory=set)
    builds: int = 0

    @property
    def is_new(self) -> bool:
        """Whether no build was here."""
        return self.builds == 0


class KeptBuilders:
    """The pods that wait.

    Args:
        keep_ms: how long each does; 0: none does.
    """

    def __init__(self, keep_ms: int) -> None:
        self._keep_ms = keep_ms
        self._waiting: list[BuilderPod] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, pod: BuilderPod, now_ms: float) -> bool:
        """Has a pod wait; False: it is to be removed."""
        if pod.use.is_alone or not self._keep_ms or now_ms - pod.made_ms > REUSED_FOR_S * 1000:
            return False
        pod.free_ms = now_ms
        self._waiting.append(pod)
        return True

    def take(self, use: Use, now_ms: float) -> BuilderPod | None:
        """The pod for such a build that was the last one to build."""
        for pod in reversed(self._waiting):
            if pod.use == use and now_ms - pod.free_ms <= self._keep_ms:
                self._waiting.remove(pod)
                return pod
        return None

    def beyond(self, building: int) -> list[BuilderPod]:
        """Those that are too many beside so many that build, the oldest first; they wait no longer."""
        most = max(0, MOST_BUILDERS - building)
        gone = self._waiting[: max(0, len(self._waiting) - most)]
        del self._waiting[: len(gone)]
        return gone

    def overdue(self, now_ms: float) -> list[BuilderPod]:
        """Those that have waited for long enough; they wait no longer."""
        gone = [pod for pod in self._waiting if now_ms - pod.free_ms > self._keep_ms]
        self._waiting = [pod for pod in self._waiting if pod not in gone]
        return gone
