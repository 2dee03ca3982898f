//! Ring buffers for output: each keeps the last or the first bytes of a stream, with their offsets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::{Bytes, BytesMut};

/// Every ring may hold this much without taking from the budget, however many rings there are.
const FREE_BYTES: usize = 64 << 10;
/// Blocks grow with what is written: a silent command holds none, a flood is read in large ones.
const SMALLEST_BLOCK_BYTES: usize = 4 << 10;
const LARGE_BLOCK_BYTES: usize = 64 << 10;
/// Block size of rings that can hold four such blocks.
const LARGEST_BLOCK_BYTES: usize = 256 << 10;

/// Memory for all rings together, beyond what each may hold anyway. The sidecar shares its memory limit with the
/// commands, so without a budget a few commands that write much at a time would get the sidecar killed.
#[derive(Debug)]
pub struct Budget {
    left_bytes: AtomicUsize,
}

impl Budget {
    /// A budget of which nothing is taken.
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

/// Which part of a stream is kept when it is longer than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Keep {
    /// The last bytes.
    Tail,
    /// The first bytes.
    Head,
}

/// Keeps `limit_bytes` of a stream, or fewer when the budget is spent, and counts all of it. Memory grows with what is
/// written, never ahead of it. Bytes lie in blocks that are filled, kept and handed out without a copy.
#[derive(Debug)]
pub struct Ring {
    budget: Arc<Budget>,
    taken_bytes: usize,
    keep: Keep,
    limit_bytes: usize,
    /// Full blocks, oldest first.
    blocks: VecDeque<Bytes>,
    /// The block that is being filled; its length is its whole capacity.
    open: BytesMut,
    filled_bytes: usize,
    /// Bytes kept in all blocks. With [`Keep::Tail`] up to one block more than the limit.
    kept_bytes: usize,
    total_bytes: u64,
}

impl Ring {
    /// An empty ring, without memory.
    pub fn new(limit_bytes: usize, keep: Keep, budget: Arc<Budget>) -> Self {
        Self {
            budget,
            taken_bytes: 0,
            keep,
            limit_bytes,
            blocks: VecDeque::new(),
            open: BytesMut::new(),
            filled_bytes: 0,
            kept_bytes: 0,
            total_bytes: 0,
        }
    }

    /// Has `read` put at most `max_bytes` into the ring's own memory; returns its result, which is the number of bytes.
    ///
    /// # Errors
    /// The errors of `read`; the ring is unchanged then.
    pub fn fill<E>(
        &mut self,
        max_bytes: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.extend();
        if self.is_closed() {
            let mut dropped = [0; LARGE_BLOCK_BYTES];
            let count = read(&mut dropped[..LARGE_BLOCK_BYTES.min(max_bytes)])?;
            self.total_bytes += count as u64;
            return Ok(count);
        }
        let space = &mut self.open[self.filled_bytes..];
        let most = space.len().min(max_bytes);
        let count = read(&mut space[..most])?.min(most);
        self.total_bytes += count as u64;
        let kept = match self.keep {
            Keep::Tail => count,
            Keep::Head => count.min(self.limit_bytes - self.kept_bytes),
        };
        self.filled_bytes += kept;
        self.kept_bytes += kept;
        Ok(count)
    }

    /// Whether no later byte will be kept.
    fn is_closed(&self) -> bool {
        self.keep == Keep::Head && self.kept_bytes >= self.limit_bytes
    }

    /// Makes sure that `open` has space, unless no more is kept.
    fn extend(&mut self) {
        let wanted = self.reserve();
        if !self.open.is_empty() || self.is_closed() {
            return;
        }
        let mut spare = None;
        while self.is_oldest_spare() {
            spare = self.drop_oldest();
        }
        let bytes = match &spare {
            Some((bytes, _)) if !self.afford(self.kept_bytes + wanted) => *bytes,
            _ => wanted,
        };
        let used_again = spare.and_then(|(_, memory)| memory).filter(|memory| memory.len() == bytes);
        self.open = used_again.unwrap_or_else(|| BytesMut::zeroed(bytes));
    }

    /// Puts a full block away and returns the size of the next one. When the budget has no memory for it, what the ring
    /// holds becomes its limit.
    fn reserve(&mut self) -> usize {
        if self.filled_bytes == self.open.len() && self.filled_bytes > 0 {
            self.blocks.push_back(std::mem::take(&mut self.open).freeze());
            self.filled_bytes = 0;
        }
        let grown = usize::try_from(self.total_bytes).unwrap_or(usize::MAX);
        let largest = (self.limit_bytes / 4).clamp(LARGE_BLOCK_BYTES, LARGEST_BLOCK_BYTES);
        let wanted = grown.clamp(SMALLEST_BLOCK_BYTES, largest);
        let spare = self.is_oldest_spare();
        let freed = if spare { self.oldest_bytes() } else { 0 };
        if self.open.is_empty() && !self.is_closed() && !self.afford(self.kept_bytes - freed + wanted) {
            match self.keep {
                Keep::Head => self.limit_bytes = self.kept_bytes,
                Keep::Tail if spare => {}
                Keep::Tail => self.limit_bytes = self.kept_bytes - self.oldest_bytes(),
            }
        }
        wanted
    }

    /// Whether the ring holds its limit without the oldest block.
    fn is_oldest_spare(&self) -> bool {
        let oldest = self.oldest_bytes();
        self.keep == Keep::Tail && oldest > 0 && self.kept_bytes - oldest >= self.limit_bytes
    }

    fn oldest_bytes(&self) -> usize {
        self.blocks.front().map_or(0, Bytes::len)
    }

    /// Drops the oldest block; returns its size, and its memory unless a reader still holds it.
    fn drop_oldest(&mut self) -> Option<(usize, Option<BytesMut>)> {
        let block = self.blocks.pop_front()?;
        self.kept_bytes -= block.len();
        Some((block.len(), block.try_into_mut().ok()))
    }

    /// Whether the ring may hold `bytes`; takes the memory from the budget.
    fn afford(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(FREE_BYTES).saturating_sub(self.taken_bytes);
        let granted = self.budget.take(more);
        if granted {
            self.taken_bytes += more;
        }
        granted
    }

    /// How many bytes may come before the ring loses one that a reader needs, which began at `begun` and has taken
    /// everything up to `taken`. Bytes that it took last may be lost on their way, and it may request them again; so
    /// three quarters of the ring are kept behind it.
    pub fn room(&mut self, begun: u64, taken: u64) -> usize {
        self.reserve();
        let behind = self.limit_bytes - self.limit_bytes / 4;
        let needed = begun.max(taken.saturating_sub(behind as u64)).min(self.total_bytes);
        let used = usize::try_from(self.total_bytes - needed).unwrap_or(usize::MAX);
        self.limit_bytes.saturating_sub(used)
    }

    /// How many bytes were written in all.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// How many bytes are kept.
    pub fn kept_bytes(&self) -> usize {
        self.kept_bytes.min(self.limit_bytes)
    }

    /// The kept bytes in order. Cost: one copy of them.
    pub fn kept(&self) -> Vec<u8> {
        let mut skip = self.kept_bytes - self.kept_bytes();
        let mut kept = Vec::with_capacity(self.kept_bytes());
        for block in self.blocks.iter().map(|block| &block[..]).chain([&self.open[..self.filled_bytes]]) {
            kept.extend_from_slice(&block[skip.min(block.len())..]);
            skip = skip.saturating_sub(block.len());
        }
        kept
    }

    /// At most `max_bytes` from `offset` on, and the offset of the first of them: later than requested when the ring
    /// has dropped bytes, and never past the end of what it holds. Cost: a copy only from the block that is being
    /// filled.
    pub fn read_from(&self, offset: u64, max_bytes: usize) -> (u64, Bytes) {
        let first = match self.keep {
            Keep::Tail => self.total_bytes - self.kept_bytes as u64,
            Keep::Head => 0,
        };
        let end = first + self.kept_bytes as u64;
        let from = offset.clamp(end - self.kept_bytes() as u64, end);
        let mut skip = usize::try_from(from - first).unwrap_or(usize::MAX);
        for block in &self.blocks {
            if skip < block.len() {
                return (from, block.slice(skip..block.len().min(skip.saturating_add(max_bytes))));
            }
            skip -= block.len();
        }
        let rest = &self.open[skip..self.filled_bytes];
        (from, Bytes::copy_from_slice(&rest[..rest.len().min(max_bytes)]))
    }

    /// Gives unused memory back, once no more will be written.
    pub fn shrink(&mut self) {
        let open = std::mem::take(&mut self.open);
        if self.filled_bytes > 0 {
            self.blocks.push_back(Bytes::copy_from_slice(&open[..self.filled_bytes]));
            self.filled_bytes = 0;
        }
        let spare = self.taken_bytes - self.kept_bytes.saturating_sub(FREE_BYTES).min(self.taken_bytes);
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
mod tests;
