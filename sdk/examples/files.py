"""Files: write and read, stat and move, watch, and copy a whole directory up and down as one stream."""

import asyncio
import sys
import tempfile
from contextlib import aclosing
from pathlib import Path

from rollbox import Files, Sandbox

# Any image; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"


async def look_and_move(files: Files) -> None:
    """What a shell's stat, test -e, mkdir, cp, mv and rm do, without a process."""
    print(await files.read("/tmp/notes/hello.txt", offset=1, length=4))
    info = await files.stat("/tmp/notes/hello.txt")
    print(info.kind, info.size_bytes, await files.exists("/tmp/notes/none"))
    await files.mkdir("/tmp/notes/old")
    await files.copy("/tmp/notes/hello.txt", "/tmp/notes/old/copy.txt")
    await files.move("/tmp/notes/hello.txt", "/tmp/notes/old/hello.txt")
    print(sorted(entry.path for entry in await files.list("/tmp/notes", recursive=True)))
    await files.remove("/tmp/notes/old", recursive=True)
    print([entry.path for entry in await files.list("/tmp/notes")])


async def watch(files: Files) -> None:
    """Watch a directory: after the first event, `watching`, every change is reported."""
    async with aclosing(files.watch("/tmp/tree", recursive=True)) as changes:
        print((await anext(changes)).change)
        await files.write("/tmp/tree/new.txt", "news")
        async for change in changes:
            if change.path == "/tmp/tree/new.txt":
                print("changed:", change.path)
                break


async def main() -> None:
    """Begin with a file, write one, read it back, copy a directory both ways."""
    first = {"/tmp/notes/first.txt": "it was there from the start\n"}
    async with await Sandbox.create(IMAGE, memory="512Mi", ttl=600, files=first) as sandbox:
        files = sandbox.files
        print(await files.read_text("/tmp/notes/first.txt"), end="")
        await files.remove("/tmp/notes/first.txt")
        info = await files.write("/tmp/notes/hello.txt", "hello\n", mode=0o600)
        print(info.size_bytes, oct(info.mode), info.sha256)
        print(await files.read_text("/tmp/notes/hello.txt"), end="")
        print([entry.path for entry in await files.list("/tmp/notes")])
        await look_and_move(files)

        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)
            (here / "up" / "empty").mkdir(parents=True)
            (here / "up" / "run.sh").write_text("#!/bin/sh\necho ran\n")
            (here / "up" / "run.sh").chmod(0o755)
            await files.upload_dir(here / "up", "/tmp/tree")
            report = await files.download_dir("/tmp/tree", here / "down")
            print(report.count, report.skipped, sorted(path.name for path in (here / "down").iterdir()))
            await watch(files)

            (here / "large").write_bytes(bytes(5 << 20))
            moved: list[int] = []
            await files.upload(here / "large", "/tmp/large", progress=moved.append)
            print("sent", moved[-1] >> 20, "MiB, progress in steps:", len(moved) > 1)


asyncio.run(main())
