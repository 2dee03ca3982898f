use std::io;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::egress::Verdict;

use super::asking::{Asking, REQUEST_DEADLINE, late};
use super::tunnel;
use crate::policy::{InvalidHost, Refusal};
use crate::sandbox::Protocol;
use crate::socks5::{self, Broken, Read, Reply};
use crate::stream::Carried;

/// Serves a client of SOCKS5 to its end.
///
/// # Errors
/// The client or the server broke off.
pub(super) async fn serve(asking: &Asking, mut stream: Carried, mut bytes: BytesMut) -> io::Result<()> {
    if let Err(broken) = message(&mut stream, &mut bytes, socks5::greeting).await? {
        refuse(asking, broken);
        stream.write_all(&socks5::chosen(false)).await?;
        return stream.shutdown().await;
    }
    stream.write_all(&socks5::chosen(true)).await?;
    let target = match message(&mut stream, &mut bytes, socks5::request).await? {
        Ok(target) => target,
        Err(broken) => {
            refuse(asking, broken);
            return answer(&mut stream, broken.reply()).await;
        }
    };
    match asking.open(&target, Protocol::Socks5).await {
        Ok((reached, passage)) => {
            stream.write_all(&socks5::reply(Reply::Succeeded)).await?;
            tunnel::run(stream, bytes, reached, passage).await
        }
        Err(refusal) => answer(&mut stream, reply_to(&refusal)).await,
    }
}

/// Reads one message, and takes it out of `bytes`.
async fn message<T>(
    stream: &mut Carried,
    bytes: &mut BytesMut,
    read: impl Fn(&[u8]) -> Read<T>,
) -> io::Result<Result<T, Broken>> {
    let whole = async {
        loop {
            match read(bytes) {
                Ok(Some((message, length))) => {
                    bytes.advance(length);
                    return Ok(Ok(message));
                }
                Err(broken) => return Ok(Err(broken)),
                Ok(None) if stream.read_buf(bytes).await? == 0 => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Ok(None) => {}
            }
        }
    };
    tokio::time::timeout(REQUEST_DEADLINE, whole).await.map_err(|_| late())?
}

async fn answer(stream: &mut Carried, reply: Reply) -> io::Result<()> {
    stream.write_all(&socks5::reply(reply)).await?;
    stream.shutdown().await
}

fn refuse(asking: &Asking, broken: Broken) {
    let mut refusal = Refusal::bad_request(broken.to_string());
    if broken == Broken::Host(InvalidHost::OddAddress) {
        refusal.verdict = Verdict::DeniedAddress;
    }
    asking.tell("", 0, Protocol::Socks5, &refusal);
}

fn reply_to(refusal: &Refusal) -> Reply {
    match refusal.verdict {
        Verdict::Unresolved | Verdict::Unreachable | Verdict::NameServerSilent | Verdict::PackagesSilent => {
            Reply::Unreachable
        }
        _ => Reply::NotAllowed,
    }
}
