//! Which processes belong to a command, from a snapshot of `/proc`. Pure.

use std::collections::BTreeSet;

/// One process of the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub pid: i32,
    /// Its parent's id.
    pub parent: i32,
    /// The id of its session: the pid of the process that opened it.
    pub session: i32,
    /// Dead and only waiting to be reaped.
    pub zombie: bool,
}

/// Reads `/proc/PID/stat`; `None` when it is not of the known form. The name in parentheses is the program's to
/// choose, so it may hold anything, also parentheses: what follows the last one counts.
pub fn parse_stat(pid: i32, text: &str) -> Option<Entry> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(Entry { pid, parent, session, zombie: matches!(state, "Z" | "X") })
}

/// The living processes among `entries` that are seeds or descend from one. PID 1, the spawner, is never one.
pub fn tree(entries: &[Entry], seed: impl Fn(&Entry) -> bool) -> BTreeSet<i32> {
    let mut members: BTreeSet<i32> =
        entries.iter().filter(|entry| seed(entry)).map(|entry| entry.pid).collect();
    loop {
        let before = members.len();
        let children = entries.iter().filter(|entry| members.contains(&entry.parent)).map(|entry| entry.pid);
        members.extend(children.collect::<Vec<_>>());
        if members.len() == before {
            break;
        }
    }
    entries
        .iter()
        .filter(|entry| !entry.zombie && entry.pid != 1)
        .map(|entry| entry.pid)
        .filter(|pid| members.contains(pid))
        .collect()
}

/// Whether an environment block (`NAME=value\0…`) has exactly this variable.
pub fn carries(environ: &[u8], variable: &[u8]) -> bool {
    environ.split(|byte| *byte == 0).any(|entry| entry == variable)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(pid: i32, parent: i32, session: i32) -> Entry {
        Entry { pid, parent, session, zombie: false }
    }

    #[test]
    fn a_stat_line_is_read_whatever_the_name_is() {
        let expected = Entry { pid: 42, parent: 7, session: 9, zombie: false };
        assert_eq!(parse_stat(42, "42 (bash) S 7 8 9 0 -1 4194304"), Some(expected));
        assert_eq!(parse_stat(42, "42 (a) Z 1 (b)) S 7 8 9 0"), Some(expected));
        assert!(parse_stat(42, "42 (x) Z 7 8 9").is_some_and(|entry| entry.zombie));
        assert_eq!(parse_stat(42, "42 (x) S 7"), None);
    }

    #[test]
    fn children_of_children_and_the_session_belong_but_the_rest_does_not() {
        let entries =
            [entry(1, 0, 0), entry(5, 1, 5), entry(6, 5, 5), entry(7, 6, 7), entry(8, 1, 5), entry(9, 1, 9)];
        let members = tree(&entries, |entry| entry.session == 5);
        assert_eq!(members, BTreeSet::from([5, 6, 7, 8]));
    }

    #[test]
    fn the_spawner_is_never_a_member_and_a_zombie_is_not_worth_a_signal() {
        let zombie = Entry { zombie: true, ..entry(5, 1, 5) };
        assert_eq!(
            tree(&[entry(1, 0, 5), zombie, entry(6, 5, 5)], |entry| entry.session == 5),
            BTreeSet::from([6])
        );
    }

    #[test]
    fn a_variable_is_matched_whole() {
        assert!(carries(b"A=1\0ID=ab\0", b"ID=ab"));
        assert!(!carries(b"ID=abc\0XID=ab\0", b"ID=ab"));
    }

    proptest! {
        #[test]
        fn it_is_closed_under_children(parents in prop::collection::vec(0i32..30, 1..30), seed in 2i32..30) {
            let entries: Vec<_> = parents.iter().zip(2..).map(|(parent, pid)| entry(pid, *parent, 0)).collect();
            let members = tree(&entries, |entry| entry.pid == seed);
            for entry in &entries {
                let inside = members.contains(&entry.pid);
                prop_assert_eq!(inside, entry.pid == seed || members.contains(&entry.parent));
            }
        }
    }
}
