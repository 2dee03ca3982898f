//! Turns an order into the arguments of execve: environment variables, user, working directory, programs to try. Pure.

use std::collections::BTreeMap;
use std::ffi::CString;

use super::clone::{Attempt, CStrings};
use super::frame::{OsBytes, Program, Refusal, Spawn};
use super::identity::{Account, Databases, Identity};
use crate::target::Target;

/// The environment variable that every process of a command carries, unless it clears its environment.
pub const MARKER: &str = "ROLLBOX_EXEC_ID";
/// The one that a shell sets for each of its commands.
pub const COMMAND_MARKER: &str = "ROLLBOX_COMMAND_ID";

/// Directories of PATH that are searched; no real PATH has more.
const MAX_DIRECTORIES: usize = 256;
/// The kernel's limit for the name of a file.
const MAX_NAME_BYTES: usize = 255;
/// TERM for a terminal: a type that all common terminals understand.
const DEFAULT_TERM: &[u8] = b"xterm-256color";
/// gVisor's limit for the arguments and for the environment variables, each. Beyond it gVisor returns `ENAMETOOLONG` or
/// `ENOMEM`, depending on where the string lies that exceeds the limit.
const GVISOR_LIST_BYTES: usize = 2 << 20;
const DEFAULT_PATH: &[u8] = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command, ready to be executed.
#[derive(Debug)]
pub struct Plan {
    /// The user and groups that it runs as.
    pub identity: Identity,
    /// Its working directory.
    pub cwd: CString,
    /// Its environment variables.
    pub environ: CStrings,
    /// Argument lists that `attempts` refer to.
    pub arguments: Vec<CStrings>,
    /// The programs to try; the first success wins.
    pub attempts: Vec<Attempt>,
    /// The program as the caller named it, for messages.
    pub program: String,
}

/// Why there is no plan, and a sentence for the caller.
pub type Refused = (Refusal, String);

impl Plan {
    /// Makes the plan of a command for `target`.
    ///
    /// # Errors
    /// The user is unknown, or a value contains a NUL.
    pub fn new(spawn: &Spawn, target: &Target, databases: &Databases) -> Result<Self, Refused> {
        let identity = identity(&spawn.user, target, databases)?;
        let environ = environment(spawn, target, &identity.account);
        let path = environ.get(&b"PATH"[..]).map_or(DEFAULT_PATH, Vec::as_slice);
        let lists = argument_lists(&spawn.program);
        let attempts = lists.iter().enumerate().flat_map(|(list, argv)| {
            let name = argv.first().map(Vec::as_slice).unwrap_or_default();
            candidates(name, path).into_iter().map(move |path| (path, list))
        });
        Ok(Self {
            cwd: c_string(directory(&spawn.cwd, &target.cwd))?,
            attempts: attempts
                .map(|(path, list)| Ok(Attempt { path: c_string(path)?, list }))
                .collect::<Result<_, _>>()?,
            arguments: lists.iter().map(|argv| c_strings(argv.iter().cloned())).collect::<Result<_, _>>()?,
            // The marker comes first, so that a scan of a large environment finds it soon.
            environ: c_strings(
                [(MARKER.as_bytes(), spawn.exec_id.as_bytes())]
                    .into_iter()
                    .chain(environ.iter().map(|(name, value)| (&**name, &**value)))
                    .map(|(name, value)| [name, b"=", value].concat()),
            )?,
            program: lists
                .first()
                .and_then(|argv| argv.first())
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .unwrap_or_default(),
            identity,
        })
    }

    /// Whether its arguments or its environment variables exceed gVisor's limit.
    pub fn is_too_large_for_gvisor(&self) -> bool {
        self.arguments.iter().chain([&self.environ]).any(|list| list.bytes() > GVISOR_LIST_BYTES)
    }

    /// The sentence for a caller whose arguments exceed what the kernel takes, which is `limit`.
    pub fn too_large(&self, limit: &str) -> String {
        let arguments = self.arguments.iter().map(CStrings::bytes).max().unwrap_or(0);
        let environ = self.environ.bytes();
        format!(
            "arguments of {arguments} bytes and an environment of {environ} (the image's included) are more than the \
             sandbox's kernel takes: {limit}"
        )
    }
}

fn identity(user: &str, target: &Target, databases: &Databases) -> Result<Identity, Refused> {
    if !user.is_empty() {
        return databases.resolve(user).map_err(|detail| (Refusal::UserNotFound, detail));
    }
    let status = &target.status;
    let account = databases.account(status.uid);
    Ok(Identity { uid: status.uid, gid: status.gid, groups: status.groups.clone(), account })
}

/// The image's variables, overridden by the caller's. HOME, USER and LOGNAME are filled in where neither sets them;
/// when the command runs as another user than the image's, the image's values for them do not count.
fn environment(spawn: &Spawn, target: &Target, account: &Account) -> BTreeMap<OsBytes, OsBytes> {
    let mut environ: BTreeMap<OsBytes, OsBytes> = target.environ.iter().cloned().collect();
    let name = account.name.as_deref();
    for (variable, value) in [("HOME", Some(&*account.home)), ("USER", name), ("LOGNAME", name)] {
        if !spawn.user.is_empty() {
            environ.remove(variable.as_bytes());
        }
        if let Some(value) = value {
            environ.entry(variable.into()).or_insert_with(|| value.into());
        }
    }
    if spawn.terminal.is_some() {
        environ.entry(b"TERM".to_vec()).or_insert_with(|| DEFAULT_TERM.to_vec());
    }
    environ.extend(spawn.env.iter().cloned());
    environ.remove(MARKER.as_bytes());
    environ
}

fn argument_lists(program: &Program) -> Vec<Vec<OsBytes>> {
    match program {
        Program::Argv(argv) => vec![argv.clone()],
        Program::Shell(text) => {
            ["bash", "sh"].map(|shell| vec![shell.into(), b"-c".to_vec(), text.clone()]).into()
        }
        Program::Worker => Vec::new(),
    }
}

/// The paths that execvp would try. An empty element of PATH means the working directory. Bounded, because name and
/// PATH are the caller's and each path is a copy of both.
fn candidates(name: &[u8], path: &[u8]) -> Vec<OsBytes> {
    if name.contains(&b'/') {
        return vec![name.to_vec()];
    }
    if name.len() > MAX_NAME_BYTES {
        return Vec::new();
    }
    path.split(|byte| *byte == b':')
        .take(MAX_DIRECTORIES)
        .map(|directory| if directory.is_empty() { &b"."[..] } else { directory })
        .map(|directory| [directory, b"/", name].concat())
        .collect()
}

/// Resolves a relative directory against the image's.
fn directory(wanted: &[u8], image: &[u8]) -> OsBytes {
    match wanted {
        b"" => image.to_vec(),
        [b'/', ..] => wanted.to_vec(),
        relative => [image, b"/", relative].concat(),
    }
}

fn c_string(bytes: OsBytes) -> Result<CString, Refused> {
    CString::new(bytes).map_err(|err| (Refusal::Internal, format!("an argument holds a NUL: {err}")))
}

fn c_strings(values: impl Iterator<Item = OsBytes>) -> Result<CStrings, Refused> {
    values.map(c_string).collect::<Result<Vec<_>, _>>().map(CStrings::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spawner::frame::Size;
    use crate::target::status::Status;

    fn target() -> Target {
        let pair = |name: &str, value: &str| (name.as_bytes().to_vec(), value.as_bytes().to_vec());
        Target {
            pid: 1,
            environ: vec![pair("PATH", "/a:/b"), pair("HOME", "/root"), pair("X", "image")],
            cwd: b"/srv".to_vec(),
            status: Status { uid: 0, gid: 0, ..Status::default() },
            limits: Vec::new(),
            mounts: String::new(),
        }
    }

    fn spawn(program: Program) -> Spawn {
        Spawn {
            id: 1,
            exec_id: "e1".into(),
            program,
            cwd: vec![],
            user: String::new(),
            umask: None,
            terminal: None,
            env: vec![],
            prompt: false,
        }
    }

    fn plan(spawn: &Spawn) -> Plan {
        let databases = Databases { passwd: "bob:x:5:5::/home/bob:".into(), ..Databases::default() };
        Plan::new(spawn, &target(), &databases).unwrap()
    }

    fn variable(plan: &Plan, name: &str) -> Option<String> {
        let prefix = format!("{name}=");
        plan.environ.iter().find_map(|entry| entry.to_str().ok()?.strip_prefix(&prefix).map(str::to_owned))
    }

    fn paths(plan: &Plan) -> Vec<&str> {
        plan.attempts.iter().map(|attempt| attempt.path.to_str().unwrap()).collect()
    }

    #[test]
    fn the_callers_variables_win_over_the_images_and_the_marker_over_both() {
        let mut order = spawn(Program::Shell(b"true".to_vec()));
        order.env = vec![(b"X".to_vec(), b"call".to_vec()), (MARKER.into(), b"forged".to_vec())];
        let plan = plan(&order);
        assert_eq!(variable(&plan, "X").as_deref(), Some("call"));
        assert_eq!(variable(&plan, MARKER).as_deref(), Some("e1"));
        assert_eq!(variable(&plan, "HOME").as_deref(), Some("/root"));
    }

    #[test]
    fn another_user_brings_another_home_unless_the_caller_says() {
        let mut order = spawn(Program::Shell(b"true".to_vec()));
        order.user = "bob".into();
        let first = plan(&order);
        assert_eq!(variable(&first, "HOME").as_deref(), Some("/home/bob"));
        assert_eq!(variable(&first, "USER").as_deref(), Some("bob"));
        order.env = vec![(b"HOME".to_vec(), b"/mine".to_vec())];
        assert_eq!(variable(&plan(&order), "HOME").as_deref(), Some("/mine"));
    }

    #[test]
    fn a_terminal_has_a_name_unless_somebody_says_another() {
        let mut order = spawn(Program::Shell(b"true".to_vec()));
        assert_eq!(variable(&plan(&order), "TERM"), None);
        order.terminal = Some(Size { columns: 80, rows: 24 });
        assert_eq!(variable(&plan(&order), "TERM").as_deref(), Some("xterm-256color"));
        order.env = vec![(b"TERM".to_vec(), b"dumb".to_vec())];
        assert_eq!(variable(&plan(&order), "TERM").as_deref(), Some("dumb"));
    }

    #[test]
    fn a_bare_name_is_searched_in_the_commands_own_path_and_a_path_is_taken_as_it_is() {
        let mut order = spawn(Program::Argv(vec![b"prog".to_vec()]));
        assert_eq!(paths(&plan(&order)), ["/a/prog", "/b/prog"]);
        order.env = vec![(b"PATH".to_vec(), b"/c::".to_vec())];
        assert_eq!(paths(&plan(&order)), ["/c/prog", "./prog", "./prog"]);
        order.program = Program::Argv(vec![b"./prog".to_vec()]);
        assert_eq!(paths(&plan(&order)), ["./prog"]);
    }

    #[test]
    fn neither_a_long_name_nor_a_long_path_is_multiplied() {
        let many = ":".repeat(1 << 20);
        assert_eq!(candidates(&[b'x'; MAX_NAME_BYTES], many.as_bytes()).len(), MAX_DIRECTORIES);
        assert!(candidates(&[b'x'; MAX_NAME_BYTES + 1], many.as_bytes()).is_empty());
    }

    #[test]
    fn a_string_goes_to_bash_and_where_there_is_none_to_sh() {
        let plan = plan(&spawn(Program::Shell(b"echo".to_vec())));
        assert_eq!(paths(&plan), ["/a/bash", "/b/bash", "/a/sh", "/b/sh"]);
        assert_eq!(plan.attempts.iter().map(|attempt| attempt.list).collect::<Vec<_>>(), [0, 0, 1, 1]);
        assert!(plan.arguments[1].iter().map(|text| text.to_bytes()).eq([&b"sh"[..], b"-c", b"echo"]));
    }

    #[test]
    fn what_gvisor_does_not_take_is_known_by_the_size_of_each_list() {
        let string = vec![b'x'; 100 << 10];
        let with = |arguments: usize, variables: u8| {
            let mut order =
                spawn(Program::Argv([vec![b"true".to_vec()], vec![string.clone(); arguments]].concat()));
            order.env = (0..variables).map(|n| (vec![b'A' + n], string.clone())).collect();
            plan(&order)
        };
        assert!(!with(20, 20).is_too_large_for_gvisor(), "4 MiB in all");
        assert!(with(21, 0).is_too_large_for_gvisor());
        assert!(with(0, 21).is_too_large_for_gvisor());
    }

    #[test]
    fn the_marker_is_found_at_the_beginning_of_a_large_environment() {
        let plan = plan(&spawn(Program::Shell(b"true".to_vec())));
        assert_eq!(plan.environ.iter().next().unwrap().to_str(), Ok("ROLLBOX_EXEC_ID=e1"));
    }

    #[test]
    fn a_relative_directory_starts_at_the_images() {
        for (wanted, expected) in [("", "/srv"), ("/x", "/x"), ("a/b", "/srv/a/b")] {
            assert_eq!(directory(wanted.as_bytes(), b"/srv"), expected.as_bytes());
        }
    }
}
