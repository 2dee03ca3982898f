//! Requests to a port of a sandbox, and after a first byte of 0 the answers of its server.
#![no_main]

use gateway::ports::{check_answer, check_request};

fn check(bytes: &[u8]) {
    match bytes.split_first() {
        Some((0, answer)) => check_answer(answer),
        Some((_, request)) => check_request(request),
        None => {}
    }
}

fuzz::target!(
    [
        b"\x01/v1/sandboxes/sb-1/ports/80/http/a?x=1&rollbox_token=ours\nhost: gw.test\ncookie: a=b; rollbox_token=ours; c=d\nauthorization: Bearer ours\nx-rollbox-token: ours".as_slice(),
        b"\x01/a\nhost: 80-sb-1.p.test\nconnection: upgrade, te\nupgrade: websocket\nx-forwarded-proto: https\norigin: https://80-sb-1.p.test\nauthorization: Bearer rbx_a",
        b"\0set-cookie: a=b; Path=/x; HttpOnly; Domain=p.test\nset-cookie: =rollbox_token=x\nlocation: http://localhost:80/a\nnel: x",
    ],
    check
);
