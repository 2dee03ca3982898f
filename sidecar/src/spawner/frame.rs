//! The protocol between sidecar and spawner: pure encoding and bounded decoding.
//!
//! A frame is a little-endian `u32` length and that many bytes: a tag, then fields. Strings and lists begin with a
//! `u32` length. The socket is a byte stream rather than SEQPACKET, because a datagram must fit into the socket's send
//! buffer (about 200 KiB by default) while arguments and environment variables may take megabytes. The three
//! descriptors of a spawn travel with the first bytes of its frame, and the kernel keeps that order.

mod codec;

pub use codec::{HEADER_BYTES, Malformed, OsBytes};
use codec::{Reader, Writer};

use crate::usage::Disk;

/// Upper bound of a frame's length; a longer one is an error of the peer. Everything that a kernel takes fits: 6 MiB,
/// counted with more overhead for each string than a frame has.
pub const MAX_FRAME_BYTES: usize = 8 << 20;

/// What to execute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// A program and its arguments.
    Argv(Vec<OsBytes>),
    /// A string for `bash -c`, or `sh -c` where there is no bash.
    Shell(OsBytes),
    /// No program: the process is a file worker (`files::worker`), forked from the spawner.
    Worker,
}

/// The size of a terminal's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Size {
    /// Characters in a line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
}

/// A command to start. With it come three descriptors: its standard input, output and error. With a terminal comes one,
/// a socket: the spawner sends the terminal's master over it before it reports the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spawn {
    /// The sidecar's number for the process, repeated in reports.
    pub id: u64,
    /// The marker that every process of the command carries (`ROLLBOX_EXEC_ID`).
    pub exec_id: String,
    /// What to execute.
    pub program: Program,
    /// Working directory; empty: the target's.
    pub cwd: OsBytes,
    /// User; empty: the target's.
    pub user: String,
    /// File mode creation mask; none: the target's.
    pub umask: Option<u32>,
    /// The size of the terminal to run on; none: it runs on pipes.
    pub terminal: Option<Size>,
    /// Environment variables that override those of the image.
    pub env: Vec<(OsBytes, OsBytes)>,
    /// Whether its start is reported at once, rather than together with its end if that comes soon.
    pub prompt: bool,
}

/// A command of a shell that is to be abandoned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abandon {
    /// The number of the report.
    pub id: u64,
    /// Which shell.
    pub shell: u64,
    /// The signal with which it is continued.
    pub signal: u32,
    /// What the command's processes have as `ROLLBOX_COMMAND_ID` among their variables.
    pub command_id: String,
    /// Children of the shell that stay.
    pub spared: Vec<u32>,
}

/// Messages from the sidecar to the spawner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Start a command.
    Spawn(Spawn),
    /// Send a signal to a command's process, or to its whole tree.
    Signal {
        /// Which command.
        id: u64,
        /// Signal number.
        signal: u32,
        /// Whether the signal goes to all its processes.
        tree: bool,
    },
    /// Kill a command's whole process tree until none of it is left.
    Kill {
        /// Which command.
        id: u64,
    },
    /// Kill every process of the sandbox until none is left. Answered with [`Report::Swept`].
    KillAll {
        /// The number of the report.
        id: u64,
    },
    /// Stop a shell, kill what one of its commands has started until none of it is left, and continue the shell with a
    /// signal. Answered with [`Report::Swept`].
    Abandon(Abandon),
    /// Answer with [`Report::Pong`].
    Ping {
        /// Repeated in the answer.
        nonce: u64,
    },
    /// Answer with [`Report::Disk`].
    Disk {
        /// Repeated in the answer.
        nonce: u64,
    },
}

/// How a process ended, as its parent learns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It called exit with this code.
    Exited(i32),
    /// This signal ended it.
    Signalled(u32),
}

/// Why a command did not start; the reasons differ by what the caller can do about them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such program.
    CommandNotFound,
    /// The program is there but cannot be executed.
    NotExecutable,
    /// The working directory cannot be entered.
    CwdNotFound,
    /// The user or group is unknown.
    UserNotFound,
    /// Arguments and environment variables are more than the kernel takes.
    TooLarge,
    /// The process limit is used up.
    PidsExhausted,
    /// The node is too busy to start it; the platform's fault.
    NoTime,
    /// Any other failure; the platform's fault.
    Internal,
}

const REFUSALS: [Refusal; 8] = [
    Refusal::CommandNotFound,
    Refusal::NotExecutable,
    Refusal::CwdNotFound,
    Refusal::UserNotFound,
    Refusal::TooLarge,
    Refusal::PidsExhausted,
    Refusal::NoTime,
    Refusal::Internal,
];

/// Messages from the spawner to the sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The spawner is in the sandbox and accepts orders.
    Ready {
        /// `/proc/version` as commands see it.
        kernel: String,
        /// Microseconds from the sidecar's start until the target was found.
        target_found_us: u64,
        /// Microseconds from the sidecar's start until the namespaces were entered.
        entered_us: u64,
    },
    /// The spawner could not enter the sandbox and has ended.
    Failed {
        /// An error code of the contract.
        code: String,
        /// What went wrong, as text for people.
        detail: String,
    },
    /// The command's process runs.
    Spawned {
        /// Which command.
        id: u64,
        /// Its process in the sandbox's PID namespace.
        pid: u32,
        /// When it began to run its program, on the monotonic clock, which sidecar and spawner share: an age would be too
        /// small by what the report takes.
        began_us: u64,
    },
    /// The command did not start; no part of it ran.
    Refused {
        /// Which command.
        id: u64,
        /// Why.
        refusal: Refusal,
        /// The details, as text for people.
        detail: String,
    },
    /// The command's process ended.
    Ended {
        /// Which command.
        id: u64,
        /// How.
        ending: Ending,
    },
    /// A kill is complete, or continues in the background: `left` processes were still there.
    Swept {
        /// Which command.
        id: u64,
        /// Processes that are still there.
        left: u32,
    },
    /// Answers a ping.
    Pong {
        /// The nonce of the ping.
        nonce: u64,
    },
    /// How full the root file system is, and those in memory.
    Disk {
        /// The nonce of the order.
        nonce: u64,
        /// Zeros when it is not known.
        disk: Disk,
    },
}

/// How many bytes the frame at the start of `bytes` has, header included; `None` when the header is incomplete.
///
/// # Errors
/// The length is over [`MAX_FRAME_BYTES`].
pub fn frame_length(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_le_bytes(*header)).map_err(|_| Malformed)?;
    if length > MAX_FRAME_BYTES { Err(Malformed) } else { Ok(Some(HEADER_BYTES + length)) }
}

impl Order {
    /// The whole frame, header included.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::frame();
        match self {
            Self::Spawn(spawn) => spawn.write(to.tag(0)),
            Self::Signal { id, signal, tree } => to.tag(1).u64(*id).u32(*signal).u8(u8::from(*tree)).done(),
            Self::Kill { id } => to.tag(2).u64(*id).done(),
            Self::KillAll { id } => to.tag(6).u64(*id).done(),
            Self::Ping { nonce } => to.tag(3).u64(*nonce).done(),
            Self::Disk { nonce } => to.tag(4).u64(*nonce).done(),
            Self::Abandon(Abandon { id, shell, signal, command_id, spared }) => {
                let to = to.tag(5).u64(*id).u64(*shell).u32(*signal).bytes(command_id.as_bytes());
                to.list(spared, |to, pid| to.u32(*pid).done()).done();
            }
        }
        to.finish()
    }

    /// Reads a frame's body (without the header).
    ///
    /// # Errors
    /// The bytes are not exactly one order.
    pub fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let order = match from.u8()? {
            0 => Self::Spawn(Spawn::read(&mut from)?),
            1 => Self::Signal { id: from.u64()?, signal: from.u32()?, tree: from.flag()? },
            2 => Self::Kill { id: from.u64()? },
            3 => Self::Ping { nonce: from.u64()? },
            4 => Self::Disk { nonce: from.u64()? },
            5 => Self::Abandon(Abandon {
                id: from.u64()?,
                shell: from.u64()?,
                signal: from.u32()?,
                command_id: from.text()?,
                spared: from.list(Reader::u32)?,
            }),
            6 => Self::KillAll { id: from.u64()? },
            _ => return Err(Malformed),
        };
        from.end().map(|()| order)
    }
}

impl Spawn {
    fn write(&self, to: &mut Writer) {
        to.u64(self.id)
            .bytes(self.exec_id.as_bytes())
            .option(self.umask, |to, mask| to.u32(mask).done())
            .option(self.terminal, |to, size| to.u16(size.columns).u16(size.rows).done())
            .u8(u8::from(self.prompt))
            .bytes(&self.cwd)
            .bytes(self.user.as_bytes());
        match &self.program {
            Program::Argv(argv) => to.u8(0).list(argv, |to, argument| to.bytes(argument).done()),
            Program::Shell(text) => to.u8(1).bytes(text),
            Program::Worker => to.u8(2),
        };
        to.list(&self.env, |to, (name, value)| to.bytes(name).bytes(value).done());
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            id: from.u64()?,
            exec_id: from.text()?,
            umask: from.option(Reader::u32)?,
            terminal: from.option(|from| Ok(Size { columns: from.u16()?, rows: from.u16()? }))?,
            prompt: from.flag()?,
            cwd: from.os_bytes()?,
            user: from.text()?,
            program: match from.u8()? {
                0 => Program::Argv(from.list(Reader::os_bytes)?),
                1 => Program::Shell(from.os_bytes()?),
                2 => Program::Worker,
                _ => return Err(Malformed),
            },
            env: from.list(|from| Ok((from.os_bytes()?, from.os_bytes()?)))?,
        })
    }
}

impl Report {
    /// The whole frame, header included.
    pub fn encode(&self) -> Vec<u8> {
        let mut to = Writer::frame();
        match self {
            Self::Ready { kernel, target_found_us, entered_us } => {
                to.tag(0).bytes(kernel.as_bytes()).u64(*target_found_us).u64(*entered_us).done();
            }
            Self::Failed { code, detail } => to.tag(1).bytes(code.as_bytes()).bytes(detail.as_bytes()).done(),
            Self::Spawned { id, pid, began_us } => to.tag(2).u64(*id).u32(*pid).u64(*began_us).done(),
            Self::Refused { id, refusal, detail } => {
                to.tag(3).u64(*id).u8(*refusal as u8).bytes(detail.as_bytes()).done();
            }
            Self::Ended { id, ending: Ending::Exited(code) } => {
                to.tag(4).u64(*id).u8(0).u32(code.cast_unsigned()).done();
            }
            Self::Ended { id, ending: Ending::Signalled(signal) } => {
                to.tag(4).u64(*id).u8(1).u32(*signal).done()
            }
            Self::Swept { id, left } => to.tag(5).u64(*id).u32(*left).done(),
            Self::Pong { nonce } => to.tag(6).u64(*nonce).done(),
            Self::Disk { nonce, disk } => {
                let Disk { used_bytes, in_memory_bytes, is_own } = *disk;
                let to = to.tag(7).u64(*nonce).u64(used_bytes).u64(in_memory_bytes);
                to.u8(u8::from(is_own)).done();
            }
        }
        to.finish()
    }

    /// Reads a frame's body (without the header).
    ///
    /// # Errors
    /// The bytes are not exactly one report.
    pub fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(body);
        let report = match from.u8()? {
            0 => Self::Ready { kernel: from.text()?, target_found_us: from.u64()?, entered_us: from.u64()? },
            1 => Self::Failed { code: from.text()?, detail: from.text()? },
            2 => Self::Spawned { id: from.u64()?, pid: from.u32()?, began_us: from.u64()? },
            3 => Self::Refused { id: from.u64()?, refusal: refusal(from.u8()?)?, detail: from.text()? },
            4 => Self::Ended { id: from.u64()?, ending: ending(&mut from)? },
            5 => Self::Swept { id: from.u64()?, left: from.u32()? },
            6 => Self::Pong { nonce: from.u64()? },
            7 => Self::Disk {
                nonce: from.u64()?,
                disk: Disk { used_bytes: from.u64()?, in_memory_bytes: from.u64()?, is_own: from.flag()? },
            },
            _ => return Err(Malformed),
        };
        from.end().map(|()| report)
    }
}

fn refusal(byte: u8) -> Result<Refusal, Malformed> {
    REFUSALS.get(usize::from(byte)).copied().ok_or(Malformed)
}

fn ending(from: &mut Reader<'_>) -> Result<Ending, Malformed> {
    match from.u8()? {
        0 => Ok(Ending::Exited(from.u32()?.cast_signed())),
        1 => Ok(Ending::Signalled(from.u32()?)),
        _ => Err(Malformed),
    }
}

/// Any bytes are refused, or decode to a value that encodes to the same bytes.
#[cfg(any(test, fuzzing))]
pub fn check_decoding(bytes: &[u8]) {
    if let Ok(order) = Order::decode(bytes) {
        assert_eq!(&order.encode()[HEADER_BYTES..], bytes);
    }
    if let Ok(report) = Report::decode(bytes) {
        assert_eq!(&report.encode()[HEADER_BYTES..], bytes);
    }
    if let Ok(Some(length)) = frame_length(bytes) {
        assert!(length <= MAX_FRAME_BYTES + HEADER_BYTES);
    }
}

#[cfg(test)]
mod tests;
