//! The real resolver against a name server of the test's own.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where its set-up fails")]

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;

use resolve::{Dns, NameServers};
use tokio::net::UdpSocket;

const NAME_ERROR: u8 = 3;

/// Answers queries for the address of one name; other names do not exist.
async fn serve(socket: UdpSocket, name: &str, address: Ipv4Addr) {
    let wanted: Vec<u8> = name
        .split('.')
        .flat_map(|label| [&[label.len() as u8], label.as_bytes()].concat())
        .chain([0])
        .collect();
    let mut query = [0; 512];
    while let Ok((length, peer)) = socket.recv_from(&mut query).await {
        // One question: its name, type and class; what follows it (EDNS) is not copied to the answer.
        let question = &query[12..length];
        let end = question.iter().position(|byte| *byte == 0).unwrap() + 5;
        let known = question[..end - 4] == wanted[..];
        let is_a = question[end - 4..end] == [0, 1, 0, 1];
        let mut answer = query[..2].to_vec();
        answer.extend([
            0x85,
            if known { 0 } else { NAME_ERROR },
            0,
            1,
            0,
            u8::from(known && is_a),
            0,
            0,
            0,
            0,
        ]);
        answer.extend(&question[..end]);
        if known && is_a {
            answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
            answer.extend(address.octets());
        }
        socket.send_to(&answer, peer).await.unwrap();
    }
}

async fn name_server(name: &'static str) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    tokio::spawn(serve(socket, name, Ipv4Addr::new(10, 0, 0, 7)));
    address
}

#[tokio::test]
async fn the_named_server_is_asked_for_the_name_in_its_shard() {
    let server = name_server("sb-suite1.shard-8.zone.test").await;
    let names = NameServers::full_names(&[server]).unwrap();
    let dns = Dns::new(Box::new(names), "zone.test", NonZeroU32::new(16).unwrap());
    let addresses = dns.addresses("sb-suite1").await.unwrap();
    assert_eq!(addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), ["http://10.0.0.7:7070"]);
    let absent = dns.addresses("sb-suite2").await.unwrap_err();
    assert!(absent.absent, "{absent}");
}

/// On a paused clock: no answer comes, so the timeouts pass at once.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_not_there_is_an_error_and_no_absence() {
    // In use, so that no other process gets the port, by a socket that receives only from itself.
    let taken = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let nobody = taken.local_addr().unwrap();
    taken.connect(nobody).await.unwrap();
    let dns = Dns::new(Box::new(NameServers::full_names(&[nobody]).unwrap()), "zone.test", NonZeroU32::MIN);
    assert!(!dns.addresses("sb-1").await.unwrap_err().absent);
}
