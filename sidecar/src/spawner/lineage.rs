//! Finds the processes that belong to a command, in a snapshot of `/proc`. Pure.

use std::collections::BTreeSet;

/// One process of the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub pid: i32,
    /// Its parent's id.
    pub parent: i32,
    /// The id of its process session: the pid of the process that opened it (setsid).
    pub session: i32,
    /// Whether it is dead and only waits to be reaped; all of its threads are then, not only the first.
    pub zombie: bool,
}

/// Parses `/proc/PID/stat`; `None` when its format is unknown. The name in parentheses is chosen by the program and may
/// contain anything, also parentheses, so the fields begin after the last one.
pub fn parse_stat(pid: i32, text: &str) -> Option<Entry> {
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    let threads: u32 = fields.nth(13)?.parse().ok()?;
    // A process whose first thread has ended is shown as a zombie while its other threads run on.
    Some(Entry { pid, parent, session, zombie: matches!(state, "Z" | "X") && threads <= 1 })
}

/// The living processes among `entries` that are seeds or descend from one. Never PID 1, the spawner.
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

/// The value of a variable in a block of environment variables (`NAME=value\0…`), if it is there and is UTF-8.
pub fn value_of(environ: &[u8], name: &str) -> Option<String> {
    let value = |entry: &[u8]| {
        let value = entry.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        std::str::from_utf8(value).ok().map(str::to_owned)
    };
    environ.split(|byte| *byte == 0).find_map(value)
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
        const REST: &str = "0 -1 4194304 1 2 3 4 5 6 7 8 20 0";
        let read =
            |head: &str, threads: u32| parse_stat(42, &format!("42 {head} 7 8 9 {REST} {threads} 0 77"));
        let expected = Entry { pid: 42, parent: 7, session: 9, zombie: false };
        assert_eq!(read("(bash) S", 1), Some(expected));
        assert_eq!(read("(a) Z 1 (b)) S", 1), Some(expected));
        assert!(read("(x) Z", 1).is_some_and(|entry| entry.zombie));
        assert_eq!(read("(x) Z", 2), Some(expected), "its other threads live");
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
    fn a_variable_is_found_by_its_whole_name() {
        assert_eq!(value_of(b"A=1\0XID=x\0ID=ab\0", "ID").as_deref(), Some("ab"));
        assert_eq!(value_of(b"IDS=ab\0ID\0", "ID"), None);
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
