//! Standard input: counts what was accepted, and writes it to the command's pipe or terminal.

use std::sync::Arc;

use wire::{Code, Problem};

use super::pipe_end::PipeEnd;
use super::terminal::Terminal;

/// The writing side of a command's standard input.
#[derive(Debug)]
pub struct Stdin {
    end: Option<Arc<PipeEnd>>,
    terminal: Option<Terminal>,
    stays_open: bool,
    accepted: u64,
    /// Whether the last byte ended a line, or there was none.
    at_line_start: bool,
}

impl Stdin {
    pub(super) fn new(stays_open: bool) -> Self {
        Self { end: None, terminal: None, stays_open, accepted: 0, at_line_start: true }
    }

    /// Writes the input of the request to `end`, then closes it unless more may come.
    pub(super) async fn begin(&mut self, end: Option<Arc<PipeEnd>>, terminal: Option<Terminal>, data: &[u8]) {
        self.end = end;
        self.terminal = terminal;
        self.push(data).await;
        if !self.stays_open {
            self.finish().await;
        }
    }

    /// Writes `data`, whose first byte has the offset `offset` in the whole input. Bytes that were accepted before are
    /// skipped, so that a retry is safe. Waits while the command does not read (backpressure). Returns the next
    /// expected offset.
    ///
    /// # Errors
    /// `conflict` when bytes in between are missing, or the input is closed.
    pub async fn write(&mut self, offset: u64, data: &[u8], eof: bool) -> Result<u64, Problem> {
        if offset > self.accepted {
            let detail = format!("stdin bytes {} to {offset} are missing", self.accepted);
            return Err(Problem::new(Code::Conflict, detail).with("offset", self.accepted));
        }
        let known = usize::try_from(self.accepted - offset).unwrap_or(usize::MAX);
        let fresh = data.get(known..).unwrap_or_default();
        if self.end.is_none() && !fresh.is_empty() {
            return Err(
                Problem::new(Code::Conflict, "standard input is closed").with("offset", self.accepted)
            );
        }
        self.push(fresh).await;
        if eof {
            self.finish().await;
        }
        Ok(self.accepted)
    }

    /// Ends the input. On a terminal that takes the character which a user would type: after a half line the first one
    /// only ends the line, so there it takes two.
    async fn finish(&mut self) {
        if let Some(character) = self.terminal.as_ref().and_then(Terminal::end_of_input) {
            let typed = [character; 2];
            let needed = if self.at_line_start { 1 } else { 2 };
            self.send(&typed[..needed], |_, _| {}).await;
        }
        self.close();
    }

    /// The command has ended, or has closed its input.
    pub(super) fn close(&mut self) {
        self.end = None;
        self.terminal = None;
    }

    /// Counts bytes as they are written, so that a caller that breaks off half-way finds the right offset when it
    /// retries. A command that has closed its input needs no more: the rest is accepted and dropped, as by a shell's
    /// pipe.
    async fn push(&mut self, data: &[u8]) {
        let dropped = self.send(data, |stdin, count| stdin.accepted += count as u64).await;
        self.accepted += dropped as u64;
        if let Some(last) = data.last() {
            self.at_line_start = matches!(last, b'\n' | b'\r');
        }
    }

    /// Writes `data` as long as the command reads; returns how many bytes are left.
    async fn send(&mut self, data: &[u8], mut sent: impl FnMut(&mut Self, usize)) -> usize {
        let mut rest = data;
        while let (Some(end), false) = (self.end.clone(), rest.is_empty()) {
            match end.write(rest).await {
                Ok(count) => {
                    sent(self, count);
                    rest = &rest[count..];
                }
                Err(_) => self.close(),
            }
        }
        rest.len()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, Read, pipe};

    use super::*;

    async fn begun(data: &[u8]) -> (Stdin, PipeReader) {
        let (reader, writer) = pipe().unwrap();
        let end = PipeEnd::to_write(writer.into()).unwrap();
        let mut stdin = Stdin::new(true);
        stdin.begin(Some(end.into()), None, data).await;
        (stdin, reader)
    }

    #[tokio::test]
    async fn repeats_are_skipped_and_gaps_refused() {
        let (mut stdin, mut reader) = begun(b"ab").await;
        assert_eq!(stdin.write(0, b"abcd", false).await, Ok(4));
        assert_eq!(stdin.write(0, b"abcd", false).await, Ok(4));
        assert_eq!(stdin.write(9, b"x", false).await.unwrap_err().code, Code::Conflict);
        assert_eq!(stdin.write(4, b"", true).await, Ok(4));
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "abcd");
        assert_eq!(stdin.write(4, b"x", false).await.unwrap_err().code, Code::Conflict);
    }

    #[tokio::test]
    async fn a_reader_that_has_had_enough_is_no_error() {
        let (mut stdin, reader) = begun(b"").await;
        drop(reader);
        assert_eq!(stdin.write(0, b"abc", false).await, Ok(3));
        assert_eq!(stdin.write(3, b"", true).await, Ok(3));
    }
}
