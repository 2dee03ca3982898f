//! An interpreter that is started before anybody asks for one: the first start with its parameters gets it.

use std::sync::{Arc, Mutex, PoisonError};

use wire::agent::ExecRequest;
use wire::{Code, Problem};

use super::interpreter::{ARGV, ORPHAN_GRACE_MS, STDIN};
use crate::process::{Process, Stream};
use crate::request::Defaults;

/// As many bytes of the last words of one that cannot run are told.
const TOLD_BYTES: usize = 300;

/// The request that starts the interpreter, as the SDK makes it; its id is for the caller to choose.
pub(super) fn request() -> ExecRequest {
    ExecRequest {
        exec_id: "ahead".to_owned(),
        argv: ARGV.iter().map(|&argument| argument.to_owned()).collect(),
        stdin: STDIN.into(),
        orphan_grace_ms: ORPHAN_GRACE_MS,
        stdin_open: true,
        output_waits: true,
        ..ExecRequest::default()
    }
}

/// The process that waits for its caller, and the defaults that it was started with.
#[derive(Debug, Default)]
pub(super) struct Ahead(Mutex<Option<(Arc<Process>, Defaults)>>);

impl Ahead {
    /// Keeps a process for its caller.
    pub(super) fn put(&self, process: Arc<Process>, defaults: Defaults) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((process, defaults));
    }

    /// The process, once, if it runs and is what a start with this fingerprint and these defaults would begin.
    pub(super) fn take(&self, fingerprint: u64, defaults: &Defaults) -> Option<Arc<Process>> {
        self.take_if(|process, with| {
            process.fingerprint == fingerprint && with == defaults && process.is_running()
        })
    }

    /// The process, whatever it is.
    pub(super) fn withdraw(&self) -> Option<Arc<Process>> {
        self.take_if(|_, _| true)
    }

    fn take_if(&self, wanted: impl Fn(&Process, &Defaults) -> bool) -> Option<Arc<Process>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.take_if(|(process, defaults)| wanted(process, defaults)).map(|(process, _)| process)
    }
}

/// Waits until an interpreter has said that it takes cells.
///
/// # Errors
/// `unsupported`: the image cannot run it.
pub(super) async fn greeted(process: &Process) -> Result<(), Problem> {
    process.started().await.map_err(|problem| unable(&problem.detail))?;
    loop {
        let more = process.activity();
        if process.output(Stream::Stdout).total_bytes() > 0 {
            return Ok(());
        }
        if !process.is_running() {
            let (said, _) = process.result_output(Stream::Stderr);
            let last = &said[said.len().saturating_sub(TOLD_BYTES)..];
            return Err(unable(String::from_utf8_lossy(last).trim()));
        }
        more.await;
    }
}

/// The problem of a sandbox that is to have an interpreter and cannot run one.
pub(super) fn unable(why: &str) -> Problem {
    let what = "its pool keeps a Python interpreter ready, which needs python3 (3.8 or newer) on the PATH of the image";
    Problem::new(Code::Unsupported, format!("{what}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Call, Command};
    use crate::ring::Budget;

    fn process() -> Arc<Process> {
        let command = Command::new(request(), Call::Ahead).unwrap();
        Process::new(&command, Call::Ahead, &Budget::new(0).into(), 0, 0).into()
    }

    #[test]
    fn the_first_start_with_the_same_parameters_gets_it_and_no_other() {
        let (ahead, made, none) = (Ahead::default(), process(), Defaults::default());
        let bound = Defaults { cwd: "/srv".to_owned(), ..Defaults::default() };
        ahead.put(Arc::clone(&made), none.clone());
        assert!(ahead.take(made.fingerprint ^ 1, &none).is_none());
        assert!(ahead.take(made.fingerprint, &bound).is_none());
        let taken = ahead.take(made.fingerprint, &none).unwrap();
        assert!(Arc::ptr_eq(&taken, &made) && taken.exec_id().is_empty());
        taken.give("mine");
        assert_eq!(taken.exec_id(), "mine");
        assert!(ahead.take(made.fingerprint, &none).is_none());
    }
}
