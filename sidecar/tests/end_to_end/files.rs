//! Operations on files, through the real call, file worker and kernel.

mod archives;
mod changes;
mod contents;
mod hostile_archives;
mod legs;
mod listings;
mod refusals;
mod rewrites;
mod warm;
mod watching;

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tokio_stream::iter;
use wire::Problem;
use wire::agent::{
    ArchiveWritten, FileChunk, FileInfo, ListDirectoryRequest, PathRequest, ReadArchiveRequest,
    ReadFileRequest, WriteArchiveRequest, WriteFileRequest,
};

use crate::sandbox::{Sandbox, problem, signed};

/// A folder of the sandbox that every user may write to.
fn folder(sandbox: &Sandbox) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let folder = sandbox.directory.path().join("files");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

fn bytes(path: impl AsRef<Path>) -> Vec<u8> {
    path.as_ref().as_os_str().as_bytes().to_vec()
}

/// Sends `data` in pieces whose size matches no frame.
async fn write(sandbox: &Sandbox, first: WriteFileRequest, data: &[u8]) -> Result<FileInfo, Problem> {
    let pieces = data
        .chunks(300_000)
        .map(|piece| WriteFileRequest { data: Bytes::copy_from_slice(piece), ..WriteFileRequest::default() });
    let last = WriteFileRequest { eof: true, ..WriteFileRequest::default() };
    let messages: Vec<_> = std::iter::once(first).chain(pieces).chain([last]).collect();
    let answer = sandbox.client.clone().write_file(signed(iter(messages))).await;
    answer.map(tonic::Response::into_inner).map_err(|status| problem(&status))
}

async fn put(sandbox: &Sandbox, path: impl AsRef<Path>, data: &[u8]) -> Result<FileInfo, Problem> {
    write(sandbox, WriteFileRequest { path: bytes(path), ..Default::default() }, data).await
}

async fn read(sandbox: &Sandbox, request: ReadFileRequest) -> Result<(Vec<FileChunk>, Vec<u8>), Problem> {
    let answer = sandbox.client.clone().read_file(signed(request)).await;
    collect(answer.map_err(|status| problem(&status))?.into_inner()).await
}

async fn collect(mut stream: tonic::Streaming<FileChunk>) -> Result<(Vec<FileChunk>, Vec<u8>), Problem> {
    let (mut chunks, mut data) = (Vec::new(), Vec::new());
    while let Some(chunk) = stream.message().await.map_err(|status| problem(&status))? {
        data.extend_from_slice(&chunk.data);
        chunks.push(FileChunk { data: Bytes::new(), ..chunk });
    }
    Ok((chunks, data))
}

async fn get(sandbox: &Sandbox, path: impl AsRef<Path>) -> Result<Vec<u8>, Problem> {
    let request = ReadFileRequest { path: bytes(path), ..Default::default() };
    read(sandbox, request).await.map(|(_, data)| data)
}

async fn stat(sandbox: &Sandbox, path: impl AsRef<Path>, follow: bool) -> Result<FileInfo, Problem> {
    let request = PathRequest { path: bytes(path), follow, ..Default::default() };
    let answer = sandbox.client.clone().stat_file(signed(request)).await;
    answer.map(tonic::Response::into_inner).map_err(|status| problem(&status))
}

async fn list(sandbox: &Sandbox, request: ListDirectoryRequest) -> Result<Vec<FileInfo>, Problem> {
    let answer = sandbox.client.clone().list_directory(signed(request)).await;
    let mut stream = answer.map_err(|status| problem(&status))?.into_inner();
    let mut found = Vec::new();
    while let Some(info) = stream.message().await.map_err(|status| problem(&status))? {
        found.push(info);
    }
    Ok(found)
}

async fn pack(sandbox: &Sandbox, path: impl AsRef<Path>) -> Result<Vec<u8>, Problem> {
    let request = ReadArchiveRequest { path: bytes(path), ..Default::default() };
    let answer = sandbox.client.clone().read_archive(signed(request)).await;
    collect(answer.map_err(|status| problem(&status))?.into_inner()).await.map(|(_, data)| data)
}

async fn unpack(sandbox: &Sandbox, path: impl AsRef<Path>, tar: &[u8]) -> Result<ArchiveWritten, Problem> {
    unpack_as(sandbox, path, tar, "").await
}

async fn unpack_as(
    sandbox: &Sandbox,
    path: impl AsRef<Path>,
    tar: &[u8],
    user: &str,
) -> Result<ArchiveWritten, Problem> {
    let first = WriteArchiveRequest {
        path: bytes(path),
        parents: true,
        user: user.to_owned(),
        ..WriteArchiveRequest::default()
    };
    let pieces = tar.chunks(200_000).map(|piece| WriteArchiveRequest {
        data: Bytes::copy_from_slice(piece),
        ..WriteArchiveRequest::default()
    });
    let last = WriteArchiveRequest { eof: true, ..WriteArchiveRequest::default() };
    let messages: Vec<_> = std::iter::once(first).chain(pieces).chain([last]).collect();
    let answer = sandbox.client.clone().write_archive(signed(iter(messages))).await;
    answer.map(tonic::Response::into_inner).map_err(|status| problem(&status))
}

/// Code and reason of a refusal.
fn why<T: std::fmt::Debug>(outcome: Result<T, Problem>) -> (wire::Code, String) {
    let problem = outcome.unwrap_err();
    (problem.code, problem.details.get("reason").cloned().unwrap_or_default())
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}
