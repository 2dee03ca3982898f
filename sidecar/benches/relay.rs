//! What the relay costs: the real sidecar and relay, with this process, which has one thread, as program, as egress and as
//! the server behind it.
//! Prints one line for each figure. Needs root, as the tests do.

#![allow(
    missing_docs,
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a benchmark, on the tests' support"
)]

#[path = "../tests/end_to_end/egress/link.rs"]
mod link;
#[path = "../tests/end_to_end/sandbox.rs"]
mod sandbox;

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use link::{Installed, Link, Stream, memory_kib};
use sandbox::{Sandbox, argv};

const EXECS: usize = 300;
const CONNECTIONS: usize = 300;
const OPEN: usize = 256;
const BYTES: usize = 256 << 20;
const PIECE: usize = 64 << 10;
const ROUNDS: usize = 3;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    execs().await;
    let egress = Installed::start().await;
    let mut link = egress.link().await;
    set_up(&egress, &mut link).await;
    throughput(&egress, &mut link).await;
    memory().await;
}

/// An exec without egress, with it, and with an open link, in turns.
async fn execs() {
    let bare = Sandbox::start().await;
    let (idle, linked) = (Installed::start().await, Installed::start().await);
    let mut link = linked.link().await;
    let _open = opened(&linked, &mut link).await;
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..EXECS {
        for (times, sandbox) in times.iter_mut().zip([&bare, &idle.sandbox, &linked.sandbox]) {
            let began = Instant::now();
            sandbox.exec(argv(&["true"])).await.unwrap();
            times.push(began.elapsed());
        }
    }
    for (times, name) in times.iter_mut().zip(["exec_bare", "exec_egress_idle", "exec_egress_linked"]) {
        told(name, times);
    }
}

/// From a program's connect to the first byte of the answer: direct on loopback, and over relay and link.
async fn set_up(egress: &Installed, link: &mut Link) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let byte = stream.read_u8().await.unwrap();
            stream.write_u8(byte).await.unwrap();
        }
    });
    let (mut direct, mut relayed) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        let began = Instant::now();
        let mut program = TcpStream::connect(address).await.unwrap();
        program.write_u8(1).await.unwrap();
        program.read_u8().await.unwrap();
        direct.push(began.elapsed());
        let began = Instant::now();
        let _open = opened(egress, link).await;
        relayed.push(began.elapsed());
    }
    server.abort();
    told("set_up_direct", &mut direct);
    told("set_up_relayed", &mut relayed);
}

/// One stream to a program, direct on loopback and over relay and link, in turns; MiB in a second.
async fn throughput(egress: &Installed, link: &mut Link) {
    let piece = Bytes::from(vec![1; PIECE]);
    for round in 0..ROUNDS {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let data = piece.clone();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            for _ in 0..BYTES / PIECE {
                stream.write_all(&data).await.unwrap();
            }
        });
        let direct = received(TcpStream::connect(address).await.unwrap()).await;
        server.await.unwrap();
        let (program, mut stream) = opened(egress, link).await;
        let data = piece.clone();
        let server = tokio::spawn(async move {
            for left in (0..BYTES / PIECE).rev() {
                stream.down.reserve_capacity(PIECE);
                while stream.down.capacity() < PIECE {
                    std::future::poll_fn(|cx| stream.down.poll_capacity(cx)).await.unwrap().unwrap();
                }
                stream.down.send_data(data.clone(), left == 0).unwrap();
            }
            stream
        });
        let relayed = received(program).await;
        drop(server.await.unwrap());
        println!("throughput round={round} direct_mib_s={direct:.0} relayed_mib_s={relayed:.0}");
    }
}

/// Reads what comes to its end.
async fn received(mut program: TcpStream) -> f64 {
    let (mut buffer, mut count, began) = (vec![0; PIECE], 0, Instant::now());
    loop {
        match program.read(&mut buffer).await.unwrap() {
            0 => break,
            more => count += more,
        }
    }
    assert_eq!(count, BYTES);
    (BYTES >> 20) as f64 / began.elapsed().as_secs_f64()
}

/// The relay's memory: with an idle link, and with as many open connections as it takes.
async fn memory() {
    let egress = Installed::start().await;
    let mut link = egress.link().await;
    drop(opened(&egress, &mut link).await);
    let relay = egress.relay(0).await;
    let idle = memory_kib(relay);
    let mut held = Vec::new();
    while held.len() < OPEN - 1 {
        held.push(opened(&egress, &mut link).await);
    }
    println!("memory idle_kib={idle} open_{OPEN}_kib={}", memory_kib(relay));
}

async fn opened(egress: &Installed, link: &mut Link) -> (TcpStream, Stream) {
    let mut program = egress.program().await;
    program.write_all(b"x").await.unwrap();
    let mut stream = link.accept().await;
    stream.take(1).await;
    stream.send(b"y", false);
    program.read_u8().await.unwrap();
    (program, stream)
}

fn told(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |percent: usize| times[times.len() * percent / 100].as_micros();
    println!("{name} n={} p50_us={} p90_us={} p99_us={}", times.len(), at(50), at(90), at(99));
}
