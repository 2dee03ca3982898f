//! The file worker's ends of its pipes: standard input and output.

use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{read, write};
use prost::Message;
use sha2::{Digest, Sha256};
use wire::Problem;

use super::errors::Stop;
use super::frames::{DATA_BYTES, HEADER_BYTES, Job, Kind, MAX_PAYLOAD_BYTES, header, parse};

/// Small frames are sent together once they have this size.
const BATCH_BYTES: usize = 64 << 10;

/// Whether the sidecar has closed its end, so that no caller waits for the answer.
pub(super) fn abandoned() -> bool {
    let input = io::stdin();
    let mut watched = [PollFd::new(input.as_fd(), PollFlags::empty())];
    poll(&mut watched, PollTimeout::ZERO).is_ok_and(|found| found > 0)
}

/// Ends an operation early when its caller is gone. Long operations call this between two steps.
pub(super) fn still_wanted() -> Result<(), Stop> {
    if abandoned() { Err(Stop::Abandoned) } else { Ok(()) }
}

/// Waits until an operation comes, or its caller is gone.
pub(super) fn wait() -> bool {
    let input = io::stdin();
    loop {
        match poll(&mut [PollFd::new(input.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            found => return found.is_ok(),
        }
    }
}

/// Reads the operation to run; answers before, when it is asked whether it does.
pub(super) fn job() -> Result<Job, Stop> {
    loop {
        let mut head = [0; HEADER_BYTES];
        fill(&mut head)?;
        match parse(head).map_err(|_| Stop::Abandoned)? {
            (Kind::Item, 0) => frame(Kind::Item, &[])?,
            (Kind::Job, length) => {
                let mut payload = vec![0; length];
                fill(&mut payload)?;
                return Job::decode(&payload).map_err(|_| Stop::Abandoned);
            }
            _ => return Err(Stop::Abandoned),
        }
    }
}

fn fill(buffer: &mut [u8]) -> Result<(), Stop> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read(io::stdin().as_fd(), &mut buffer[filled..]) {
            Ok(count) if count > 0 => filled += count,
            Err(Errno::EINTR) => {}
            _ => return Err(Stop::Abandoned),
        }
    }
    Ok(())
}

fn send(mut bytes: &[u8]) -> Result<(), Stop> {
    while !bytes.is_empty() {
        match write(io::stdout().as_fd(), bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::EINTR) => {}
            Err(_) => return Err(Stop::Abandoned),
        }
    }
    Ok(())
}

/// Sends the answer as the last frame.
pub(super) fn end(answer: &impl Message) -> Result<(), Stop> {
    frame(Kind::End, &answer.encode_to_vec())
}

/// Sends the problem as the last frame.
pub(super) fn fail(problem: &Problem) -> Result<(), Stop> {
    frame(Kind::Problem, &problem.encode())
}

fn frame(kind: Kind, payload: &[u8]) -> Result<(), Stop> {
    send(&[&header(kind, payload.len())[..], payload].concat())
}

/// Messages of a stream, several sent at a time.
#[derive(Debug, Default)]
pub(super) struct Items {
    batch: Vec<u8>,
}

impl Items {
    /// Adds a message; sends all when there are enough.
    pub(super) fn push(&mut self, message: &impl Message) -> Result<(), Stop> {
        let length = message.encoded_len();
        self.batch.extend_from_slice(&header(Kind::Item, length));
        // Encoding into a vector cannot fail.
        let _ = message.encode(&mut self.batch);
        if self.batch.len() < BATCH_BYTES { Ok(()) } else { self.flush() }
    }

    /// Sends what has been added.
    pub(super) fn flush(&mut self) -> Result<(), Stop> {
        send(&self.batch)?;
        self.batch.clear();
        Ok(())
    }
}

/// Outgoing bytes: put into frames and hashed. What fits together is sent together, with what comes before and the last
/// frame: under gVisor each write and the wake-up that follows cost tens of microseconds.
pub(super) struct Outgoing {
    /// What comes before, then the header and the bytes of the frame that is being filled.
    out: Vec<u8>,
    /// Where the frame begins.
    frame: usize,
    filled: usize,
    digest: Sha256,
}

impl Outgoing {
    /// Begins with messages that have not been sent yet.
    pub(super) fn after(before: Items) -> Self {
        let mut out = before.batch;
        let frame = out.len();
        out.resize(frame + HEADER_BYTES + DATA_BYTES, 0);
        Self { out, frame, filled: frame + HEADER_BYTES, digest: Sha256::new() }
    }

    /// The space for further bytes; never empty.
    pub(super) fn space(&mut self) -> &mut [u8] {
        &mut self.out[self.filled..]
    }

    /// Takes the first `count` bytes that the caller has put into the space.
    pub(super) fn advance(&mut self, count: usize) -> Result<(), Stop> {
        self.digest.update(&self.out[self.filled..self.filled + count]);
        self.filled += count;
        if self.filled < self.out.len() {
            return Ok(());
        }
        self.close_frame();
        send(&self.out)?;
        self.out.truncate(HEADER_BYTES + DATA_BYTES);
        (self.frame, self.filled) = (0, HEADER_BYTES);
        Ok(())
    }

    /// Writes the header of the frame; one without bytes is left out.
    fn close_frame(&mut self) {
        let begin = self.frame + HEADER_BYTES;
        if self.filled > begin {
            self.out[self.frame..begin].copy_from_slice(&header(Kind::Data, self.filled - begin));
        } else {
            self.filled = self.frame;
        }
    }

    /// Appends a copy of `bytes`.
    pub(super) fn put(&mut self, mut bytes: &[u8]) -> Result<(), Stop> {
        while !bytes.is_empty() {
            let space = self.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            self.advance(count)?;
            bytes = &bytes[count..];
        }
        Ok(())
    }

    /// Sends the rest and, as the last frame, the answer that `answer` makes of the SHA-256 of everything.
    pub(super) fn end<T: Message>(mut self, answer: impl FnOnce(Vec<u8>) -> T) -> Result<(), Stop> {
        self.close_frame();
        self.out.truncate(self.filled);
        let payload = answer(self.digest.finalize().to_vec()).encode_to_vec();
        self.out.extend_from_slice(&header(Kind::End, payload.len()));
        self.out.extend_from_slice(&payload);
        send(&self.out)
    }
}

/// Standard input without a buffer: one system call for each read.
#[derive(Debug)]
struct Input;

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match read(io::stdin().as_fd(), buffer) {
                Err(Errno::EINTR) => {}
                outcome => return Ok(outcome?),
            }
        }
    }
}

/// Incoming bytes; a read returns as much as has arrived. Reads as empty after the last byte. When the caller is gone,
/// reading fails with an error that [`Incoming::stop`] maps.
#[derive(Debug)]
pub(super) struct Incoming {
    input: BufReader<Input>,
    /// Unread bytes of the current frame.
    left: usize,
    ended: bool,
}

impl Incoming {
    pub(super) fn new() -> Self {
        let input = BufReader::with_capacity(HEADER_BYTES + MAX_PAYLOAD_BYTES, Input);
        Self { input, left: 0, ended: false }
    }

    /// Maps an error of reading: the caller is gone.
    pub(super) fn stop(_: io::Error) -> Stop {
        Stop::Abandoned
    }

    fn next_frame(&mut self) -> io::Result<()> {
        let mut head = [0; HEADER_BYTES];
        self.input.read_exact(&mut head)?;
        match parse(head) {
            Ok((Kind::Data, length)) => self.left = length,
            Ok((Kind::End, 0)) => self.ended = true,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        Ok(())
    }
}

impl BufRead for Incoming {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while self.left == 0 && !self.ended {
            self.next_frame()?;
        }
        if self.ended {
            return Ok(&[]);
        }
        let filled = self.input.fill_buf()?;
        if filled.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(&filled[..filled.len().min(self.left)])
    }

    fn consume(&mut self, count: usize) {
        self.input.consume(count);
        self.left -= count;
    }
}

impl Read for Incoming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(buffer)?;
        self.consume(count);
        Ok(count)
    }
}
