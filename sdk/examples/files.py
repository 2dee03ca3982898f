"""Files: write and read, list, and move a whole directory up and down as one stream."""

import asyncio
import sys
import tempfile
from pathlib import Path

from rollbox import Sandbox

# Any image; this one was made by `make demo`.
IMAGE = sys.argv[1] if len(sys.argv) > 1 else "localhost/rollbox/python:1"


async def main() -> None:
    """Write a file, read it back, copy a directory both ways."""
    async with await Sandbox.create(IMAGE, memory="512Mi", ttl=600) as sandbox:
        files = sandbox.files
        info = await files.write("/tmp/notes/hello.txt", "hello\n", mode=0o600)
        print(info.size_bytes, oct(info.mode), info.sha256)
        print(await files.read_text("/tmp/notes/hello.txt"), end="")
        print([entry.path for entry in await files.list("/tmp/notes")])

        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)
            (here / "up" / "empty").mkdir(parents=True)
            (here / "up" / "run.sh").write_text("#!/bin/sh\necho ran\n")
            (here / "up" / "run.sh").chmod(0o755)
            await files.upload_dir(here / "up", "/tmp/tree")
            report = await files.download_dir("/tmp/tree", here / "down")
            print(report.count, report.skipped, sorted(path.name for path in (here / "down").iterdir()))


asyncio.run(main())
