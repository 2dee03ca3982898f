//! Settings from the process's environment variables, read once before any socket is bound.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use token::Verifier;

const PREFIX: &str = "ROLLBOX_SIDECAR_";
/// `sun_path` of a Unix address, less its final NUL.
const MAX_SOCKET_PATH_BYTES: usize = 107;
const MAX_WAIT_MS: u64 = 3_600_000;
/// Where programs look for a resolver.
pub const NAMES_PORT: u16 = 53;

/// Where to listen, or where to push to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A Unix socket, by path.
    Unix(PathBuf),
    /// A TCP address. No host names: a static binary cannot resolve them, and the addresses are known.
    Tcp(SocketAddr),
}

impl Endpoint {
    /// The TCP port, if it is a TCP address.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(address) => Some(address.port()),
        }
    }
}

/// The limits that the sandbox was given; 0: no limit, or none that is known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Of processor time, in thousandths of a core.
    pub cpu_millicores: u32,
    /// Of memory, without the allowance for the sidecar itself.
    pub memory_bytes: u64,
    /// Of the root file system.
    pub disk_bytes: u64,
    /// Processes and threads.
    pub pids: u32,
}

/// What programs of the sandbox find on their loopback where egress is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Egress {
    /// The port of the proxy.
    pub port: u16,
    /// Whether there is a resolver too, which knows no name.
    pub dns: bool,
}

/// Everything that the sidecar gets as configuration.
#[derive(Debug)]
pub struct Settings {
    /// The one sandbox that this sidecar serves.
    pub sandbox_id: String,
    /// Where the agent listens.
    pub listen: Endpoint,
    /// The address that the readiness push reports; none when the control plane knows it.
    pub advertise: Option<String>,
    /// Where readiness is pushed.
    pub ready_url: Endpoint,
    /// The credential of the readiness push.
    pub ready_token: String,
    /// Verifies the tokens of callers.
    pub verifier: Arc<Verifier>,
    /// Where the target's binary is copied to before anything else; none when another part provides it.
    pub install: Option<PathBuf>,
    /// `argv[0]` of the target's main process.
    pub target_command: String,
    /// How long an exec lives on after its last waiter has left.
    pub orphan_grace: Duration,
    /// How long the target may take to appear.
    pub start_timeout: Duration,
    /// The limits that usage is reported against; that of processors is told to programs, and under gVisor the one for
    /// processes is also enforced here.
    pub limits: Limits,
    /// None where egress is not installed.
    pub egress: Option<Egress>,
    /// Whether an interpreter of Python is to wait for its first caller.
    pub interpreter: bool,
    /// The package indexes that the package cache has.
    pub packages: Vec<String>,
    /// Where the platform has mounted folders of the node that programs may write to.
    pub writable_mounts: Vec<PathBuf>,
}

/// A setting that violates its rule.
#[derive(Debug, PartialEq, Eq)]
pub struct BadSetting {
    variable: String,
    value: Option<String>,
    rule: &'static str,
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            None => write!(f, "{} is not set; it must be {}", self.variable, self.rule),
            Some(value) => write!(f, "{} is {value:?}; it must be {}", self.variable, self.rule),
        }
    }
}

impl std::error::Error for BadSetting {}

impl Settings {
    /// Reads all settings through `lookup`, which maps a variable's full name to its value.
    ///
    /// # Errors
    /// The first setting that is missing or violates its rule; a credential's value is not repeated.
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, BadSetting> {
        let source = Source { lookup: &lookup };
        let egress = source.egress()?;
        Ok(Self {
            sandbox_id: source.required("SANDBOX_ID", "1 to 63 of a-z, 0-9 and -", sandbox_id)?,
            listen: source.required(
                "LISTEN",
                "unix:/PATH (at most 107 bytes) or tcp:ADDRESS:PORT",
                |text| endpoint(text, "tcp:"),
            )?,
            advertise: source.optional("ADVERTISE", "a non-empty address", non_empty)?,
            ready_url: source.required(
                "READY_URL",
                "unix:/PATH (at most 107 bytes) or http://ADDRESS:PORT",
                |text| endpoint(text, "http://"),
            )?,
            ready_token: source.secret("READY_TOKEN", "a token of visible ASCII characters", visible)?,
            verifier: source.required("TOKEN_PUBLIC_KEY", "an Ed25519 public key in base64url", |text| {
                Verifier::new(text).ok().map(Arc::new)
            })?,
            install: source.optional("INSTALL", "an absolute path of a file", file_path)?,
            target_command: source
                .optional("TARGET_COMMAND", "a non-empty path", non_empty)?
                .unwrap_or_else(|| "/.rollbox/target".to_owned()),
            orphan_grace: source.duration_ms("ORPHAN_GRACE_MS", 30_000)?,
            start_timeout: source.duration_ms("START_TIMEOUT_MS", 60_000)?,
            limits: Limits {
                cpu_millicores: source.limit("CPU_LIMIT_MILLICORES")?,
                memory_bytes: source.limit("MEMORY_LIMIT_BYTES")?,
                disk_bytes: source.limit("DISK_LIMIT_BYTES")?,
                pids: source.limit("PIDS_LIMIT")?,
            },
            egress,
            interpreter: source
                .optional("INTERPRETER", "python", |text| (text == "python").then_some(()))?
                .is_some(),
            packages: source.packages(egress)?,
            writable_mounts: source
                .optional("WRITABLE_MOUNTS", "absolute paths other than /, separated by colons", folders)?
                .unwrap_or_default(),
        })
    }
}

struct Source<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
}

impl Source<'_> {
    fn optional<T>(
        &self,
        name: &str,
        rule: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, BadSetting> {
        let variable = format!("{PREFIX}{name}");
        let Some(value) = (self.lookup)(&variable) else {
            return Ok(None);
        };
        match parse(&value) {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(BadSetting { variable, value: Some(value), rule }),
        }
    }

    fn required<T>(
        &self,
        name: &str,
        rule: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, BadSetting> {
        let missing = || BadSetting { variable: format!("{PREFIX}{name}"), value: None, rule };
        self.optional(name, rule, parse)?.ok_or_else(missing)
    }

    fn secret<T>(
        &self,
        name: &str,
        rule: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, BadSetting> {
        self.required(name, rule, parse)
            .map_err(|bad| BadSetting { value: bad.value.map(|_| "(hidden)".to_owned()), ..bad })
    }

    fn limit<T: FromStr + Default>(&self, name: &str) -> Result<T, BadSetting> {
        Ok(self.optional(name, "a whole number", |text| text.parse().ok())?.unwrap_or_default())
    }

    /// A resolver without the port that programs shall use instead is refused.
    fn egress(&self) -> Result<Option<Egress>, BadSetting> {
        let port = self.optional("EGRESS_PORT", "a port from 1 to 65535 other than 53", |text| {
            text.parse().ok().filter(|port| ![0, NAMES_PORT].contains(port))
        })?;
        let flag = |text: &str| ["0", "1"].iter().position(|flag| *flag == text);
        let without = "0 or 1, and 0 without EGRESS_PORT";
        let dns = self
            .optional("EGRESS_DNS", without, |text| flag(text).filter(|flag| *flag == 0 || port.is_some()))?;
        Ok(port.map(|port| Egress { port, dns: dns == Some(1) }))
    }

    fn packages(&self, egress: Option<Egress>) -> Result<Vec<String>, BadSetting> {
        let names = |text: &str| {
            let names: Vec<String> = text.split(',').map(str::to_owned).collect();
            names.iter().all(|name| is_host_name(name)).then_some(names).filter(|_| egress.is_some())
        };
        let rule = "host names in small letters, separated by commas, and none without EGRESS_PORT";
        Ok(self.optional("EGRESS_PACKAGES", rule, names)?.unwrap_or_default())
    }

    fn duration_ms(&self, name: &str, default_ms: u64) -> Result<Duration, BadSetting> {
        let parse = |text: &str| text.parse().ok().filter(|ms| (1..=MAX_WAIT_MS).contains(ms));
        let ms = self.optional(name, "a number of milliseconds from 1 to 3600000", parse)?;
        Ok(Duration::from_millis(ms.unwrap_or(default_ms)))
    }
}

fn sandbox_id(text: &str) -> Option<String> {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    ((1..=63).contains(&text.len()) && text.bytes().all(legal)).then(|| text.to_owned())
}

/// As it becomes a part of an address in a program's environment.
fn is_host_name(text: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    !text.is_empty() && text.bytes().all(legal)
}

fn endpoint(text: &str, tcp_prefix: &str) -> Option<Endpoint> {
    if let Some(path) = text.strip_prefix("unix:") {
        let legal = path.starts_with('/') && path.len() <= MAX_SOCKET_PATH_BYTES && !path.contains('\0');
        return legal.then(|| Endpoint::Unix(path.into()));
    }
    text.strip_prefix(tcp_prefix)?.parse().ok().map(Endpoint::Tcp)
}

fn file_path(text: &str) -> Option<PathBuf> {
    let path = PathBuf::from(text);
    (path.is_absolute() && path.file_name().is_some() && !text.contains('\0')).then_some(path)
}

fn folders(text: &str) -> Option<Vec<PathBuf>> {
    text.split(':').map(file_path).collect()
}

fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn visible(text: &str) -> Option<String> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn read_with(name: &str, value: Option<&str>) -> Result<Settings, BadSetting> {
        Settings::read(|variable| {
            let asked = variable.strip_prefix(PREFIX)?;
            if asked == name {
                return value.map(str::to_owned);
            }
            let text = match asked {
                "SANDBOX_ID" => "sb-1",
                "LISTEN" => "unix:/run/a.sock",
                "READY_URL" => "http://10.0.0.1:80",
                "READY_TOKEN" => "t.t.t",
                "TOKEN_PUBLIC_KEY" => KEY,
                _ => return None,
            };
            Some(text.to_owned())
        })
    }

    #[test]
    fn defaults_stand_where_nothing_is_said() {
        let settings = read_with("", None).unwrap();
        assert_eq!(settings.listen, Endpoint::Unix("/run/a.sock".into()));
        assert_eq!(settings.ready_url, Endpoint::Tcp("10.0.0.1:80".parse().unwrap()));
        assert_eq!(settings.target_command, "/.rollbox/target");
        assert_eq!(settings.orphan_grace, Duration::from_secs(30));
        assert_eq!((settings.advertise, settings.install, settings.egress), (None, None, None));
        assert!(settings.writable_mounts.is_empty());
    }

    #[test]
    fn mount_points_are_separated_by_colons() {
        let settings = read_with("WRITABLE_MOUNTS", Some("/cache:/var/shared,too")).unwrap();
        assert_eq!(settings.writable_mounts, ["/cache", "/var/shared,too"].map(PathBuf::from));
    }

    #[test]
    fn a_bad_value_is_named_with_its_variable_and_rule() {
        let bad = read_with("START_TIMEOUT_MS", Some("1s")).unwrap_err();
        assert_eq!(
            bad.to_string(),
            "ROLLBOX_SIDECAR_START_TIMEOUT_MS is \"1s\"; it must be a number of milliseconds from 1 to 3600000"
        );
    }

    #[test]
    fn every_rule_bites() {
        let long = format!("unix:/{}", "x".repeat(MAX_SOCKET_PATH_BYTES));
        for (name, value) in [
            ("SANDBOX_ID", "Sb_1"),
            ("SANDBOX_ID", ""),
            ("LISTEN", "0.0.0.0:7070"),
            ("LISTEN", "tcp:localhost:7070"),
            ("LISTEN", "unix:relative"),
            ("LISTEN", long.as_str()),
            ("READY_URL", "https://10.0.0.1:80"),
            ("READY_TOKEN", "with space"),
            ("TOKEN_PUBLIC_KEY", "short"),
            ("TARGET_COMMAND", ""),
            ("INSTALL", "target"),
            ("INSTALL", "/"),
            ("ORPHAN_GRACE_MS", "0"),
            ("ORPHAN_GRACE_MS", "3600001"),
            ("PIDS_LIMIT", "-1"),
            ("MEMORY_LIMIT_BYTES", "2Gi"),
            ("EGRESS_PORT", "0"),
            ("EGRESS_PORT", "53"),
            ("EGRESS_PORT", "65536"),
            ("EGRESS_DNS", "1"),
            ("EGRESS_DNS", "yes"),
            ("EGRESS_PACKAGES", "pypi.org"),
            ("INTERPRETER", "node"),
            ("WRITABLE_MOUNTS", ""),
            ("WRITABLE_MOUNTS", "/cache:relative"),
            ("WRITABLE_MOUNTS", "/cache:/"),
        ] {
            let bad = read_with(name, Some(value)).unwrap_err();
            assert!(bad.variable.ends_with(name), "{name}={value}: {bad}");
        }
    }

    #[test]
    fn a_missing_setting_is_named_and_a_credential_is_not_repeated() {
        assert!(read_with("SANDBOX_ID", None).unwrap_err().to_string().contains("is not set"));
        assert!(!read_with("READY_TOKEN", Some("s3 cret")).unwrap_err().to_string().contains("cret"));
    }
}
