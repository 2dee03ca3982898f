//! Parses a tar stream into entries: ustar, GNU and PAX. Every length in it is bounded before memory is allocated for
//! it.

use std::io::Read;

use tar::{EntryType, GnuExtSparseHeader, GnuSparseHeader, Header};
use wire::{Code, Problem};

use super::extended::{Extended, number};
use super::sparse::{MAX_PIECES, Sparse};
use crate::files::errors::{Stop, shown};
use crate::files::pipes::Incoming;

/// The block size of tar.
pub(super) const BLOCK_BYTES: usize = 512;

/// Bytes of the long names and of the PAX records of one entry at most, each.
const MAX_EXTENDED_BYTES: u64 = 1 << 20;
/// Digits of a number in a sparse map that is text.
const MAX_DIGITS: usize = 20;

/// One entry; its data follows in the stream.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) kind: EntryType,
    pub(super) mode: u32,
    /// Seconds since 1970, and nanoseconds.
    pub(super) modified: (i64, u32),
    pub(super) sparse: Option<Sparse>,
}

/// Reads entries and their data.
#[derive(Debug)]
pub(super) struct Stream<R> {
    from: R,
    /// Unread bytes of the current entry's data.
    left: u64,
    padding: u64,
    started: bool,
}

impl<R: Read> Stream<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, left: 0, padding: 0, started: false }
    }

    /// Returns the next entry and skips what is unread of the last one. `None` after the end mark, once everything that
    /// follows the mark has been read.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Stop> {
        let mut extended = Extended::default();
        loop {
            self.skip()?;
            let mut block = [0; BLOCK_BYTES];
            self.exactly(&mut block)?;
            if block == [0; BLOCK_BYTES] {
                return self.drain().map(|()| None);
            }
            let header = Header::from_byte_slice(&block);
            self.check(header)?;
            self.started = true;
            self.open(header.entry_size().map_err(|_| malformed("has a size that is not a number"))?);
            match header.entry_type() {
                EntryType::XHeader => {
                    let records = self.extended()?;
                    extended.add(&records).ok_or_else(|| malformed("has malformed PAX records"))?;
                }
                EntryType::XGlobalHeader => {}
                EntryType::GNULongName => extended.name = Some(self.text()?),
                EntryType::GNULongLink => extended.link = Some(self.text()?),
                _ => return self.entry(header, extended).map(Some),
            }
        }
    }

    /// Reads data of the current entry; returns 0 at its end.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Stop> {
        let wanted = buffer.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        if wanted == 0 {
            return Ok(0);
        }
        let count = self.from.read(&mut buffer[..wanted]).map_err(Incoming::stop)?;
        if count == 0 {
            return Err(truncated());
        }
        self.left -= count as u64;
        Ok(count)
    }

    /// How many bytes of the current entry's data are unread.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    fn open(&mut self, size: u64) {
        let block = BLOCK_BYTES as u64;
        self.left = size;
        self.padding = (block - size % block) % block;
    }

    fn check(&self, header: &Header) -> Result<(), Stop> {
        let bytes = header.as_bytes();
        let sum: u32 = bytes[..148].iter().chain(&bytes[156..]).map(|byte| u32::from(*byte)).sum();
        // The checksum's own field counts as eight spaces.
        if header.cksum().is_ok_and(|found| found == sum + 8 * 32) {
            return Ok(());
        }
        Err(malformed(if self.started { "has a damaged header" } else { "is not a tar stream" }))
    }

    fn skip(&mut self) -> Result<(), Stop> {
        let mut chunk = [0; 16 * BLOCK_BYTES];
        while self.read(&mut chunk)? > 0 {}
        self.left = std::mem::take(&mut self.padding);
        while self.read(&mut chunk)? > 0 {}
        Ok(())
    }

    /// Reads what follows the end mark: writers pad their last record, and the padding means nothing.
    fn drain(&mut self) -> Result<(), Stop> {
        let mut chunk = [0; 16 * BLOCK_BYTES];
        while self.from.read(&mut chunk).map_err(Incoming::stop)? > 0 {}
        Ok(())
    }

    fn exactly(&mut self, buffer: &mut [u8]) -> Result<(), Stop> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.from.read(&mut buffer[filled..]).map_err(Incoming::stop)? {
                0 => return Err(truncated()),
                count => filled += count,
            }
        }
        Ok(())
    }

    fn extended(&mut self) -> Result<Vec<u8>, Stop> {
        if self.left > MAX_EXTENDED_BYTES {
            let detail = format!("the archive has a name or header of {} bytes", self.left);
            return Err(refused("header_too_large", detail));
        }
        let mut bytes = vec![0; usize::try_from(self.left).unwrap_or(0)];
        self.exactly(&mut bytes)?;
        self.left = 0;
        Ok(bytes)
    }

    fn text(&mut self) -> Result<Vec<u8>, Stop> {
        let mut bytes = self.extended()?;
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        bytes.truncate(end);
        Ok(bytes)
    }

    fn entry(&mut self, header: &Header, mut extended: Extended) -> Result<Entry, Stop> {
        let name = extended.name.take().unwrap_or_else(|| header.path_bytes().into_owned());
        let link = extended.link.take();
        let link = link.unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned());
        // Some writers store in links and directories the size of what they stand for; such entries have no data all
        // the same.
        match header.entry_type() {
            EntryType::Link | EntryType::Symlink | EntryType::Directory => {}
            _ => self.open(extended.size.unwrap_or(self.left)),
        }
        let sparse = self.sparse(header, &extended).map_err(|stop| named(stop, &name))?;
        let modified =
            extended.modified.unwrap_or_else(|| (i64::try_from(header.mtime().unwrap_or(0)).unwrap_or(0), 0));
        // Before POSIX a directory was stored as a file whose name ends with a slash.
        let kind = match header.entry_type() {
            EntryType::Regular | EntryType::Continuous if name.ends_with(b"/") => EntryType::Directory,
            kind => kind,
        };
        Ok(Entry { name, link, kind, mode: header.mode().unwrap_or(0o644), modified, sparse })
    }

    fn sparse(&mut self, header: &Header, extended: &Extended) -> Result<Option<Sparse>, Stop> {
        let (size, pieces) = if header.entry_type() == EntryType::GNUSparse {
            self.gnu_map(header)?
        } else if let Some(size) = extended.real_size {
            let numbers = if extended.map_in_data { self.map_in_data()? } else { extended.map.clone() };
            (size, numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
        } else {
            return Ok(None);
        };
        let sparse = Sparse::new(size, pieces, self.left);
        sparse.map(Some).ok_or_else(|| {
            refused("sparse_map", "the archive has a sparse file whose map of pieces is wrong".into())
        })
    }

    /// The old GNU form: four pieces in the header, more in blocks that follow it.
    fn gnu_map(&mut self, header: &Header) -> Result<(u64, Vec<(u64, u64)>), Stop> {
        let wrong = || malformed("has a sparse file without a valid map");
        let gnu = header.as_gnu().ok_or_else(wrong)?;
        let mut pieces = Vec::new();
        add(&mut pieces, &gnu.sparse).ok_or_else(wrong)?;
        let mut more = gnu.is_extended();
        while more {
            let mut block = GnuExtSparseHeader::new();
            self.exactly(block.as_mut_bytes())?;
            add(&mut pieces, block.sparse()).ok_or_else(wrong)?;
            more = block.is_extended();
        }
        Ok((gnu.real_size().map_err(|_| wrong())?, pieces))
    }

    /// The newest form (1.0): one number in a line, padded to a block, before the data.
    fn map_in_data(&mut self) -> Result<Vec<u64>, Stop> {
        let wrong = || malformed("has a sparse file without a valid map");
        let before = self.left;
        let count = self.line()?.filter(|count| *count <= MAX_PIECES as u64).ok_or_else(wrong)?;
        let mut numbers = Vec::new();
        for _ in 0..2 * count {
            numbers.push(self.line()?.ok_or_else(wrong)?);
        }
        let block = BLOCK_BYTES as u64;
        let filled = (before - self.left) % block;
        let mut rest = [0; BLOCK_BYTES];
        let rest = &mut rest[..usize::try_from((block - filled) % block).unwrap_or(0)];
        self.exactly(rest)?;
        self.left = self.left.checked_sub(rest.len() as u64).ok_or_else(wrong)?;
        Ok(numbers)
    }

    fn line(&mut self) -> Result<Option<u64>, Stop> {
        let mut digits = Vec::new();
        while digits.len() <= MAX_DIGITS {
            let mut byte = [0];
            if self.read(&mut byte)? == 0 || byte == *b"\n" {
                return Ok(number(&digits));
            }
            digits.extend(byte);
        }
        Ok(None)
    }
}

/// Any bytes are refused with `invalid_argument`, or are entries: their data lie within the bytes, and what is unpacked
/// of them lies within the destination and the file.
#[cfg(any(test, fuzzing))]
pub fn check_entries(bytes: &[u8]) {
    let (mut stream, mut unread, mut buffer) = (Stream::new(bytes), bytes.len(), [0; BLOCK_BYTES]);
    let stop = loop {
        let entry = match stream.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => return,
            Err(stop) => break stop,
        };
        for part in super::names::parts(&entry.name).unwrap_or_default() {
            assert!(!matches!(part, b"" | b"." | b"..") && !part.contains(&b'/') && !part.contains(&0));
        }
        assert!(entry.modified.1 < 1_000_000_000, "{entry:?}");
        if let Some(Sparse { size, pieces }) = &entry.sparse {
            assert_eq!(pieces.iter().map(|(_, length)| length).sum::<u64>(), stream.left());
            assert!(pieces.iter().all(|(offset, length)| offset + length <= *size), "{entry:?}");
        }
        // Every second entry is left to be skipped.
        while entry.mode % 2 == 0
            && let Ok(count @ 1..) = stream.read(&mut buffer)
        {
            assert!(count <= unread, "no more data than there are bytes");
            unread -= count;
        }
    };
    match stop {
        Stop::Problem(problem) => assert_eq!(problem.code, Code::InvalidArgument, "{problem}"),
        Stop::Abandoned => unreachable!("bytes in memory do not break off"),
    }
}

fn add(pieces: &mut Vec<(u64, u64)>, found: &[GnuSparseHeader]) -> Option<()> {
    for piece in found.iter().filter(|piece| !piece.is_empty()) {
        pieces.push((piece.offset().ok()?, piece.length().ok()?));
    }
    (pieces.len() <= MAX_PIECES).then_some(())
}

fn refused(reason: &str, detail: String) -> Stop {
    Stop::Problem(Problem::new(Code::InvalidArgument, detail).with("reason", reason))
}

fn malformed(what: &str) -> Stop {
    refused("malformed_archive", format!("what was sent {what}"))
}

fn truncated() -> Stop {
    refused("truncated_archive", "the archive ends before its end mark".into())
}

fn named(stop: Stop, name: &[u8]) -> Stop {
    match stop {
        Stop::Problem(problem) => Stop::Problem(problem.with("entry", shown(name))),
        gone => gone,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A header with the right checksum, whatever its fields hold.
    fn summed(block: &[u8; BLOCK_BYTES]) -> Header {
        let mut header = Header::from_byte_slice(block).clone();
        header.set_cksum();
        header
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
            check_entries(&bytes);
        }

        #[test]
        fn no_fields_break_it(fields in prop::collection::vec((0..BLOCK_BYTES, any::<u8>()), 0..40), data in prop::collection::vec(any::<u8>(), 0..2000)) {
            let mut block = *Header::new_gnu().as_bytes();
            for (at, byte) in fields {
                block[at] = byte;
            }
            check_entries(&[summed(&block).as_bytes(), data.as_slice()].concat());
        }
    }
}
