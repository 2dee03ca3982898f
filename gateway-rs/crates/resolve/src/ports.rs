use std::sync::Arc;

use wire::routes::PublicPort;

/// Ports with their tokens.
type Tokens = Arc<[(u32, Box<str>)]>;

/// The public ports of a sandbox, with the tokens that open them at its sidecar. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublicPorts {
    /// Grows with every change.
    pub revision: u64,
    tokens: Option<Tokens>,
}

impl PublicPorts {
    pub(crate) fn from_wire(revision: u64, ports: Vec<PublicPort>) -> Self {
        let any = !ports.is_empty();
        let tokens = ports.into_iter().map(|public| (public.port, public.token.into()));
        Self { revision, tokens: any.then(|| tokens.collect()) }
    }

    /// The token for a port; `None` if the port is not public.
    pub fn token(&self, port: u16) -> Option<&str> {
        let tokens = self.tokens.as_ref()?;
        tokens.iter().find(|(public, _)| *public == u32::from(port)).map(|(_, token)| &**token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_has_its_own_token_or_none() {
        let public = |port, token: &str| PublicPort { port, token: token.to_owned() };
        let ports = PublicPorts::from_wire(1, vec![public(80, "a"), public(8000, "b")]);
        assert_eq!((ports.token(80), ports.token(8000), ports.token(8)), (Some("a"), Some("b"), None));
        assert_eq!(PublicPorts::default().token(80), None);
    }
}
