//! Sparse files (files with holes): where their data belongs. Pure.

/// Pieces of data in one file at most; their list takes 1 MiB of memory.
pub(super) const MAX_PIECES: usize = 65_536;

/// A sparse file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sparse {
    /// Its length, holes included.
    pub(super) size: u64,
    /// Offsets and lengths of its data, in order.
    pub(super) pieces: Vec<(u64, u64)>,
}

impl Sparse {
    /// Checks a map: the pieces are in order, lie within the file, and have `stored` bytes together. `None` otherwise.
    pub(super) fn new(size: u64, pieces: Vec<(u64, u64)>, stored: u64) -> Option<Self> {
        let (mut end, mut sum) = (0_u64, 0_u64);
        for (offset, length) in &pieces {
            if *offset < end {
                return None;
            }
            end = offset.checked_add(*length)?;
            sum = sum.checked_add(*length)?;
        }
        (end <= size && sum == stored && pieces.len() <= MAX_PIECES && size <= i64::MAX.unsigned_abs())
            .then_some(Self { size, pieces })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_map_must_fit_its_file_and_its_data() {
        assert!(Sparse::new(10, vec![(0, 2), (5, 5)], 7).is_some());
        assert!(Sparse::new(10, vec![], 0).is_some());
        assert!(Sparse::new(9, vec![(0, 2), (5, 5)], 7).is_none(), "beyond the end");
        assert!(Sparse::new(10, vec![(5, 5), (0, 2)], 7).is_none(), "out of order");
        assert!(Sparse::new(10, vec![(0, 6), (5, 1)], 7).is_none(), "overlapping");
        assert!(Sparse::new(10, vec![(0, 2)], 3).is_none(), "more data than the map places");
        assert!(Sparse::new(u64::MAX, vec![], 0).is_none());
        assert!(Sparse::new(u64::MAX, vec![(u64::MAX, 1)], 1).is_none());
    }

    proptest! {
        #[test]
        fn no_map_breaks_it(size in any::<u64>(), pieces in prop::collection::vec((any::<u64>(), any::<u64>()), 0..5), stored in any::<u64>()) {
            if let Some(sparse) = Sparse::new(size, pieces, stored) {
                prop_assert!(sparse.pieces.iter().all(|(offset, length)| offset + length <= sparse.size));
            }
        }
    }
}
