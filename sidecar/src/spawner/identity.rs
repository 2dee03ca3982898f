//! Resolves users and groups by the target's own `/etc/passwd` and `/etc/group`.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;

/// User files are cut beyond this size: no image has larger ones, and a command may have put them there.
const MAX_DATABASE_BYTES: u64 = 1 << 20;

/// Largest uid and gid that container runtimes accept.
const MAX_ID: u32 = i32::MAX.cast_unsigned();

/// The target's user and group files; empty where the image has none.
#[derive(Debug, Default)]
pub struct Databases {
    /// `/etc/passwd`
    pub passwd: String,
    /// `/etc/group`
    pub group: String,
}

/// The user and groups that a command runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Values for the environment variables that describe the user.
    pub account: Account,
}

/// Values for the variables `HOME`, `USER` and `LOGNAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    /// Login name; none for a uid without an entry.
    pub name: Option<String>,
    /// Home directory.
    pub home: String,
}

struct User<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

impl Databases {
    /// Reads the target's user files; must be called in its mount namespace.
    pub fn read() -> Self {
        Self { passwd: read_bounded("/etc/passwd"), group: read_bounded("/etc/group") }
    }

    /// Resolves `user` or `user:group`, each a name or a number. A number needs no entry; without one its primary group
    /// is 0, as in container engines. A group that is given replaces all other groups of the user.
    ///
    /// # Errors
    /// A sentence that names what is unknown.
    pub fn resolve(&self, spec: &str) -> Result<Identity, String> {
        let (user, group) = spec.split_once(':').map_or((spec, None), |(user, group)| (user, Some(group)));
        let entry = self.user_named(user);
        let uid = match &entry {
            Some(entry) => entry.uid,
            None => {
                number(user).ok_or_else(|| format!("user {user:?} is not in the sandbox's /etc/passwd"))?
            }
        };
        let entry = entry.or_else(|| self.user_numbered(uid));
        let (gid, groups) = match group {
            Some(group) => (self.group_id(group)?, Vec::new()),
            None => entry.as_ref().map_or((0, Vec::new()), |entry| (entry.gid, self.groups_of(entry.name))),
        };
        Ok(Identity { uid, gid, groups, account: account(uid, entry) })
    }

    /// Values for the environment variables that describe `uid`.
    pub fn account(&self, uid: u32) -> Account {
        account(uid, self.user_numbered(uid))
    }

    fn users(&self) -> impl Iterator<Item = User<'_>> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, uid, gid) = (fields.next()?, number(fields.nth(1)?)?, number(fields.next()?)?);
            Some(User { name, uid, gid, home: fields.nth(1).unwrap_or_default() })
        })
    }

    fn user_named(&self, name: &str) -> Option<User<'_>> {
        self.users().find(|user| user.name == name)
    }

    fn user_numbered(&self, uid: u32) -> Option<User<'_>> {
        self.users().find(|user| user.uid == uid)
    }

    /// Name, id and members of every group.
    fn groups(&self) -> impl Iterator<Item = (&str, u32, &str)> {
        self.group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            Some((fields.next()?, number(fields.nth(1)?)?, fields.next().unwrap_or_default()))
        })
    }

    fn group_id(&self, group: &str) -> Result<u32, String> {
        let entry = self.groups().find(|(name, ..)| *name == group).map(|(_, gid, _)| gid);
        entry
            .or_else(|| number(group))
            .ok_or_else(|| format!("group {group:?} is not in the sandbox's /etc/group"))
    }

    fn groups_of(&self, user: &str) -> Vec<u32> {
        let member = |members: &str| members.split(',').any(|member| member == user);
        self.groups().filter(|(_, _, members)| member(members)).map(|(_, gid, _)| gid).collect()
    }
}

fn account(uid: u32, entry: Option<User<'_>>) -> Account {
    let unknown = if uid == 0 { "/root" } else { "/" };
    let home = entry.as_ref().map(|entry| entry.home).filter(|home| !home.is_empty()).unwrap_or(unknown);
    Account { home: home.to_owned(), name: entry.as_ref().map(|entry| entry.name.to_owned()) }
}

/// Bounded, because the kernel takes the largest id of all as "keep the current one", which is root here.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|id| *id <= MAX_ID)
}

/// Any two files and any user, with a NUL between them, give an identity that the kernel takes as it is meant, or a
/// sentence.
#[cfg(any(test, fuzzing))]
pub fn check_databases(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.splitn(3, '\0').map(str::to_owned);
    let mut part = || parts.next().unwrap_or_default();
    let (spec, passwd, group) = (part(), part(), part());
    let databases = Databases { passwd, group };
    let Ok(found) = databases.resolve(&spec) else { return };
    assert!([found.uid, found.gid].iter().chain(&found.groups).all(|id| *id <= MAX_ID), "{found:?}");
    assert!(!found.account.home.is_empty() && !found.account.home.contains(['\n', ':']), "{found:?}");
    assert_eq!((databases.account(found.uid).home.is_empty(), databases.resolve(&spec)), (false, Ok(found)));
}

/// A missing file reads as an empty one. The open does not block, in case a command has put a FIFO there.
fn read_bounded(path: &str) -> String {
    let mut bytes = Vec::new();
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    if let Ok(file) =
        opened.and_then(|file| if file.metadata()?.is_file() { Ok(file) } else { Err(Errno::EINVAL.into()) })
    {
        // A partly read file is better than none: its complete lines are valid.
        let _ = file.take(MAX_DATABASE_BYTES).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn databases() -> Databases {
        Databases {
            passwd:
                "root:x:0:0:root:/root:/bin/bash\nbroken\nbob:x:1000:100::/home/bob:/bin/sh\n7up:x:1007:7::\n"
                    .to_owned(),
            group: "root:x:0:\nusers:x:100:\nvideo:x:44:alice,bob\nbad:x:y:bob\naudio:x:29:bob".to_owned(),
        }
    }

    fn resolve(spec: &str) -> Result<(u32, u32, Vec<u32>, String), String> {
        databases().resolve(spec).map(|found| (found.uid, found.gid, found.groups, found.account.home))
    }

    #[test]
    fn a_name_brings_its_groups_and_home() {
        assert_eq!(resolve("bob"), Ok((1000, 100, vec![44, 29], "/home/bob".into())));
        assert_eq!(resolve("1000"), resolve("bob"));
    }

    #[test]
    fn a_given_group_replaces_all_others() {
        assert_eq!(resolve("bob:video"), Ok((1000, 44, vec![], "/home/bob".into())));
        assert_eq!(resolve("0:7"), Ok((0, 7, vec![], "/root".into())));
    }

    #[test]
    fn a_number_needs_no_entry_and_a_name_may_start_with_a_digit() {
        assert_eq!(resolve("4711"), Ok((4711, 0, vec![], "/".into())));
        assert_eq!(resolve("7up"), Ok((1007, 7, vec![], "/".into())));
    }

    #[test]
    fn what_is_unknown_is_named() {
        assert_eq!(resolve("eve"), Err("user \"eve\" is not in the sandbox's /etc/passwd".into()));
        assert_eq!(resolve("bob:nope"), Err("group \"nope\" is not in the sandbox's /etc/group".into()));
        assert!(resolve("-1").is_err() && resolve("4294967295").is_err() && resolve("").is_err());
    }

    #[test]
    fn an_entry_with_an_id_out_of_range_is_no_entry() {
        let files = Databases {
            passwd: "eve:x:4294967295:0::/:\nbob:x:5:4294967295::/:".into(),
            group: "all:x:4294967295:bob".into(),
        };
        assert!(["eve", "bob", "0:all"].iter().all(|spec| files.resolve(spec).is_err()));
    }

    #[test]
    fn an_image_without_files_still_has_root() {
        let found = Databases::default().resolve("0").unwrap();
        assert_eq!((found.uid, found.gid, &*found.account.home), (0, 0, "/root"));
    }

    proptest! {
        #[test]
        fn no_file_and_no_spec_breaks_it(passwd in "[a-z0-9:,\n]{0,80}", group in "[a-z0-9:,\n]{0,80}", spec in "\\PC{0,12}") {
            check_databases([spec, passwd, group].join("\0").as_bytes());
        }
    }
}
