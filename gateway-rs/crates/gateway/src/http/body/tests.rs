use futures_util::{StreamExt as _, stream};

use super::*;

fn reader(max_bytes: usize) -> Reader {
    Reader::new(max_bytes, Duration::from_secs(30))
}

fn chunks(chunks: Vec<&'static str>) -> Body {
    Body::from_stream(stream::iter(chunks.into_iter().map(Ok::<_, std::io::Error>)))
}

fn zeros(bytes: usize) -> Body {
    Body::from(vec![0; bytes])
}

async fn refusal(reader: &Reader, body: Body) -> Problem {
    reader.read(body).await.unwrap_err()
}

#[tokio::test]
async fn one_piece_and_many_read_the_same() {
    let reader = reader(1024);
    for body in [Body::from("abc"), chunks(vec!["a", "b", "c"]), chunks(vec!["abc", ""])] {
        assert_eq!(reader.read(body).await.unwrap().bytes, "abc");
    }
    assert_eq!(reader.read(Body::empty()).await.unwrap().bytes, "");
}

#[tokio::test]
async fn the_limit_holds_announced_or_not() {
    let reader = reader(4);
    for body in [Body::from("12345"), chunks(vec!["123", "45"])] {
        let problem = refusal(&reader, body).await;
        assert_eq!((problem.code, problem.details["limit_bytes"].as_str()), (Code::PayloadTooLarge, "4"));
    }
    assert_eq!(reader.read(Body::from("1234")).await.unwrap().bytes, "1234");
}

#[tokio::test]
async fn what_a_refused_client_still_sends_is_read_and_dropped() {
    let unread = Arc::new(std::sync::atomic::AtomicUsize::new(100));
    let counted = Arc::clone(&unread);
    let body = Body::from_stream(stream::iter((0..100).map(move |_| {
        counted.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        Ok::<_, std::io::Error>("12345")
    })));
    assert_eq!(refusal(&reader(4), body).await.code, Code::PayloadTooLarge);
    assert_eq!(unread.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_sending_after_the_refusal_loses_only_its_answer() {
    let rest = stream::iter([Ok::<_, std::io::Error>("12345")]).chain(stream::pending());
    assert_eq!(refusal(&reader(4), Body::from_stream(rest)).await.code, Code::PayloadTooLarge);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_sending_is_given_up() {
    let stalled = Body::from_stream(stream::pending::<Result<&str, std::io::Error>>());
    let problem = refusal(&reader(1024), stalled).await;
    assert_eq!(problem.detail, "the body could not be read: nothing came for 15 s");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_a_byte_now_and_then_is_given_up_too() {
    let drops = stream::unfold((), |()| async {
        tokio::time::sleep(SILENCE / 2).await;
        Some((Ok::<_, std::io::Error>("x"), ()))
    });
    let problem = refusal(&reader(1024), Body::from_stream(drops)).await;
    assert_eq!(problem.detail, "the body could not be read: it did not arrive within 120 s");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_the_callers_fault() {
    let broken = Body::from_stream(stream::iter([Ok("a"), Err(std::io::Error::other("reset"))]));
    assert_eq!(refusal(&reader(1024), broken).await.code, Code::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn large_bodies_share_one_budget() {
    let reader = reader(BUDGET_KIB * 1024);
    let chunked = |bytes| Body::from_stream(stream::iter([Ok::<_, std::io::Error>(vec![0; bytes])]));
    // A body of unknown size reserves the whole budget, but only once it is large.
    let small = reader.read(chunked(FREE_BYTES)).await.unwrap();
    let held = reader.read(chunked(FREE_BYTES + 1)).await.unwrap();
    let problem = refusal(&reader, zeros(FREE_BYTES + 1)).await;
    assert_eq!(problem.code, Code::CapacityUnavailable);
    assert!(reader.read(zeros(FREE_BYTES)).await.is_ok());
    drop((held, small));
    assert!(reader.read(zeros(FREE_BYTES + 1)).await.is_ok());
}
