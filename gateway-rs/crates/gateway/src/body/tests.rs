use futures_util::stream;

use super::*;

fn reader(max_bytes: usize) -> Reader {
    Reader::new(max_bytes, Duration::from_secs(30))
}

fn chunks(chunks: Vec<&'static str>) -> Body {
    Body::from_stream(stream::iter(chunks.into_iter().map(Ok::<_, std::io::Error>)))
}

fn length(bytes: usize) -> HeaderMap {
    [(CONTENT_LENGTH, bytes.into())].into_iter().collect()
}

async fn refusal(reader: &Reader, headers: HeaderMap, body: Body) -> Problem {
    reader.read(&headers, body).await.unwrap_err()
}

#[tokio::test]
async fn one_piece_and_many_read_the_same() {
    let reader = reader(1024);
    for body in [Body::from("abc"), chunks(vec!["a", "b", "c"]), chunks(vec!["abc", ""])] {
        assert_eq!(reader.read(&HeaderMap::new(), body).await.unwrap().bytes, "abc");
    }
    assert_eq!(reader.read(&HeaderMap::new(), Body::empty()).await.unwrap().bytes, "");
}

#[tokio::test]
async fn the_limit_holds_announced_or_not() {
    let reader = reader(4);
    let announced = refusal(&reader, length(5), Body::empty()).await;
    assert_eq!((announced.code, announced.details["limit_bytes"].as_str()), (Code::PayloadTooLarge, "4"));
    for body in [Body::from("12345"), chunks(vec!["123", "45"])] {
        assert_eq!(refusal(&reader, HeaderMap::new(), body).await.code, Code::PayloadTooLarge);
    }
    assert_eq!(reader.read(&length(4), Body::from("1234")).await.unwrap().bytes, "1234");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_sending_is_given_up() {
    let stalled = Body::from_stream(stream::pending::<Result<&str, std::io::Error>>());
    let problem = refusal(&reader(1024), HeaderMap::new(), stalled).await;
    assert_eq!(problem.detail, "the body could not be read: nothing came for 15 s");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_a_byte_now_and_then_is_given_up_too() {
    let drops = stream::unfold((), |()| async {
        tokio::time::sleep(SILENCE / 2).await;
        Some((Ok::<_, std::io::Error>("x"), ()))
    });
    let problem = refusal(&reader(1024), HeaderMap::new(), Body::from_stream(drops)).await;
    assert_eq!(problem.detail, "the body could not be read: it did not arrive within 120 s");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_the_callers_fault() {
    let broken = Body::from_stream(stream::iter([Ok("a"), Err(std::io::Error::other("reset"))]));
    assert_eq!(refusal(&reader(1024), HeaderMap::new(), broken).await.code, Code::InvalidArgument);
}

#[tokio::test(start_paused = true)]
async fn large_bodies_share_one_budget() {
    let reader = reader(BUDGET_KIB * 1024);
    let held = reader.read(&length(BUDGET_KIB * 1024), Body::from("a")).await.unwrap();
    let problem = refusal(&reader, length(FREE_BYTES + 1), Body::from("b")).await;
    assert_eq!(problem.code, Code::CapacityUnavailable);
    assert!(reader.read(&length(FREE_BYTES), Body::from("small")).await.is_ok());
    drop(held);
    assert!(reader.read(&length(FREE_BYTES + 1), Body::from("b")).await.is_ok());
}
