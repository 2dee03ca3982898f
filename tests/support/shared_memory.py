"""Programs that share memory, as libraries for training and data do."""

from __future__ import annotations

# 100 MiB in one segment, each page of it written.
ONE_SEGMENT = """
from multiprocessing.shared_memory import SharedMemory
made = SharedMemory(create=True, size=100 << 20)
made.buf[:] = b"x" * len(made.buf)
seen = SharedMemory(made.name)
assert bytes(seen.buf[-3:]) == b"xxx"
seen.close()
made.close()
made.unlink()
"""

# The pattern of PyTorch's DataLoader: workers put batches into segments of their own and send the names; the reader
# maps and unlinks them. Eight wait at a time, 128 MiB. Prints how many batches came, and how many segments are left.
LOADER = """
import multiprocessing as mp
import os
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory

SIZE = 16 << 20

def work(number, names):
    for batch in range(number, 48, 4):
        made = SharedMemory(create=True, size=SIZE)
        made.buf[:] = bytes([batch]) * SIZE
        resource_tracker.unregister(made._name, "shared_memory")
        names.put((batch, made.name))
        made.close()

names = mp.Queue(8)
workers = [mp.Process(target=work, args=(number, names)) for number in range(4)]
for one in workers:
    one.start()
came = set()
while len(came) < 48:
    batch, name = names.get(timeout=60)
    seen = SharedMemory(name)
    assert seen.buf[0] == seen.buf[SIZE - 1] == batch
    seen.close()
    seen.unlink()
    came.add(batch)
for one in workers:
    one.join()
    assert one.exitcode == 0
print(len(came), len([name for name in os.listdir("/dev/shm") if name.startswith("psm_")]))
"""
