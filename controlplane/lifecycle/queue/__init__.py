"""Who waits for room, and whose turn it is: pure (``line``, ``pace``, ``verdict``), and the room that they wait in.

What holds, with one replica or many:

* No limit is ever passed: the count is the store's, and every admission is one atomic step there.
* Within an owner, first come, first served at each replica. Between owners, three turns of four go to the one with the
  least use relative to his quota, the fourth to whoever came first of all: nobody waits for ever while room comes.
* What an owner asks for beyond what he may ever have is refused at once; what he has to wait for is not.
* Between replicas nothing but the count is shared. Each hears of every unit that is freed (its own ends and the feed)
  and asks after a pause that is the shorter the longer its first waiter has waited: roughly first come, first served.
  A replica where nobody waits lets a newcomer ask at once; so he may pass who waits elsewhere, and the count decides.
* A replica that leaves sends who waits there to the others, where they come last.
* News that are lost cost at most a second: every waiter's owner is asked for once more then.
* A lower quota ends nothing: it lets nothing new in until use has fallen below it.
"""

from controlplane.lifecycle.queue.place import Answer, Attempt, Place
from controlplane.lifecycle.queue.room import WaitingRoom

__all__ = ["Answer", "Attempt", "Place", "WaitingRoom"]
