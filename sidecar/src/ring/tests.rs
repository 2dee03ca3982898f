use std::convert::Infallible;

use proptest::prelude::*;

use super::*;

const ENOUGH: usize = 1 << 30;

fn new_ring(limit_bytes: usize, keep: Keep, budget_bytes: usize) -> Ring {
    Ring::new(limit_bytes, keep, Budget::new(budget_bytes).into())
}

/// Each byte shows its offset.
fn stream(length: usize) -> Vec<u8> {
    (0..length).map(|place| (place % 251) as u8).collect()
}

fn push(ring: &mut Ring, mut data: &[u8]) {
    while !data.is_empty() {
        let read = |space: &mut [u8]| {
            let count = data.len().min(space.len());
            space[..count].copy_from_slice(&data[..count]);
            Ok::<_, Infallible>(count)
        };
        let Ok(count) = ring.fill(usize::MAX, read);
        data = &data[count..];
    }
}

fn read_all(ring: &Ring, mut offset: u64, step: usize) -> (u64, Vec<u8>) {
    let (first, _) = ring.read_from(offset, step);
    let mut seen = Vec::new();
    loop {
        let (from, chunk) = ring.read_from(offset, step);
        if chunk.is_empty() {
            return (first, seen);
        }
        assert!(seen.is_empty() || from == offset);
        offset = from + chunk.len() as u64;
        seen.extend_from_slice(&chunk);
    }
}

#[test]
fn when_the_budget_is_spent_each_keeps_what_it_has_and_goes_on() {
    let budget = Arc::new(Budget::new(FREE_BYTES));
    let [mut first, mut second] = [(); 2].map(|()| Ring::new(1 << 20, Keep::Tail, Arc::clone(&budget)));
    let data = stream(400_000);
    push(&mut first, &data[..2 * FREE_BYTES]);
    push(&mut second, &data);
    assert_eq!(first.kept(), data[..2 * FREE_BYTES]);
    assert!((FREE_BYTES / 4..=FREE_BYTES).contains(&second.kept_bytes()), "{}", second.kept_bytes());
    assert!(data.ends_with(&second.kept()));
    push(&mut first, b"end");
    assert!(first.kept().ends_with(b"end") && first.kept_bytes() >= FREE_BYTES);
    for _ in 0..100 {
        push(&mut second, &data);
    }
    assert!(second.kept_bytes() >= FREE_BYTES / 4, "the ring does not shrink further");
    drop((first, second));
    assert_eq!(budget.left_bytes.load(Ordering::Relaxed), FREE_BYTES);
}

#[test]
fn a_head_without_budget_ends_where_it_is() {
    let mut ring = new_ring(1 << 20, Keep::Head, 0);
    let data = stream(300_000);
    push(&mut ring, &data);
    assert_eq!(ring.total_bytes(), 300_000);
    assert!(ring.kept_bytes() > FREE_BYTES / 2 && data.starts_with(&ring.kept()));
}

#[test]
fn what_a_flood_lets_go_of_is_used_again() {
    let mut ring = new_ring(4 * LARGEST_BLOCK_BYTES, Keep::Tail, ENOUGH);
    let mut places = std::collections::BTreeSet::new();
    for _ in 0..200 {
        push(&mut ring, &[1; LARGEST_BLOCK_BYTES]);
        places.insert(ring.open.as_ptr().addr());
    }
    assert!(places.len() < 20, "{}", places.len());
}

#[test]
fn a_large_ring_is_filled_in_large_blocks_and_a_small_one_is_not() {
    for (limit, largest) in
        [(4 << 20, LARGEST_BLOCK_BYTES), (512 << 10, 128 << 10), (1000, LARGE_BLOCK_BYTES)]
    {
        let mut ring = new_ring(limit, Keep::Tail, ENOUGH);
        push(&mut ring, &stream(2 << 20));
        assert_eq!(ring.open.len(), largest, "{limit}");
    }
}

#[test]
fn room_is_what_a_reader_can_be_behind_and_come_back_to() {
    let mut ring = new_ring(1000, Keep::Tail, ENOUGH);
    assert_eq!(ring.room(0, 0), 1000);
    push(&mut ring, &stream(1000));
    assert_eq!(ring.room(0, 0), 0);
    assert_eq!(ring.room(0, 800), 50, "750 bytes behind the reader are kept");
    assert_eq!(ring.room(600, 800), 600, "the reader never requests bytes before 600");
    assert_eq!(ring.room(5000, 5000), 1000);
}

#[test]
fn an_offset_past_the_end_is_brought_back_to_it() {
    for keep in [Keep::Tail, Keep::Head] {
        let mut ring = new_ring(8, keep, ENOUGH);
        push(&mut ring, b"abc");
        assert_eq!(ring.read_from(100, 8), (3, Bytes::new()));
    }
}

#[test]
fn a_failed_read_changes_nothing() {
    let mut ring = new_ring(8, Keep::Tail, ENOUGH);
    push(&mut ring, b"abc");
    assert_eq!(ring.fill(8, |_| Err("broken")), Err("broken"));
    assert_eq!((ring.kept(), ring.total_bytes()), (b"abc".to_vec(), 3));
}

/// Fewer cases than usual, since each takes long; `PROPTEST_CASES` sets another number.
fn config() -> ProptestConfig {
    let usual = ProptestConfig::default();
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    ProptestConfig { cases: if asked { usual.cases } else { 64 }, ..usual }
}

proptest! {
    #![proptest_config(config())]
    #[test]
    fn it_keeps_exactly_the_end_or_the_beginning(
        writes in prop::collection::vec(0usize..60_000, 0..12), limit in 0usize..200_000, head: bool, step in 1usize..70_000
    ) {
        let keep = if head { Keep::Head } else { Keep::Tail };
        let mut ring = new_ring(limit, keep, ENOUGH);
        let all = stream(writes.iter().sum());
        let mut written = 0;
        for write in writes {
            push(&mut ring, &all[written..written + write]);
            written += write;
            let kept = written.min(limit);
            let (from, expected) =
                if head { (0, &all[..kept]) } else { (written - kept, &all[written - kept..written]) };
            prop_assert!(ring.kept() == expected);
            prop_assert_eq!(ring.total_bytes(), written as u64);
            prop_assert!(ring.kept_bytes + ring.open.len() <= limit + 3 * LARGE_BLOCK_BYTES);
            prop_assert!(read_all(&ring, 0, step) == (from as u64, expected.to_vec()));
        }
        let before = ring.kept();
        ring.shrink();
        prop_assert!(ring.kept() == before && read_all(&ring, 0, step).1 == before);
    }
}
