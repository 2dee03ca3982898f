//! The readers that an output waits for: those that are attached, and for a while the last one that was.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use super::small_watch::{SmallWatch, lock};
use super::stream::Stream;
use crate::ring::Ring;

/// A reader that takes nothing for this long counts as gone, and the command goes on without it. Progress shows only
/// when a gateway opens its flow-control window, half of 512 KiB at a time; so a reader that takes less than 26 KiB/s
/// counts as gone too.
pub const STALL_LIMIT: Duration = Duration::from_secs(10);

/// Byte offsets in the two streams.
pub type Position = [u64; 2];

/// The readers of one process.
#[derive(Debug)]
pub struct Readers {
    places: SmallWatch<Places>,
}

#[derive(Debug)]
struct Places {
    next: u64,
    /// Few: one for each attached client, which is a gateway's call.
    all: Vec<Place>,
}

/// Where a reader is. A reader that lost its connection keeps its place until another one attaches or [`STALL_LIMIT`] is
/// over.
#[derive(Debug, Clone, Copy)]
struct Place {
    number: u64,
    begun: Position,
    taken: Position,
    last: Instant,
    attached: bool,
    gone: bool,
}

impl Readers {
    /// No reader yet, but the output waits for the first one.
    pub(super) fn new() -> Self {
        let expected = Place::new(0, [0, 0], false);
        Self { places: SmallWatch::new(Places { next: 1, all: vec![expected] }) }
    }

    /// Adds a reader that has everything before `from`; returns its number.
    pub(super) fn enter(&self, from: Position) -> u64 {
        self.places.change(|places| {
            places.all.retain(|place| place.attached);
            let number = places.next;
            places.next += 1;
            places.all.push(Place::new(number, from, true));
            number
        })
    }

    pub(super) fn took(&self, number: u64, taken: Position) {
        self.move_to(number, |place| Place { taken, last: Instant::now(), gone: false, ..place });
    }

    pub(super) fn leave(&self, number: u64) {
        self.move_to(number, |place| Place { last: Instant::now(), attached: false, ..place });
    }

    fn move_to(&self, number: u64, next: impl FnOnce(Place) -> Place) {
        self.places.change(|places| {
            if let Some(place) = places.all.iter_mut().find(|place| place.number == number) {
                *place = next(*place);
            }
        });
    }

    /// Removes all places, once no more output comes.
    pub(super) fn clear(&self) {
        self.places.change(|places| places.all = Vec::new());
    }

    /// How many bytes of `stream` can be read from the command without losing one that a reader needs. Waits until it
    /// is at least one.
    pub(super) async fn room(&self, stream: Stream, ring: &Mutex<Ring>) -> usize {
        let began = Instant::now();
        loop {
            let changed = self.places.changed();
            let looked = self.look(stream, &mut lock(ring), began);
            match looked {
                Ok(room) => return room,
                // Either a place has changed or the time is over; the next round finds out which.
                Err(until) => drop(timeout_at(until, changed).await),
            }
        }
    }

    /// The room that there is, or until when to wait for the reader that leaves none.
    fn look(&self, stream: Stream, ring: &mut Ring, began: Instant) -> Result<usize, Instant> {
        let now = Instant::now();
        let (mut least, mut earliest) = (usize::MAX, None::<Instant>);
        let mut places = self.places.look();
        for place in places.all.iter_mut().filter(|place| !place.gone) {
            let room = ring.room(place.begun[stream as usize], place.taken[stream as usize]);
            let until = place.last.max(began) + STALL_LIMIT;
            if room == 0 && until <= now {
                place.gone = true;
                continue;
            }
            least = least.min(room);
            if room == 0 {
                earliest = Some(earliest.map_or(until, |earliest| earliest.min(until)));
            }
        }
        places.all.retain(|place| place.attached || !place.gone);
        earliest.map_or(Ok(least), Err)
    }
}

impl Place {
    fn new(number: u64, begun: Position, attached: bool) -> Self {
        Self { number, begun, taken: begun, last: Instant::now(), attached, gone: false }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::ring::{Budget, Keep};

    const LIMIT: usize = 1000;

    fn ring() -> Mutex<Ring> {
        Mutex::new(Ring::new(LIMIT, Keep::Tail, Budget::new(1 << 20).into()))
    }

    fn write(ring: &Mutex<Ring>, bytes: usize) {
        let Ok(_) = ring.lock().unwrap().fill(bytes, |_| Ok::<_, Infallible>(bytes));
    }

    async fn waited(readers: &Readers, ring: &Mutex<Ring>) -> (Duration, usize) {
        let began = Instant::now();
        let room = readers.room(Stream::Stdout, ring).await;
        (began.elapsed(), room)
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_nobody_has_read_yet_waits_once_and_then_goes_on() {
        let (readers, ring) = (Readers::new(), ring());
        write(&ring, LIMIT);
        assert_eq!(waited(&readers, &ring).await, (STALL_LIMIT, usize::MAX));
        assert_eq!(waited(&readers, &ring).await.0, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_moves_is_waited_for_and_one_that_does_not_only_for_a_while() {
        let (readers, ring) = (Readers::new(), ring());
        let number = readers.enter([0, 0]);
        write(&ring, LIMIT);
        for taken in [800, 900] {
            let moves = async {
                tokio::time::sleep(STALL_LIMIT * 9 / 10).await;
                readers.took(number, [taken, 0]);
            };
            let (_, (time, room)) = tokio::join!(moves, waited(&readers, &ring));
            assert_eq!((time, room), (STALL_LIMIT * 9 / 10, if taken == 800 { 50 } else { 100 }));
            write(&ring, room);
        }
        assert_eq!(waited(&readers, &ring).await.0, STALL_LIMIT);
        write(&ring, LIMIT);
        readers.took(number, [1000, 0]);
        assert_eq!(waited(&readers, &ring).await.0, STALL_LIMIT, "a reader that takes again counts again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_reader_keeps_his_place_until_he_is_back_or_the_time_is_over() {
        let (readers, ring) = (Readers::new(), ring());
        let first = readers.enter([0, 0]);
        write(&ring, LIMIT);
        readers.leave(first);
        let back = async {
            tokio::time::sleep(STALL_LIMIT / 2).await;
            let second = readers.enter([300, 0]);
            tokio::time::sleep(STALL_LIMIT / 4).await;
            readers.leave(second);
        };
        let (_, (time, room)) = tokio::join!(back, waited(&readers, &ring));
        assert_eq!((time, room), (STALL_LIMIT / 2, 300));
        write(&ring, 300);
        assert_eq!(waited(&readers, &ring).await, (STALL_LIMIT, usize::MAX));
    }
}
