use std::collections::VecDeque;

use futures_util::future::poll_immediate;
use proptest::prelude::*;

use super::*;

const FREE: Limits = Limits { inflight: 4, per_sandbox: 2, queued_per_owner: 2000, queued: 10_000 };

fn id(text: &str) -> Arc<str> {
    text.into()
}

fn enter(queue: &mut FairQueue<u32>, owner: &str, sandbox: &str, ticket: u32) -> Entered {
    queue.enter(&id(owner), &id(sandbox), || ticket)
}

#[test]
fn one_owner_with_a_thousand_waiting_cannot_delay_another() {
    let mut queue = FairQueue::new(Limits { inflight: 1, per_sandbox: 1, ..FREE });
    assert_eq!(enter(&mut queue, "greedy", "g-0", 0), Entered::Granted);
    for n in 1..=1000 {
        enter(&mut queue, "greedy", &format!("g-{}", n % 50), n);
    }
    for n in 0..5 {
        enter(&mut queue, "modest", "m-0", 2000 + n);
    }
    let mut running = id("g-0");
    let mut served = Vec::new();
    for _ in 0..11 {
        let granted = queue.leave(&running).unwrap();
        running = granted.sandbox_id;
        served.push(granted.ticket);
    }
    let modest: Vec<u32> = served.into_iter().filter(|ticket| *ticket >= 2000).collect();
    assert_eq!(modest, [2000, 2001, 2002, 2003, 2004]);
}

#[test]
fn a_full_sandbox_delays_neither_others_of_its_owner_nor_new_calls() {
    let mut queue = FairQueue::new(FREE);
    for n in 0..5 {
        enter(&mut queue, "alice", "full", n);
    }
    assert_eq!(queue.counts(), (2, 3));
    assert_eq!(enter(&mut queue, "alice", "other", 9), Entered::Granted);
}

#[test]
fn waiting_is_bounded_by_owner_and_in_all() {
    let limits = Limits { inflight: 1, per_sandbox: 1, queued_per_owner: 2, queued: 3 };
    let mut queue = FairQueue::new(limits);
    let outcomes: Vec<Entered> =
        ["a", "a", "a", "a", "b", "b"].iter().map(|o| enter(&mut queue, o, o, 0)).collect();
    assert!(matches!(outcomes[3], Entered::Full("calls of one owner that wait", 2)));
    assert!(matches!(outcomes[4], Entered::Queued(_)));
    assert!(matches!(outcomes[5], Entered::Full("calls that wait", 3)));
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Enter { owner: u8, sandbox: u8 },
    Leave(usize),
    GiveUp(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0u8..4, 0u8..3).prop_map(|(owner, sandbox)| Step::Enter { owner, sandbox }),
        2 => any::<usize>().prop_map(Step::Leave),
        1 => any::<usize>().prop_map(Step::GiveUp),
    ];
    prop::collection::vec(step, 0..300)
}

/// A plain list beside the queue: what runs, what waits.
#[derive(Default)]
struct Model {
    running: Vec<(String, Arc<str>)>,
    waiting: Vec<(String, Arc<str>, u64, u32)>,
}

impl Model {
    fn running_in(&self, sandbox: &str) -> usize {
        self.running.iter().filter(|(_, held)| &**held == sandbox).count()
    }

    /// Whether no permit is free that a waiting call could take.
    fn is_work_conserving(&self) -> bool {
        self.running.len() >= FREE.inflight
            || self.waiting.iter().all(|(_, sandbox, ..)| self.running_in(sandbox) >= FREE.per_sandbox)
    }

    fn grant(&mut self, granted: Granted<u32>) {
        let at = self.waiting.iter().position(|(.., ticket)| *ticket == granted.ticket);
        let (owner, sandbox, ..) = self.waiting.remove(at.expect("granted a call that is not in the queue"));
        assert_eq!(sandbox, granted.sandbox_id);
        self.running.push((owner, sandbox));
    }
}

use super::queue::Granted;

proptest! {
    #[test]
    fn no_limit_is_passed_no_place_stays_free_and_the_books_close(steps in steps()) {
        let (mut queue, mut model) = (FairQueue::new(FREE), Model::default());
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Enter { owner, sandbox } => {
                    let (owner, sandbox) = (format!("o{owner}"), id(&format!("o{owner}-{sandbox}")));
                    let ticket = u32::try_from(n).unwrap();
                    match queue.enter(&id(&owner), &sandbox, || ticket) {
                        Entered::Granted => model.running.push((owner, sandbox)),
                        Entered::Queued(number) => model.waiting.push((owner, sandbox, number, ticket)),
                        Entered::Full(..) => prop_assert!(false, "nothing is full here"),
                    }
                }
                Step::Leave(at) if !model.running.is_empty() => {
                    let (_, sandbox) = model.running.remove(at % model.running.len());
                    if let Some(granted) = queue.leave(&sandbox) {
                        model.grant(granted);
                    }
                }
                Step::GiveUp(at) if !model.waiting.is_empty() => {
                    let (_, sandbox, number, _) = model.waiting.remove(at % model.waiting.len());
                    queue.give_up(&sandbox, number);
                }
                Step::Leave(_) | Step::GiveUp(_) => {}
            }
            prop_assert!(model.running.len() <= FREE.inflight);
            prop_assert!(model.running.iter().all(|(_, sandbox)| model.running_in(sandbox) <= FREE.per_sandbox));
            prop_assert!(model.is_work_conserving());
            prop_assert_eq!(queue.counts(), (model.running.len(), model.waiting.len()));
        }
        while let Some((_, sandbox)) = model.running.pop() {
            if let Some(granted) = queue.leave(&sandbox) {
                model.grant(granted);
            }
        }
        prop_assert!(model.waiting.is_empty());
        prop_assert_eq!(queue.books(), 0);
    }

    #[test]
    fn no_owner_waits_longer_than_one_round_for_its_next_turn(
        greedy in 1u32..1000, others in 1u32..8, sandboxes in 1u32..20,
    ) {
        let mut queue = FairQueue::new(Limits { inflight: 1, per_sandbox: 1, ..FREE });
        enter(&mut queue, "greedy", "g-0", 0);
        for n in 0..greedy {
            enter(&mut queue, "greedy", &format!("g-{}", n % sandboxes), n);
        }
        for owner in 0..others {
            for n in 0..5 {
                enter(&mut queue, &format!("o{owner}"), &format!("o{owner}"), 10_000 + owner * 10 + n);
            }
        }
        let mut running = id("g-0");
        let mut last_turn = vec![0u32; usize::try_from(others).unwrap()];
        let mut left = vec![5u32; last_turn.len()];
        for turn in 1.. {
            let Some(granted) = queue.leave(&running) else { break };
            running = granted.sandbox_id;
            if granted.ticket >= 10_000 {
                let owner = usize::try_from((granted.ticket - 10_000) / 10).unwrap();
                prop_assert!(turn - last_turn[owner] <= others + 1, "waited longer than a round");
                last_turn[owner] = turn;
                left[owner] -= 1;
            }
        }
        prop_assert!(left.iter().all(|left| *left == 0));
    }
}

fn gate(limits: Limits) -> Arc<Admission> {
    Admission::new(limits, Duration::from_secs(30), "KNOB")
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_until_a_place_is_given_back() {
    let gate = gate(Limits { inflight: 1, ..FREE });
    let (owner, sandbox) = (id("alice"), id("sb-1"));
    let first = gate.enter(&owner, &sandbox).await.unwrap();
    let mut second = std::pin::pin!(gate.enter(&owner, &sandbox));
    assert!(poll_immediate(&mut second).await.is_none());
    drop(first);
    second.await.unwrap();
    assert_eq!(gate.counts(), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_too_long_gets_capacity_unavailable_and_leaves_the_queue() {
    let gate = gate(Limits { inflight: 1, ..FREE });
    let (owner, sandbox) = (id("alice"), id("sb-1"));
    let _held = gate.enter(&owner, &sandbox).await.unwrap();
    let problem = gate.enter(&owner, &sandbox).await.unwrap_err();
    assert_eq!(problem.code, Code::CapacityUnavailable);
    assert!(problem.detail.contains("waited 30000 ms"), "{}", problem.detail);
    assert_eq!(gate.counts(), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_place_granted_to_a_call_that_is_gone_goes_to_the_next() {
    let gate = gate(Limits { inflight: 1, ..FREE });
    let (owner, sandbox) = (id("alice"), id("sb-1"));
    let held = gate.enter(&owner, &sandbox).await.unwrap();
    let mut waiting: VecDeque<_> = (0..3).map(|_| Box::pin(gate.enter(&owner, &sandbox))).collect();
    for call in &mut waiting {
        assert!(poll_immediate(call).await.is_none());
    }
    drop(held);
    // Granted to the first call, which is dropped before it sees the permit.
    drop(waiting.pop_front());
    drop(waiting.pop_front());
    waiting.pop_front().unwrap().await.unwrap();
    assert_eq!(gate.counts(), (0, 0));
}
