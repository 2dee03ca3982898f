use std::net::IpAddr;

use wire::egress::{self, Mode, Verdict};
use wire::{Code, Problem};

use super::blocked::Blocked;
use super::host::{Host, Target};
use super::index::PACKAGES;
use super::rules::{BrokenRule, Rules};

/// The port on which nothing but TLS is spoken where rules are for names.
const HTTPS: u16 = 443;

/// A policy, ready for decisions.
#[derive(Debug)]
pub struct Policy {
    name: Box<str>,
    mode: Mode,
    allow: Rules,
    deny: Rules,
    limits: Limits,
    /// Hosts that are reached through the package cache alone.
    dated: Rules,
    /// What came later is not there; empty: no date.
    until: Box<str>,
}

/// Limits of a policy; `None`: the replica's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Connections of one sandbox that are open at once.
    pub connections: Option<usize>,
    /// New connections of one sandbox per second, after a burst of as many.
    pub connections_per_second: Option<u32>,
    /// Of one sandbox, both directions together.
    pub bytes_per_second: Option<u64>,
    /// Of one sandbox since this replica serves it, both directions together.
    pub total_bytes: Option<u64>,
    /// Connections of all sandboxes of an owner that are open at once at this replica.
    pub owner_connections: Option<usize>,
    /// New connections of all sandboxes of an owner per second at this replica, after a burst of as many.
    pub owner_connections_per_second: Option<u32>,
    /// Of all sandboxes of an owner at this replica, both directions together.
    pub owner_bytes_per_second: Option<u64>,
    /// The same, since midnight UTC or this replica's start.
    pub owner_daily_bytes: Option<u64>,
}

/// How the TLS of a connection has to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// No rule is for names.
    Free,
    /// If the connection begins with TLS, its server name is checked.
    Checked,
    /// It has to begin with TLS, and its server name is checked.
    Required,
}

/// Why a connection is not made, or does not stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The kind.
    pub verdict: Verdict,
    /// Name of the policy; empty where none has decided.
    pub policy: Box<str>,
    /// Id of the rule; empty where no rule says it.
    pub rule: Box<str>,
    /// One sentence that names the value at fault.
    pub detail: String,
    /// What would have to be changed for it.
    pub knob: &'static str,
}

/// What changes a policy.
const SWITCH: &str = "await sandbox.egress(POLICY), or rollbox egress set SANDBOX POLICY";
/// What changes it where the policy allows the connection, and something else has failed.
const SERVER: &str = "the policy allows it: look at the name and its server, and try again";
const PLATFORM: &str = "the policy allows it: try again; operators: rollbox doctor";
const QUOTA: &str = "operators: rollbox quota set OWNER --egress-...";
const REPLICA: &str = "operators: egress.limits.connections of the chart, or more replicas (rollbox up: \
                       ROLLBOX_EGRESS_MAX_CONNECTIONS)";
const EXCEPTION: &str = "none for users; operators: egress.allowedPrivateCidrs of the chart (rollbox up: \
                         ROLLBOX_EGRESS_ALLOWED_PRIVATE_CIDRS)";

impl Policy {
    /// Takes in a policy of the feed.
    ///
    /// # Errors
    /// The first rule that cannot be read.
    pub fn read(policy: &egress::Policy) -> Result<Self, BrokenRule> {
        let mode = Mode::try_from(policy.mode).map_err(|_| BrokenRule {
            id: String::new(),
            reason: format!("{} is no mode that this replica knows", policy.mode),
        })?;
        if (mode == Mode::Dated) != is_date(&policy.until) {
            let reason = format!("{:?} is no date of a policy of mode {}", policy.until, mode.as_str_name());
            return Err(BrokenRule { id: String::new(), reason });
        }
        Ok(Self {
            name: policy.name.as_str().into(),
            mode,
            allow: Rules::allow(&policy.allow)?,
            deny: Rules::deny(&policy.deny)?,
            limits: policy.limits.map(|limits| Limits::read(&limits)).unwrap_or_default(),
            dated: Rules::deny(&policy.dated)?,
            until: policy.until.as_str().into(),
        })
    }

    /// Nothing is allowed: for a sandbox whose policy is not known or cannot be read.
    pub fn nothing(name: &str) -> Self {
        Self {
            name: name.into(),
            mode: Mode::Offline,
            allow: Rules::default(),
            deny: Rules::default(),
            limits: Limits::default(),
            dated: Rules::default(),
            until: Box::default(),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The date of which package indexes are seen, as `2024-06-01T00:00:00Z`; empty: they are seen as they are.
    pub fn until(&self) -> &str {
        &self.until
    }

    /// Decides, as [`Policy::target`], on a connection that does not go through the package cache.
    ///
    /// # Errors
    /// Also: the cache is the only way to it.
    pub fn direct(&self, target: &Target) -> Result<&str, Refusal> {
        if matches!(&target.host, Host::Name(name) if **name == *PACKAGES) {
            let detail = format!("{target}: the package cache takes GET http://{PACKAGES}/INDEX/PATH alone");
            return Err(self.refusal(Verdict::DeniedName, "never/packages", detail));
        }
        let rule = self.target(target)?;
        if self.dated.find(&target.host, target.port).is_none() {
            return Ok(rule);
        }
        let detail = format!(
            "{target}: under the policy {} packages are those of {}: use http://{PACKAGES}/{}/ instead",
            self.name, self.until, target.host
        );
        Err(self.refusal(Verdict::DeniedName, "until", detail))
    }

    /// Decides by name, or by address where an address was asked for. Returns the id of the rule that allows it, empty
    /// in mode `open`.
    ///
    /// # Errors
    /// A rule denies it, or none allows it.
    pub fn target(&self, target: &Target) -> Result<&str, Refusal> {
        let Target { host, port } = target;
        if self.mode == Mode::Offline {
            let detail = format!("{target}: the policy {} allows no connection", self.name);
            return Err(self.refusal(Verdict::DeniedName, "", detail));
        }
        if let Some(rule) = self.deny.find(host, *port) {
            let verdict = match host {
                Host::Name(_) => Verdict::DeniedName,
                Host::Address(_) => Verdict::DeniedAddress,
            };
            let detail = format!("{target}: denied by {rule} of the policy {}", self.name);
            return Err(self.refusal(verdict, rule, detail));
        }
        match (self.mode, self.allow.find(host, *port)) {
            (Mode::Open, _) => Ok(""),
            (_, Some(rule)) => Ok(rule),
            (_, None) => {
                let detail =
                    format!("{target}: no rule of the policy {} allows this host and port", self.name);
                Err(self.refusal(Verdict::DeniedName, "", detail))
            }
        }
    }

    /// Decides by the address that would be dialled for `target`.
    ///
    /// # Errors
    /// The address is never reached, or a rule denies it.
    pub fn address(&self, target: &Target, address: IpAddr, blocked: &Blocked) -> Result<(), Refusal> {
        if let Some(class) = blocked.class(address) {
            return Err(self.never(target, address, class));
        }
        match self.deny.find_address(address, target.port) {
            Some(rule) => {
                let detail = format!("{target}: {address} is denied by {rule} of the policy {}", self.name);
                Err(self.refusal(Verdict::DeniedAddress, rule, detail))
            }
            None => Ok(()),
        }
    }

    /// The refusal of an address of the machine that egress runs on.
    pub fn own_address(&self, target: &Target, address: IpAddr) -> Refusal {
        self.never(target, address, "platform")
    }

    fn never(&self, target: &Target, address: IpAddr, class: &str) -> Refusal {
        let detail = format!("{target}: {address} is never reached from a sandbox ({class})");
        let refusal = self.refusal(Verdict::DeniedAddress, &format!("never/{class}"), detail);
        Refusal { knob: EXCEPTION, ..refusal }
    }

    /// How the TLS of a connection to `target` has to look. Where rules are for names the name in TLS counts too, else
    /// a server that has many names would answer for one that is not allowed.
    pub fn tls(&self, target: &Target) -> Tls {
        let by_name = matches!(target.host, Host::Name(_)) && matches!(self.mode, Mode::Rules | Mode::Dated);
        if !by_name && !self.deny.has_names() && !self.dated.has_names() {
            return Tls::Free;
        }
        if target.port == HTTPS { Tls::Required } else { Tls::Checked }
    }

    /// Decides by the server name in the TLS of a connection to `target`; `None` where it has none.
    ///
    /// # Errors
    /// It is another name than was asked for; of a connection to an address, a name that is denied, or none.
    pub fn server_name(&self, target: &Target, name: Option<&Host>) -> Result<(), Refusal> {
        let refused =
            |rule: &str, why: String| Err(self.refusal(Verdict::DeniedTls, rule, format!("{target}: {why}")));
        match (&target.host, name) {
            (Host::Name(_), Some(name)) if *name == target.host => Ok(()),
            (Host::Name(_), Some(name)) => refused("", format!("the TLS server name is {name}")),
            (Host::Address(_), Some(name)) => {
                let denied = || self.deny.find(name, target.port);
                match self.dated.find(name, target.port).or_else(denied) {
                    Some(rule) => refused(rule, format!("the TLS server name {name} is denied by {rule}")),
                    None => Ok(()),
                }
            }
            (_, None) => refused("", "its TLS has no server name, and rules are for names".to_owned()),
        }
    }

    /// A refusal by a limit, which is the policy's, of its owner's quota, or the replica's.
    pub fn limit(&self, limit: &str, detail: String) -> Refusal {
        let knob = match limit {
            "replica" => REPLICA,
            _ if limit.starts_with("owner_") => QUOTA,
            _ => SWITCH,
        };
        let refusal = self.refusal(Verdict::DeniedLimit, &format!("limits/{limit}"), detail);
        Refusal { knob, ..refusal }
    }

    /// A refusal under this policy, with what helps: a switch, unless the policy allows the connection.
    pub fn refusal(&self, verdict: Verdict, rule: &str, detail: String) -> Refusal {
        let knob = match verdict {
            Verdict::Unresolved | Verdict::Unreachable => SERVER,
            Verdict::NameServerSilent | Verdict::PackagesSilent => PLATFORM,
            _ => SWITCH,
        };
        Refusal { verdict, policy: self.name.clone(), rule: rule.into(), detail, knob }
    }
}

/// As the control plane writes it; it becomes a header.
fn is_date(text: &str) -> bool {
    let form = "0000-00-00T00:00:00Z";
    let fits = |(byte, form): (u8, u8)| if form == b'0' { byte.is_ascii_digit() } else { byte == form };
    text.len() == form.len() && text.bytes().zip(form.bytes()).all(fits)
}

impl Limits {
    fn read(limits: &egress::Limits) -> Self {
        let count = |number: u32| usize::try_from(number).ok().filter(|number| *number > 0);
        Self {
            connections: count(limits.connections),
            connections_per_second: Some(limits.connections_per_second).filter(|number| *number > 0),
            bytes_per_second: Some(limits.bytes_per_second).filter(|number| *number > 0),
            total_bytes: Some(limits.total_bytes).filter(|number| *number > 0),
            owner_connections: count(limits.owner_connections),
            owner_connections_per_second: Some(limits.owner_connections_per_second)
                .filter(|number| *number > 0),
            owner_bytes_per_second: Some(limits.owner_bytes_per_second).filter(|number| *number > 0),
            owner_daily_bytes: Some(limits.owner_daily_bytes).filter(|number| *number > 0),
        }
    }
}

impl Refusal {
    /// A request that is not one of a proxy; no policy has decided.
    pub fn bad_request(detail: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::BadRequest,
            policy: Box::default(),
            rule: Box::default(),
            detail: detail.into(),
            knob: "",
        }
    }

    /// As the body of an answer says it.
    pub fn problem(&self) -> Problem {
        let code = match self.verdict {
            Verdict::BadRequest => Code::InvalidArgument,
            Verdict::Unresolved | Verdict::Unreachable => Code::EgressUnreachable,
            // Neither the name nor its server is known to be at fault: the platform's means of asking is.
            Verdict::NameServerSilent | Verdict::PackagesSilent => Code::EgressUnavailable,
            _ => Code::EgressDenied,
        };
        let mut problem = Problem::new(code, self.detail.clone())
            .with("verdict", self.verdict.as_str_name().to_lowercase());
        for (name, value) in [("policy", &*self.policy), ("rule", &*self.rule), ("knob", self.knob)] {
            if !value.is_empty() {
                problem = problem.with(name, value);
            }
        }
        problem
    }
}

#[cfg(test)]
mod tests;
