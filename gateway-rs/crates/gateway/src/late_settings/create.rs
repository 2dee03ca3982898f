use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderName, HeaderValue, response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::time::Instant;
use wire::{Code, Problem};

use super::bind::{Made, Unbound, bind};
use super::report::{Verdict, report};
use super::request::{Place, Split, split};
use crate::call::Calls;
use crate::drain;
use crate::forward::{self, Forwarder};
use crate::http::Failure;
use crate::http::body::{Held, Read, Reader};
use crate::keyed_digest::Key;

/// How many sandboxes of one create were given up; from a few on the control plane starts a cold one.
const REPLACED: HeaderName = HeaderName::from_static("sandboxes-replaced");

/// Tries of one create: more than the control plane needs, which gives a few warm sandboxes and then a cold one.
const MOST_TRIES: u32 = 8;

/// Sandboxes of one group that are bound at the same time (an estimate).
const AT_ONCE: usize = 64;

/// What creates share.
#[derive(Debug, Clone)]
pub(crate) struct Creates {
    calls: Arc<Calls>,
    forwarder: Forwarder,
    bodies: Reader,
    key: Key,
}

impl Creates {
    pub(crate) fn new(calls: Arc<Calls>, forwarder: Forwarder, bodies: Reader, key: Key) -> Self {
        Self { calls, forwarder, bodies, key }
    }
}

/// `POST /v1/sandboxes`.
pub(crate) async fn create(State(creates): State<Creates>, request: Request) -> Result<Response, Failure> {
    serve(&creates, request, Place::Whole).await
}

/// `PUT /v1/groups/{name}`, and `POST /v1/preflight`, which has the same fields and creates nothing to bind.
pub(crate) async fn create_members(
    State(creates): State<Creates>,
    request: Request,
) -> Result<Response, Failure> {
    serve(&creates, request, Place::Member).await
}

async fn serve(creates: &Creates, request: Request, place: Place) -> Result<Response, Failure> {
    let Creates { calls, forwarder, bodies, key } = creates;
    let call = calls.enter()?;
    let (head, body) = forward::prepare(request)?;
    let Read { bytes, budget } = bodies.read(body).await?;
    let created = async {
        match split(&bytes, place, key)? {
            Some(split) => Create { creates, head, place, split }.run().await,
            None => send(forwarder, head, bytes).await.map(Answer::Streamed),
        }
    };
    let answer = tokio::select! {
        biased;
        answer = created => answer?,
        () = forwarder.drain().expired() => return Err(drain::refused().into()),
    };
    let (head, body) = match answer {
        Answer::Streamed(response) => {
            let (head, body) = response.into_parts();
            (head, Body::new(Held::new(body, (call, budget))))
        }
        Answer::Whole(head, bytes) => (head, Body::from(bytes)),
    };
    Ok(forwarder.answered(head, body))
}

/// The control plane's answer.
enum Answer {
    Streamed(http::Response<Incoming>),
    Whole(response::Parts, Bytes),
}

/// A create with settings.
struct Create<'a> {
    creates: &'a Creates,
    head: Parts,
    place: Place,
    split: Split,
}

/// What the answer to a group has of its members.
#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    members: Vec<Member>,
}

#[derive(Deserialize)]
struct Member {
    sandbox: Option<Made>,
}

impl Create<'_> {
    /// Repeats the create until all its sandboxes are bound, or it fails.
    async fn run(self) -> Result<Answer, Problem> {
        let began = Instant::now();
        let mut replaced = 0;
        loop {
            let mut head = forward::shortened(&self.head, began.elapsed()).ok_or_else(out_of_time)?;
            if replaced > 0 {
                head.headers.insert(REPLACED, HeaderValue::from(replaced));
            }
            let (head, body) =
                send(&self.creates.forwarder, head, self.split.body.clone()).await?.into_parts();
            let body = body.collect().await.map_err(|e| broken(&e))?.to_bytes();
            if !head.status.is_success() {
                return Ok(Answer::Whole(head, body));
            }
            let unbound = self.bind(&body).await?;
            if unbound.is_empty() {
                return Ok(Answer::Whole(head, body));
            }
            replaced += 1;
            self.decided(&unbound, replaced).await?;
        }
    }

    /// Binds the sandboxes of an answer; returns those that could not be bound.
    async fn bind(&self, body: &[u8]) -> Result<Vec<Unbound>, Problem> {
        let mut calls = Vec::new();
        for one in made(body, self.place).map_err(|e| broken(&e))? {
            calls.push(bind(&self.creates.calls, one, &self.split));
        }
        Ok(all(calls).await.into_iter().filter_map(Result::err).collect())
    }

    /// Has the control plane decide about what could not be bound; returns when the create is to be repeated.
    ///
    /// # Errors
    /// What the create answers.
    async fn decided(&self, unbound: &[Unbound], replaced: u32) -> Result<(), Problem> {
        let mut calls = Vec::new();
        for one in unbound {
            calls.push(report(&self.creates.forwarder, &self.head, one));
        }
        for verdict in all(calls).await {
            match verdict? {
                Verdict::Replace => {}
                // The group's own answer to a repetition says it of this member, as the group wants it said.
                Verdict::Ended(_) if self.place == Place::Member => {}
                Verdict::Ended(problem) | Verdict::Failed(problem) => return Err(problem),
            }
        }
        match unbound.first() {
            Some(last) if replaced >= MOST_TRIES => Err(last.why.clone()),
            _ => Ok(()),
        }
    }
}

/// What the calls return, in the order in which they end.
async fn all<F: Future>(calls: Vec<F>) -> Vec<F::Output> {
    stream::iter(calls).buffer_unordered(AT_ONCE).collect().await
}

fn made(body: &[u8], place: Place) -> serde_json::Result<Vec<Made>> {
    match place {
        Place::Whole => Ok(vec![serde_json::from_slice(body)?]),
        Place::Member => {
            let Group { members } = serde_json::from_slice(body)?;
            Ok(members.into_iter().filter_map(|member| member.sandbox).collect())
        }
    }
}

async fn send(
    forwarder: &Forwarder,
    mut head: Parts,
    body: Bytes,
) -> Result<http::Response<Incoming>, Problem> {
    head.headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    forwarder.send(head, body.into()).await
}

fn out_of_time() -> Problem {
    let detail =
        "nothing is left of the start timeout for another sandbox in place of one that cannot be bound";
    Problem::new(Code::StartTimeout, detail)
}

fn broken(error: &dyn std::error::Error) -> Problem {
    Problem::new(
        Code::UpstreamTimeout,
        format!("the control plane's answer to the create broke off: {error}"),
    )
}
