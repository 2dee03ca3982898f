//! The sandboxes of this replica, as the feed says.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use wire::egress::update::Body;
use wire::egress::{self, Assignment, Update};

use crate::link::{self, Opening};
use crate::policy::Policy;
use crate::sandbox::{Common, Cut, Owner, Place, Sandbox};

/// Policies that no sandbox uses are forgotten when there are more than this.
const MANY_POLICIES: usize = 4096;

/// All of them, with the policies that they share.
#[derive(Debug)]
pub(crate) struct Sandboxes {
    common: Arc<Common>,
    opening: Arc<Opening>,
    sandboxes: HashMap<String, Arc<Sandbox>>,
    policies: HashMap<String, Arc<Policy>>,
    /// Owner -> what all its sandboxes use; also of one without a sandbox that has used some of today's budget.
    owners: HashMap<String, Arc<Owner>>,
    /// Links, and waits for connections that were cut.
    tasks: TaskTracker,
}

impl Sandboxes {
    pub(crate) fn new(common: Arc<Common>, opening: Arc<Opening>, tasks: TaskTracker) -> Self {
        Self {
            common,
            opening,
            sandboxes: HashMap::new(),
            policies: HashMap::new(),
            owners: HashMap::new(),
            tasks,
        }
    }

    /// Takes in a message of the feed; returns whether it was a snapshot. What it says is in force on the return, and
    /// is reported as soon as what it forbids is closed.
    pub(crate) fn take(&mut self, message: Update) -> bool {
        let snapshot = self.take_body(message.body);
        self.common.metrics.sandboxes.set(i64::try_from(self.sandboxes.len()).unwrap_or(i64::MAX));
        snapshot
    }

    fn take_body(&mut self, body: Option<Body>) -> bool {
        match body {
            Some(Body::Snapshot(snapshot)) => {
                self.policies.clear();
                self.read(&snapshot.policies);
                let named: HashSet<&str> =
                    snapshot.assignments.iter().map(|one| one.sandbox_id.as_str()).collect();
                let gone: Vec<String> =
                    self.sandboxes.keys().filter(|id| !named.contains(id.as_str())).cloned().collect();
                self.withdraw(&gone);
                for assignment in snapshot.assignments {
                    self.assign(assignment);
                }
                true
            }
            Some(Body::Delta(delta)) => {
                self.read(&delta.policies);
                self.withdraw(&delta.withdrawn);
                for assignment in delta.assignments {
                    self.assign(assignment);
                }
                self.forget_policies();
                false
            }
            Some(Body::Heartbeat(_)) | None => false,
        }
    }

    fn read(&mut self, policies: &[egress::Policy]) {
        for policy in policies {
            let read = Policy::read(policy).unwrap_or_else(|broken| {
                tracing::error!(policy = policy.name, digest = policy.digest, reason = %broken, "policy cannot be read, it allows nothing");
                Policy::nothing(&policy.name)
            });
            self.policies.insert(policy.digest.clone(), Arc::new(read));
        }
    }

    fn withdraw(&mut self, ids: &[String]) {
        for id in ids {
            if let Some(sandbox) = self.sandboxes.remove(id) {
                sandbox.leave();
            }
        }
        self.owners.retain(|_, owner| Arc::strong_count(owner) > 1 || owner.has_used_today());
    }

    fn assign(&mut self, assignment: Assignment) {
        let Assignment { sandbox_id, address, generation, owner, token, policy_digest, revision, moved } =
            assignment;
        let address = match address.parse() {
            Ok(address) => address,
            Err(e) => {
                tracing::error!(sandbox_id, address, reason = %e, "assignment ignored: its address cannot be parsed");
                return;
            }
        };
        let policy = self.policy(&policy_digest, &sandbox_id);
        let place = Place { address, generation, token };
        if moved && let Some(earlier) = self.sandboxes.remove(&sandbox_id) {
            // It was another replica's meanwhile, as when this one stood still: the link of then may be alive, and is
            // the relay's no more, which takes the newest.
            earlier.replaced();
        }
        if let Some(sandbox) = self.sandboxes.get(&sandbox_id) {
            sandbox.move_to(place);
            if let Some(cut) = sandbox.switch(revision, policy) {
                self.tell(Arc::clone(sandbox), cut);
            }
            return;
        }
        let owner = Arc::clone(self.owners.entry(owner).or_default());
        let common = Arc::clone(&self.common);
        let sandbox = Sandbox::new(sandbox_id.clone(), common, place, owner, (revision, policy));
        if moved {
            sandbox.settle(Instant::now() + self.opening.settling);
        }
        sandbox.tell_applied(revision, 0);
        self.tasks.spawn(link::keep(Arc::clone(&sandbox), Arc::clone(&self.opening)));
        self.sandboxes.insert(sandbox_id, sandbox);
    }

    fn policy(&self, digest: &str, sandbox_id: &str) -> Arc<Policy> {
        self.policies.get(digest).cloned().unwrap_or_else(|| {
            tracing::error!(
                sandbox_id,
                digest,
                "the policy of an assignment is not known, nothing is allowed"
            );
            Arc::new(Policy::nothing("unknown"))
        })
    }

    /// Reports a switch, at once where nothing was cut.
    fn tell(&self, sandbox: Arc<Sandbox>, cut: Cut) {
        let revision = cut.revision;
        let (began, settles) = (Instant::now(), sandbox.settles());
        let tell = move |closed| {
            sandbox.common().metrics.switched(began.elapsed());
            sandbox.tell_applied(revision, closed);
        };
        if cut.is_empty() && settles <= began {
            tell(0);
        } else {
            self.tasks.spawn(async move {
                let closed = cut.closed().await;
                tokio::time::sleep_until(settles).await;
                tell(closed);
            });
        }
    }

    fn forget_policies(&mut self) {
        if self.policies.len() > MANY_POLICIES {
            self.policies.retain(|_, policy| Arc::strong_count(policy) > 1);
        }
    }
}
