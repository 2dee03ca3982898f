//! The known execs: running ones, finished ones for a while, and of older ones only that they existed.
//!
//! All three sets are bounded. An `exec_id` that was run is never run again as long as it is in any of them, and the
//! third one holds thousands.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use wire::{Code, Problem};

use crate::process::Process;

/// Commands that run at a time.
pub const MAX_RUNNING: usize = 256;
/// Finished execs whose answer is kept.
pub const MAX_FINISHED: usize = 256;
/// Bytes of output that finished execs keep together; the newest one is kept whatever its size.
pub const MAX_FINISHED_BYTES: usize = 8 << 20;
/// Older execs of which only a hash (8 bytes) is kept.
pub const MAX_FORGOTTEN: usize = 8192;

/// What the `exec_id` of a request refers to.
#[derive(Debug)]
pub enum Claim {
    /// It is new: the process is on record and has to be started.
    New(Arc<Process>),
    /// The same request was made before.
    Known(Arc<Process>),
}

/// The records of execs.
#[derive(Debug, Default)]
pub struct Records {
    processes: HashMap<String, Arc<Process>>,
    finished: VecDeque<Arc<Process>>,
    finished_bytes: usize,
    forgotten: VecDeque<u64>,
}

impl Records {
    /// Claims `exec_id` for the process that `make` returns, or finds the earlier one.
    ///
    /// # Errors
    /// `conflict`: it was used with other parameters, or so long ago that the answer is not kept. `rate_limited`: too
    /// many commands run.
    pub fn claim(
        &mut self,
        exec_id: &str,
        fingerprint: u64,
        make: impl FnOnce() -> Arc<Process>,
    ) -> Result<Claim, Problem> {
        if let Some(process) = self.processes.get(exec_id) {
            return if process.fingerprint == fingerprint {
                Ok(Claim::Known(Arc::clone(process)))
            } else {
                Err(conflict(exec_id, "was used before with other parameters")
                    .with("reason", "other_parameters"))
            };
        }
        if self.forgotten.contains(&digest(exec_id)) {
            return Err(conflict(exec_id, "was used before and its answer is no longer on record"));
        }
        if self.running() >= MAX_RUNNING {
            let detail = format!("{MAX_RUNNING} commands run in this sandbox already");
            return Err(Problem::new(Code::RateLimited, detail).with("limit", MAX_RUNNING));
        }
        let process = make();
        self.processes.insert(exec_id.to_owned(), Arc::clone(&process));
        Ok(Claim::New(process))
    }

    /// Notes that `process` has ended; of one that no caller has there is no record. Its output must not grow from
    /// here on.
    pub fn finish(&mut self, process: Arc<Process>) {
        if process.exec_id().is_empty() {
            return;
        }
        self.finished_bytes += process.kept_bytes();
        self.finished.push_back(process);
        while self.finished.len() > MAX_FINISHED
            || (self.finished_bytes > MAX_FINISHED_BYTES && self.finished.len() > 1)
        {
            let Some(oldest) = self.finished.pop_front() else {
                break;
            };
            self.finished_bytes -= oldest.kept_bytes();
            self.processes.remove(oldest.exec_id());
            self.remember(digest(oldest.exec_id()));
        }
    }

    fn remember(&mut self, digest: u64) {
        if self.forgotten.len() == MAX_FORGOTTEN {
            self.forgotten.pop_front();
        }
        self.forgotten.push_back(digest);
    }

    /// Takes back a claim whose process never ran, so that the same id may be used again.
    pub fn withdraw(&mut self, exec_id: &str) {
        self.processes.remove(exec_id);
    }

    /// The process with this id.
    ///
    /// # Errors
    /// `exec_not_found`: it is not on record.
    pub fn get(&self, exec_id: &str) -> Result<Arc<Process>, Problem> {
        let absent =
            || Problem::new(Code::ExecNotFound, format!("exec {exec_id:?} is not on record in this sandbox"));
        self.processes.get(exec_id).cloned().ok_or_else(absent)
    }

    /// How many commands run.
    pub fn running(&self) -> usize {
        self.processes.len() - self.finished.len()
    }

    /// All execs on record, newest first.
    pub fn list(&self) -> Vec<Arc<Process>> {
        let mut all: Vec<_> = self.processes.values().cloned().collect();
        all.sort_by_key(|process| std::cmp::Reverse(process.id));
        all
    }
}

fn conflict(exec_id: &str, what: &str) -> Problem {
    Problem::new(Code::Conflict, format!("exec_id {exec_id} {what}")).with("exec_id", exec_id)
}

/// 64 bits: among a few thousand ids, a chance of 1 in 10^15 that a fresh one is taken for an old one.
fn digest(exec_id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    exec_id.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use wire::agent::ExecRequest;

    use super::*;
    use crate::process::Stream;
    use crate::request::{Call, Command};
    use crate::ring::Budget;

    fn process(exec_id: &str) -> Arc<Process> {
        let argv = vec!["true".to_owned()];
        let request = ExecRequest { exec_id: exec_id.to_owned(), argv, ..ExecRequest::default() };
        let budget = Arc::new(Budget::new(usize::MAX >> 1));
        Arc::new(Process::new(&Command::new(request, Call::Exec).unwrap(), Call::Exec, &budget, 0, 0))
    }

    fn run(records: &mut Records, exec_id: &str, output_bytes: usize) {
        let Ok(Claim::New(made)) = records.claim(exec_id, process(exec_id).fingerprint, || process(exec_id))
        else {
            panic!("{exec_id} is not new");
        };
        let mut left = output_bytes;
        while left > 0 {
            let written = made.output(Stream::Stdout).fill(left, |space| Ok::<_, ()>(space.len())).unwrap();
            left -= written;
        }
        records.finish(made);
    }

    fn code(records: &mut Records, exec_id: &str) -> Code {
        records.claim(exec_id, process("x").fingerprint, || process(exec_id)).unwrap_err().code
    }

    #[test]
    fn the_same_request_finds_its_process_and_another_is_a_conflict() {
        let mut records = Records::default();
        run(&mut records, "x", 0);
        assert!(matches!(records.claim("x", process("x").fingerprint, || process("x")), Ok(Claim::Known(_))));
        let problem = records.claim("x", 0, || process("x")).unwrap_err();
        assert_eq!((problem.code, &*problem.details["reason"]), (Code::Conflict, "other_parameters"));
    }

    #[test]
    fn what_is_evicted_is_not_run_again_and_all_is_bounded() {
        let mut records = Records::default();
        for n in 0..MAX_FINISHED * 3 {
            run(&mut records, &format!("e{n}"), 0);
        }
        assert_eq!((records.list().len(), records.running()), (MAX_FINISHED, 0));
        assert_eq!(code(&mut records, "e0"), Code::Conflict);
        assert_eq!(records.get("e0").unwrap_err().code, Code::ExecNotFound);
        for n in 0..MAX_FORGOTTEN + 1 {
            records.remember(n as u64);
        }
        assert_eq!(records.forgotten.len(), MAX_FORGOTTEN);
    }

    #[test]
    fn output_is_bounded_too_but_the_newest_answer_stays() {
        let mut records = Records::default();
        run(&mut records, "first", 4 << 20);
        run(&mut records, "second", 4 << 20);
        assert!(records.get("first").is_ok());
        run(&mut records, "third", 1);
        assert!(records.get("first").is_err() && records.get("second").is_ok());
        assert!(records.finished_bytes <= MAX_FINISHED_BYTES);
    }

    #[test]
    fn a_claim_taken_back_can_be_made_again() {
        let mut records = Records::default();
        assert!(records.claim("x", process("x").fingerprint, || process("x")).is_ok());
        assert_eq!(records.running(), 1);
        records.withdraw("x");
        run(&mut records, "x", 0);
    }

    #[test]
    fn there_is_a_limit_to_what_runs_at_once() {
        let mut records = Records::default();
        for n in 0..MAX_RUNNING {
            let id = format!("e{n}");
            assert!(records.claim(&id, process(&id).fingerprint, || process(&id)).is_ok());
        }
        assert_eq!(code(&mut records, "x"), Code::RateLimited);
    }
}
