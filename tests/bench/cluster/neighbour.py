"""The neighbour of a bombed pod, with the node's own CFS period and, for the fork bomb, with the kubelet's default."""

from __future__ import annotations

from pathlib import Path

from rollbox import Client
from tests.bench import neighbour
from tests.bench.record import Record
from tests.support.images import ON_CLUSTER
from tests.support.installed import Installed, objects, own_cluster

# cgroup v1 has a hierarchy for the processor, v2 one for everything.
HIERARCHIES = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))
DEFAULT_PERIOD_US = 100_000
BOMB = "forks"
CONDITIONS = (
    "; the quotas of the bombed pod and of its containers rewritten in their control groups from the node, before the "
    "bomb, to the same shares of a period of 100 ms, which is what a kubelet without cpuCFSQuotaPeriod writes"
)


async def measure(product: Installed) -> list[Record]:
    """The records of this scenario. Cost: seven minutes."""
    records = await neighbour.measure(product, ON_CLUSTER)
    if own_cluster():
        records.append(await _with_the_default(product))
    return records


async def _with_the_default(product: Installed) -> Record:
    async def apply(sandbox_id: str) -> None:
        pods = await objects("pods", "-n", product.sandboxes, "--field-selector", f"metadata.name={sandbox_id}")
        changed = [with_period(group, DEFAULT_PERIOD_US) for group in control_groups(pods[0]["metadata"]["uid"])]
        if not any(changed):
            raise RuntimeError(f"the pod of {sandbox_id} has no control group with a quota on this machine")

    limit = neighbour.Limit(", the kubelet's default CFS period", CONDITIONS, apply)
    async with Client(product.url, product.api_key) as client, await client.create(ON_CLUSTER) as quiet:
        return await neighbour.beside(client, quiet, BOMB, limit)


def control_groups(pod_uid: str) -> list[Path]:
    """The control groups of a pod and of its containers, the pod's first."""
    hierarchy = next(one for one in HIERARCHIES if one.is_dir())
    names = (pod_uid, pod_uid.replace("-", "_"))
    pods = [path for path in hierarchy.rglob("*pod*") if path.is_dir() and any(name in path.name for name in names)]
    return [group for pod in pods for group in (pod, *sorted(path for path in pod.rglob("*") if path.is_dir()))]


def with_period(group: Path, period_us: int) -> bool:
    """Give a control group this CFS period and the same share of the processor; False: it has no quota."""
    both = group / "cpu.max"
    if both.is_file():
        quota, period = both.read_text().split()
        if quota == "max":
            return False
        both.write_text(f"{int(quota) * period_us // int(period)} {period_us}")
        return True
    quota_us, old_us = (group / f"cpu.cfs_{name}_us" for name in ("quota", "period"))
    before_us = int(quota_us.read_text())
    if before_us < 0:
        return False
    share_us = before_us * period_us // int(old_us.read_text())
    # Without a quota between: no group may have a larger share than the one above, or a smaller one than those below.
    for path, value in ((quota_us, -1), (old_us, period_us), (quota_us, share_us)):
        path.write_text(str(value))
    return True
