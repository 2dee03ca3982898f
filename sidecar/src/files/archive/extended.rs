//! PAX records: what extended headers say about the entry that follows them. Pure.

use tar::PaxExtensions;

use super::sparse::MAX_PIECES;

/// What extended headers say about the next entry.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Extended {
    pub(super) name: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    /// Seconds since 1970, and nanoseconds.
    pub(super) modified: Option<(i64, u32)>,
    /// The length of a sparse file, holes included.
    pub(super) real_size: Option<u64>,
    /// Offsets and lengths of a sparse file's data, alternating, where the records hold them.
    pub(super) map: Vec<u64>,
    /// Whether the sparse map stands at the beginning of the entry's data instead.
    pub(super) map_in_data: bool,
}

impl Extended {
    /// Adds the records of a PAX header; returns `None` when they are malformed.
    pub(super) fn add(&mut self, records: &[u8]) -> Option<()> {
        for record in PaxExtensions::new(records) {
            let record = record.ok()?;
            let value = record.value_bytes();
            match record.key_bytes() {
                b"path" => {
                    self.name.get_or_insert_with(|| value.to_vec());
                }
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(number(value)?),
                b"mtime" => self.modified = Some(time(value)?),
                // The real name of a sparse file: its header and `path` hold a placeholder.
                b"GNU.sparse.name" => self.name = Some(value.to_vec()),
                b"GNU.sparse.size" | b"GNU.sparse.realsize" => self.real_size = Some(number(value)?),
                b"GNU.sparse.offset" | b"GNU.sparse.numbytes" => self.map.push(number(value)?),
                b"GNU.sparse.map" if !value.is_empty() => {
                    self.map = value.split(|byte| *byte == b',').map(number).collect::<Option<_>>()?;
                }
                b"GNU.sparse.major" => self.map_in_data = value == b"1",
                _ => {}
            }
        }
        // Any number of headers may stand before an entry.
        (self.map.len() <= 2 * MAX_PIECES).then_some(())
    }
}

/// Parses a decimal number.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses seconds since 1970 with any number of decimals. The nanoseconds count up, also before 1970.
fn time(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    match (whole.starts_with('-'), nanos) {
        (true, 1..) => Some((seconds.checked_sub(1)?, 1_000_000_000 - nanos)),
        _ => Some((seconds, nanos)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn record(key: &str, value: &str) -> String {
        let rest = format!(" {key}={value}\n");
        let length =
            (1..9).map(|digits| digits + rest.len()).find(|n| n.to_string().len() + rest.len() == *n);
        format!("{}{rest}", length.unwrap())
    }

    fn extended(records: &[(&str, &str)]) -> Option<Extended> {
        let text: String = records.iter().map(|(key, value)| record(key, value)).collect();
        let mut extended = Extended::default();
        extended.add(text.as_bytes()).map(|()| extended)
    }

    #[test]
    fn records_say_what_a_header_cannot() {
        let found =
            extended(&[("path", "a/b"), ("size", "99"), ("mtime", "12.5"), ("comment", "x")]).unwrap();
        assert_eq!((found.name, found.size), (Some(b"a/b".to_vec()), Some(99)));
        assert_eq!(found.modified, Some((12, 500_000_000)));
        assert_eq!(time(b"-1.25"), Some((-2, 750_000_000)));
        assert_eq!(time(b"-3"), Some((-3, 0)));
        assert!(extended(&[("size", "-1")]).is_none() && extended(&[("mtime", "x")]).is_none());
    }

    #[test]
    fn the_true_name_of_a_file_with_holes_wins_wherever_it_stands() {
        for order in [[0, 1], [1, 0]] {
            let records = [("path", "GNUSparseFile.0/x"), ("GNU.sparse.name", "x")];
            let found = extended(&order.map(|at| records[at])).unwrap();
            assert_eq!(found.name, Some(b"x".to_vec()));
        }
    }

    #[test]
    fn headers_without_end_take_no_memory_without_end() {
        let pieces = record("GNU.sparse.offset", "1").repeat(MAX_PIECES);
        let mut extended = Extended::default();
        assert_eq!([0; 3].map(|_| extended.add(pieces.as_bytes()).is_some()), [true, true, false]);
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Extended::default().add(&bytes);
            let _ = time(&bytes);
        }
    }
}
