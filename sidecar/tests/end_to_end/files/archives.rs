//! Uploads and downloads of trees as tar streams.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use wire::Code;

use super::*;

#[tokio::test]
async fn a_tree_survives_with_modes_times_links_and_empty_directories() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let long = "n".repeat(200);
    sandbox
        .sh(&format!(
            "cd {} && mkdir -p tree/empty tree/locked tree/{long} && echo data > tree/locked/file && echo long > tree/{long}/{long} \
             && ln -s {long}{long} tree/link && ln -s /absolute tree/absolute && chmod 4755 tree/locked/file && chmod 555 tree/locked \
             && mkfifo tree/fifo && touch -d @1000.5 tree/locked/file tree/empty && touch -hd @2000 tree/link && touch -d @3000 tree/locked",
            folder.display()
        ))
        .await;
    let tar = pack(&sandbox, folder.join("tree")).await.unwrap();
    let done = unpack_as(&sandbox, folder.join("copy"), &tar, "1000").await.unwrap();
    assert_eq!((done.count, done.size_bytes, done.skipped.len()), (7, 10, 0));
    let found = |name: &str| {
        let found = std::fs::symlink_metadata(folder.join("copy").join(name)).unwrap();
        (found.permissions().mode() & 0o7777, found.mtime(), found.uid())
    };
    assert_eq!(found("locked/file"), (0o755, 1000, 1000), "the setuid bit is dropped");
    assert_eq!(found("locked"), (0o555, 3000, 1000));
    assert_eq!((found("empty").1, found("link").1), (1000, 2000));
    assert_eq!(std::fs::read_link(folder.join("copy/link")).unwrap(), Path::new(&long.repeat(2)));
    assert_eq!(std::fs::read(folder.join("copy").join(&long).join(&long)).unwrap(), b"long\n");
    // Unpacked again, over what is there.
    unpack(&sandbox, folder.join("copy"), &tar).await.unwrap();
    assert_eq!(found("locked/file").0, 0o755);
}

#[tokio::test]
async fn what_the_usual_tools_write_is_read_and_ours_by_them() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let long = "m".repeat(150);
    sandbox
        .sh(&format!(
            "cd {} && mkdir -p tree/{long} && echo one > tree/{long}/one && ln tree/{long}/one tree/two && truncate -s 3M tree/holes \
             && printf end >> tree/holes && dd if=/dev/urandom of=tree/holes bs=4096 seek=100 count=3 conv=notrunc status=none",
            folder.display()
        ))
        .await;
    for (number, options) in [
        "--format=gnu",
        "--format=pax",
        "--format=gnu -S",
        "--format=pax -S --sparse-version=0.0",
        "--format=pax -S --sparse-version=0.1",
        "--format=pax -S --sparse-version=1.0",
    ]
    .iter()
    .enumerate()
    {
        sandbox.sh(&format!("cd {} && tar {options} -cf t.tar -C tree .", folder.display())).await;
        let tar = std::fs::read(folder.join("t.tar")).unwrap();
        let copy = folder.join(format!("copy{number}"));
        unpack(&sandbox, &copy, &tar).await.unwrap();
        sandbox.sh(&format!("diff -r {} {}", folder.join("tree").display(), copy.display())).await;
        if options.contains("-S") {
            let blocks = std::fs::metadata(copy.join("holes")).unwrap().blocks();
            assert!(blocks < 200, "{options}: {blocks} blocks");
        }
        let links = std::fs::metadata(copy.join("two")).unwrap().nlink();
        assert_eq!(links, 2, "{options}");
    }
    let ours = pack(&sandbox, folder.join("tree")).await.unwrap();
    std::fs::write(folder.join("ours.tar"), ours).unwrap();
    let check = "mkdir theirs && tar -xf ours.tar -C theirs && diff -r tree theirs && python3 -c 'import tarfile; print(len(tarfile.open(\"ours.tar\").getmembers()))'";
    assert_eq!(sandbox.sh(&format!("cd {} && {check}", folder.display())).await, "4\n");
    let one = pack(&sandbox, folder.join("tree/two")).await.unwrap();
    unpack(&sandbox, folder.join("single"), &one).await.unwrap();
    assert_eq!(std::fs::read(folder.join("single/two")).unwrap(), b"one\n");
}

#[tokio::test]
async fn an_empty_directory_makes_an_empty_one_and_a_missing_one_is_told() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    std::fs::create_dir(folder.join("empty")).unwrap();
    let tar = pack(&sandbox, folder.join("empty")).await.unwrap();
    assert_eq!(unpack(&sandbox, folder.join("a/b"), &tar).await.unwrap().count, 0);
    assert!(folder.join("a/b").is_dir());
    assert_eq!(why(pack(&sandbox, folder.join("none")).await).0, Code::FileNotFound);
    std::fs::write(folder.join("secret"), "").unwrap();
    std::fs::set_permissions(folder.join("secret"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let request = ReadArchiveRequest { path: bytes(&folder), user: "1000".into(), ..Default::default() };
    let mut stream = sandbox.client.clone().read_archive(signed(request)).await;
    let refused = match &mut stream {
        Ok(stream) => loop {
            match stream.get_mut().message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("an archive that lacks a file looks whole"),
                Err(status) => break problem(&status),
            }
        },
        Err(status) => problem(status),
    };
    assert_eq!(refused.code, Code::PermissionDenied);
}

#[tokio::test]
async fn entries_take_the_place_of_links_and_files_but_not_of_directories() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    std::fs::write(folder.join("outside"), "kept").unwrap();
    std::fs::create_dir(folder.join("to")).unwrap();
    symlink("../outside", folder.join("to/link")).unwrap();
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(3);
    header.set_mode(0o600);
    tar.append_data(&mut header, "link", &b"new"[..]).unwrap();
    let tar = tar.into_inner().unwrap();
    unpack(&sandbox, folder.join("to"), &tar).await.unwrap();
    assert_eq!(std::fs::read(folder.join("outside")).unwrap(), b"kept");
    assert_eq!(std::fs::read(folder.join("to/link")).unwrap(), b"new");
    std::fs::remove_file(folder.join("to/link")).unwrap();
    std::fs::create_dir(folder.join("to/link")).unwrap();
    assert_eq!(
        why(unpack(&sandbox, folder.join("to"), &tar).await),
        (Code::InvalidArgument, "is_directory".into())
    );
}

#[tokio::test]
async fn many_small_files_arrive() {
    let sandbox = Sandbox::start().await;
    let folder = folder(&sandbox);
    let mut tar = tar::Builder::new(Vec::new());
    for number in 0..580 {
        let mut header = tar::Header::new_gnu();
        header.set_size(1000);
        header.set_mode(0o644);
        tar.append_data(&mut header, format!("p{}/q{}/f{number}", number % 7, number % 3), &[b'x'; 1000][..])
            .unwrap();
    }
    let tar = tar.into_inner().unwrap();
    assert_eq!(unpack(&sandbox, folder.join("many"), &tar).await.unwrap().count, 580);
}
