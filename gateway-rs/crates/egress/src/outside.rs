//! Connections to servers: resolved, checked, and made to exactly the address that was checked.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use program::transport::{Dialer, Stream};
use prometheus_client::metrics::histogram::Histogram;
use resolve::{Address, Lookup};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::Instant;
use wire::egress::Verdict;

use crate::policy::{Blocked, Host, PACKAGES, Policy, Refusal, Target};
use crate::sandbox::Protocol;

/// What changes that there is no package cache.
const NO_CACHE: &str = "use the index itself; operators: egress.packages.enabled of the chart (rollbox up: \
                        ROLLBOX_EGRESS_PACKAGES_URL)";

/// Timeout of a look-up, with all its repetitions.
const LOOKUP_DEADLINE: Duration = Duration::from_secs(5);

/// Timeout of an attempt to connect that is not the last.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(3);

/// Addresses of a name that are looked at, and those of them that are tried.
const MAX_ADDRESSES: usize = 16;
const MAX_ATTEMPTS: usize = 3;

/// A server that takes nothing, or has vanished, is noticed after about this long.
const UNHEARD: Duration = Duration::from_secs(60);
const PROBE_INTERVAL: Duration = Duration::from_secs(20);

/// What is outside of the platform.
pub(crate) struct Outside {
    lookup: Box<dyn Lookup>,
    /// How long all attempts to connect may take together.
    connect: Duration,
    /// How long look-ups take.
    took: Histogram,
    /// Where the package cache is, and what finds it: the platform's own names are not those of the outside.
    packages: Option<Address>,
    dialer: Dialer,
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").finish_non_exhaustive()
    }
}

/// A connection, and the address that it was made to.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) stream: TcpStream,
    pub(crate) address: IpAddr,
}

impl Outside {
    /// `connect`: how long a server may take to accept a connection, all its addresses together.
    /// `packages`: where the package cache is.
    pub(crate) fn new(
        lookup: Box<dyn Lookup>,
        connect: Duration,
        took: Histogram,
        packages: Option<Address>,
    ) -> Self {
        Self { lookup, connect, took, packages, dialer: Dialer::default() }
    }

    /// Decides on `target` by `policy`, and connects to it, or for [`Protocol::Packages`] to the package cache.
    ///
    /// # Errors
    /// A refusal of the policy, before the name is resolved or by its addresses; or nothing answers there.
    ///
    /// # Cancel safety
    /// Cancel safe: a dropped attempt leaves no socket behind.
    pub(crate) async fn reach(
        &self,
        target: &Target,
        protocol: Protocol,
        policy: &Policy,
        blocked: &Blocked,
    ) -> Result<Reached, Refusal> {
        protocol.decide(policy, target)?;
        if protocol == Protocol::Packages {
            return self.cache(target, policy).await;
        }
        let addresses = match &target.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => self.resolve(name, target, policy).await?,
        };
        let addresses = allowed(addresses, target, policy, blocked).await?;
        connect(&addresses, target, policy, self.connect).await
    }

    async fn cache(&self, target: &Target, policy: &Policy) -> Result<Reached, Refusal> {
        let Some(address) = &self.packages else {
            let detail = format!("{target}: {PACKAGES} is no part of this installation");
            let refusal = policy.refusal(Verdict::DeniedName, "never/packages", detail);
            return Err(Refusal { knob: NO_CACHE, ..refusal });
        };
        let connected = tokio::time::timeout(self.connect, self.dialer.connect(address)).await;
        let reached =
            connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).and_then(
                |stream| match stream {
                    Stream::Tcp(stream) => {
                        tune(&stream)?;
                        Ok(Reached { address: stream.peer_addr()?.ip(), stream })
                    }
                    Stream::Unix(_) => Err(io::ErrorKind::Unsupported.into()),
                },
            );
        reached.map_err(|e| {
            let detail = format!("{target}: the package cache does not answer: {}", e.kind());
            policy.refusal(Verdict::PackagesSilent, "", detail)
        })
    }

    async fn resolve(&self, name: &str, target: &Target, policy: &Policy) -> Result<Vec<IpAddr>, Refusal> {
        let failed = |verdict, why: &str| policy.refusal(verdict, "", format!("{target}: {why}"));
        let began = Instant::now();
        let answered = tokio::time::timeout(LOOKUP_DEADLINE, self.lookup.lookup(name)).await;
        self.took.observe(began.elapsed().as_secs_f64());
        match answered {
            Ok(Ok(addresses)) => Ok(addresses.into_iter().take(MAX_ADDRESSES).collect()),
            Ok(Err(one)) if one.absent => Err(failed(Verdict::Unresolved, "the name has no address")),
            Ok(Err(_)) => Err(failed(Verdict::NameServerSilent, "no name server answers for the name")),
            Err(_) => Err(failed(Verdict::NameServerSilent, "no name server has answered in time")),
        }
    }
}

/// Those of the addresses that may be dialled, in their order.
async fn allowed(
    addresses: Vec<IpAddr>,
    target: &Target,
    policy: &Policy,
    blocked: &Blocked,
) -> Result<Vec<IpAddr>, Refusal> {
    let (mut allowed, mut refused) = (Vec::new(), None);
    for address in addresses {
        let own = !blocked.is_excepted(address) && is_own(address).await;
        let decided = policy.address(target, address, blocked);
        match decided.and_then(|()| if own { Err(policy.own_address(target, address)) } else { Ok(()) }) {
            Ok(()) => allowed.push(address),
            Err(refusal) => refused = refused.or(Some(refusal)),
        }
    }
    match refused {
        Some(refusal) if allowed.is_empty() => Err(refusal),
        _ => Ok(allowed),
    }
}

/// Whether it is an address of this machine: then its system would use it as the sender's too. Sends nothing.
async fn is_own(address: IpAddr) -> bool {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let sender = async {
        let socket = UdpSocket::bind((any, 0)).await?;
        // Whatever port: a datagram socket that is connected has only chosen its route.
        socket.connect((address, 9)).await?;
        socket.local_addr()
    };
    sender.await.is_ok_and(|sender: SocketAddr| sender.ip() == address)
}

async fn connect(
    addresses: &[IpAddr],
    target: &Target,
    policy: &Policy,
    within: Duration,
) -> Result<Reached, Refusal> {
    let unreachable = |why: String| policy.refusal(Verdict::Unreachable, "", format!("{target}: {why}"));
    let tried = &addresses[..addresses.len().min(MAX_ATTEMPTS)];
    let attempts = async {
        let mut failed = "it has no address".to_owned();
        for (place, address) in tried.iter().enumerate() {
            let deadline = if place + 1 < tried.len() { ATTEMPT_DEADLINE } else { within };
            match tokio::time::timeout(deadline, TcpStream::connect((*address, target.port))).await {
                Ok(Ok(stream)) if tune(&stream).is_ok() => return Ok(Reached { stream, address: *address }),
                Ok(Ok(_)) => failed = format!("{address} has closed at once"),
                Ok(Err(e)) => failed = format!("{address} does not answer: {}", e.kind()),
                Err(_) => failed = format!("{address} has not answered in time"),
            }
        }
        Err(unreachable(failed))
    };
    let late = || unreachable(format!("it has not answered within {} s", within.as_secs_f64()));
    tokio::time::timeout(within, attempts).await.unwrap_or_else(|_| Err(late()))
}

/// No delay for small pieces, and no connection without end to a server that has vanished.
fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(
        &TcpKeepalive::new().with_time(PROBE_INTERVAL).with_interval(PROBE_INTERVAL).with_retries(3),
    )?;
    socket.set_tcp_user_timeout(Some(UNHEARD))
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Mutex;

    use resolve::LookupFailed;
    use socket2::{Domain, Socket, Type};
    use tokio::net::TcpListener;
    use wire::{Code, egress};

    use super::*;

    /// Answers each look-up with the next list, and remembers what was asked for.
    struct Names(Mutex<Vec<Vec<IpAddr>>>);

    impl Lookup for Names {
        fn lookup<'a>(
            &'a self,
            host: &'a str,
        ) -> Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, LookupFailed>> + Send + 'a>> {
            Box::pin(async move {
                let absent =
                    || LookupFailed { host: host.to_owned(), reason: "none".to_owned(), absent: true };
                self.0.lock().unwrap().pop().ok_or_else(absent)
            })
        }
    }

    /// No name server answers.
    struct Silent;

    impl Lookup for Silent {
        fn lookup<'a>(
            &'a self,
            host: &'a str,
        ) -> Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, LookupFailed>> + Send + 'a>> {
            let failed = LookupFailed { host: host.to_owned(), reason: "timeout".to_owned(), absent: false };
            Box::pin(std::future::ready(Err(failed)))
        }
    }

    fn outside(answers: &[&[&str]]) -> Outside {
        let parsed = |list: &&[&str]| list.iter().map(|address| address.parse().unwrap()).collect();
        let names = Names(Mutex::new(answers.iter().rev().map(parsed).collect()));
        Outside::new(Box::new(names), Duration::from_secs(10), Histogram::new([1.0]), None)
    }

    fn open() -> Policy {
        let deny =
            egress::Rule { id: "rule 1".into(), cidr: "127.0.0.9/32".into(), ..egress::Rule::default() };
        Policy::read(&egress::Policy { mode: 2, deny: vec![deny], ..egress::Policy::default() }).unwrap()
    }

    fn excepted() -> Blocked {
        Blocked::new(Vec::new(), vec!["127.0.0.0/8".parse().unwrap()])
    }

    async fn refused(outside: &Outside, target: &str, blocked: &Blocked) -> Refusal {
        outside
            .reach(&Target::parse(target, None).unwrap(), Protocol::Connect, &open(), blocked)
            .await
            .unwrap_err()
    }

    #[tokio::test]
    async fn the_address_that_was_checked_is_dialled_and_no_other() {
        let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // The second answer, for a look-up that never comes, would be the rebinding.
        let outside = outside(&[&["10.0.0.1", "169.254.169.254", "127.0.0.9", "127.0.0.2"], &["10.0.0.1"]]);
        let target = Target::parse(&format!("a.test:{port}"), None).unwrap();
        let reached = outside.reach(&target, Protocol::Connect, &open(), &excepted()).await.unwrap();
        assert_eq!(reached.address.to_string(), "127.0.0.2");
        assert_eq!(reached.stream.peer_addr().unwrap().ip(), reached.address);
    }

    #[tokio::test]
    async fn addresses_that_are_not_allowed_are_not_dialled() {
        let private = outside(&[&["10.0.0.1", "::1"]]);
        let refusal = refused(&private, "a.test:80", &Blocked::default()).await;
        assert_eq!((refusal.verdict, &*refusal.rule), (Verdict::DeniedAddress, "never/private"));
        let denied = refused(&outside(&[&["127.0.0.9"]]), "a.test:80", &excepted()).await;
        assert_eq!((denied.verdict, &*denied.rule), (Verdict::DeniedAddress, "rule 1"));
    }

    #[tokio::test]
    async fn of_hundreds_of_addresses_few_are_looked_at() {
        let many: Vec<String> =
            (0..300).map(|n| format!("10.0.{}.{}", n / 256, n % 256)).chain(["127.0.0.2".into()]).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let refusal = refused(&outside(&[&many]), "a.test:80", &excepted()).await;
        assert_eq!(refusal.verdict, Verdict::DeniedAddress);
    }

    #[tokio::test]
    async fn a_name_without_an_address_a_silent_name_server_and_a_server_that_is_not_there_are_told_apart() {
        assert_eq!(refused(&outside(&[]), "a.test:80", &excepted()).await.verdict, Verdict::Unresolved);
        let free = TcpListener::bind("127.0.0.3:0").await.unwrap().local_addr().unwrap();
        assert_eq!(
            refused(&outside(&[]), &free.to_string(), &excepted()).await.verdict,
            Verdict::Unreachable
        );
        let silent = Outside::new(Box::new(Silent), Duration::from_secs(10), Histogram::new([1.0]), None);
        let refusal = refused(&silent, "a.test:80", &excepted()).await;
        assert_eq!(
            (refusal.verdict, refusal.problem().code),
            (Verdict::NameServerSilent, Code::EgressUnavailable)
        );
    }

    /// A port of some addresses where connections are never answered: each one's queue is full.
    fn hanging(hosts: &[&str]) -> (Vec<Socket>, Vec<std::net::TcpStream>, u16) {
        let (mut listeners, mut waiting, mut port) = (Vec::new(), Vec::new(), 0);
        for host in hosts {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.bind(&SocketAddr::new(host.parse().unwrap(), port).into()).unwrap();
            socket.listen(0).unwrap();
            let address = socket.local_addr().unwrap().as_socket().unwrap();
            waiting.push(std::net::TcpStream::connect(address).unwrap());
            port = address.port();
            listeners.push(socket);
        }
        (listeners, waiting, port)
    }

    #[tokio::test(start_paused = true)]
    async fn all_attempts_to_connect_end_together_within_the_time_that_is_set() {
        let (_listeners, _waiting, port) = hanging(&["127.0.0.2", "127.0.0.3", "127.0.0.4"]);
        let target = format!("a.test:{port}");
        for (hosts, seconds) in [(1, 10), (2, 10), (3, 10), (1, 2), (3, 4)] {
            let names = &["127.0.0.2", "127.0.0.3", "127.0.0.4"][..hosts];
            let outside = Outside { connect: Duration::from_secs(seconds), ..outside(&[names]) };
            let began = Instant::now();
            let refusal = refused(&outside, &target, &excepted()).await;
            assert_eq!(refusal.verdict, Verdict::Unreachable);
            let took = began.elapsed().as_secs_f64();
            assert!((took - f64::from(u32::try_from(seconds).unwrap())).abs() < 0.1, "{hosts}: {took} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        let (_listeners, _waiting, port) = hanging(&["127.0.0.2"]);
        let listener = TcpListener::bind(("127.0.0.3", port)).await.unwrap();
        let outside = outside(&[&["127.0.0.2", "127.0.0.3"]]);
        let (began, target) = (Instant::now(), Target::parse(&format!("a.test:{port}"), None).unwrap());
        let reached = outside.reach(&target, Protocol::Connect, &open(), &excepted()).await.unwrap();
        assert_eq!(reached.address, listener.local_addr().unwrap().ip());
        assert!(began.elapsed() >= ATTEMPT_DEADLINE && began.elapsed() < ATTEMPT_DEADLINE * 2);
    }

    #[tokio::test]
    async fn this_machine_is_known_by_its_own_addresses() {
        assert!(is_own("127.0.0.1".parse().unwrap()).await);
        assert!(!is_own("192.0.2.1".parse().unwrap()).await);
    }
}
