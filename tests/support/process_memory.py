"""What a process has in its memory: the proof that a secret never came to it."""

from pathlib import Path


def holds(pid: int, text: str) -> bool:
    """Whether a process of this machine has this text anywhere in its writable memory."""
    with Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights = line.split()[:2]
            if "rw" in rights:
                begin, end = (int(part, 16) for part in place.split("-"))
                memory.seek(begin)
                if text.encode() in memory.read(end - begin):
                    return True
    return False
