"""`Client.build` and `rollbox image build`, for one image and for a data set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rollbox import Client, sync, task_images
from rollbox.build_context import pack
from rollbox.cli import app
from rollbox.dockerignore import Ignored
from rollbox.errors import BuildFailed, InvalidArgument
from tests.support.gateway_fake import FakeGateway


def rollbox(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def context(tmp_path: Path) -> Path:
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "Dockerfile").write_text("FROM python\nRUN true\n")
    (folder / "app.py").write_text("x")
    return folder


async def test_a_context_is_sent_where_the_image_is_not_there(fake: FakeGateway, context: Path) -> None:
    async with Client() as client:
        first = await client.build(context, args={"V": "1"}, target="last", secrets={"t": "abc"}, timeout=60)
        assert (first.size_bytes, first.cached, first) == (7, False, f"commits/me/builds:1@{first.digest}")
        again = await client.build(context)
        assert (again, again.cached) == (first, True)
        told = [(one.state, one.place, one.text) async for one in client.build(context, file=context / "Dockerfile")]
        assert told == [("building", 0, ""), ("built", 0, "")]
    asked, sent = zip(*fake.images.builds, strict=True)
    assert sent == (False, True, False, False)
    assert asked[0]["args"] == {"V": "1"}
    assert (asked[0]["target"], asked[0]["secrets"], asked[0]["timeout_ms"]) == ("last", {"t": "YWJj"}, 60_000)


async def test_a_dockerfile_elsewhere_has_a_list_of_what_is_ignored_beside_it(
    fake: FakeGateway, context: Path, tmp_path: Path
) -> None:
    """As with Docker: its own list takes the place of the folder's, and is none of another Dockerfile."""
    (context / ".dockerignore").write_text("*.py\n")
    other = tmp_path / "other.Dockerfile"
    other.write_text("FROM python\nRUN echo other\n")
    wanted = {}
    for name, ignored in (("of the folder", "*.py\n"), ("its own", ".dockerignore\n")):
        archive, wanted[name] = pack(context, Ignored(ignored))
        archive.close()
    async with Client() as client:
        await client.build(context, file=other)
        other.with_name("other.Dockerfile.dockerignore").write_text(".dockerignore\n")
        await client.build(context, file=other)
        await client.build(context)
    asked = [wish["context"] for wish, sent in fake.images.builds if not sent]
    assert asked == [wanted["of the folder"], wanted["its own"], wanted["of the folder"]]


async def test_an_answer_that_breaks_off_is_asked_for_again(fake: FakeGateway, context: Path) -> None:
    fake.images.breaks = [2]
    async with Client() as client:
        assert (await client.build(context)).digest.startswith("sha256:")
    assert [sent for _, sent in fake.images.builds] == [False, True, True]


async def test_a_failure_has_the_last_words(fake: FakeGateway, context: Path) -> None:
    (context / "Dockerfile").write_text("FROM python\nRUN false\n")
    async with Client() as client:
        with pytest.raises(BuildFailed, match="RUN false") as failed:
            await client.build(context)
    assert failed.value.__notes__ == ["the builder's last words:\nSTEP 1"]


async def test_mistakes_are_told_before_anything_is_sent(fake: FakeGateway, context: Path, tmp_path: Path) -> None:
    async with Client() as client:
        for folder, options, said in (
            (tmp_path / "nosuch", {}, "is no folder"),
            (context, {"file": "nosuch"}, "Dockerfile nosuch cannot be read"),
            (context, {"args": {"A": 1}}, "args 'A'=1 is not text"),
            (context, {"secrets": {"t": Path("nosuch")}}, "the secret 't' cannot be read"),
            (context, {"tag": "x"}, "no option 'tag'"),
        ):
            with pytest.raises(InvalidArgument, match=said):
                await client.build(folder, **options)
    assert fake.images.builds == []


def test_without_await(apart: FakeGateway, context: Path) -> None:
    with sync.Client() as client:
        assert [one.state for one in sync.Build(client, context)][-1] == "built"
        assert client.build(context).cached


def test_the_command_prints_the_name(apart: FakeGateway, context: Path) -> None:
    secret = context.parent / "token"
    secret.write_text("abc")
    options = ("--build-arg", "V=a=b", "--secret", f"t={secret}", "--target", "last")
    told = rollbox("image", "build", str(context), *options)
    assert (told.stdout, told.exit_code) == (f"{next(iter(apart.images.built.values()))}\n", 0)
    assert "STEP 1" in told.stderr
    assert "it waits for its turn, as number 2 of your builds" in told.stderr
    asked = apart.images.builds[-1][0]
    assert (asked["args"], asked["secrets"], asked["target"]) == ({"V": "a=b"}, {"t": "YWJj"}, "last")
    lines = [json.loads(one) for one in rollbox("image", "build", str(context), "--json").stdout.splitlines()]
    assert lines[-1]["cached"]
    wrong = rollbox("image", "build", str(context), "--build-arg", "V")
    assert (wrong.exit_code, "'V' is not of the form NAME=VALUE" in wrong.stderr) == (2, True)


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    """Three tasks in Harbor's format: two with Dockerfiles, of which one fails, and one of an image."""
    folder = tmp_path / "tasks"
    for name, lines in (("one", "RUN true"), ("two", "RUN false")):
        environment = folder / name / "environment"
        environment.mkdir(parents=True)
        (environment / "Dockerfile").write_text(f"FROM python\n{lines}\n")
        (environment / "name").write_text(name)
        (folder / name / "task.toml").write_text("[environment]\ncpus = 1\n")
    (folder / "three").mkdir()
    (folder / "three" / "task.toml").write_text('[environment]\ndocker_image = "python:3.12"\n')
    (folder / "results").mkdir()
    return folder


def test_a_data_set_is_built_and_its_manifest_is_what_a_prefetch_takes(apart: FakeGateway, tasks: Path) -> None:
    manifest = tasks / "images.json"
    told = rollbox("image", "build", str(tasks), "--manifest", str(manifest))
    assert told.exit_code != 0
    assert "two  failed: build_failed: no image was built: RUN false" in told.stderr
    assert "1 built, 1 there already, 1 failed" in told.stderr
    images = json.loads(manifest.read_text())
    assert images == {"one": next(iter(apart.images.built.values())), "three": "python:3.12"}
    assert rollbox("image", "prefetch", f"@{manifest}").exit_code == 0
    assert apart.images.prefetched == [[images["one"], "python:3.12"]]
    # The second run builds what is not there yet, and nothing else.
    (tasks / "two" / "environment" / "Dockerfile").write_text("FROM python\n")
    told = rollbox("image", "build", str(tasks), "--json", "--parallel", "1")
    assert {one["task"]: one["cached"] for one in map(json.loads, told.stdout.splitlines())} == {
        "one": True,
        "three": True,
        "two": False,
    }
    assert told.exit_code == 0


def test_a_data_set_can_be_a_file(tasks: Path) -> None:
    listed = tasks.parent / "set.toml"
    listed.write_text(
        """
        [[task]]
        name = "a"
        context = "tasks/one/environment"
        file = "tasks/one/environment/Dockerfile"
        args = { V = "1" }
        target = "last"
        [[task]]
        name = "b"
        image = "python:3.12"
        """
    )
    one, two = task_images.read(listed)
    assert (one.context, one.options["target"], one.options["args"]) == (
        tasks / "one" / "environment",
        "last",
        {"V": "1"},
    )
    assert (two.context, two.image) == (None, "python:3.12")
    merged = task_images.with_options(one, {"args": {"V": "2", "W": "3"}, "timeout": 5})
    assert merged.options["args"] == {"V": "1", "W": "3"}
    assert merged.options["timeout"] == 5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no task"),
        ("x = 1", r"something else than \[\[task\]\]: x"),
        ("[[task]]\ncontext = 'a'", "task 1 has no name"),
        ("[[task]]\nname = 'a'", "task 1 has either a context or an image"),
        ("[[task]]\nname = 'a'\nimage = 'b'\ntag = 'c'", "task 1 has 'tag'"),
        ("[[task]]\nname = 'a'\nimage = 'b'\n" * 2, "the task 'a' twice"),
        ("task = [", "cannot be read"),
    ],
)
def test_a_file_that_is_no_data_set_says_why(tmp_path: Path, text: str, said: str) -> None:
    listed = tmp_path / "set.toml"
    listed.write_text(text)
    with pytest.raises(InvalidArgument, match=said):
        task_images.read(listed)


def test_options_that_a_data_set_does_not_have_are_refused(tasks: Path, context: Path) -> None:
    assert "--target" in rollbox("image", "build", str(tasks), "--target", "x").stderr
    assert "is no data set" in rollbox("image", "build", str(context), "--manifest", "x").stderr
