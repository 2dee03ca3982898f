//! The fakes of the gateway's tests as programs, for the suites that the real parts pass too (`tests/rust`):
//!
//! - `fakes sidecar SOCKET`
//! - `fakes feed SOCKET`: reads `know ID GENERATION`, which only a later snapshot tells, `push ID GENERATION` and
//!   `end ID GENERATION CAUSE`, one a line, and says `ok` after each
//! - `fakes controlplane SOCKET`: answers a create, a group, the delete of it, and a sandbox that it does not know
//!
//! Each serves until its standard input ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};

use support::creates::{Creates, made, problem};
use support::{Feed, Sidecar};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines, Stdin};

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let (what, socket) = (arguments.next().unwrap(), PathBuf::from(arguments.next().unwrap()));
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    match what.as_str() {
        "sidecar" => {
            let _sidecar = Sidecar::listen(&socket);
            while lines.next_line().await.unwrap().is_some() {}
        }
        "feed" => feed(&socket, lines).await,
        "controlplane" => {
            let group =
                serde_json::json!({"name": "g", "members": [{"sandbox": made("sb-2"), "problem": null}]});
            let ended = serde_json::json!({"deleted": ["sb-2"], "failed": []});
            let unknown = problem("sandbox_not_found", serde_json::json!({"sandbox_id": "sb-9"}));
            let script = vec![(201, made("sb-1")), (200, group), (200, ended), (404, unknown)];
            let _creates = Creates::listen(&socket, script);
            while lines.next_line().await.unwrap().is_some() {}
        }
        other => panic!("there is no fake {other}"),
    }
}

/// Does what the lines say.
async fn feed(socket: &Path, mut lines: Lines<BufReader<Stdin>>) {
    let feed = Feed::listen(socket);
    while let Some(line) = lines.next_line().await.unwrap() {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["know", id, generation] => drop(feed.know(id, socket, generation.parse().unwrap())),
            ["push", id, generation] => feed.push(id, socket, generation.parse().unwrap()),
            ["end", id, generation, cause] => feed.end(id, generation.parse().unwrap(), cause),
            _ => panic!("not a line for a feed: {line}"),
        }
        println!("ok");
    }
}
