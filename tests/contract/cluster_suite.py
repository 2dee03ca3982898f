"""What every cluster backend must do; a module of tests subclasses this and provides `cluster` and `spec`."""

import asyncio

import pytest

from controlplane.cluster import Boot, Cluster
from controlplane.errors import Problem
from controlplane.model import SandboxSpec

BOOT = Boot(ready_token="t", token_public_key="k", record='{"some": "record"}')


class ClusterSuite:
    """The conformance suite. `boot` is what starts bring along; a real sidecar wants a real key in it."""

    boot = BOOT

    async def test_what_is_started_is_listed_with_its_record_and_keeps_facts(
        self, cluster: Cluster, spec: SandboxSpec
    ) -> None:
        started = await cluster.start("sb-suite1", spec, self.boot)
        try:
            (seen,) = await cluster.list()
            assert (seen.sandbox_id, seen.record, seen.death) == ("sb-suite1", self.boot.record, None)
            # One that the start did not know may be known by now.
            assert started.address in (None, seen.address)
            await cluster.annotate("sb-suite1", {"a": "1"})
            await cluster.annotate("sb-suite1", {"b": "2"})
            (seen,) = await cluster.list()
            assert seen.facts == {"a": "1", "b": "2"}
        finally:
            await cluster.stop("sb-suite1")

    async def test_what_is_stopped_is_gone_and_stopping_again_is_success(
        self, cluster: Cluster, spec: SandboxSpec
    ) -> None:
        await cluster.start("sb-suite2", spec, self.boot)
        await cluster.stop("sb-suite2")
        assert await cluster.list() == []
        await cluster.stop("sb-suite2")
        await cluster.stop("sb-never")

    async def test_a_cancelled_start_leaves_nothing_that_stop_does_not_remove(
        self, cluster: Cluster, spec: SandboxSpec
    ) -> None:
        start = asyncio.create_task(cluster.start("sb-suite4", spec, self.boot))
        await asyncio.sleep(0.03)  # speed: wherever in the start, or after it, this comes, the same has to hold
        start.cancel()
        await asyncio.wait([start])
        await cluster.stop("sb-suite4")
        assert await cluster.list() == []

    async def test_what_cannot_be_honoured_is_refused(self, cluster: Cluster) -> None:
        spec = SandboxSpec.model_validate({"image": "a", "cpu_millicores": {"request": 1, "limit": 1_000_000}})
        with pytest.raises(Problem, match="unsupported"):
            cluster.check(spec)

    async def test_no_device_is_promised(self, cluster: Cluster) -> None:
        with pytest.raises(Problem, match=r"no sandbox gets a GPU.*docs/gpu\.md") as refused:
            cluster.check(SandboxSpec(image="a", gpu=1))
        assert (refused.value.code, refused.value.details["option"]) == ("unsupported", "gpu")

    def test_a_cluster_says_what_isolates(self, cluster: Cluster) -> None:
        what = cluster.describe()
        assert what.isolation
        assert what.isolation_detail
        assert what.network.startswith("none")

    async def test_images_are_told_with_their_node(self, cluster: Cluster) -> None:
        found = [] if cluster.node_images is None else await cluster.node_images.all()
        assert all(one.node and one.size_bytes >= 0 for one in found)

    async def test_a_prefetch_ends_with_a_word_for_each_node(self, cluster: Cluster, spec: SandboxSpec) -> None:
        if cluster.node_images is None:
            return
        last: dict[str, str] = {}
        async for progress in cluster.node_images.prefetch(spec.image):
            assert last.get(progress.node) in (None, "pulling"), "nothing follows a node's last word"
            assert (progress.failure is not None) == (progress.state == "failed")
            last[progress.node] = progress.state
        assert set(last.values()) == {"here"}

    async def test_what_does_not_run_is_not_committed(self, cluster: Cluster) -> None:
        if cluster.commits is None:
            return
        with pytest.raises(Problem) as caught:
            await cluster.commits.commit("sb-never", f"{cluster.commits.place}/owner/nothing:1", 1 << 20)
        assert caught.value.code == "sandbox_lost"

    def test_the_place_of_commits_is_told(self, cluster: Cluster) -> None:
        assert cluster.describe().commits == ("" if cluster.commits is None else cluster.commits.place)
