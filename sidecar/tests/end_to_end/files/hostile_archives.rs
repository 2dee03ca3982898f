//! Hostile archives, and processes that help them.

use std::os::unix::fs::symlink;

use tar::{EntryType, Header};
use wire::Code;

use super::*;
use crate::sandbox::argv;

/// An entry with any name and link, which the library's own writer would refuse.
fn entry(kind: EntryType, name: &[u8], link: &[u8], data: &[u8]) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link);
    header.set_entry_type(kind);
    header.set_mode(0o777);
    header.set_mtime(0);
    header.set_size(data.len() as u64);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(data);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    [entries.concat(), vec![0; 1024]].concat()
}

fn file(name: &str, data: &str) -> Vec<u8> {
    entry(EntryType::Regular, name.as_bytes(), b"", data.as_bytes())
}

fn invalid(reason: &str) -> (Code, String) {
    (Code::InvalidArgument, reason.to_owned())
}

#[tokio::test]
async fn nothing_is_written_outside() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let (to, outside) = (folder.join("to"), folder.join("outside"));
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "secret").unwrap();
    let absolute = outside.display().to_string();
    let link = |name: &str, to: &str| entry(EntryType::Symlink, name.as_bytes(), to.as_bytes(), b"");
    let hard = |name: &str, to: &str| entry(EntryType::Link, name.as_bytes(), to.as_bytes(), b"");
    for (number, (entries, reason)) in [
        (vec![file("../outside/x", "x")], "unsafe_name"),
        (vec![file("a/../../outside/x", "x")], "unsafe_name"),
        (vec![file(&format!("{absolute}/x"), "x")], "unsafe_name"),
        (vec![entry(EntryType::Directory, b"../outside/d/", b"", b"")], "unsafe_name"),
        (vec![link("l", "../outside"), file("l/x", "x")], "symlink_in_path"),
        (vec![link("l", &absolute), file("l/x", "x")], "symlink_in_path"),
        (vec![link("l", &absolute), entry(EntryType::Directory, b"l/d/", b"", b"")], "symlink_in_path"),
        (vec![link("m", "l"), link("l", "../outside"), link("m/x", "y")], "symlink_in_path"),
        (vec![link("l", ".."), hard("h", "l/outside/secret")], "symlink_in_path"),
        (vec![hard("h", "../outside/secret")], "unsafe_name"),
        (vec![hard("h", &format!("{absolute}/secret"))], "unsafe_name"),
    ]
    .into_iter()
    .enumerate()
    {
        let _ = std::fs::remove_dir_all(&to);
        assert_eq!(why(unpack(&sandbox, &to, &archive(&entries)).await), invalid(reason), "{number}");
        assert_eq!(names(&outside), ["secret"], "{number}");
        assert!(!to.join("h").exists(), "{number}");
    }
    // A link may point anywhere. What is written under its name replaces it, and a hard link to it is one to the link
    // itself.
    let harmless = [link("l", &format!("{absolute}/secret")), hard("h", "l"), file("l", "mine")];
    let _ = std::fs::remove_dir_all(&to);
    unpack(&sandbox, &to, &archive(&harmless)).await.unwrap();
    assert_eq!(std::fs::read(outside.join("secret")).unwrap(), b"secret");
    assert!(to.join("h").is_symlink());
    assert_eq!(std::fs::read(to.join("l")).unwrap(), b"mine");
}

#[tokio::test]
async fn a_link_that_was_there_before_leads_nowhere_either() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    std::fs::create_dir_all(folder.join("to")).unwrap();
    std::fs::create_dir(folder.join("outside")).unwrap();
    symlink("../outside", folder.join("to/l")).unwrap();
    let refused = unpack(&sandbox, folder.join("to"), &archive(&[file("l/x", "x")])).await;
    assert_eq!(why(refused), invalid("symlink_in_path"));
    let directory = entry(EntryType::Directory, b"l/", b"", b"");
    unpack(&sandbox, folder.join("to"), &archive(&[directory, file("l/x", "x")])).await.unwrap();
    assert_eq!((names(&folder.join("outside")).len(), names(&folder.join("to/l"))), (0, vec!["x".into()]));
}

#[tokio::test]
async fn devices_fifos_and_unknown_kinds_are_left_out_and_told() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let odd = [EntryType::Char, EntryType::Block, EntryType::Fifo, EntryType::new(b'Q')];
    let entries: Vec<_> =
        odd.iter().map(|kind| entry(*kind, b"odd", b"", b"")).chain([file("even", "x")]).collect();
    let done = unpack(&sandbox, &folder, &archive(&entries)).await.unwrap();
    assert_eq!((done.count, done.skipped), (1, vec!["odd".to_owned(); 4]));
    assert_eq!(names(&folder), ["even"]);
    let many: Vec<_> = (0..300).map(|_| entry(EntryType::Fifo, b"odd", b"", b"")).collect();
    assert_eq!(unpack(&sandbox, &folder, &archive(&many)).await.unwrap().skipped.len(), 100);
}

#[tokio::test]
async fn what_is_cut_short_or_no_archive_is_refused_and_half_a_file_removed() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let whole = archive(&[file("first", "1"), file("second", &"2".repeat(10_000))]);
    for length in [0, 100, 512, 600, 1024, 1024 + 512, 1024 + 512 + 5000, whole.len() - 1024] {
        let refused = unpack(&sandbox, folder.join(length.to_string()), &whole[..length]).await;
        assert_eq!(why(refused), invalid("truncated_archive"), "{length}");
        assert!(names(&folder.join(length.to_string())).len() <= 2);
    }
    assert_eq!(names(&folder.join("6536")), ["first"]);
    let mut damaged = whole.clone();
    damaged[1024 + 3] ^= 1;
    for bytes in [vec![7; 4096], b"\x1f\x8b\x08 gzip".repeat(100), damaged] {
        assert_eq!(why(unpack(&sandbox, folder.join("x"), &bytes).await), invalid("malformed_archive"));
    }
}

#[tokio::test]
async fn headers_and_maps_of_any_size_cost_no_memory() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader] {
        let huge = archive(&[entry(kind, b"x", b"", &vec![b'a'; 2 << 20]), file("y", "")]);
        assert_eq!(why(unpack(&sandbox, &folder, &huge).await), invalid("header_too_large"), "{kind:?}");
    }
    let long = archive(&[entry(EntryType::GNULongName, b"x", b"", &vec![b'a'; 4096]), file("y", "")]);
    assert_eq!(why(unpack(&sandbox, &folder, &long).await), invalid("name_too_long"));
    let part = archive(&[entry(EntryType::GNULongName, b"x", b"", &vec![b'a'; 300]), file("y", "")]);
    assert_eq!(why(unpack(&sandbox, &folder, &part).await), invalid("name_too_long"));
    let pax = |records: &[(&str, &str)]| {
        let text: String = records.iter().map(|(key, value)| record(key, value)).collect();
        entry(EntryType::XHeader, b"x", b"", text.as_bytes())
    };
    for records in [
        &[("GNU.sparse.size", "10"), ("GNU.sparse.map", "5,10")][..],
        &[("GNU.sparse.size", "99999999999999999999"), ("GNU.sparse.map", "0,1")],
        &[("GNU.sparse.size", "18446744073709551615"), ("GNU.sparse.map", "18446744073709551614,1")],
        &[("GNU.sparse.size", "10"), ("GNU.sparse.map", "5,1,0,1")],
        &[("size", "18446744073709551615")],
    ] {
        let tar = archive(&[pax(records), file("holes", "x")]);
        let (code, reason) = why(unpack(&sandbox, &folder, &tar).await);
        assert_eq!(code, Code::InvalidArgument, "{records:?} {reason}");
    }
    let bomb = archive(&[
        pax(&[("GNU.sparse.size", "1099511627776"), ("GNU.sparse.map", "0,1")]),
        file("bomb", "x"),
    ]);
    match unpack(&sandbox, &folder, &bomb).await {
        Ok(_) => {
            use std::os::unix::fs::MetadataExt;
            let found = std::fs::metadata(folder.join("bomb")).unwrap();
            assert!(found.len() == 1 << 40 && found.blocks() < 64);
        }
        Err(problem) => assert_eq!(problem.code, Code::NoSpace),
    }
}

fn record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let length = (1..9).map(|digits| digits + rest.len()).find(|n| n.to_string().len() + rest.len() == *n);
    format!("{}{rest}", length.unwrap())
}

#[tokio::test]
async fn a_process_that_swaps_directories_for_links_gains_nothing() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    std::fs::create_dir_all(folder.join("to")).unwrap();
    std::fs::create_dir(folder.join("outside")).unwrap();
    let swap = "import os, shutil\n\
        while True:\n  \
          try: os.rename('to/d', 'to/e'); os.symlink('../outside', 'to/d')\n  \
          except OSError: shutil.rmtree('to/e', True)\n  \
          try: os.unlink('to/d'); os.rename('to/e', 'to/d')\n  \
          except OSError: pass";
    let mut request = argv(&["python3", "-c", swap]);
    request.cwd = folder.display().to_string();
    let exec_id = request.exec_id.clone();
    sandbox.client.clone().start(signed(request)).await.unwrap();
    // Between two entries of one directory lies one of another, so that the path is resolved again for each.
    let entries: Vec<_> =
        (0..500).flat_map(|n| [file(&format!("d/f{n}"), "x"), file("other/x", "x")]).collect();
    let tar = archive(&entries);
    // Repeats until the race was lost a few times, which takes as long as the machine needs.
    let mut refused = 0;
    for _ in 0..1000 {
        match unpack(&sandbox, folder.join("to"), &tar).await {
            Ok(_) => {}
            Err(problem) => {
                assert!(
                    matches!(problem.code, Code::InvalidArgument | Code::FileNotFound | Code::Conflict),
                    "{problem}"
                );
                refused += 1;
            }
        }
        assert_eq!(names(&folder.join("outside")).len(), 0);
        if refused == 5 {
            break;
        }
    }
    assert!(refused > 0, "the race never happened");
    sandbox.cancel(&exec_id).await.unwrap();
}

#[tokio::test]
async fn any_bytes_are_answered() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let whole = archive(&[
        file("a", "1"),
        entry(EntryType::GNUSparse, b"s", b"", b""),
        entry(EntryType::XHeader, b"x", b"", record("path", "b").as_bytes()),
        file("c", "2"),
    ]);
    let mut state = 7_u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap()
    };
    for _ in 0..100 {
        let mut bytes = whole.clone();
        for _ in 0..4 {
            let at = random() % bytes.len();
            bytes[at] = u8::try_from(random() % 256).unwrap();
        }
        for block in bytes.chunks_exact_mut(512).filter(|block| block[257..262] == *b"ustar") {
            let mut header = Header::from_byte_slice(block).clone();
            header.set_cksum();
            block.copy_from_slice(header.as_bytes());
        }
        if let Err(problem) = unpack(&sandbox, folder.join("to"), &bytes).await {
            assert!(problem.code != Code::Internal && problem.code != Code::SandboxLost, "{problem}");
        }
    }
    assert_eq!(names(&folder), ["to"]);
}
