"""Harbor's contract of an environment, through the class that it finds by the import path."""

from __future__ import annotations

from pathlib import Path

import pytest
from harbor.models.task.config import NetworkPolicy

from on_harbor.trials import IMAGE, environment, started
from rollbox import Client, EgressPolicy, EgressRule
from rollbox_integrations.harbor import RollboxEnvironment
from rollbox_integrations.harbor.definition import egress


async def test_a_command_ends_with_its_code_and_its_output(box: RollboxEnvironment) -> None:
    result = await box.exec("cd /tmp; pwd; echo $A; echo e >&2; exit 3", env={"A": "b"})
    assert (result.return_code, result.stdout, result.stderr) == (3, "/tmp\nb\n", "e\n")
    assert (await box.exec("pwd", cwd="/usr")).stdout == "/usr\n"
    assert (await box.exec("true", cwd="/no/such")).return_code == 126


async def test_a_user_is_that_of_the_call_or_of_the_phase(box: RollboxEnvironment) -> None:
    assert (await box.exec("id -un", user="nobody")).stdout == "nobody\n"
    assert (await box.exec("id -u", user=1234)).stdout == "1234\n"
    with box.with_default_user("nobody"):
        assert (await box.exec("id -un")).stdout == "nobody\n"
        assert (await box.exec("id -un", user="root")).stdout == "root\n"
    missing = await box.exec("true", user="nobody-there")
    assert (missing.return_code, "nobody-there" in (missing.stderr or "")) == (126, True)


async def test_the_variables_of_task_phase_and_call_come_together(client: Client, tmp_path: Path) -> None:
    async with started(tmp_path, {"env": {"T": "task"}}, persistent_env={"P": "trial"}) as box:
        with box.scoped_exec_env({"S": "phase"}):
            assert (await box.exec("echo $T $P $S $C", env={"C": "call"})).stdout == "task trial phase call\n"


async def test_output_is_handed_on_while_it_comes(box: RollboxEnvironment) -> None:
    came: list[tuple[str, str]] = []

    async def told(text: str, stream: str) -> None:
        if (text, stream) == ("first\n", "stdout"):
            await box.sandbox.files.write("/tmp/go", b"")
        came.append((text, stream))

    with box.scoped_output_callback(told):
        result = await box.exec("echo first; until [ -e /tmp/go ]; do sleep 0.1; done; echo last; echo e >&2; exit 4")
    assert (result.return_code, result.stdout, result.stderr) == (4, "first\nlast\n", "e\n")
    assert came[0] == ("first\n", "stdout")
    assert set(came[1:]) == {("last\n", "stdout"), ("e\n", "stderr")}


async def test_files_and_folders_come_and_go_whole(box: RollboxEnvironment, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "empty").mkdir(parents=True)
    (tree / "run.sh").write_text("echo ran\n")
    (tree / "run.sh").chmod(0o755)
    (tree / "data").write_bytes(bytes(range(256)))
    await box.upload_dir(tree, "/deep/tree")
    assert (await box.exec("/deep/tree/run.sh")).stdout == "ran\n"
    await box.upload_file(tree / "data", "/other/place/data")
    await box.download_dir("/deep/tree", tmp_path / "back")
    await box.download_file("/other/place/data", tmp_path / "new/data")
    assert (tmp_path / "new/data").read_bytes() == (tmp_path / "back/data").read_bytes() == bytes(range(256))
    assert (tmp_path / "back/empty").is_dir()
    assert await box.is_dir("/deep/tree")
    assert await box.is_file("/deep/tree/data")
    with pytest.raises(FileNotFoundError, match="/nothing"):
        await box.download_file("/nothing", tmp_path / "x")


async def test_folders_of_the_trial_are_everybodys(box: RollboxEnvironment) -> None:
    await box.reset_dirs(remove_dirs=["/logs"], create_dirs=["/logs/verifier"], chmod_dirs=["/logs/verifier"])
    assert (await box.exec("touch /logs/verifier/reward.txt", user="nobody")).return_code == 0
    await box.download_dir_with_exclusions(source_dir="/logs", target_dir="/tmp/on-harbor", exclude=["reward.txt"])


async def test_resources_are_those_of_the_task(client: Client, tmp_path: Path) -> None:
    async with started(tmp_path, {"cpus": 1, "memory_mb": 300, "workdir": "/work"}) as box:
        record = box.sandbox.record
        assert (record.cpu_millicores.limit, record.memory_bytes.limit) == (1000, 300 * 2**20)
        assert (await box.exec("pwd")).stdout == "/work\n"


async def test_phases_have_their_own_networks(client: Client, tmp_path: Path) -> None:
    agent = NetworkPolicy(network_mode="allowlist", allowed_hosts=["pypi.org", "*.example.org", "192.0.2.0/24"])
    async with started(tmp_path, phase_network_policies=[agent]) as box:
        assert (await box.sandbox.egress()).policy == "offline"
        await box.set_network_policy(agent)
        state = await box.sandbox.egress()
        assert state.applied
        assert {rule["host"] or rule["cidr"] for rule in state.rules["allow"]} == {
            "pypi.org",
            "*.example.org",
            "192.0.2.0/24",
        }
        await box.set_network_policy(NetworkPolicy(network_mode="no-network"))
        assert (await box.sandbox.egress()).policy == "offline"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"network_mode": "public"}, EgressPolicy(mode="open")),
        ({"network_mode": "no-network"}, "offline"),
        ({"network_mode": "allowlist"}, "offline"),
        (
            {"network_mode": "allowlist", "allowed_hosts": ["192.0.2.1", "a.org"]},
            EgressPolicy(
                mode="allow",
                allow=[EgressRule(cidr="192.0.2.1", ports=("1-65535",)), EgressRule(host="a.org", ports=("1-65535",))],
            ),
        ),
    ],
)
def test_a_network_is_held_as_it_is_meant(given: dict[str, object], expected: EgressPolicy | str) -> None:
    assert egress(NetworkPolicy.model_validate(given), None) == expected


def test_a_preset_stands_for_the_public_network() -> None:
    assert egress(NetworkPolicy(network_mode="public"), "packages") == "packages"


def test_what_cannot_be_is_refused_before_a_sandbox_is_made(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Unknown option 'memroy'"):
        environment(tmp_path, memroy=1)
    listed = NetworkPolicy(network_mode="allowlist", allowed_hosts=["2001:db8::1"])
    with pytest.raises(ValueError, match="IPv6 addresses is not supported"):
        environment(tmp_path, network_policy=listed)
    with pytest.raises(FileNotFoundError, match="no environment definition"):
        environment(tmp_path, {"docker_image": None})
    (tmp_path / "environment/docker-compose.yaml").write_text("services: {}")
    with pytest.raises(ValueError, match="docker-compose"):
        environment(tmp_path)


async def test_a_dockerfile_is_built(client: Client, tmp_path: Path) -> None:
    folder = tmp_path / "environment"
    folder.mkdir()
    (folder / "Dockerfile").write_text("ARG BASE\nFROM $BASE\nCOPY own /own\nWORKDIR /srv\n")
    (folder / "own").write_text("from the context")
    async with started(tmp_path, {"docker_image": None}, build_args={"BASE": IMAGE}) as box:
        assert (await box.exec("cat /own; pwd")).stdout == "from the context/srv\n"


async def test_one_that_is_kept_outlives_its_trial(client: Client, tmp_path: Path) -> None:
    box = environment(tmp_path)
    await box.start(force_build=False)
    kept = box.sandbox.id
    await box.stop(delete=False)
    await box.stop(delete=True)
    record = await client.get(kept)
    assert (record.state, record.lease) == ("running", None)
    await client.delete(kept)
