"""Every way that a pod ends, in the words of real API servers, kubelets and containerd."""

from typing import Any

import pytest

from controlplane.cluster.kubernetes.marks import ANNOTATION_DATASETS
from controlplane.cluster.kubernetes.pods.deaths import death, sandbox_trouble, turned_away, unscheduled
from controlplane.cluster.kubernetes.pods.trimmed import trimmed

IMAGE = "registry.example/team/unauthorized-not-found:429"
DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def pod(*, about: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "sb-1", "labels": {"x": "y"}, **(about or {})},
        "spec": {"nodeName": "n1", "containers": [{"name": "sidecar"}, {"name": "target"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", **status},
    }


def waiting(reason: str, message: str = "", role: str = "target") -> dict[str, Any]:
    container = {"name": role, "image": IMAGE, "state": {"waiting": {"reason": reason, "message": message}}}
    return pod(phase="Pending", containerStatuses=[container])


def ended(*containers: tuple[str, dict[str, Any]], **more: Any) -> dict[str, Any]:
    return pod(
        containerStatuses=[{"name": role, "image": IMAGE, "state": {"terminated": one}} for role, one in containers],
        **more,
    )


def disrupted(reason: str, message: str = "") -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    return pod(about=DELETED, conditions=[condition])


def pull(words: str) -> dict[str, Any]:
    told = f'rpc error: code = Unknown desc = failed to pull and unpack image "{IMAGE}": {words}'
    return waiting("ErrImagePull", told)


DATA = "registry.example/team/pictures:2"


def mounting(waits: dict[str, Any], data: str = DATA) -> dict[str, Any]:
    """With a data set that is an image, and one that is a claim."""
    waits["metadata"]["annotations"] = {ANNOTATION_DATASETS: "dataset-0=papers,dataset-1=pictures"}
    mounts = [{"name": f"dataset-{number}", "mountPath": f"/{number}"} for number in range(2)]
    waits["spec"]["containers"] = [{"name": "sidecar"}, {"name": "target", "volumeMounts": mounts}]
    claim = {"name": "dataset-0", "persistentVolumeClaim": {"claimName": "papers"}}
    waits["spec"]["volumes"] = [claim, {"name": "dataset-1", "image": {"reference": data}}]
    return waits


IN_MEMORY = f"event=ready\nevent=memory_files bytes=1\nevent=memory_files bytes={300 << 20}\nevent=other bytes=5\n"
OOM = {"reason": "OOMKilled", "exitCode": 137}
ROWS: dict[str, tuple[dict[str, Any], str, str]] = {
    "oom, runc": (ended(("target", OOM)), "oom_killed", "the target"),
    "oom, gVisor": (
        ended(("sidecar", {"reason": "Error", "exitCode": 128}), ("target", {"reason": "OOMKilled", "exitCode": 128})),
        "oom_killed",
        "128",
    ),
    "oom, gVisor, with files in memory": (
        ended(
            ("sidecar", {"reason": "Error", "exitCode": 128, "message": IN_MEMORY}),
            ("target", {"reason": "OOMKilled", "exitCode": 128}),
        ),
        "oom_killed",
        "; 300 MiB of it were files in /dev/shm",
    ),
    "oom, then deleted": (ended(("target", OOM), about=DELETED), "oom_killed", "memory"),
    "own disk": (
        pod(
            phase="Failed",
            reason="Evicted",
            message='Container target exceeded its local ephemeral storage limit "2Gi". ',
        ),
        "disk_full",
        "2Gi",
    ),
    "own disk, pod": (
        pod(
            phase="Failed",
            reason="Evicted",
            message="Pod ephemeral local storage usage exceeds the total limit of containers 2Gi. ",
        ),
        "disk_full",
        "total limit",
    ),
    "own disk, by the sidecar": (
        ended(
            (
                "sidecar",
                {
                    "reason": "Error",
                    "exitCode": 73,
                    "message": "event=ready sandbox_id=sb-1 boot_us=1\n"
                    "event=failed code=disk_full "
                    'detail="612 MiB are written of the 200 MiB that its disk limit allows"\n',
                },
            )
        ),
        "disk_full",
        "612 MiB are written of the 200 MiB that its disk limit allows",
    ),
    "own disk, by a sidecar without a log": (
        ended(("sidecar", {"reason": "Error", "exitCode": 73})),
        "disk_full",
        "limit",
    ),
    "a target's own exit code": (ended(("target", {"reason": "Error", "exitCode": 73})), "sandbox_lost", "code 73"),
    "own memory volume": (
        pod(phase="Failed", reason="Evicted", message='Usage of EmptyDir volume "rollbox" exceeds the limit "8Mi". '),
        "disk_full",
        "rollbox",
    ),
    "node low on disk": (
        pod(
            phase="Failed",
            reason="Evicted",
            message="The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 5Mi. "
            "Container target was using 48Ki, request is 64Mi, has larger consumption of ephemeral-storage. ",
        ),
        "sandbox_evicted",
        "low on resource",
    ),
    "node low on memory": (
        pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory. "),
        "sandbox_evicted",
        "memory",
    ),
    "preempted": (disrupted("PreemptionByScheduler", "default-scheduler: preempting"), "sandbox_evicted", "Preemption"),
    "taint": (
        disrupted("DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint"),
        "sandbox_evicted",
        "Taint",
    ),
    "drain": (disrupted("EvictionByEvictionAPI", "Eviction API: evicting"), "sandbox_evicted", "Eviction"),
    "node collected": (disrupted("DeletionByPodGC", "PodGC: node no longer exists"), "node_lost", "no longer exists"),
    "node controller": (
        pod(about=DELETED, reason="NodeLost", message="Node n1 which was running pod is unresponsive"),
        "node_lost",
        "n1",
    ),
    "shutdown": (
        pod(phase="Failed", reason="Terminated", message="Pod was terminated in response to imminent node shutdown."),
        "sandbox_evicted",
        "shutdown",
    ),
    "no such tag": (pull(f'failed to resolve reference "{IMAGE}": {IMAGE}: not found'), "image_not_found", "not found"),
    "no such repository": (
        pull("unexpected status code 404: MANIFEST_UNKNOWN: manifest unknown"),
        "image_not_found",
        "unknown",
    ),
    "no name": (
        waiting("InvalidImageName", f'Failed to apply default image tag "{IMAGE}": couldn\'t parse image name'),
        "image_not_found",
        "name of an image",
    ),
    "unauthorised": (
        pull("failed to authorize: failed to fetch anonymous token: unexpected status: 401 Unauthorized"),
        "image_pull_failed",
        "pull secrets",
    ),
    "docker hub": (
        pull("pull access denied, repository does not exist or may require authorization: authorization failed"),
        "image_pull_failed",
        "pull secrets",
    ),
    "rate": (
        pull("unexpected status code 429 Too Many Requests: toomanyrequests: You have reached your pull rate limit"),
        "image_pull_failed",
        "rate",
    ),
    "platform": (pull("no match for platform in manifest sha256:aa: not found"), "image_pull_failed", "architecture"),
    "schema 1": (
        pull(
            'failed to resolve image: not implemented: media type "application/vnd.docker.distribution.manifest.v1+'
            'prettyjws" is no longer supported since containerd v2.0, please rebuild the image'
        ),
        "unsupported",
        "schema 1",
    ),
    "zero bytes": (
        pull("unable to fetch descriptor (sha256:e3b0) which reports content size of zero: invalid argument"),
        "unsupported",
        "a layer of zero bytes",
    ),
    "registry away": (
        pull("failed to do request: dial tcp: lookup registry.example: no such host: not found"),
        "image_pull_failed",
        "reached",
    ),
    "no room": (
        pull("write /var/lib/containerd/ingest/1/data: no space left on device"),
        "image_pull_failed",
        "the node has no room",
    ),
    "no room to make it": (
        waiting("CreateContainerError", "mkdir /var/lib/containerd/1: no space left on device"),
        "capacity_unavailable",
        "the node has no room",
    ),
    "registry broken": (pull("unexpected status code 500 Internal Server Error"), "image_pull_failed", "500"),
    "back-off": (waiting("ImagePullBackOff", f'Back-off pulling image "{IMAGE}"'), "image_pull_failed", "Back-off"),
    "our own image": (waiting("ErrImagePull", "not found", role="sidecar"), "internal", "sidecar's own image"),
    "created not": (waiting("CreateContainerError", "no such device"), "internal", "CreateContainerError"),
    "no passwd": (
        waiting(
            "CreateContainerError",
            "failed to create containerd container: mount callback failed on /var/lib/containerd/tmpmounts/"
            "containerd-mount1: stat /var/lib/containerd/tmpmounts/containerd-mount1/etc/passwd: no such file or "
            "directory",
        ),
        "unsupported",
        "/etc/passwd",
    ),
    "no such user": (
        waiting(
            "CreateContainerError",
            "failed to create containerd container: mount callback failed on /var/lib/containerd/tmpmounts/"
            "containerd-mount1: no users found",
        ),
        "unsupported",
        "name it by its number",
    ),
    "no such user, CRI-O": (
        waiting("CreateContainerError", "unable to find user nobody: no matching entries in passwd file"),
        "unsupported",
        "nobody",
    ),
    "no such user of ours": (
        waiting("CreateContainerError", "mount callback failed on /x: no users found", role="sidecar"),
        "internal",
        "sidecar",
    ),
    "ran not": (
        waiting("RunContainerError", 'exec: "/.rollbox/target": stat /.rollbox/target: no such file'),
        "internal",
        "target",
    ),
    "start error": (
        ended(
            (
                "target",
                {
                    "reason": "StartError",
                    "exitCode": 128,
                    "message": "failed to start containerd task: /.rollbox/target: no such file",
                },
            )
        ),
        "internal",
        "no such file",
    ),
    "architecture": (
        ended(
            ("target", {"reason": "StartError", "exitCode": 128, "message": "exec /.rollbox/target: exec format error"})
        ),
        "image_pull_failed",
        "architecture",
    ),
    "handler": (waiting("CreateContainerError", 'RuntimeHandler "runsc" not supported'), "isolation_missing", "runsc"),
    "deleted": (pod(about=DELETED), "sandbox_lost", "deleted from outside"),
    "exit": (
        ended(("target", {"reason": "Error", "exitCode": 3, "message": "from the user's code"})),
        "sandbox_lost",
        "exit code 3",
    ),
    "sidecar gave up": (
        ended(("sidecar", {"reason": "Error", "exitCode": 64, "message": "one\nROLLBOX_SIDECAR_X is wrong\n"})),
        "sandbox_lost",
        "last words: ROLLBOX_SIDECAR_X is wrong",
    ),
    "nothing said": (pod(phase="Failed"), "sandbox_lost", "Failed"),
    "a data set's image is not there": (
        mounting(waiting("ImagePullBackOff", f'Back-off pulling image "{DATA}": ErrImagePull: {DATA}: not found')),
        "dataset_unavailable",
        "the data set pictures cannot be mounted on node n1: Back-off",
    ),
    "a data set's image has no name": (
        mounting(waiting("InvalidImageName", 'Failed to apply default image tag "a//b": invalid'), "a//b"),
        "dataset_unavailable",
        "the data set pictures",
    ),
    "a data set's image is not mounted": (
        mounting(waiting("CreateContainerError", "failed to mount image volume: failed to unpack image volume")),
        "dataset_unavailable",
        "the data set pictures",
    ),
    "the sandbox's image is not there": (
        mounting(waiting("ErrImagePull", f"{IMAGE}: not found"), IMAGE.removeprefix("registry.example/")),
        "image_not_found",
        IMAGE,
    ),
    "both are one image, which is not there": (
        mounting(waiting("ErrImagePull", f"{IMAGE}: not found"), IMAGE),
        "image_not_found",
        IMAGE,
    ),
}


@pytest.mark.parametrize(("seen", "cause", "word"), ROWS.values(), ids=ROWS.keys())
def test_what_is_seen_is_judged(seen: dict[str, Any], cause: str, word: str) -> None:
    judged = death(seen)
    assert judged is not None
    assert (judged.sandbox_id, judged.cause) == ("sb-1", cause)
    assert word in judged.detail
    assert death(trimmed(seen)) == judged, "what is kept of a pod is not enough to judge it"


@pytest.mark.parametrize(
    "seen",
    [
        pod(),
        pod(phase="Pending"),
        pod(phase="Pending", containerStatuses=None, conditions=None),
        waiting("ContainerCreating"),
        waiting("PodInitializing"),
        # A herd on one node: its kubelet tries again.
        waiting("CreateContainerError", "context deadline exceeded"),
        waiting("CreateContainerError", 'name "target_sb-1_boxes_0" is reserved for "4f2a"'),
    ],
)
def test_what_lives_or_may_start_is_left_alone(seen: dict[str, Any]) -> None:
    assert death(seen) is None


def test_what_the_user_says_at_the_end_is_not_repeated() -> None:
    judged = death(ended(("target", {"reason": "Error", "exitCode": 1, "message": "ignore all errors"})))
    assert judged is not None
    assert "ignore" not in judged.detail


def test_a_lost_node_weighs_more_than_the_deletion_that_follows() -> None:
    judged = death(pod(about=DELETED), "node n1 has fallen silent")
    assert judged is not None
    assert (judged.cause, judged.detail) == ("node_lost", "node n1 has fallen silent")


def test_the_schedulers_words_are_heard() -> None:
    condition = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}
    assert unscheduled(pod(conditions=[condition])) == "0/3 nodes are available"
    assert unscheduled(pod(conditions=[{**condition, "status": "True"}])) is None
    assert unscheduled(pod()) is None


def test_a_missing_runtime_is_told_from_trouble_that_passes() -> None:
    missing = sandbox_trouble('Failed to create pod sandbox: no runtime for "runsc" is configured')
    assert missing is not None
    assert missing[0] == "isolation_missing"
    assert sandbox_trouble("Failed to create pod sandbox: context deadline exceeded") is None


@pytest.mark.parametrize("reason", ["OutOfcpu", "OutOfmemory", "OutOfpods", "UnexpectedAdmissionError", "NodeAffinity"])
def test_what_a_node_turns_away_is_not_dead_but_can_start_elsewhere(reason: str) -> None:
    away = pod(phase="Failed", reason=reason, message="Pod was rejected: Node didn't have enough resource: cpu")
    assert death(away) is None
    told = turned_away(away)
    assert told is not None
    assert told.startswith(f"the node turned the pod away: {reason}: Pod was rejected")
    for other in (pod(phase="Running", reason=reason), pod(phase="Failed", reason="Evicted", message=reason)):
        assert turned_away(other) is None


@pytest.mark.parametrize(
    "words", ["reading mounts file: unexpected end of JSON input", "mount to rootfs: not a directory"]
)
def test_a_file_where_a_data_set_is_to_be_is_the_images_matter(words: str) -> None:
    failed = ended(("target", {"reason": "StartError", "message": f"OCI runtime start failed: {words}"}))
    mounted = {"name": "target", "volumeMounts": [{"name": "dataset-0", "mountPath": "/bin/sh"}]}
    with_data = {**failed, "spec": {"containers": [mounted]}}
    found = death(trimmed(with_data))
    assert found is not None
    assert (found.cause, "/bin/sh" in found.detail) == ("unsupported", True)
    other = death(trimmed(failed))
    assert other is not None
    assert other.cause == "internal"
