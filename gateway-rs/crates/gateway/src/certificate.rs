//! TLS of the public port: a certificate with its key, which are read again while the gateway runs.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// How often the files are looked at. They are renewed days before the certificate expires.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// The protocols that clients may choose; the one that is spoken is found out by its first bytes.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Where a certificate, with those that have signed it below it, and its key are, in PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// Why a certificate cannot be used, for the operator.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("{0} cannot be read: {1}")]
    File(PathBuf, #[source] io::Error),
    #[error("{0} is no certificate in PEM: {1}")]
    Certificate(PathBuf, String),
    #[error("{0} is no private key in PEM without a password: {1}")]
    Key(PathBuf, String),
    #[error("{0} is not the key of {1}: {2}")]
    Pair(PathBuf, PathBuf, String),
}

/// The certificate in force.
pub(crate) struct Certificate {
    files: Files,
    read: RwLock<Read>,
}

struct Read {
    /// Of both files.
    bytes: [Vec<u8>; 2],
    config: Arc<ServerConfig>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Certificate {
    /// Reads both files.
    ///
    /// # Errors
    /// They are not there, are not what they should be, or do not belong together.
    pub(crate) fn read(files: Files) -> Result<Self, Unusable> {
        let read = RwLock::new(files.read()?);
        Ok(Self { files, read })
    }

    /// What takes the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let read = self.read.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&read.config))
    }

    /// Takes what is new in the files into force, for ever. Files that cannot be used leave the certificate that is.
    pub(crate) async fn follow(&self) {
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut warned = None;
        loop {
            looks.tick().await;
            match self.look() {
                Ok(changed) => {
                    if changed {
                        tracing::info!(files = ?self.files, "a renewed certificate is in force");
                    }
                    warned = None;
                }
                Err(error) => {
                    let said = error.to_string();
                    // While files are exchanged one may be newer than the other.
                    if warned.as_ref() == Some(&said) {
                        continue;
                    }
                    tracing::warn!(%error, "the certificate of before stays in force");
                    warned = Some(said);
                }
            }
        }
    }

    /// Reads the files again; returns whether they have changed.
    pub(crate) fn look(&self) -> Result<bool, Unusable> {
        let bytes = self.files.bytes()?;
        if self.read.read().unwrap_or_else(PoisonError::into_inner).bytes == bytes {
            return Ok(false);
        }
        let read = self.files.parsed(bytes)?;
        *self.read.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(true)
    }
}

impl Files {
    fn read(&self) -> Result<Read, Unusable> {
        self.parsed(self.bytes()?)
    }

    fn bytes(&self) -> Result<[Vec<u8>; 2], Unusable> {
        let read = |path: &PathBuf| std::fs::read(path).map_err(|error| Unusable::File(path.clone(), error));
        Ok([read(&self.certificate)?, read(&self.key)?])
    }

    fn parsed(&self, bytes: [Vec<u8>; 2]) -> Result<Read, Unusable> {
        let wrong =
            |error: &dyn fmt::Display| Unusable::Certificate(self.certificate.clone(), error.to_string());
        let chain: Vec<_> =
            CertificateDer::pem_slice_iter(&bytes[0]).collect::<Result<_, _>>().map_err(|e| wrong(&e))?;
        if chain.is_empty() {
            return Err(wrong(&"there is none in it"));
        }
        let key = PrivateKeyDer::from_pem_slice(&bytes[1])
            .map_err(|error| Unusable::Key(self.key.clone(), error.to_string()))?;
        let pair = |error: &dyn fmt::Display| {
            Unusable::Pair(self.key.clone(), self.certificate.clone(), error.to_string())
        };
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| pair(&e))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|e| pair(&e))?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(Read { bytes, config: Arc::new(config) })
    }
}

#[cfg(test)]
pub(crate) mod tests;
