//! Tar streams that a client sends.
#![no_main]

use sidecar::files::check_entries;

const BLOCK: usize = 512;
const MAGIC: std::ops::Range<usize> = 257..262;
const SUM: std::ops::Range<usize> = 148..156;

/// Few changed bytes leave a header whose checksum is right, so every header gets the right one after an odd first byte.
fn check(bytes: &[u8]) {
    let Some((first, archive)) = bytes.split_first() else { return };
    let mut archive = archive.to_vec();
    for header in archive.chunks_exact_mut(BLOCK).filter(|block| first % 2 == 1 && &block[MAGIC] == b"ustar")
    {
        header[SUM].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[SUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    check_entries(&archive);
}

/// An archive of one entry of a type, with a mode and data.
fn archive(kind: u8, mode: &[u8; 8], data: &[u8]) -> Vec<u8> {
    let mut header = [0; BLOCK];
    header[..3].copy_from_slice(b"a/b");
    header[100..108].copy_from_slice(mode);
    header[124..136].copy_from_slice(format!("{:011o}\0", data.len()).as_bytes());
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar  \0");
    let padding = vec![0; data.len().next_multiple_of(BLOCK) - data.len()];
    [&[1][..], &header, data, &padding].concat()
}

fn seeds() -> Vec<Vec<u8>> {
    let file = archive(b'0', b"0000644\0", b"text");
    let records = b"11 path=x\n20 mtime=12.500000\n22 GNU.sparse.major=1\n24 GNU.sparse.realsize=9\n";
    let extended =
        [&archive(b'x', b"0000644\0", records), &archive(b'0', b"0000644\0", b"1\n0\n4\n")[1..]].concat();
    let long = [&archive(b'L', b"0000644\0", b"long/name\0"), &file[1..]].concat();
    vec![[&file, &[0; 2 * BLOCK][..]].concat(), extended, long, archive(b'S', b"0000645\0", b"text")]
}

fuzz::target!(seeds().iter().map(Vec::as_slice).collect::<Vec<_>>(), check);
