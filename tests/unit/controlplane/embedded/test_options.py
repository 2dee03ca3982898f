"""The command line of `rollbox up`."""

import re
from pathlib import Path

import pytest

from controlplane.embedded.engines import candidates, containers_conf
from controlplane.embedded.options import default_state_dir, parse
from controlplane.embedded.up import check_datasets
from controlplane.embedded.up_error import UpError
from controlplane.model.dataset import DatasetSpec
from controlplane.settings import EXIT_CONFIG, Listen
from tests.support.authority import Authority


def test_without_options_everything_has_a_default() -> None:
    options = parse([])
    assert options.listen == Listen(host="127.0.0.1", port=7420)
    assert (options.engine, options.starts_in_flight, options.keep, options.json) == (None, 4, False, False)


def test_a_relative_state_directory_is_made_absolute() -> None:
    assert parse(["--state-dir", "here"]).state_dir == Path.cwd() / "here"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--listen", "7420"],
        ["--listen", "unix:/x"],
        ["--listen", "127.0.0.1:0"],
        ["--starts-in-flight", "0"],
        ["--max-sandboxes", "-1"],
        ["--nope"],
        ["--listen", "0.0.0.0:7420"],
        ["--listen", "[::]:7420"],
        ["--listen", "rollbox.example.com:7420"],
        ["--tls-listen", "0.0.0.0:7443"],
        ["--tls-certificate", "tls.crt", "--tls-key", "tls.key"],
        ["--tls-listen", "0.0.0.0:7443", "--tls-certificate", "tls.crt"],
        ["--webhooks", "/nowhere/at/all"],
        ["--webhooks", "/dev/null"],
    ],
)
def test_a_bad_option_ends_with_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(arguments)
    assert caught.value.code == EXIT_CONFIG
    assert "usage: rollbox up" in capsys.readouterr().err


def test_keys_cross_the_network_in_clear_only_where_that_is_said(tmp_path: Path) -> None:
    for loopback in ("127.0.0.1:1", "127.8.8.8:1", "[::1]:1", "localhost:1"):
        assert parse(["--listen", loopback]).plain_http is False
    assert parse(["--listen", "0.0.0.0:7420", "--plain-http"]).listen.host == "0.0.0.0"
    files = Authority().write(tmp_path / "files", "localhost")
    pair = ["--tls-certificate", str(files / "tls.crt"), "--tls-key", str(files / "tls.key")]
    with_tls = parse(["--tls-listen", "0.0.0.0:7443", *pair])
    assert (with_tls.tls_listen, with_tls.listen.host) == (Listen(host="0.0.0.0", port=7443), "127.0.0.1")


def test_a_certificate_that_cannot_be_used_ends_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (Authority().write(tmp_path / name, "localhost") for name in ("first", "second"))
    (tmp_path / "empty").write_text("")
    pairs = {
        (first / "none", first / "tls.key"): "none cannot be read: No such file",
        (first / "tls.crt", first): "first cannot be read: Is a directory",
        (first / "tls.crt", second / "tls.key"): "key values mismatch",
        (tmp_path / "empty", first / "tls.key"): "cannot be used",
    }
    for (certificate, key), said in pairs.items():
        with pytest.raises(SystemExit) as caught:
            parse(["--tls-listen", "127.0.0.1:1", "--tls-certificate", str(certificate), "--tls-key", str(key)])
        assert caught.value.code == EXIT_CONFIG
        assert said in capsys.readouterr().err
    with pytest.raises(SystemExit):
        parse(["--listen", "127.0.0.1:1", "--tls-listen", "127.0.0.1:1", "--tls-certificate", "c", "--tls-key", "k"])
    assert "cannot have TLS too" in capsys.readouterr().err


def test_root_has_its_state_in_run() -> None:
    assert default_state_dir({}) == Path("/run/rollbox")


def test_a_given_engine_is_the_only_candidate() -> None:
    assert candidates("unix:///x", {"DOCKER_HOST": "unix:///y"}) == [("unix:///x", "--engine unix:///x")]
    assert candidates(None, {"DOCKER_HOST": "unix:///y"}) == [("unix:///y", "DOCKER_HOST=unix:///y")]


def test_the_own_service_gets_only_limits_that_this_process_has() -> None:
    text = containers_conf()
    assert text.startswith("[engine]\n")
    assert "default_ulimits = [" in text


def test_data_sets_are_folders_of_this_machine_by_name(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    given = ["--dataset", f"mini={tmp_path}/link", "--dataset", f"theirs={tmp_path},owners=alice,bob"]
    assert parse(given).datasets == {
        "mini": DatasetSpec(folder=str(tmp_path)),
        "theirs": DatasetSpec(folder=str(tmp_path), owners=["alice", "bob"]),
    }
    assert parse([]).datasets == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["mini"], "a name is"),
        (["mini="], "a name is"),
        (["Mini=/tmp"], "a name is"),
        (["mini=/no/such/folder"], "there is no folder /no/such/folder"),
        (["mini=/"], "is a mount of its own"),
        (["mini=/var/tmp,owners=a:b"], "pattern"),
        (["mini=/var/tmp", "mini=/var/tmp"], "mini is given twice"),
    ],
)
def test_a_data_set_that_cannot_be_one_is_refused(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([part for one in given for part in ("--dataset", one)])
    assert ended.value.code == EXIT_CONFIG
    assert re.search(said, capsys.readouterr().err)


@pytest.mark.parametrize("private", ["state", "state/sandboxes", "engine", "."])
def test_no_data_set_shows_what_rules_the_sandboxes(tmp_path: Path, private: str) -> None:
    for folder in ("state/sandboxes", "engine", "data"):
        (tmp_path / folder).mkdir(parents=True)
    socket = tmp_path / "engine" / "docker.sock"

    def check(folder: str) -> None:
        given = ["--state-dir", str(tmp_path / "state"), "--dataset", f"mini={tmp_path / folder}"]
        check_datasets(parse(given), socket)

    check("data")
    with pytest.raises(UpError, match="--dataset mini=.* would show sandboxes"):
        check(private)
