//! Authentication of calls: a token of this sandbox opens every call but one, a token for a port opens connections to
//! that port only, and the token of egress opens the link.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use token::{Verifier, bearer};
use tokio::sync::watch;
use tonic::service::Interceptor;
use tonic::{Request, Status};
use wire::Problem;

use crate::bound::Bound;
use crate::problem::status;

/// The scope that opens every call but that of egress.
const SCOPE: &str = "exec";
/// Prefix of the scope for one port (`port:8000`), which opens connections to that port and nothing else.
const PORT_SCOPE: &str = "port:";
/// The scope of the token that egress has, which opens that one call alone; and the call, which no other token opens.
const EGRESS_SCOPE: &str = "egress";
const EGRESS_CALL: &str = "/rollbox.agent.v1.Agent/OpenEgress";
/// The calls that a token for a port opens.
const PORT_CALLS: [&str; 2] = ["/rollbox.agent.v1.Agent/Connect", "/rollbox.agent.v1.Agent/WaitPort"];

/// The path of a request. It travels as an extension, because tonic does not show the path to an interceptor.
#[derive(Debug, Clone)]
pub struct CalledPath(pub String);

/// Marks a call whose token is good for these ports only.
#[derive(Debug, Clone)]
pub struct PortScope(Arc<[String]>);

impl PortScope {
    /// Whether the token is for `port`.
    pub fn holds(&self, port: u16) -> bool {
        self.0.iter().any(|held| held.strip_prefix(PORT_SCOPE) == Some(&port.to_string()))
    }
}

/// Checks the token of every call. The verifier caches the tokens that it has verified, so a repeated one costs about a
/// microsecond.
#[derive(Clone)]
pub struct Auth {
    sandbox_id: Arc<str>,
    verifier: Arc<Verifier>,
    bound: Bound,
    authenticated: Authenticated,
}

/// Whether a connection has carried a call with a valid token. Cheap to clone; once set it stays set.
#[derive(Debug, Clone, Default)]
pub struct Authenticated {
    flag: Arc<watch::Sender<bool>>,
}

impl Authenticated {
    /// Whether such a call has been received.
    pub fn is_set(&self) -> bool {
        *self.flag.borrow()
    }

    /// Completes when such a call has been received.
    pub async fn set(&self) {
        // `self` holds the sender, so the channel cannot close during the wait.
        let _ = self.flag.subscribe().wait_for(|authenticated| *authenticated).await;
    }

    pub(crate) fn mark(&self) {
        if !self.is_set() {
            self.flag.send_replace(true);
        }
    }
}

impl Auth {
    /// Accepts the tokens of `sandbox_id`, once it has the settings that they promise.
    pub fn new(sandbox_id: &str, verifier: Arc<Verifier>, bound: Bound) -> Self {
        Self { sandbox_id: sandbox_id.into(), verifier, bound, authenticated: Authenticated::default() }
    }

    /// A copy for one connection, which sets `authenticated` at the first valid token.
    pub fn on(&self, authenticated: Authenticated) -> Self {
        Self { authenticated, ..self.clone() }
    }

    /// Checks a call; returns a scope when the token is limited to ports.
    fn check(
        &self,
        path: &str,
        header: Option<&[u8]>,
        now_unix_s: u64,
    ) -> Result<Option<PortScope>, Problem> {
        let claims = self.verifier.verify(bearer(header)?, now_unix_s)?;
        if path == EGRESS_CALL {
            // The sandbox's settings make no difference to it.
            return claims.allow(&self.sandbox_id, EGRESS_SCOPE).map(|()| None);
        }
        let allowed = claims.allow(&self.sandbox_id, SCOPE);
        let ours = *claims.sandbox_id == *self.sandbox_id;
        match allowed {
            Ok(()) => self.bound.allows(path, claims.settings.as_deref()).map(|()| None),
            Err(_) if ours && PORT_CALLS.contains(&path) => Ok(Some(PortScope(claims.scopes))),
            Err(problem) => Err(problem),
        }
    }
}

impl Interceptor for Auth {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let path = request.extensions_mut().remove::<CalledPath>().map(|path| path.0).unwrap_or_default();
        let header = request.metadata().get("authorization").map(|value| value.as_bytes());
        // With a clock before 1970 no expiry can be checked, so every token counts as expired.
        let now_unix_s =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(u64::MAX, |since| since.as_secs());
        let scope = self.check(&path, header, now_unix_s).map_err(|problem| status(&problem))?;
        if let Some(scope) = scope {
            request.extensions_mut().insert(scope);
        }
        self.authenticated.mark();
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use token::{Claims, Signer};
    use wire::Code;

    use super::*;

    fn check(sandbox_id: &str, scope: &str, expires_at_s: u64, seed: u8) -> Result<(), Code> {
        called("/rollbox.agent.v1.Agent/Exec", sandbox_id, scope, expires_at_s, seed).map(drop)
    }

    fn called(
        path: &str,
        sandbox_id: &str,
        scope: &str,
        expires_at_s: u64,
        seed: u8,
    ) -> Result<Option<PortScope>, Code> {
        let verifier = Arc::new(Verifier::new(&Signer::from_seed([1; 32]).public_key()).unwrap());
        let auth = Auth::new("sb-1", verifier, Bound::default());
        let claims = Claims {
            sandbox_id: sandbox_id.into(),
            owner: "o".into(),
            scopes: vec![scope.to_owned()].into(),
            expires_at_s,
            settings: None,
        };
        let header = format!("Bearer {}", Signer::from_seed([seed; 32]).sign(&claims));
        auth.check(path, Some(header.as_bytes()), 1000).map_err(|problem| problem.code)
    }

    #[test]
    fn only_a_valid_token_of_this_sandbox_with_the_scope_is_let_in() {
        assert_eq!(check("sb-1", "exec", 1001, 1), Ok(()));
        assert_eq!(check("sb-1", "exec", 1000, 1), Err(Code::Unauthenticated));
        assert_eq!(check("sb-1", "exec", 1001, 2), Err(Code::Unauthenticated));
        assert_eq!(check("sb-2", "exec", 1001, 1), Err(Code::PermissionDenied));
        assert_eq!(check("sb-1", "ready", 1001, 1), Err(Code::PermissionDenied));
    }

    #[test]
    fn the_token_of_egress_opens_its_one_call_and_no_other_token_does() {
        assert_eq!(called(EGRESS_CALL, "sb-1", "egress", 1001, 1).map(|scope| scope.is_none()), Ok(true));
        for scope in ["exec", "ready", "port:3128"] {
            assert_eq!(called(EGRESS_CALL, "sb-1", scope, 1001, 1).map(drop), Err(Code::PermissionDenied));
        }
        assert_eq!(called(EGRESS_CALL, "sb-2", "egress", 1001, 1).map(drop), Err(Code::PermissionDenied));
        assert_eq!(called(EGRESS_CALL, "sb-1", "egress", 1000, 1).map(drop), Err(Code::Unauthenticated));
        assert_eq!(check("sb-1", "egress", 1001, 1), Err(Code::PermissionDenied));
        let ports = called(PORT_CALLS[0], "sb-1", "egress", 1001, 1).unwrap().unwrap();
        assert!(!ports.holds(3128) && !ports.holds(80));
    }

    #[test]
    fn a_token_for_a_port_opens_connections_to_that_port_and_nothing_else() {
        for path in PORT_CALLS {
            let scope = called(path, "sb-1", "port:8000", 1001, 1).unwrap().unwrap();
            assert!(scope.holds(8000) && !scope.holds(800) && !scope.holds(80));
            assert!(!called(path, "sb-1", "ready", 1001, 1).unwrap().unwrap().holds(8000));
            assert!(called(path, "sb-1", "exec", 1001, 1).unwrap().is_none());
            assert_eq!(called(path, "sb-2", "port:8000", 1001, 1).map(drop), Err(Code::PermissionDenied));
            assert_eq!(called(path, "sb-1", "port:8000", 1000, 1).map(drop), Err(Code::Unauthenticated));
        }
        assert_eq!(check("sb-1", "port:8000", 1001, 1), Err(Code::PermissionDenied));
    }
}
