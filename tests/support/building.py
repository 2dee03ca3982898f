"""A context of a test, and what a build of it does on an engine and on a cluster alike."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from rollbox import BuiltImage, Client, SandboxError
from rollbox.errors import BuildFailed, Conflict, InvalidArgument
from tests.support import build_attacks
from tests.support.dockerfile_rows import dockerfile, tries
from tests.support.images import IMAGE
from tests.support.waiting import until


class Context:
    """A folder with a Dockerfile that no other test has.

    Attributes:
        images: what was built from it; removed at the end.
    """

    def __init__(self, folder: Path, client: Client) -> None:
        self.folder = folder
        self.client = client
        self.images: list[BuiltImage] = []

    def write(self, dockerfile: str, **files: str) -> None:
        """Write the Dockerfile, whose base is the tests' image, and files."""
        self.put("Dockerfile", f"ARG BASE={IMAGE}\n{dockerfile}\n")
        for name, text in {**files, "of-this-test": uuid4().hex}.items():
            self.put(name, text)

    def put(self, name: str, text: str) -> None:
        """Write one file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    async def build(self, **options: object) -> BuiltImage:
        """Build it."""
        image = await self.client.build(self.folder, **options)  # type: ignore[arg-type]
        self.images.append(image)
        return image

    async def seen(self, command: str, **options: object) -> str:
        """Build it, and return what a command prints in a sandbox of it."""
        async with await self.client.create(await self.build(**options)) as sandbox:
            return (await sandbox.exec(command, check=True)).stdout


@pytest.fixture
async def context(tmp_path: Path, client: Client) -> AsyncIterator[Context]:
    folder = tmp_path / "context"
    folder.mkdir()
    made = Context(folder, client)
    yield made
    await until(lambda: gone(client, made.images))


async def gone(client: Client, images: list[BuiltImage]) -> bool:
    """Whether all are: one that another is built on goes after that, and containers of sandboxes take a moment."""
    kept = False
    for image in dict.fromkeys(images):
        try:
            await client.remove_image(image)
        except Conflict:
            kept = True
    return not kept


async def does_what_its_row_says(context: Context, row: str) -> None:
    """What the table of the page says of an instruction is what a build of it does."""
    one = dict(tries())[row]
    context.write("", a="one", **{"d/e": "two"})
    context.put("Dockerfile", dockerfile(one, IMAGE))
    context.put("in", "in")
    with tarfile.open(context.folder / "t.tar", "w") as archive:
        archive.add(context.folder / "in", "in")
    if one.refused:
        with pytest.raises(SandboxError, match=re.escape(one.said)) as refused:
            await context.build()
        assert refused.value.code == one.refused
    else:
        assert (await context.seen(f"{one.command} 2>/dev/null; true")).strip() == one.seen


async def has_won_nothing(context: Context) -> None:
    """A step that attacks gets nowhere."""
    context.write(build_attacks.DOCKERFILE, **build_attacks.files())
    assert json.loads(await context.seen("cat /won", secrets={"token": "x"})) == []


async def keeps_the_shell_and_the_triggers_of_its_base(context: Context) -> None:
    """An image that is built on one with a shell and with triggers has what these make."""
    triggers = "ONBUILD ENV BY=trigger\nONBUILD RUN print(open('/etc/passwd').name, file=open('/by', 'w'))"
    context.write(f'FROM $BASE\nSHELL ["python3", "-c"]\n{triggers}\nONBUILD COPY a /')
    base = await context.build()
    context.put("a", "one")
    context.put("Dockerfile", f"FROM {base}\nRUN <<EOF\nopen('/x', 'w').write('x')\nEOF\nCOPY <<EOF /y\n$BY\nEOF\n")
    assert await context.seen("cat /by /a /x /y") == "/etc/passwd\nonextrigger\n"


async def ends_at_its_target(context: Context) -> None:
    """The stage that is asked for is built, and none behind it."""
    context.write("FROM $BASE AS one\nRUN echo one > /x\nFROM one AS two\nRUN echo two > /x\nFROM two\nRUN false")
    assert await context.seen("cat /x", target="one") == "one\n"
    assert await context.seen("cat /x", target="two") == "two\n"
    with pytest.raises(BuildFailed, match="RUN false"):
        await context.build()
    with pytest.raises(InvalidArgument, match="there is no stage 'three'; the stages: one, two"):
        await context.build(target="three")


async def has_a_hundred_stages(context: Context) -> None:
    """A Dockerfile of many stages is built like any other."""
    stages = "".join(f"FROM s{one} AS s{one + 1}\n" for one in range(98))
    context.write(f"FROM $BASE AS s0\n{stages}FROM s98\nRUN echo last > /x")
    assert await context.seen("cat /x") == "last\n"
