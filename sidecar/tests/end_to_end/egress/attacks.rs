//! What user code may try with the relay, and what may happen to it.

use std::io::ErrorKind;

use bytes::Bytes;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Installed;
use super::link::{Link, Stream, memory_kib, relays, status, try_status};
use crate::sandbox::{LIMIT, grows_to, shell, text};

const MOST: usize = 256;
const FLOOD: usize = 2_000;
/// Of the relay's memory; its bound of addresses is far above that.
const MOST_KIB: u64 = 48 << 10;

/// Whether a program's bytes arrive at egress, and its answer at the program.
async fn passes(egress: &Installed, link: &mut Link) -> (TcpStream, Stream) {
    let mut program = egress.program().await;
    program.write_all(b"x").await.unwrap();
    let mut stream = link.accept().await;
    assert_eq!(stream.take(1).await, b"x");
    stream.send(b"y", false);
    assert_eq!(program.read_u8().await.unwrap(), b'y');
    (program, stream)
}

#[tokio::test]
async fn the_relay_has_no_powers() {
    let egress = Installed::start().await;
    let mut link = egress.link().await;
    let _open = passes(&egress, &mut link).await;
    let relay = egress.relay(0).await;
    for name in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(relay, name), "0000000000000000", "{name}");
    }
    for (name, expected) in
        [("Uid", "65534"), ("Gid", "65534"), ("NoNewPrivs", "1"), ("Seccomp", "2"), ("Threads", "1")]
    {
        assert_eq!(status(relay, name), expected, "{name}");
    }
    let limits = std::fs::read_to_string(format!("/proc/{relay}/limits")).unwrap();
    for (name, most) in [("Max processes", "0"), ("Max file size", "0"), ("Max open files", "576")] {
        let line = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        assert_eq!(line.split_whitespace().collect::<Vec<_>>()[..2], [most, most], "{name}");
    }
    let environ = std::fs::read(format!("/proc/{relay}/environ")).unwrap();
    assert_eq!(environ, b"");
}

#[tokio::test]
async fn it_ends_with_the_sidecar() {
    let mut egress = Installed::start().await;
    let _link = egress.link().await;
    let relay = egress.relay(0).await;
    kill(Pid::from_raw(egress.sandbox.sidecar.0.id().cast_signed()), Signal::SIGKILL).unwrap();
    egress.sandbox.ended().await;
    // Nobody may be there to reap it.
    let runs = || try_status(relay, "State").is_some_and(|state| state != "Z");
    let gone = async {
        while runs() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LIMIT, gone).await.unwrap();
}

#[tokio::test]
async fn a_relay_that_is_killed_or_stopped_is_replaced() {
    let egress = Installed::start().await;
    let mut before = 0;
    for signal in [Signal::SIGKILL, Signal::SIGSTOP, Signal::SIGTERM] {
        let mut link = egress.link().await;
        let (mut open, _stream) = passes(&egress, &mut link).await;
        before = egress.relay(before).await;
        kill(Pid::from_raw(before), signal).unwrap();
        let mut byte = [0];
        let broken =
            tokio::time::timeout(LIMIT, open.read(&mut byte)).await.unwrap_or_else(|_| panic!("{signal}"));
        assert!(matches!(broken, Ok(0) | Err(_)), "{signal}");
        // A program that comes before the next link waits for it: there has been one.
        let mut early = egress.program().await;
        early.write_all(b"early").await.unwrap();
        let mut next = egress.link().await;
        assert_eq!(next.accept().await.take(5).await, b"early", "{signal}");
        assert_eq!(text(&egress.sandbox.exec(shell("echo works")).await.unwrap()), "works\n");
        drop(link);
    }
}

#[tokio::test]
async fn a_newer_link_takes_new_connections_and_the_older_one_keeps_its_own() {
    let egress = Installed::start().await;
    let mut first = egress.link().await;
    let (mut old, mut old_stream) = passes(&egress, &mut first).await;
    let mut second = egress.link().await;
    // The relay has taken it once it takes connections; until then they come on the first.
    let mut program = egress.program().await;
    program.write_all(b"x").await.unwrap();
    let _either = tokio::select! { stream = second.accept() => stream, stream = first.accept() => stream };
    let _new = passes(&egress, &mut second).await;
    old.write_all(b"still").await.unwrap();
    assert_eq!(old_stream.take(5).await, b"still");
    old_stream.send(b"here", true);
    let mut rest = Vec::new();
    old.read_to_end(&mut rest).await.unwrap();
    assert_eq!(rest, b"here");
}

#[tokio::test]
async fn a_flood_of_connections_is_closed_beyond_a_number_and_costs_the_sandbox_nothing_else() {
    let egress = Installed::start().await;
    let mut link = egress.link().await;
    let mut held = Vec::new();
    let (mut open, mut closed) = (0, 0);
    for _ in 0..FLOOD {
        let mut program = egress.program().await;
        // Half of an address, and then nothing: the relay does not wait for a whole request.
        let _ = program.write_all(b"CONNECT exam").await;
        held.push(program);
    }
    for program in &mut held {
        let mut byte = [0];
        match tokio::time::timeout(std::time::Duration::from_millis(1), program.read(&mut byte)).await {
            Err(_) => open += 1,
            Ok(Ok(0) | Err(_)) => closed += 1,
            Ok(Ok(_)) => panic!("an answer"),
        }
    }
    assert_eq!((open, closed), (MOST, FLOOD - MOST));
    assert_eq!(text(&egress.sandbox.exec(shell("echo works")).await.unwrap()), "works\n");
    let streams = async {
        let mut all = Vec::new();
        for _ in 0..MOST {
            all.push(link.accept().await);
        }
        all
    };
    let streams = streams.await;
    let relay = egress.relay(0).await;
    assert!(memory_kib(relay) < MOST_KIB, "{} KiB", memory_kib(relay));
    // Once they are gone, there is room again.
    drop((held, streams));
    let room = async {
        loop {
            let mut program = egress.program().await;
            program.write_all(b"x").await.unwrap();
            let stream = tokio::time::timeout(std::time::Duration::from_millis(100), link.accept_any()).await;
            if stream.is_ok_and(|stream| stream.is_some()) {
                return;
            }
        }
    };
    tokio::time::timeout(LIMIT, room).await.unwrap();
}

#[tokio::test]
async fn programs_that_do_not_read_hold_little_and_are_in_nobodys_way() {
    let egress = Installed::start().await;
    let mut link = egress.link().await;
    let mut held = Vec::new();
    for _ in 0..MOST - 1 {
        let (program, mut stream) = passes(&egress, &mut link).await;
        // More than any buffer takes.
        stream.down.send_data(Bytes::from(vec![0; 16 << 20]), false).unwrap();
        held.push((program, stream));
    }
    // The last one passes.
    let (mut program, mut stream) = passes(&egress, &mut link).await;
    stream.send(b"through", true);
    let mut read = Vec::new();
    tokio::time::timeout(LIMIT, program.read_to_end(&mut read)).await.unwrap().unwrap();
    assert_eq!(read, b"through");
    let relay = egress.relay(0).await;
    assert!(memory_kib(relay) < MOST_KIB, "{} KiB", memory_kib(relay));
}

#[tokio::test]
async fn half_open_connections_without_a_link_end_by_themselves() {
    let egress = Installed::start().await;
    let mut silent = egress.program().await;
    let mut half = egress.program().await;
    half.shutdown().await.unwrap();
    assert_eq!(half.read(&mut [0]).await.unwrap(), 0);
    // It says nothing: after a while the relay gives it up.
    assert_eq!(tokio::time::timeout(LIMIT, silent.read(&mut [0])).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn a_link_that_is_none_does_no_harm() {
    let egress = Installed::start().await;
    for garbage in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], &[0xff; 4096], b""] {
        let ticket = super::link::fresh_ticket();
        egress.open(&ticket, &crate::sandbox::scoped("egress")).await.unwrap();
        let mut leg = egress.leg(&ticket).await;
        let _ = leg.write_all(garbage).await;
        drop(leg);
    }
    let mut link = egress.link().await;
    let mut program = egress.program().await;
    // The relay takes it in its turn; a program that comes earlier is sent on a link that breaks.
    let passed = async {
        loop {
            let mut answer = [0; 4096];
            let _ = program.write_all(b"x").await;
            tokio::select! {
                _stream = link.accept() => return,
                read = program.read(&mut answer) => {
                    assert!(read.is_ok() || read.is_err_and(|err| err.kind() == ErrorKind::ConnectionReset));
                    program = egress.program().await;
                }
            }
        }
    };
    tokio::time::timeout(LIMIT, passed).await.unwrap();
    assert_eq!(relays(egress.sandbox.sidecar.0.id()).len(), 1);
    grows_to(1, async || relays(egress.sandbox.sidecar.0.id()).len() as u64).await;
}
