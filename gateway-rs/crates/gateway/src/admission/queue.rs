use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// How many calls may run and how many may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Calls under way at one time.
    pub(crate) inflight: usize,
    /// The same for one sandbox.
    pub(crate) per_sandbox: usize,
    /// Calls of one owner that may wait. Limited by owner, so that no owner can fill the queue for the others.
    pub(crate) queued_per_owner: usize,
    /// Calls that may wait in all.
    pub(crate) queued: usize,
}

/// The outcome of [`FairQueue::enter`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// The call may run.
    Granted,
    /// The call waits; the number identifies it in [`FairQueue::give_up`].
    Queued(u64),
    /// The named limit of waiting calls is reached.
    Full(&'static str, usize),
}

/// The next call that may run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Granted<T> {
    pub(crate) sandbox_id: Arc<str>,
    pub(crate) ticket: T,
}

/// A fair queue of calls. Pure: no clock, no lock, no waiting.
///
/// Owners take turns; within an owner its sandboxes do; within a sandbox calls run in order of arrival. Only sandboxes
/// below their own limit take turns, so a full sandbox delays no other one. Hence the invariant that makes `enter`
/// O(1): while a slot is free, every waiting call waits for its own sandbox.
///
/// Cost: O(log n) in the waiting calls of one sandbox.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    limits: Limits,
    inflight: usize,
    queued: usize,
    next_number: u64,
    sandboxes: HashMap<Arc<str>, Sandbox<T>>,
    owners: HashMap<Arc<str>, Owner>,
    /// Owners that have a sandbox whose turn can come, each once.
    turns: VecDeque<Arc<str>>,
}

#[derive(Debug)]
struct Sandbox<T> {
    owner: Arc<str>,
    inflight: usize,
    /// By number, so the oldest call is first.
    waiting: BTreeMap<u64, T>,
    /// Whether the owner's `turns` contain this sandbox.
    in_turn: bool,
}

#[derive(Debug, Default)]
struct Owner {
    queued: usize,
    /// Sandboxes with waiting calls and below their limit, each once. A sandbox whose calls have all given up stays
    /// until its turn.
    turns: VecDeque<Arc<str>>,
    /// Whether the queue's `turns` contain this owner.
    in_turn: bool,
}

impl<T> FairQueue<T> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            inflight: 0,
            queued: 0,
            next_number: 0,
            sandboxes: HashMap::new(),
            owners: HashMap::new(),
            turns: VecDeque::new(),
        }
    }

    /// Calls under way and calls that wait.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.inflight, self.queued)
    }

    /// Sandboxes with a call that runs or waits. Cost: one `Arc` clone each.
    pub(crate) fn sandboxes(&self) -> Vec<Arc<str>> {
        self.sandboxes.keys().cloned().collect()
    }

    /// Admits or queues a call; `ticket` is made only when the call has to wait.
    pub(crate) fn enter(
        &mut self,
        owner: &Arc<str>,
        sandbox_id: &Arc<str>,
        ticket: impl FnOnce() -> T,
    ) -> Entered {
        let limits = self.limits;
        let sandbox = self.sandboxes.entry(Arc::clone(sandbox_id)).or_insert_with(|| Sandbox {
            owner: Arc::clone(owner),
            inflight: 0,
            waiting: BTreeMap::new(),
            in_turn: false,
        });
        let first = sandbox.waiting.is_empty();
        if first && sandbox.inflight < limits.per_sandbox && self.inflight < limits.inflight {
            sandbox.inflight += 1;
            self.inflight += 1;
            return Entered::Granted;
        }
        let owner = Arc::clone(&sandbox.owner);
        if let Some(full) = self.full(&owner) {
            self.remove_if_idle(sandbox_id);
            return full;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.queued += 1;
        self.owners.entry(owner).or_default().queued += 1;
        if let Some(sandbox) = self.sandboxes.get_mut(sandbox_id) {
            sandbox.waiting.insert(number, ticket());
        }
        self.take_turn(sandbox_id);
        Entered::Queued(number)
    }

    /// Ends a running call; returns the waiting call that may run instead.
    pub(crate) fn leave(&mut self, sandbox_id: &str) -> Option<Granted<T>> {
        let (id, sandbox) = self.sandboxes.get_key_value(sandbox_id)?;
        let (id, held) = (Arc::clone(id), sandbox.inflight);
        if held == 0 {
            return None;
        }
        self.inflight -= 1;
        if let Some(sandbox) = self.sandboxes.get_mut(&id) {
            sandbox.inflight -= 1;
        }
        self.take_turn(&id);
        self.remove_if_idle(&id);
        self.next()
    }

    /// Removes a waiting call. Does nothing when the call was granted meanwhile.
    pub(crate) fn give_up(&mut self, sandbox_id: &str, number: u64) {
        let Some(sandbox) = self.sandboxes.get_mut(sandbox_id) else { return };
        if sandbox.waiting.remove(&number).is_none() {
            return;
        }
        let owner = Arc::clone(&sandbox.owner);
        self.count_out(&owner);
        self.remove_if_idle(sandbox_id);
    }

    fn full(&self, owner: &str) -> Option<Entered> {
        if self.queued >= self.limits.queued {
            return Some(Entered::Full("calls that wait", self.limits.queued));
        }
        let queued = self.owners.get(owner).map_or(0, |owner| owner.queued);
        (queued >= self.limits.queued_per_owner)
            .then_some(Entered::Full("calls of one owner that wait", self.limits.queued_per_owner))
    }

    /// Appends the sandbox, and its owner, to the turns if they have calls that could run and are not there yet.
    fn take_turn(&mut self, sandbox_id: &Arc<str>) {
        let Some(sandbox) = self.sandboxes.get_mut(sandbox_id) else { return };
        if sandbox.in_turn || sandbox.waiting.is_empty() || sandbox.inflight >= self.limits.per_sandbox {
            return;
        }
        sandbox.in_turn = true;
        let owner_name = Arc::clone(&sandbox.owner);
        let owner = self.owners.entry(Arc::clone(&owner_name)).or_default();
        owner.turns.push_back(Arc::clone(sandbox_id));
        if !owner.in_turn {
            owner.in_turn = true;
            self.turns.push_back(owner_name);
        }
    }

    fn next(&mut self) -> Option<Granted<T>> {
        while self.inflight < self.limits.inflight {
            let owner_name = self.turns.pop_front()?;
            let owner = self.owners.get_mut(&owner_name)?;
            let sandbox_id = owner.turns.pop_front();
            owner.in_turn = false;
            let granted = sandbox_id.and_then(|id| self.grant(id));
            self.return_owner(owner_name);
            if granted.is_some() {
                return granted;
            }
        }
        None
    }

    /// Grants the oldest call of the sandbox whose turn it is; `None` when all its calls have given up or the sandbox
    /// is full.
    fn grant(&mut self, sandbox_id: Arc<str>) -> Option<Granted<T>> {
        let sandbox = self.sandboxes.get_mut(&sandbox_id)?;
        sandbox.in_turn = false;
        let ticket =
            if sandbox.inflight < self.limits.per_sandbox { sandbox.waiting.pop_first() } else { None };
        let Some((_, ticket)) = ticket else {
            self.remove_if_idle(&sandbox_id);
            return None;
        };
        sandbox.inflight += 1;
        self.inflight += 1;
        let owner = Arc::clone(&sandbox.owner);
        self.take_turn(&sandbox_id);
        self.count_out(&owner);
        Some(Granted { sandbox_id, ticket })
    }

    /// Appends an owner that has had its turn to the turns again, or removes it when it has no calls left.
    fn return_owner(&mut self, name: Arc<str>) {
        let Some(owner) = self.owners.get_mut(&name) else { return };
        if owner.turns.is_empty() {
            if owner.queued == 0 {
                self.owners.remove(&name);
            }
        } else if !owner.in_turn {
            owner.in_turn = true;
            self.turns.push_back(name);
        }
    }

    fn count_out(&mut self, owner: &str) {
        self.queued -= 1;
        if let Some(held) = self.owners.get_mut(owner) {
            held.queued -= 1;
            if held.queued == 0 && held.turns.is_empty() && !held.in_turn {
                self.owners.remove(owner);
            }
        }
    }

    /// Removes a sandbox without calls. One that is still in the turns stays and is removed when its turn comes.
    fn remove_if_idle(&mut self, sandbox_id: &str) {
        let idle = |s: &Sandbox<T>| s.inflight == 0 && s.waiting.is_empty() && !s.in_turn;
        if self.sandboxes.get(sandbox_id).is_some_and(idle) {
            self.sandboxes.remove(sandbox_id);
        }
    }

    /// Number of owners and sandboxes that the queue keeps; 0 when no call runs or waits.
    #[cfg(test)]
    pub(crate) fn books(&self) -> usize {
        self.sandboxes.len() + self.owners.len() + self.turns.len()
    }
}
