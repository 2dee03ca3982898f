//! Messages between the parts: what is decoded survives encoding, and addresses and problems survive as texts.
#![no_main]

use prost::Message;
use resolve::{Address, Update};
use wire::{Problem, agent, egress, routes};

fn check(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 8 {
        0 => problem(bytes),
        1 => updates(bytes),
        2 => address(bytes),
        3 => survives::<egress::Update>(bytes),
        4 => survives::<agent::ExecRequest>(bytes),
        5 => survives::<agent::AttachRequest>(bytes),
        6 => survives::<agent::AttachEvent>(bytes),
        _ => survives::<agent::PortFrame>(bytes),
    }
}

fn survives<T: Message + Default + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    if let Ok(message) = T::decode(bytes) {
        assert_eq!(T::decode(&*message.encode_to_vec()).as_ref(), Ok(&message));
    }
}

fn problem(bytes: &[u8]) {
    let Some(problem) = Problem::decode(bytes) else { return };
    let json = problem.to_json("req-1", None);
    assert_eq!(
        (&json["code"], &json["detail"]),
        (&problem.code.name().into(), &problem.detail.as_str().into())
    );
    assert_eq!(Problem::decode(&problem.encode()), Some(problem));
}

fn updates(bytes: &[u8]) {
    survives::<routes::Update>(bytes);
    let Some((update, unreadable)) = routes::Update::decode(bytes).ok().and_then(Update::from_wire) else {
        return;
    };
    let (Update::Snapshot { routes, .. } | Update::Delta { routes, .. }) = update;
    assert!(routes.iter().all(|route| route.address.to_string().parse() == Ok(route.address.clone())));
    assert!(unreadable.len() + routes.len() <= bytes.len());
}

fn address(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(address) = text.parse::<Address>() {
        assert!(!text.contains(['\r', '\n']) || text.starts_with("unix:"), "{text:?}");
        assert_eq!(address.to_string().parse(), Ok(address));
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let route = |address: &str| routes::Route {
        sandbox_id: "sb-1".into(),
        address: address.into(),
        generation: 1,
        ..routes::Route::default()
    };
    let delta = routes::Delta {
        routes: vec![route("unix:/a"), route("http://[fd00::1]:80"), route("ftp://x")],
        ends: Vec::new(),
    };
    let update =
        routes::Update { version: 1, body: Some(routes::update::Body::Delta(delta)), changed_at_ms: 0 };
    let problem = Problem::new(wire::Code::Conflict, "why").with("key", "k");
    let exec =
        agent::ExecRequest { exec_id: "e-1".into(), argv: vec!["a".into()], ..agent::ExecRequest::default() };
    vec![
        [&[0][..], &problem.encode()].concat(),
        [&[1][..], &update.encode_to_vec()].concat(),
        b"\x02http://10.0.0.7:7070".to_vec(),
        b"\x02unix:/run/a.sock".to_vec(),
        [&[4][..], &exec.encode_to_vec()].concat(),
    ]
}

fuzz::target!(seeds().iter().map(Vec::as_slice).collect::<Vec<_>>(), check);
