"""The queue of an endpoint, in time that the test keeps: nothing lost, nothing twice, in order, bounded."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from controlplane.webhooks import Answer, Batch, Dead, Letter, Outbox
from controlplane.webhooks.outbox import FIRST_PAUSE_MS, LINGER_MS, MOST_PAUSE_MS, MOST_REFUSALS, MOST_SINGLE

TAKEN, LATER, REFUSED, GONE = (
    Answer("taken"),
    Answer("later", "HTTP 500"),
    Answer("refused", "HTTP 400"),
    Answer("gone"),
)
HOUR_MS = 3_600_000


def letter(number: int, size: int = 10) -> Letter:
    return Letter(f"sb-1.{number}.start", number, b"x" * size)


@dataclass
class Seen:
    """What came out of an outbox, and what went in."""

    put: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    dead: list[Dead] = field(default_factory=list)

    @property
    def dead_events(self) -> int:
        return sum(one.events for one in self.dead)


def numbers(batch: Batch) -> list[int]:
    return [one.at_ms for one in batch.letters]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(1, 12)),
        st.tuples(st.just("wait"), st.integers(1, HOUR_MS)),
        st.tuples(st.sampled_from(["taken", "later", "refused", "gone", "pause"]), st.floats(0, 1)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 7), st.integers(1, 20), st.integers(1_000, HOUR_MS))
def test_every_event_is_taken_once_or_dead_or_waits_and_order_is_kept(
    steps: list[tuple[str, float]], batch: int, most: int, give_up_ms: int
) -> None:
    box, seen, now_ms, before = Outbox(batch, give_up_ms, most_events=most), Seen(), 1_000_000, None
    answers = {"taken": TAKEN, "later": LATER, "refused": REFUSED, "gone": GONE}
    answers["pause"] = Answer("later", "HTTP 429", 7_000)
    for what, much in steps:
        if what == "put":
            for _ in range(int(much)):
                seen.put.append(len(seen.put))
                box.put(letter(seen.put[-1]), now_ms)
        elif what == "wait":
            now_ms += int(much)
        elif (due_ms := box.due_ms()) is not None:
            now_ms = max(now_ms, due_ms)
            sent = box.take()
            assert 1 <= len(sent.letters) <= batch
            if before is not None:
                assert (sent.letters, sent.id, sent.attempt) == (before.letters, before.id, before.attempt + 1)
            taken = box.settle(answers[what], now_ms, much)
            seen.taken += numbers(sent) if taken else []
            assert taken == (len(sent.letters) if what == "taken" else 0)
            dead = box.dead_letters()
            seen.dead += dead
            before = None if taken or dead else sent
        seen.dead += box.dead_letters()
        assert len(box) <= most + batch
        assert len(seen.put) == len(seen.taken) + seen.dead_events + len(box)
        assert seen.taken == sorted(set(seen.taken))
        assert box.settled_ms(10**9) > max(seen.taken, default=-1) or len(box)
    rest = [number for number in seen.put if number not in seen.taken]
    single = [one.letter.at_ms for one in seen.dead if one.letter is not None]
    assert set(single) <= set(rest)
    assert len(single) == len(set(single))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_pauses_double_up_to_five_minutes_and_are_spread(jitters: list[float]) -> None:
    box, now_ms = Outbox(1, 100 * HOUR_MS), 0
    box.put(letter(0), now_ms)
    for failures, jitter in enumerate(jitters):
        box.take()
        box.settle(LATER, now_ms, jitter)
        whole_ms = min(MOST_PAUSE_MS, FIRST_PAUSE_MS * 2**failures)
        pause_ms = (box.due_ms() or 0) - now_ms
        assert whole_ms / 2 <= pause_ms <= whole_ms
        now_ms += pause_ms
    box.take()
    assert box.settle(TAKEN, now_ms, 0) == 1
    box.put(letter(1), now_ms)
    assert box.due_ms() == now_ms


def test_a_receiver_that_asks_for_time_gets_it() -> None:
    box = Outbox(1, HOUR_MS)
    box.put(letter(0), 0)
    box.take()
    box.settle(Answer("later", "HTTP 429", 90_000), 0, 0.5)
    assert box.due_ms() == 90_000


def test_what_is_refused_stands_in_the_way_of_nothing_for_long() -> None:
    box = Outbox(1, HOUR_MS)
    box.put(letter(0), 0)
    box.put(letter(1), 0)
    now_ms = 0
    for _ in range(MOST_REFUSALS):
        now_ms = box.due_ms() or 0
        assert numbers(box.take()) == [0]
        box.settle(REFUSED, now_ms, 1)
    (dead,) = box.dead_letters()
    assert (dead.why, dead.detail, dead.attempts, dead.events) == ("refused", "HTTP 400", MOST_REFUSALS, 1)
    assert now_ms < 30_000
    assert box.due_ms() == 0
    assert numbers(box.take()) == [1]


def test_what_waited_for_too_long_is_dead_and_what_came_later_is_not() -> None:
    box = Outbox(1, HOUR_MS)
    for number in range(3):
        box.put(letter(number), 0)
    box.put(letter(3), HOUR_MS // 2)
    box.take()
    box.settle(LATER, HOUR_MS - 1, 0)
    assert not box.dead_letters()
    box.take()
    box.settle(LATER, HOUR_MS, 0)
    assert [(one.letter and one.letter.at_ms, one.attempts) for one in box.dead_letters()] == [(0, 2), (1, 0), (2, 0)]
    assert numbers(box.take()) == [3]


def test_many_that_die_at_once_are_one_letter_with_their_number() -> None:
    box = Outbox(1, HOUR_MS)
    for number in range(MOST_SINGLE + 1):
        box.put(letter(number), 0)
    box.take()
    box.settle(LATER, HOUR_MS, 0)
    (dead,) = box.dead_letters()
    assert (dead.events, dead.from_ms, dead.to_ms, dead.letter) == (MOST_SINGLE + 1, 0, MOST_SINGLE, None)


def test_too_much_is_dropped_at_its_old_end_but_not_what_is_being_sent() -> None:
    box = Outbox(1, HOUR_MS, most_events=2)
    box.put(letter(0), 0)
    sent = box.take()
    for number in range(1, 6):
        box.put(letter(number), 0)
    (dead,) = box.dead_letters()
    assert (dead.why, dead.events, dead.from_ms, dead.to_ms) == ("overflow", 3, 1, 3)
    assert numbers(sent) == [0]
    assert box.settle(TAKEN, 0, 0) == 1
    assert numbers(box.take()) == [4]
    large = Outbox(1, HOUR_MS, most_bytes=100)
    for number in range(5):
        large.put(letter(number, 40), 0)
    assert len(large) == 2


def test_one_that_is_gone_is_sent_nothing_any_more() -> None:
    box = Outbox(2, HOUR_MS)
    for number in range(5):
        box.put(letter(number), 0)
    box.take()
    box.settle(GONE, 0, 0)
    box.put(letter(5), 0)
    assert box.stopped
    assert box.due_ms() is None
    assert [(one.why, one.events) for one in box.dead_letters()] == [("gone", 6)]


def test_several_in_one_request_wait_a_moment_for_one_another() -> None:
    box = Outbox(3, HOUR_MS)
    box.put(letter(0), 1_000)
    assert box.due_ms() == 1_000 + LINGER_MS
    box.put(letter(1), 1_010)
    box.put(letter(2), 1_020)
    assert box.due_ms() == 1_000
    sent = box.take()
    assert (numbers(sent), sent.media_type) == ([0, 1, 2], "application/cloudevents-batch+json")
    assert sent.body == b"[xxxxxxxxxx,xxxxxxxxxx,xxxxxxxxxx]"
