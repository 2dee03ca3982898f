//! What a command wrote: the last bytes of a stream, with their place in it.

/// Keeps the last `limit_bytes` of a stream and counts all of it. Memory grows with what is written, never ahead.
#[derive(Debug)]
pub struct Ring {
    kept: Vec<u8>,
    /// Where the oldest byte lies once `kept` is full.
    start: usize,
    limit_bytes: usize,
    total_bytes: u64,
}

impl Ring {
    /// An empty ring; allocates nothing.
    pub fn new(limit_bytes: usize) -> Self {
        Self { kept: Vec::new(), start: 0, limit_bytes, total_bytes: 0 }
    }

    /// Appends `data`, letting go of the oldest bytes. Cost: one copy of what is kept.
    pub fn push(&mut self, data: &[u8]) {
        self.total_bytes += data.len() as u64;
        let data = &data[data.len().saturating_sub(self.limit_bytes)..];
        let (grow, wrap) = data.split_at(data.len().min(self.limit_bytes - self.kept.len()));
        self.reserve(grow.len());
        self.kept.extend_from_slice(grow);
        self.overwrite(wrap);
    }

    /// Doubles like `Vec`, but never past the limit.
    fn reserve(&mut self, additional: usize) {
        let wanted = self.kept.len() + additional;
        if wanted > self.kept.capacity() {
            let capacity = wanted.max(self.kept.capacity() * 2).min(self.limit_bytes);
            self.kept.reserve_exact(capacity - self.kept.len());
        }
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
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_keeps_exactly_the_tail(writes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20), limit in 0usize..64) {
            let mut ring = Ring::new(limit);
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
            let mut ring = Ring::new(limit);
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
        let mut ring = Ring::new(8);
        ring.push(b"abc");
        assert_eq!(ring.read_from(100, 8), (3, Vec::new()));
    }
}
