//! What a command wrote: the last bytes of a stream, with their place in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Every ring may have this much, however many there are.
const FREE_BYTES: usize = 64 << 10;

/// Memory for all rings together, above what each may have anyway. The sidecar shares a memory limit with the
/// commands, so without it a few that write much at a time would have the sidecar killed.
#[derive(Debug)]
pub struct Budget {
    left_bytes: AtomicUsize,
}

impl Budget {
    /// A budget of which nothing is spent.
    pub fn new(bytes: usize) -> Self {
        Self { left_bytes: AtomicUsize::new(bytes) }
    }

    fn take(&self, bytes: usize) -> bool {
        let less = |left: usize| left.checked_sub(bytes);
        self.left_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    fn give(&self, bytes: usize) {
        self.left_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Keeps the last `limit_bytes` of a stream, or fewer when the budget is spent, and counts all of it. Memory grows
/// with what is written, never ahead.
#[derive(Debug)]
pub struct Ring {
    budget: Arc<Budget>,
    taken_bytes: usize,
    kept: Vec<u8>,
    /// Where the oldest byte lies once `kept` is full.
    start: usize,
    limit_bytes: usize,
    total_bytes: u64,
}

impl Ring {
    /// An empty ring; allocates nothing.
    pub fn new(limit_bytes: usize, budget: Arc<Budget>) -> Self {
        Self { budget, taken_bytes: 0, kept: Vec::new(), start: 0, limit_bytes, total_bytes: 0 }
    }

    /// Appends `data`, letting go of the oldest bytes. Cost: one copy of what is kept.
    pub fn push(&mut self, data: &[u8]) {
        self.total_bytes += data.len() as u64;
        self.reserve(data.len().min(self.limit_bytes - self.kept.len()));
        let data = &data[data.len().saturating_sub(self.limit_bytes)..];
        let (grow, wrap) = data.split_at(data.len().min(self.limit_bytes - self.kept.len()));
        self.kept.extend_from_slice(grow);
        self.overwrite(wrap);
    }

    /// Doubles like `Vec`, but never past the limit, which from then on is what is there when the budget is spent.
    fn reserve(&mut self, additional: usize) {
        let wanted = self.kept.len() + additional;
        if wanted <= self.kept.capacity() {
            return;
        }
        let doubled = wanted.max(self.kept.capacity() * 2).min(self.limit_bytes);
        let more = doubled.saturating_sub(FREE_BYTES).saturating_sub(self.taken_bytes);
        if self.budget.take(more) {
            self.taken_bytes += more;
        } else {
            self.limit_bytes = self.kept.capacity().max(FREE_BYTES).min(self.limit_bytes);
        }
        self.kept.reserve_exact(doubled.min(self.limit_bytes) - self.kept.len());
    }

    /// Only called when `kept` is full, so its length is the limit.
    fn overwrite(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let room = self.kept.len() - self.start;
            let (now, rest) = data.split_at(data.len().min(room));
            self.kept[self.start..self.start + now.len()].copy_from_slice(now);
            self.start = (self.start + now.len()) % self.kept.len();
            data = rest;
        }
    }

    /// Everything that was ever written.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// How many bytes are kept.
    pub fn kept_bytes(&self) -> usize {
        self.kept.len()
    }

    /// The kept bytes in order.
    pub fn tail(&self) -> Vec<u8> {
        let (newer, older) = self.kept.split_at(self.start);
        [older, newer].concat()
    }

    /// At most `max_bytes` from `offset` on, and the offset of the first: later than asked when the ring has let
    /// go of bytes, and never past the end of what was written.
    pub fn read_from(&self, offset: u64, max_bytes: usize) -> (u64, Vec<u8>) {
        let oldest = self.total_bytes - self.kept.len() as u64;
        let from = offset.clamp(oldest, self.total_bytes);
        let skip = usize::try_from(from - oldest).unwrap_or(usize::MAX);
        let (newer, older) = self.kept.split_at(self.start);
        let data = older.iter().chain(newer).skip(skip).take(max_bytes).copied().collect();
        (from, data)
    }

    /// Gives unused memory back; for when nothing more will be written.
    pub fn shrink(&mut self) {
        self.kept.shrink_to_fit();
        let spare = self.taken_bytes - self.kept.capacity().saturating_sub(FREE_BYTES).min(self.taken_bytes);
        self.taken_bytes -= spare;
        self.budget.give(spare);
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.budget.give(self.taken_bytes);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn new_ring(limit_bytes: usize) -> Ring {
        Ring::new(limit_bytes, Budget::new(0).into())
    }

    #[test]
    fn when_the_budget_is_spent_each_keeps_what_it_has_and_goes_on() {
        let budget = Arc::new(Budget::new(FREE_BYTES));
        let [mut first, mut second] = [(); 2].map(|()| Ring::new(1 << 20, Arc::clone(&budget)));
        let data: Vec<u8> = (0..=255).cycle().take(200_000).collect();
        first.push(&data[..2 * FREE_BYTES]);
        second.push(&data);
        assert_eq!((first.kept_bytes(), second.kept_bytes()), (2 * FREE_BYTES, FREE_BYTES));
        assert_eq!(second.tail(), data[data.len() - FREE_BYTES..]);
        first.push(b"end");
        assert!(first.tail().ends_with(b"end") && first.kept_bytes() == 2 * FREE_BYTES);
        drop((first, second));
        assert_eq!(budget.left_bytes.load(Ordering::Relaxed), FREE_BYTES);
    }

    proptest! {
        #[test]
        fn it_keeps_exactly_the_tail(writes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20), limit in 0usize..64) {
            let mut ring = new_ring(limit);
            let mut all = Vec::new();
            for write in &writes {
                ring.push(write);
                all.extend_from_slice(write);
                let tail = &all[all.len().saturating_sub(limit)..];
                prop_assert_eq!(ring.tail(), tail);
                prop_assert_eq!(ring.total_bytes(), all.len() as u64);
                prop_assert!(ring.kept.capacity() <= limit);
            }
        }

        #[test]
        fn reading_piecewise_gives_the_tail_with_its_offset(data in prop::collection::vec(any::<u8>(), 0..200), limit in 1usize..64, step in 1usize..10) {
            let mut ring = new_ring(limit);
            ring.push(&data[..data.len() / 3]);
            ring.push(&data[data.len() / 3..]);
            let (mut offset, mut seen) = (0, Vec::new());
            loop {
                let (from, chunk) = ring.read_from(offset, step);
                if chunk.is_empty() { break }
                if seen.is_empty() { prop_assert_eq!(from, data.len().saturating_sub(limit) as u64) } else { prop_assert_eq!(from, offset) }
                offset = from + chunk.len() as u64;
                seen.extend(chunk);
            }
            prop_assert_eq!(seen, ring.tail());
        }
    }

    #[test]
    fn an_offset_past_the_end_is_brought_back_to_it() {
        let mut ring = new_ring(8);
        ring.push(b"abc");
        assert_eq!(ring.read_from(100, 8), (3, Vec::new()));
    }
}
