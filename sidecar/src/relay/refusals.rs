//! What a sandbox's relays have refused: bounded, whatever the workload asks for. Pure.

use std::collections::VecDeque;

use wire::agent::Refused;

use super::control::Denied;
use super::wanted::Wanted;

/// Kinds that are kept, the newest ones: each has at most some 300 bytes.
const MOST: usize = 256;

/// The newest refusals, oldest of them first.
#[derive(Debug, Default)]
pub(super) struct Refusals(VecDeque<Refused>);

impl Refusals {
    /// Adds one; equal ones of one second are counted.
    pub(super) fn add(&mut self, at_ms: u64, denied: Denied) {
        let Denied { wanted: Wanted { protocol, host, port }, lost, count } = denied;
        let new =
            Refused { at_ms, host, port: port.into(), protocol: protocol.name().to_owned(), lost, count };
        let mut same_second = self.0.iter_mut().rev().take_while(|one| one.at_ms / 1000 == at_ms / 1000);
        let kind = |one: &Refused| (one.port, one.lost, one.protocol.clone());
        if let Some(before) = same_second.find(|one| one.host == new.host && kind(one) == kind(&new)) {
            before.count = before.count.saturating_add(count);
            return;
        }
        if self.0.len() == MOST {
            self.0.pop_front();
        }
        self.0.push_back(new);
    }

    /// All that are kept.
    pub(super) fn all(&self) -> Vec<Refused> {
        self.0.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::wanted::Protocol;
    use super::*;

    fn denied(host: &str, port: u16, count: u32) -> Denied {
        let wanted = Wanted::new(Protocol::Connect, host.as_bytes(), port).unwrap();
        Denied { wanted, lost: false, count }
    }

    #[test]
    fn equal_ones_of_a_second_are_one_with_a_count() {
        let mut refusals = Refusals::default();
        for (at_ms, host, port, count) in [
            (1_000, "a", 1, 1),
            (1_500, "b", 1, 1),
            (1_999, "a", 1, 4),
            (1_999, "a", 2, 1),
            (2_000, "a", 1, 1),
        ] {
            refusals.add(at_ms, denied(host, port, count));
        }
        let told: Vec<_> =
            refusals.all().into_iter().map(|one| (one.at_ms, one.host, one.port, one.count)).collect();
        let expected = [(1_000, "a", 1, 5), (1_500, "b", 1, 1), (1_999, "a", 2, 1), (2_000, "a", 1, 1)];
        assert_eq!(told, expected.map(|(at_ms, host, port, count)| (at_ms, host.to_owned(), port, count)));
    }

    #[test]
    fn a_flood_leaves_the_newest_and_counts_do_not_turn_over() {
        let mut refusals = Refusals::default();
        for n in 0..10_000 {
            refusals.add(5, denied(&format!("h{n}"), 1, u32::MAX));
            refusals.add(5, denied(&format!("h{n}"), 1, 1));
        }
        let all = refusals.all();
        assert_eq!((all.len(), all[0].host.as_str(), all[255].host.as_str()), (256, "h9744", "h9999"));
        assert_eq!(all[0].count, u32::MAX);
    }
}
