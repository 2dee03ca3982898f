//! Standard input: what was accepted, and the pipe it goes to.

use std::io;

use tokio::net::unix::pipe::Sender;
use wire::{Code, Problem};

/// The writing side of a command's standard input.
#[derive(Debug)]
pub struct Stdin {
    pipe: Option<Sender>,
    stays_open: bool,
    accepted: u64,
}

impl Stdin {
    pub(super) fn new(stays_open: bool) -> Self {
        Self { pipe: None, stays_open, accepted: 0 }
    }

    /// Writes what the request brought, then closes unless more may come.
    pub(super) async fn begin(&mut self, pipe: Option<Sender>, data: &[u8]) {
        self.pipe = pipe;
        self.push(data).await;
        if !self.stays_open {
            self.close();
        }
    }

    /// Takes `data`, whose first byte is number `offset` of the whole input; what was accepted before is skipped, so
    /// that a repeat is safe. Waits while the command does not read. Returns the next expected number.
    ///
    /// # Errors
    /// `conflict` when bytes are missing in between, or the input is closed.
    pub async fn write(&mut self, offset: u64, data: &[u8], eof: bool) -> Result<u64, Problem> {
        if offset > self.accepted {
            let detail = format!("stdin bytes {} to {offset} are missing", self.accepted);
            return Err(Problem::new(Code::Conflict, detail).with("offset", self.accepted));
        }
        let known = usize::try_from(self.accepted - offset).unwrap_or(usize::MAX);
        let fresh = data.get(known..).unwrap_or_default();
        if self.pipe.is_none() && !fresh.is_empty() {
            return Err(
                Problem::new(Code::Conflict, "standard input is closed").with("offset", self.accepted)
            );
        }
        self.push(fresh).await;
        if eof {
            self.close();
        }
        Ok(self.accepted)
    }

    /// Nothing more will be written.
    pub(super) fn close(&mut self) {
        self.pipe = None;
    }

    /// Counts as it goes, so that a caller who is gone half-way finds the right number when he comes back. A command
    /// that closed its input has had enough: the rest is accepted and dropped, as a shell's pipe would.
    async fn push(&mut self, data: &[u8]) {
        let mut rest = data;
        while let (Some(pipe), false) = (&self.pipe, rest.is_empty()) {
            let written = match pipe.writable().await {
                Ok(()) => pipe.try_write(rest),
                Err(err) => Err(err),
            };
            match written {
                Ok(count) => {
                    self.accepted += count as u64;
                    rest = &rest[count..];
                }
                Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.close(),
            }
        }
        self.accepted += rest.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::unix::pipe::pipe;

    use super::*;

    #[tokio::test]
    async fn repeats_are_skipped_and_gaps_refused() {
        let (sender, mut receiver) = pipe().unwrap();
        let mut stdin = Stdin::new(true);
        stdin.begin(Some(sender), b"ab").await;
        assert_eq!(stdin.write(0, b"abcd", false).await, Ok(4));
        assert_eq!(stdin.write(0, b"abcd", false).await, Ok(4));
        assert_eq!(stdin.write(9, b"x", false).await.unwrap_err().code, Code::Conflict);
        assert_eq!(stdin.write(4, b"", true).await, Ok(4));
        let mut text = String::new();
        receiver.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "abcd");
        assert_eq!(stdin.write(4, b"x", false).await.unwrap_err().code, Code::Conflict);
    }

    #[tokio::test]
    async fn a_reader_that_has_had_enough_is_no_error() {
        let (sender, receiver) = pipe().unwrap();
        drop(receiver);
        let mut stdin = Stdin::new(true);
        stdin.begin(Some(sender), b"abc").await;
        assert_eq!(stdin.write(3, b"", true).await, Ok(3));
    }
}
