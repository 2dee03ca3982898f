use std::collections::HashMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use wire::egress;

use super::host::Host;

/// Ports of allowed hosts and networks whose rule names none.
const WEB: [RangeInclusive<u16>; 2] = [80..=80, 443..=443];
const ALL: [RangeInclusive<u16>; 1] = [1..=u16::MAX];

/// A rule that cannot be read. The policy as a whole is not used then: without one of its denials it would allow more
/// than its author meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("rule {id}: {reason}")]
pub struct BrokenRule {
    /// The rule.
    pub id: String,
    /// What is wrong with it.
    pub reason: String,
}

#[derive(Debug)]
struct Rule {
    id: Box<str>,
    ports: Box<[RangeInclusive<u16>]>,
}

/// One list of a policy. A look-up costs one hash of the name for each of its labels, however many rules there are.
#[derive(Debug, Default)]
pub(super) struct Rules {
    rules: Vec<Rule>,
    /// Name -> its rules, by their place in the list.
    names: HashMap<Box<str>, Vec<usize>>,
    /// `example.org` for `*.example.org`.
    below: HashMap<Box<str>, Vec<usize>>,
    /// Of `*`.
    any: Vec<usize>,
    nets: Vec<(IpNet, usize)>,
}

impl Rules {
    /// Takes in a list; `ports` are those of rules that name none.
    pub(super) fn allow(list: &[egress::Rule]) -> Result<Self, BrokenRule> {
        Self::read(list, &WEB)
    }

    pub(super) fn deny(list: &[egress::Rule]) -> Result<Self, BrokenRule> {
        Self::read(list, &ALL)
    }

    fn read(list: &[egress::Rule], ports: &[RangeInclusive<u16>]) -> Result<Self, BrokenRule> {
        let mut rules = Self::default();
        for rule in list {
            rules.add(rule, ports).map_err(|reason| BrokenRule { id: rule.id.clone(), reason })?;
        }
        Ok(rules)
    }

    fn add(&mut self, rule: &egress::Rule, ports: &[RangeInclusive<u16>]) -> Result<(), String> {
        let place = self.rules.len();
        match (rule.host.as_str(), rule.cidr.as_str()) {
            ("", "") => return Err("names neither host nor network".to_owned()),
            ("", cidr) => {
                let net = cidr.parse().map_err(|_| format!("{cidr:?} is no network"))?;
                self.nets.push((net, place));
            }
            ("*", "") => self.any.push(place),
            (host, "") => {
                let (names, host) = match host.strip_prefix("*.") {
                    Some(parent) => (&mut self.below, parent),
                    None => (&mut self.names, host),
                };
                match Host::parse(host) {
                    Ok(Host::Name(name)) => names.entry(name).or_default().push(place),
                    _ => return Err(format!("{host:?} is no host name")),
                }
            }
            _ => return Err("names a host and a network".to_owned()),
        }
        let ports = if rule.ports.is_empty() { ports.into() } else { ranges(&rule.ports)? };
        self.rules.push(Rule { id: rule.id.as_str().into(), ports });
        Ok(())
    }

    /// The first rule that names `host` on `port`.
    pub(super) fn find(&self, host: &Host, port: u16) -> Option<&str> {
        match host {
            Host::Name(name) => self.first(self.of_name(name), port),
            Host::Address(address) => self.find_address(*address, port),
        }
    }

    /// The first rule of a network that `address` is in.
    pub(super) fn find_address(&self, address: IpAddr, port: u16) -> Option<&str> {
        let around = self.nets.iter().filter(|(net, _)| net.contains(&address)).map(|(_, place)| *place);
        self.first(around, port)
    }

    /// Whether any rule is for names.
    pub(super) fn has_names(&self) -> bool {
        !(self.names.is_empty() && self.below.is_empty() && self.any.is_empty())
    }

    fn of_name<'a>(&'a self, name: &'a str) -> impl Iterator<Item = usize> + 'a {
        let parents = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
        let below = parents.filter_map(|parent| self.below.get(parent)).flatten();
        let own = self.names.get(name).into_iter().flatten();
        own.chain(below).chain(&self.any).copied()
    }

    fn first(&self, places: impl Iterator<Item = usize>, port: u16) -> Option<&str> {
        let fits = |place: &usize| self.rules[*place].ports.iter().any(|range| range.contains(&port));
        places.filter(fits).min().map(|place| &*self.rules[place].id)
    }
}

fn ranges(ports: &[egress::PortRange]) -> Result<Box<[RangeInclusive<u16>]>, String> {
    ports.iter().map(range).collect()
}

fn range(range: &egress::PortRange) -> Result<RangeInclusive<u16>, String> {
    let (first, last) = (range.first, range.last);
    let port = |number| u16::try_from(number).ok().filter(|port| *port != 0);
    match (port(first), port(last)) {
        (Some(first), Some(last)) if first <= last => Ok(first..=last),
        _ => Err(format!("{first}-{last} is no range of ports")),
    }
}
