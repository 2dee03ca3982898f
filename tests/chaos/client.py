"""A program of a user that does everything at random, writes down what it asked and was told, and may be killed.

    python -m tests.chaos.client URL OWNER API_KEY NAME SEED LOG

SIGTERM: every lane ends what it is doing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rollbox import BreakerPolicy, Client, Sandbox, SandboxError, SandboxGroup
from tests.chaos.events import Log
from tests.chaos.wishes import REAL_IMAGE, Wish, shared_key, wish_of

LANES, MOST_HELD = (2, 5) if REAL_IMAGE else (5, 16)
# A real sandbox is its own witness: it notes what it runs, and says how often that was.
NOTE = ["sh", "-c", 'echo "$0" >> /tmp/ran; grep -cx "$0" /tmp/ran']
# What a user may ask of a sandbox that has gone; it is not held any more.
ENDED = ("deleted", "create_abandoned", "lease_expired", "ttl_expired", "sandbox_lost", "node_lost")
GONE = frozenset((*ENDED, "sandbox_not_found", "sandbox_forgotten"))


class Player:
    """One user: lanes that act side by side on the sandboxes that they hold together."""

    def __init__(self, client: Client, log: Log, owner: str, name: str) -> None:
        self.stopping = asyncio.Event()
        self._client = client
        self._log = log
        self._owner = owner
        self._name = name
        self._ops = itertools.count()
        self._held: dict[str, Sandbox] = {}

    async def lane(self, draw: random.Random) -> None:
        """Act until told to stop."""
        acts: dict[Callable[[random.Random], Awaitable[None]], int] = {
            self._create: 30,
            self._group: 3,
            self._exec: 40,
            self._delete: 20,
            self._delete_label: 1,
            self._delete_key: 3,
        }
        while not self.stopping.is_set():
            act = self._delete if len(self._held) >= MOST_HELD else draw.choices([*acts], [*acts.values()])[0]
            await act(draw)
            await asyncio.sleep(draw.uniform(0, 0.1))

    async def _create(self, draw: random.Random) -> None:
        op, shared = self._op(), draw.random() < 0.35
        key = shared_key("k", draw) if shared else op
        # What a key stands for is a matter of the key alone: the same for every client.
        wish = wish_of(key)
        self._ask_create(op, key, wish)
        async with self._told("create", op, key, cancel_s=_cancel_s(draw)):
            given = key if shared else None
            self._answered(op, key, await self._client.create(wish.image, **wish.options, idempotency_key=given))

    async def _group(self, draw: random.Random) -> None:
        op = self._op()
        name = shared_key("g", draw) if draw.random() < 0.5 else f"g-{op}"
        wish, keys = wish_of(name), [f"{name}/{number}" for number in range(2 + sum(name.encode()) % 3)]
        for key in keys:
            self._ask_create(op, key, wish)
        call = SandboxGroup.create(wish.image, n=len(keys), name=name, client=self._client, **wish.options)
        async with self._told("create", op, *keys, cancel_s=_cancel_s(draw), takes_back=True):
            group = await call
            for number, member in group.items():
                self._answered(op, keys[number], member)
            if draw.random() < 0.5:
                self._ask_delete(op, *keys)
                for sandbox_id in (await group.delete()).deleted:
                    self._held.pop(sandbox_id, None)

    async def _exec(self, draw: random.Random) -> None:
        if not self._held:
            return
        op, sandbox = self._op(), draw.choice([*self._held.values()])
        self._log.tell("exec.asked", op=op, owner=self._owner, id=sandbox.id, nonce=op)
        given: dict[str, Any] = {"exec_id": op} if draw.random() < 0.5 else {}
        async with self._told("exec", op, cancel_s=_cancel_s(draw), sandbox_id=sandbox.id):
            noted = 0
            for _ in range(2 if given and draw.random() < 0.3 else 1):
                ran = await sandbox.exec([*(NOTE if REAL_IMAGE else ["true"]), op], timeout=20, **given)
                before, noted = noted, int(ran.stdout or 0)
                for _ in range(noted - before):
                    self._log.tell("cluster.ran", op=op, id=sandbox.id, nonce=op)
                self._log.tell("exec.answered", op=op, owner=self._owner, id=sandbox.id, nonce=op)

    async def _delete(self, draw: random.Random) -> None:
        if not self._held:
            return
        op, sandbox = self._op(), self._held.pop(draw.choice([*self._held]))
        self._log.tell("delete.asked", op=op, owner=self._owner, id=sandbox.id)
        async with self._told("delete", op, sandbox_id=sandbox.id):
            await self._client.gateway.delete(sandbox.id)
            self._log.tell("delete.answered", op=op, owner=self._owner, id=sandbox.id)

    async def _delete_label(self, draw: random.Random) -> None:
        op, label = self._op(), f"b{draw.randrange(10)}"
        self._log.tell("delete.asked", op=op, owner=self._owner, label=label)
        async with self._told("delete", op):
            for sandbox_id in (await self._client.delete(labels={"batch": label})).deleted:
                self._held.pop(sandbox_id, None)
                self._log.tell("delete.answered", op=op, owner=self._owner, id=sandbox_id)

    async def _delete_key(self, draw: random.Random) -> None:
        op, key = self._op(), shared_key("k", draw)
        self._ask_delete(op, key)
        async with self._told("delete", op):
            await self._client.gateway.call_api("DELETE", "sandboxes", query=[("idempotency_key", key)])
            self._log.tell("delete.answered", op=op, owner=self._owner, key=key)

    @asynccontextmanager
    async def _told(
        self,
        what: str,
        op: str,
        *keys: str,
        cancel_s: float | None = None,
        takes_back: bool = False,
        sandbox_id: str = "",
    ) -> AsyncIterator[None]:
        """Write down what became of a call that was not answered; with `cancel_s` it is cancelled then."""
        try:
            async with asyncio.timeout(cancel_s):
                yield
        except TimeoutError:
            for key in keys or ("",):
                self._log.tell(f"{what}.cancelled", op=op, owner=self._owner, key=key)
        except SandboxError as error:
            if takes_back:
                self._ask_delete(op, *keys)
            if error.code in GONE:
                self._held.pop(sandbox_id, None)
            self._log.tell(f"{what}.failed", op=op, owner=self._owner, id=sandbox_id, code=error.code)

    def _ask_create(self, op: str, key: str, wish: Wish) -> None:
        told = {"op": op, "owner": self._owner, "key": key}
        self._log.tell("create.asked", **told, label=wish.label, ttl_s=wish.ttl_s, leased=wish.leased)

    def _ask_delete(self, op: str, *keys: str) -> None:
        for key in keys:
            self._log.tell("delete.asked", op=op, owner=self._owner, key=key)

    def _answered(self, op: str, key: str, made: Sandbox) -> None:
        self._log.tell("create.answered", op=op, owner=self._owner, key=key, id=made.id, code=made.record.source)
        self._held[made.id] = made

    def _op(self) -> str:
        return f"{self._name}-{next(self._ops)}"


def _cancel_s(draw: random.Random) -> float | None:
    return draw.uniform(0, 0.3) if draw.random() < 0.12 else None


async def main(url: str, owner: str, api_key: str, name: str, *, seed: int, log: Log) -> None:
    """Play until SIGTERM."""
    # A breaker would stop the storm where it begins to be interesting.
    async with Client(url, api_key, breaker=BreakerPolicy(failures=0)) as client:
        player = Player(client, log, owner, name)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, player.stopping.set)
        log.tell("client.started")
        began_s = time.monotonic()
        async with asyncio.TaskGroup() as lanes:
            for number in range(LANES):
                lanes.create_task(player.lane(random.Random(f"{seed}/{number}")))
        with contextlib.suppress(BrokenPipeError):
            print(f"{name} played for {time.monotonic() - began_s:.0f} s", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:5], seed=int(sys.argv[5]), log=Log(Path(sys.argv[6]))))
