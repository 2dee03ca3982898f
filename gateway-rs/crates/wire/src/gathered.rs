use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes, BytesMut};

/// Pieces below this length are copied together where they wait.
const SMALL_BYTES: usize = 4 << 10;

/// What a stream has brought and nobody has taken yet, in order. A piece that comes while nothing waits, and a large one,
/// is kept as it is; small ones that wait are joined, so that a sender of single bytes costs about as much memory as it
/// sent bytes.
///
/// HTTP/2 libraries keep a record for each frame that was not read, and end the whole connection at a number of small
/// ones: a stream with a slow reader is read into this, and its window opens as this is taken.
#[derive(Debug, Default)]
pub struct Gathered {
    pieces: VecDeque<Bytes>,
    /// Comes after `pieces`.
    tail: BytesMut,
    bytes: usize,
}

impl Gathered {
    /// Appends a piece. An empty one changes nothing.
    pub fn push(&mut self, piece: Bytes) {
        let (waits, length) = (self.has_remaining(), piece.len());
        self.bytes += length;
        if length == 0 {
            return;
        }
        if waits && length < SMALL_BYTES {
            if self.tail.len() + length > SMALL_BYTES {
                self.seal();
            }
            self.tail.extend_from_slice(&piece);
        } else {
            self.seal();
            self.pieces.push_back(piece);
        }
    }

    fn seal(&mut self) {
        if !self.tail.is_empty() {
            self.pieces.push_back(self.tail.split().freeze());
        }
    }
}

impl Buf for Gathered {
    fn remaining(&self) -> usize {
        self.bytes
    }

    fn chunk(&self) -> &[u8] {
        self.pieces.front().map_or(&self.tail, Bytes::as_ref)
    }

    fn chunks_vectored<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        let tail = Some(&self.tail[..]).filter(|tail| !tail.is_empty());
        let chunks = self.pieces.iter().map(Bytes::as_ref).chain(tail);
        into.iter_mut().zip(chunks).map(|(slice, chunk)| *slice = IoSlice::new(chunk)).count()
    }

    fn advance(&mut self, mut count: usize) {
        assert!(count <= self.bytes, "more than waits");
        self.bytes -= count;
        while let Some(first) = self.pieces.front_mut()
            && count > 0
        {
            let taken = count.min(first.len());
            first.advance(taken);
            count -= taken;
            if first.is_empty() {
                self.pieces.pop_front();
            }
        }
        self.tail.advance(count);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_come_out_as_they_went_in(steps in prop::collection::vec((0_usize..9_000, 0_usize..9_000), 0..60)) {
            let (mut gathered, mut expected, mut next) = (Gathered::default(), VecDeque::new(), 0_u8);
            for (length, wanted) in steps {
                let piece: Bytes = std::iter::repeat_with(|| { next = next.wrapping_add(1); next }).take(length).collect();
                expected.extend(piece.iter().copied());
                gathered.push(piece);
                prop_assert_eq!(gathered.remaining(), expected.len());
                let mut slices = [IoSlice::new(&[]); 64];
                let count = gathered.chunks_vectored(&mut slices);
                let seen: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.iter().copied()).collect();
                prop_assert!(seen.iter().eq(expected.iter().take(seen.len())));
                let taken = gathered.copy_to_bytes(wanted.min(expected.len()));
                let wanted: Vec<u8> = expected.drain(..taken.len()).collect();
                prop_assert_eq!(&taken[..], &wanted[..]);
            }
        }
    }

    #[test]
    fn what_waits_in_small_pieces_is_kept_in_few() {
        let mut gathered = Gathered::default();
        for _ in 0..100_000 {
            gathered.push(Bytes::from_static(b"x"));
        }
        assert_eq!(gathered.remaining(), 100_000);
        assert!(gathered.pieces.len() <= 1 + 100_000 / SMALL_BYTES);
    }

    #[test]
    fn a_piece_that_nothing_waits_before_is_not_copied() {
        let (piece, mut gathered) = (Bytes::from(vec![0; 8]), Gathered::default());
        gathered.push(piece.clone());
        assert_eq!(gathered.chunk().as_ptr(), piece.as_ptr());
    }
}
