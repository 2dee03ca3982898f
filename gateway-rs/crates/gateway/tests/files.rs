//! Files in and out: encodings, refusals, and what happens when one side leaves in the middle.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test ends where its set-up fails"
)]

mod support;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::{Buf as _, Bytes};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use support::clock::Stopped;
use support::files::MOVED;
use support::{Answer, Rig, Started, token_of};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

const FRAMES: &str = "application/vnd.rollbox.frames";

fn request(rig: &Started, method: Method, path: &str, body: impl Into<Body>) -> Request<Body> {
    let request = rig.client.request(method, &format!("/v1/sandboxes/sb-1/{path}"));
    let token = format!("Bearer {}", token_of("sb-1", "alice", &["exec"]));
    request.header("authorization", token).body(body.into()).unwrap()
}

async fn call(rig: &Started, method: Method, path: &str) -> Answer {
    rig.client.send(request(rig, method, path, Body::empty())).await
}

async fn get(rig: &Started, path: &str) -> Answer {
    call(rig, Method::GET, path).await
}

async fn framed(rig: &Started, path: &str) -> Vec<(u8, Bytes)> {
    let mut request = request(rig, Method::GET, path, Body::empty());
    request.headers_mut().insert("accept", FRAMES.parse().unwrap());
    let answer = rig.client.send(request).await;
    assert_eq!(answer.headers["content-type"], FRAMES);
    let (mut body, mut frames) = (answer.body, Vec::new());
    while body.has_remaining() {
        let (kind, length) = (body.get_u8(), body.get_u32());
        frames.push((kind, body.split_to(usize::try_from(length).unwrap())));
    }
    frames
}

fn parsed(frame: &(u8, Bytes)) -> Value {
    serde_json::from_slice(&frame.1).unwrap()
}

/// SHA-256, as the API writes it.
fn digest(data: &[u8]) -> String {
    Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn started() -> Started {
    Rig::new().sandbox("sb-1").start().await
}

#[tokio::test]
async fn what_is_large_goes_on_over_a_leg_and_ends_as_the_call_says() {
    let rig = started().await;
    let data = Bytes::from([vec![b'm'; MOVED], vec![b'l'; MOVED]].concat());
    for path in ["file?path=/moved", "archive?path=/moved"] {
        assert!(get(&rig, path).await.body == data, "{path}");
        let frames = framed(&rig, path).await;
        let came: Vec<_> =
            frames.iter().filter(|(kind, _)| *kind == 0).map(|(_, part)| part.clone()).collect();
        assert!(came.concat() == data, "{path}");
        assert_eq!(parsed(frames.last().unwrap())["sha256"], "ab".repeat(32));
    }
    for path in ["file?path=/moved-broken", "file?path=/moved-held"] {
        let frames = framed(&rig, path).await;
        let came: usize = frames.iter().filter(|(kind, _)| *kind == 0).map(|(_, part)| part.len()).sum();
        assert!((MOVED..=2 * MOVED).contains(&came), "{came}");
        assert_eq!(parsed(frames.last().unwrap())["code"], "no_space", "{path}");
    }
}

#[tokio::test]
async fn what_is_large_goes_in_over_a_leg_and_is_what_the_call_says() {
    // Before the rig starts: this blocks the runtime, so the fakes could not answer meanwhile.
    let data = Bytes::from((0..32_000_000u32).map(|n| n.to_le_bytes()[1]).collect::<Vec<u8>>());
    let rig = started().await;
    let put_of = async |path: &str, data: Bytes| {
        rig.client.send(request(&rig, Method::PUT, &format!("file?path={path}"), data)).await
    };
    let put = async |path: &str| put_of(path, data.clone()).await;
    assert_eq!(put("/moved").await.json()["size_bytes"], 32_000_000);
    assert!(rig.sidecar("sb-1").files().get("/moved").unwrap() == data);
    // A sidecar that ends the call closes its leg first.
    assert_eq!(put("/moved-broken").await.code(), "no_space");
    // A leg that breaks alone does not end the upload, and the call is not waited for without limit.
    let clock = Stopped::now().await;
    let held = put_of("/moved-held", data.slice(..2 << 20));
    assert_eq!(clock.until(Duration::from_secs(1), held).await.0.code(), "stream_interrupted");
    drop(clock);
    rig.sidecar("sb-1").files().dropped(1).await;
    assert_eq!(rig.sidecar("sb-1").files().get("/moved-held"), None);
    // A sidecar that does not answer the leg gets messages.
    assert_eq!(put("/plain").await.json()["size_bytes"], 32_000_000);
    assert!(rig.sidecar("sb-1").files().get("/plain").unwrap() == data);
    rig.client.until_metric("streams_open{stream=\"upload\"}", 0.0).await;
}

#[tokio::test]
async fn a_writer_that_leaves_its_leg_never_ends_its_file() {
    let rig = started().await;
    let piece = Bytes::from(vec![b'x'; 1 << 20]);
    let endless = stream::repeat_with(move || Ok::<_, io::Error>(piece.clone()));
    let counted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&counted);
    let endless = endless.inspect(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let put = request(&rig, Method::PUT, "file?path=/moved", Body::from_stream(endless));
    let client = rig.client.clone();
    let sending = tokio::spawn(async move { client.send(put).await });
    rig.client.until(async || counted.load(Ordering::Relaxed) >= 64).await;
    sending.abort();
    rig.sidecar("sb-1").files().dropped(1).await;
    assert_eq!(rig.sidecar("sb-1").files().get("/moved"), None);
    rig.client.until_metric("streams_open{stream=\"upload\"}", 0.0).await;
}

#[tokio::test]
async fn a_file_goes_in_and_comes_out_the_same() {
    let data = Bytes::from((0..3_000_000u32).map(|n| n.to_le_bytes()[1]).collect::<Vec<u8>>());
    let rig = started().await;
    let put = "file?path=/a%20b&mode=0640&owner=nobody&size=3000000&user=root";
    let written = rig.client.send(request(&rig, Method::PUT, put, data.clone())).await.json();
    assert_eq!((&written["path"], &written["size_bytes"]), (&json!("/a b"), &json!(3_000_000)));
    assert_eq!(written["sha256"], digest(&data));
    let first = rig.sidecar("sb-1").files().begun(1).await.remove(0);
    assert_eq!((first.mode, first.owner.as_str(), first.user.as_str()), (Some(0o640), "nobody", "root"));
    assert_eq!((first.size_bytes, first.parents), (Some(3_000_000), true));
    let read = get(&rig, "file?path=/a+b").await;
    assert_eq!((read.headers["content-length"].to_str().unwrap(), read.body), ("3000000", data));
    let told: Value = serde_json::from_str(read.headers["x-rollbox-file"].to_str().unwrap()).unwrap();
    assert_eq!((&told["kind"], &told["mode"]), (&json!("file"), &json!(0o644)));
    for (name, value) in [
        ("files_total{operation=\"write\",outcome=\"ok\"}", 1.0),
        ("files_total{operation=\"read\",outcome=\"ok\"}", 1.0),
        ("stream_bytes_total{stream=\"upload\",direction=\"in\"}", 3_000_000.0),
        ("stream_bytes_total{stream=\"download\",direction=\"out\"}", 3_000_000.0),
        ("streams_open{stream=\"upload\"}", 0.0),
        ("streams_open{stream=\"download\"}", 0.0),
    ] {
        rig.client.until_metric(name, value).await;
    }
}

#[tokio::test]
async fn a_part_is_a_part() {
    let rig = started().await;
    rig.sidecar("sb-1").files().put("/a", "0123456789");
    let part = get(&rig, "file?path=/a&offset=2&length=3").await;
    assert_eq!((part.text().as_str(), part.headers["content-length"].to_str().unwrap()), ("234", "3"));
    assert_eq!(get(&rig, "file?path=/a&offset=20").await.text(), "");
}

#[tokio::test]
async fn frames_tell_what_came_and_how_it_ended() {
    let rig = started().await;
    rig.sidecar("sb-1").files().put("/a", "hello");
    let frames = framed(&rig, "file?path=/a").await;
    assert_eq!(frames.iter().map(|frame| frame.0).collect::<Vec<_>>(), [3, 0, 1]);
    assert_eq!((parsed(&frames[0])["path"].as_str(), frames[1].1.as_ref()), (Some("/a"), &b"hello"[..]));
    assert_eq!(parsed(&frames[2]), json!({"sha256": digest(b"hello"), "size_bytes": 5}));
    let broken = framed(&rig, "file?path=/broken").await;
    assert_eq!((broken[0].clone(), broken[1].0), ((0, Bytes::from_static(b"some")), 2));
    assert_eq!(parsed(&broken[1])["code"], "no_space");
    rig.client.until_metric("files_total{operation=\"read\",outcome=\"refused\"}", 1.0).await;
}

#[tokio::test]
async fn without_frames_a_failure_in_the_middle_breaks_the_body() {
    let rig = started().await;
    let (client, broken) =
        (rig.client.clone(), request(&rig, Method::GET, "file?path=/broken", Body::empty()));
    assert!(tokio::spawn(async move { client.send(broken).await }).await.is_err());
    rig.client.until_metric("files_total{operation=\"read\",outcome=\"refused\"}", 1.0).await;
}

#[tokio::test]
async fn what_is_wrong_is_refused_by_name() {
    let rig = started().await;
    for (method, path, code) in [
        (Method::GET, "file", "invalid_argument"),
        (Method::GET, "file?path=/a&path=/b", "invalid_argument"),
        (Method::GET, "file?path=/missing", "file_not_found"),
        (Method::GET, "file?path=/a&length=0", "invalid_argument"),
        (Method::GET, "file?path=%00", "invalid_argument"),
        (Method::PUT, "file?path=/a&mode=8", "invalid_argument"),
        (Method::PUT, "file?path=/a&sha256=ab", "invalid_argument"),
        (Method::PUT, "file?path=/a&size=1", "invalid_argument"),
        (Method::GET, "directory?path=/a&limit=100001", "invalid_argument"),
        (Method::GET, "file/info?path=/a&follow=yes", "invalid_argument"),
        (Method::POST, "file?path=/a", "invalid_argument"),
    ] {
        assert_eq!(call(&rig, method.clone(), path).await.code(), code, "{method} {path}");
    }
    let long = get(&rig, &format!("file?path={}", "a".repeat(4096))).await;
    assert_eq!(long.json()["details"]["reason"], "name_too_long");
    let foreign = token_of("sb-2", "alice", &["exec"]);
    for path in ["file?path=/a", "file/info?path=/a", "directory?path=/a", "archive?path=/a", "watch?path=/a"]
    {
        let answer = rig.client.call(Method::GET, &format!("/v1/sandboxes/sb-1/{path}"), &foreign).await;
        assert_eq!(answer.code(), "permission_denied", "{path}");
    }
}

#[tokio::test]
async fn small_calls_answer_what_the_sidecar_says() {
    let rig = started().await;
    let files = rig.sidecar("sb-1").files();
    files.put("/d/a", "12345");
    assert_eq!(get(&rig, "file/info?path=/d/a").await.json()["size_bytes"], 5);
    let made = call(&rig, Method::POST, "directory?path=/new&mode=0700&parents=true").await.json();
    assert_eq!((&made["kind"], &made["mode"]), (&json!("directory"), &json!(0o700)));
    let copied = call(&rig, Method::POST, "file/copy?from=/d/a&to=/d/b").await;
    assert_eq!(copied.json()["path"], "/d/b");
    assert_eq!(call(&rig, Method::POST, "file/move?from=/d/a&to=/d/b").await.code(), "conflict");
    assert_eq!(call(&rig, Method::POST, "file/move?from=/d/a&to=/d/b&replace=true").await.status, 200);
    assert_eq!(call(&rig, Method::DELETE, "file?path=/d/b").await.json(), json!({"removed": 1}));
    assert_eq!(call(&rig, Method::DELETE, "file?path=/d/b").await.code(), "file_not_found");
    let gone = call(&rig, Method::DELETE, "file?path=/d/b&missing_ok=true").await;
    assert_eq!(gone.json(), json!({"removed": 0}));
}

#[tokio::test]
async fn names_that_are_no_text_come_through() {
    let rig = started().await;
    assert_eq!(
        rig.client.send(request(&rig, Method::PUT, "file?path=/d/%ff", "x")).await.json()["path_base64"],
        "L2Qv/w=="
    );
    let list = get(&rig, "directory?path=/d").await.json();
    assert_eq!((&list["entries"][0]["path_base64"], &list["truncated"]), (&json!("L2Qv/w=="), &json!(false)));
}

#[tokio::test]
async fn a_long_list_is_cut_where_it_was_asked_to_be_and_says_so() {
    let rig = started().await;
    for (query, count, truncated) in
        [("&limit=3", 3, true), ("", 10_000, true), ("&limit=100000", 100_000, true)]
    {
        let list = get(&rig, &format!("directory?path=/many&recursive=true{query}")).await.json();
        assert_eq!(
            (list["entries"].as_array().unwrap().len(), &list["truncated"]),
            (count, &json!(truncated))
        );
    }
    assert_eq!(get(&rig, "directory?path=/missing").await.code(), "file_not_found");
}

#[tokio::test]
async fn archives_pass_in_both_directions() {
    let rig = started().await;
    let tar = Bytes::from(vec![7; 1_000_000]);
    let written = rig.client.send(request(&rig, Method::PUT, "archive?path=/d", tar.clone())).await.json();
    assert_eq!(written, json!({"count": 1, "size_bytes": 1_000_000, "skipped": ["dev/null"]}));
    let read = get(&rig, "archive?path=/d").await;
    assert_eq!((read.headers["content-type"].to_str().unwrap(), read.body), ("application/x-tar", tar));
    assert_eq!(framed(&rig, "archive?path=/d").await.last().unwrap().0, 1);
}

/// Polls until a line of the metrics contains `text`.
async fn until_counted(rig: &Started, text: &str) {
    rig.client.until(async || rig.client.get("/metrics").await.text().contains(text)).await;
}

#[tokio::test]
async fn a_watch_tells_changes_until_its_reader_goes() {
    let rig = started().await;
    let answer =
        rig.client.open(request(&rig, Method::GET, "watch?path=/d&recursive=true", Body::empty())).await;
    assert_eq!(answer.headers()["content-type"], "application/x-ndjson");
    let mut lines = answer.into_body().into_data_stream();
    let first = lines.next().await.unwrap().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&first).unwrap(), json!({"change": "watching", "path": "/d"}));
    let second = lines.next().await.unwrap().unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&second).unwrap()["from"], "/old");
    rig.client.until_metric("streams_open{stream=\"watch\"}", 1.0).await;
    drop(lines);
    rig.sidecar("sb-1").files().dropped(1).await;
    rig.client.until_metric("streams_open{stream=\"watch\"}", 0.0).await;
    until_counted(&rig, "operation=\"watch\",outcome=\"ok\"} 1").await;
}

#[tokio::test]
async fn a_sandbox_that_ends_is_the_last_word_of_its_streams() {
    let rig = started().await;
    let answer = rig.client.open(request(&rig, Method::GET, "watch?path=/d", Body::empty())).await;
    rig.feed().end("sb-1", 1, "deleted");
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let last = body.split(|b| *b == b'\n').rfind(|line| !line.is_empty()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(last).unwrap()["problem"]["code"], "deleted");
    // Counted once, by how it ended.
    until_counted(&rig, "operation=\"watch\",outcome=\"refused\"} 1").await;
    let counted = rig.client.get("/metrics").await.text();
    assert!(counted.contains("operation=\"watch\",outcome=\"ok\"} 0"), "{counted}");
}

#[tokio::test]
async fn a_reader_that_goes_away_takes_the_sidecars_stream_along() {
    let rig = started().await;
    let answer = rig.client.open(request(&rig, Method::GET, "file?path=/endless", Body::empty())).await;
    let mut body = answer.into_body().into_data_stream();
    body.next().await.unwrap().unwrap();
    // The client does not read on: what is under way is bounded, and other calls are not delayed.
    for _ in 0..20 {
        assert_eq!(rig.run("sb-1", "echo hi").await.json()["stdout"], "hi");
    }
    let handed_out = rig.sidecar("sb-1").files().chunks();
    assert!(handed_out < 400, "{handed_out}");
    drop(body);
    rig.sidecar("sb-1").files().dropped(1).await;
    rig.client.until_metric("files_total{operation=\"read\",outcome=\"gone\"}", 1.0).await;
    rig.client.until_metric("streams_open{stream=\"download\"}", 0.0).await;
}

#[tokio::test]
async fn a_writer_that_breaks_off_never_ends_its_file() {
    let rig = started().await;
    // The connection breaks when the first piece has arrived.
    let (arrived, has_arrived) = oneshot::channel::<()>();
    let gone = has_arrived.map(|_| Err(io::Error::other("gone")));
    let pieces = stream::iter([Ok(Bytes::from_static(b"half"))]).chain(stream::once(gone));
    let put = request(&rig, Method::PUT, "file?path=/a", Body::from_stream(pieces));
    let client = rig.client.clone();
    let broken = tokio::spawn(async move { client.send(put).await });
    rig.sidecar("sb-1").files().begun(1).await;
    arrived.send(()).unwrap();
    assert!(broken.await.is_err());
    rig.sidecar("sb-1").files().dropped(1).await;
    assert_eq!(rig.sidecar("sb-1").files().get("/a"), None);
    rig.client.until_metric("streams_open{stream=\"upload\"}", 0.0).await;
    rig.client.until_metric("calls", 0.0).await;
}

#[tokio::test]
async fn a_small_file_goes_in_one_message_and_one_that_breaks_off_in_none() {
    let rig = started().await;
    let many = "x".repeat(100_000);
    let pieces = || stream::iter(["12", "345"].map(|piece| Ok::<_, io::Error>(Bytes::from(piece))));
    for (put, body, data) in [
        ("file?path=/small", Body::from("12345"), "12345"),
        ("file?path=/empty", Body::empty(), ""),
        ("file?path=/pieces&size=5", Body::from_stream(pieces()), "12345"),
    ] {
        let written = rig.client.send(request(&rig, Method::PUT, put, body)).await.json();
        assert_eq!(
            (&written["size_bytes"], &written["sha256"]),
            (&json!(data.len()), &json!(digest(data.as_bytes())))
        );
        let first = rig.sidecar("sb-1").files().begun(1).await.pop().unwrap();
        assert_eq!((first.data.as_ref(), first.eof, first.ticket.is_empty()), (data.as_bytes(), true, true));
    }
    let lie = Body::from_stream(stream::once(async move { Ok::<_, io::Error>(Bytes::from(many)) }));
    let written = rig.client.send(request(&rig, Method::PUT, "file?path=/more&size=5", lie)).await.json();
    assert_eq!(written["size_bytes"], 100_000, "the played sandbox does not check it");
    assert!(!rig.sidecar("sb-1").files().begun(4).await[3].eof);
    rig.client.until_metric("stream_bytes_total{stream=\"upload\",direction=\"in\"}", 100_010.0).await;
    let mut stream = TcpStream::connect(rig.client.address).await.unwrap();
    let token = token_of("sb-1", "alice", &["exec"]);
    let head = format!(
        "PUT /v1/sandboxes/sb-1/file?path=/cut HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer {token}\r\n\
         content-length: 10\r\n\r\nhalf"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let _ = stream.read_to_end(&mut Vec::new()).await;
    rig.client.until_metric("files_total{operation=\"write\",outcome=\"refused\"}", 1.0).await;
    assert_eq!(rig.sidecar("sb-1").files().begun(4).await.len(), 4);
}

#[tokio::test]
async fn a_refusal_in_the_middle_of_an_upload_reaches_its_client() {
    let rig = started().await;
    let put = request(&rig, Method::PUT, "file?path=/full", vec![0; 32 << 20]);
    let answer = rig.client.send(put).await;
    assert_eq!((answer.status, answer.code().as_str()), (StatusCode::INSUFFICIENT_STORAGE, "no_space"));
}

#[tokio::test]
async fn transfers_have_places_of_their_own() {
    let rig = Rig::new()
        .sandbox("sb-1")
        .set("MAX_TRANSFERS_PER_SANDBOX", 1)
        .set("QUEUE_TIMEOUT_MS", 50)
        .start()
        .await;
    let held = rig.client.open(request(&rig, Method::GET, "file?path=/endless", Body::empty())).await;
    assert_eq!(get(&rig, "file/info?path=/a").await.code(), "capacity_unavailable");
    assert_eq!(rig.run("sb-1", "echo hi").await.json()["stdout"], "hi");
    drop(held);
    // A call that waits for a permit may have to be repeated.
    rig.client.until(async || get(&rig, "file/info?path=/a").await.code() == "file_not_found").await;
}

#[tokio::test]
async fn a_download_under_way_ends_before_a_drain_does() {
    let mut rig = Rig::new().sandbox("sb-1").set("DRAIN_MS", 100).start().await;
    let mut download = request(&rig, Method::GET, "file?path=/endless", Body::empty());
    download.headers_mut().insert("accept", FRAMES.parse().unwrap());
    let answer = rig.client.open(download).await;
    // What is left one second after the drain is aborted; on the stopped clock that second never passes.
    let clock = Stopped::now().await;
    let stopping = tokio::spawn(rig.running.take().unwrap().stop());
    rig.client.until_metric("draining", 1.0).await;
    clock.pass(Duration::from_millis(200)).await;
    let mut body = answer.into_body().into_data_stream();
    let mut last = Bytes::new();
    while let Some(Ok(piece)) = body.next().await {
        last = piece;
    }
    stopping.await.unwrap();
    assert!(String::from_utf8_lossy(&last).contains("stream_interrupted"), "its last frame is missing");
}
