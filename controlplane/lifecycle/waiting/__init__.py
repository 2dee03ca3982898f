"""Waiting, of a create for its owner's quota and of its start for room and a slot: one fair queue, three gates.

``CreateQueue`` waits for quota, before there is a record; ``line`` for room and then for a slot. ``gates`` has what may
go on, ``told`` what those that wait are told, ``others`` and ``standings`` what waits at other replicas. Room is waited
for by kind of request, so that an owner's small create does not wait behind its large one.

What holds, with one replica or many:

* No limit is ever exceeded: the store counts, and every admission is one atomic step there.
* Creates of one owner are served first come, first served at each replica. Between owners, three turns of four go to
  the owner with the least use relative to its quota, and the fourth to the create that has waited longest. So no create
  starves as long as room is freed.
* A create that exceeds the quota even when the owner uses nothing else is refused at once; others wait.
* Replicas share only the count, and who waits (``lines``), for callers that ask where they stand. Each one learns of
  all freed quota (from its own ends and the feed), and then retries after a pause that is shorter the longer its first
  create has waited: roughly first come, first served. A replica without waiting creates admits a new one at once, so
  that one may overtake those that wait elsewhere.
* A replica that shuts down sends its waiting creates to the others, where they join at the back.
* Lost feed messages delay a create by at most a second: then the first create of every owner is retried.
* A lowered quota ends nothing: it admits nothing new until use has fallen below it.
"""

from controlplane.lifecycle.waiting.create_queue import CreateQueue
from controlplane.lifecycle.waiting.others import Line, Lines, Place
from controlplane.lifecycle.waiting.waiting_create import Answer, Attempt, WaitingCreate

__all__ = ["Answer", "Attempt", "CreateQueue", "Line", "Lines", "Place", "WaitingCreate"]
