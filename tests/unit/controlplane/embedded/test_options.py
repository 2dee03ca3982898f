"""The command line of `rollbox up`."""

from pathlib import Path

import pytest

from controlplane.embedded.engines import candidates, containers_conf
from controlplane.embedded.options import default_state_dir, parse
from controlplane.settings import EXIT_CONFIG, Listen


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
    ],
)
def test_a_bad_option_ends_with_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(arguments)
    assert caught.value.code == EXIT_CONFIG
    assert "usage: rollbox up" in capsys.readouterr().err


def test_root_has_its_state_in_run() -> None:
    assert default_state_dir({}) == Path("/run/rollbox")


def test_a_given_engine_is_the_only_candidate() -> None:
    assert candidates("unix:///x", {"DOCKER_HOST": "unix:///y"}) == [("unix:///x", "--engine unix:///x")]
    assert candidates(None, {"DOCKER_HOST": "unix:///y"}) == [("unix:///y", "DOCKER_HOST=unix:///y")]


def test_the_own_service_gets_only_limits_that_this_process_has() -> None:
    text = containers_conf()
    assert text.startswith("[engine]\n")
    assert "default_ulimits = [" in text
