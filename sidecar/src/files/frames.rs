//! The protocol between sidecar and file worker: pure encoding and bounded decoding.
//!
//! A frame is one byte for its kind, a little-endian `u32` length, and that many bytes. The worker gets a `Job`, then
//! the `Data` of an upload and its `End`; a pipe that closes without an `End` means that the caller is gone. The worker
//! answers with `Item`s or `Data`, and last an `End` with the answer's message, or a `Problem`. After an answer that
//! leaves both pipes empty ([`Job::leaves_empty`]), it takes the next `Job`; an empty `Item` before that asks whether it
//! runs, and is answered with another one.

use prost::Message;
use wire::agent::{
    ListDirectoryRequest, MakeDirectoryRequest, MoveFileRequest, PathRequest, ReadArchiveRequest,
    ReadFileRequest, RemoveFileRequest, WatchRequest, WriteArchiveRequest, WriteFileRequest,
};

/// Length of a frame's header.
pub const HEADER_BYTES: usize = 5;
/// Upper bound of the payload that follows the header.
pub const MAX_PAYLOAD_BYTES: usize = 256 << 10;
/// Bytes of a file or an archive in one frame: under gVisor the wake-ups and system calls for each frame cost as much
/// as moving 100 KiB, and each of many transfers holds a few frames in memory.
pub const DATA_BYTES: usize = 128 << 10;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The operation to run.
    Job,
    /// Bytes of a file or an archive.
    Data,
    /// The last frame of either side; the worker's holds the answer.
    End,
    /// One message of a stream.
    Item,
    /// Why the operation failed; the last frame.
    Problem,
}

const KINDS: [Kind; 5] = [Kind::Job, Kind::Data, Kind::End, Kind::Item, Kind::Problem];

/// The bytes are not a valid frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// Encodes the header of a frame. `length` is at most [`MAX_PAYLOAD_BYTES`]; the reader refuses a longer one.
pub fn header(kind: Kind, length: usize) -> [u8; HEADER_BYTES] {
    let [a, b, c, d] = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    [kind as u8, a, b, c, d]
}

/// Decodes a header into the kind of the frame and the length of its payload.
///
/// # Errors
/// An unknown kind, or a length over [`MAX_PAYLOAD_BYTES`].
pub fn parse([kind, length @ ..]: [u8; HEADER_BYTES]) -> Result<(Kind, usize), Malformed> {
    let kind = KINDS.get(usize::from(kind)).copied().ok_or(Malformed)?;
    let length = usize::try_from(u32::from_le_bytes(length)).map_err(|_| Malformed)?;
    if length > MAX_PAYLOAD_BYTES { Err(Malformed) } else { Ok((kind, length)) }
}

/// The operation of a file worker: the call's own request.
#[derive(Debug, Clone, PartialEq)]
pub enum Job {
    /// Send a file.
    Read(ReadFileRequest),
    /// Receive a file.
    Write(WriteFileRequest),
    /// Describe a file.
    Stat(PathRequest),
    /// List a directory.
    List(ListDirectoryRequest),
    /// Make a directory.
    MakeDirectory(MakeDirectoryRequest),
    /// Move a file or tree to another name.
    Move(MoveFileRequest),
    /// Copy a file or tree.
    Copy(MoveFileRequest),
    /// Remove a file or tree.
    Remove(RemoveFileRequest),
    /// Send a tree as a tar stream.
    ReadArchive(ReadArchiveRequest),
    /// Unpack a tar stream.
    WriteArchive(WriteArchiveRequest),
    /// Report changes.
    Watch(WatchRequest),
}

impl Job {
    /// The payload of a `Job` frame.
    pub fn encode(&self) -> Vec<u8> {
        let (tag, body) = match self {
            Self::Read(request) => (0, request.encode_to_vec()),
            Self::Write(request) => (1, request.encode_to_vec()),
            Self::Stat(request) => (2, request.encode_to_vec()),
            Self::List(request) => (3, request.encode_to_vec()),
            Self::MakeDirectory(request) => (4, request.encode_to_vec()),
            Self::Move(request) => (5, request.encode_to_vec()),
            Self::Copy(request) => (6, request.encode_to_vec()),
            Self::Remove(request) => (7, request.encode_to_vec()),
            Self::ReadArchive(request) => (8, request.encode_to_vec()),
            Self::WriteArchive(request) => (9, request.encode_to_vec()),
            Self::Watch(request) => (10, request.encode_to_vec()),
        };
        [&[tag][..], &body].concat()
    }

    /// Whether the worker has read all of its caller's frames once it has answered with `last`, and may take another job.
    /// A refused upload may have been read in part.
    pub fn leaves_empty(&self, last: Kind) -> bool {
        match self {
            Self::Watch(_) => false,
            Self::Write(_) | Self::WriteArchive(_) => last == Kind::End,
            _ => matches!(last, Kind::End | Kind::Problem),
        }
    }

    /// Reads the payload of a `Job` frame.
    ///
    /// # Errors
    /// The bytes are not a valid operation.
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let (tag, body) = payload.split_first().ok_or(Malformed)?;
        match tag {
            0 => message(body).map(Self::Read),
            1 => message(body).map(Self::Write),
            2 => message(body).map(Self::Stat),
            3 => message(body).map(Self::List),
            4 => message(body).map(Self::MakeDirectory),
            5 => message(body).map(Self::Move),
            6 => message(body).map(Self::Copy),
            7 => message(body).map(Self::Remove),
            8 => message(body).map(Self::ReadArchive),
            9 => message(body).map(Self::WriteArchive),
            10 => message(body).map(Self::Watch),
            _ => Err(Malformed),
        }
    }
}

fn message<T: Message + Default>(body: &[u8]) -> Result<T, Malformed> {
    T::decode(body).map_err(|_| Malformed)
}

/// Any bytes are refused, or decode to a value that survives encoding and decoding.
#[cfg(any(test, fuzzing))]
pub fn check_decoding(bytes: &[u8]) {
    if let Ok(job) = Job::decode(bytes) {
        assert_eq!(Job::decode(&job.encode()), Ok(job));
    }
    if let Some(head) = bytes.first_chunk::<HEADER_BYTES>()
        && let Ok((kind, length)) = parse(*head)
    {
        assert!(length <= MAX_PAYLOAD_BYTES);
        assert_eq!(&header(kind, length), head);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_survive(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            check_decoding(&bytes);
        }

        #[test]
        fn a_job_survives(path in prop::collection::vec(any::<u8>(), 0..50), flag in any::<bool>(), tag in 0u8..11) {
            let request = MoveFileRequest { from: path.clone(), to: path, replace: flag, ..Default::default() };
            let mut payload = Job::Move(request).encode();
            check_decoding(&payload);
            payload[0] = tag;
            check_decoding(&payload);
        }
    }

    #[test]
    fn kinds_are_listed_in_the_order_of_their_numbers_and_lengths_are_bounded() {
        for (number, kind) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, number);
            assert_eq!(parse(header(*kind, MAX_PAYLOAD_BYTES)), Ok((*kind, MAX_PAYLOAD_BYTES)));
            assert_eq!(parse(header(*kind, MAX_PAYLOAD_BYTES + 1)), Err(Malformed));
        }
        assert_eq!(parse([5, 0, 0, 0, 0]), Err(Malformed));
    }
}
