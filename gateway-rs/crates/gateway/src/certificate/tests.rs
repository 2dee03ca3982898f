use std::path::Path;

use super::*;

pub(crate) fn files(folder: &Path) -> Files {
    Files { certificate: folder.join("tls.crt"), key: folder.join("tls.key") }
}

/// Writes a new certificate with its key, and returns it.
pub(crate) fn renew(files: &Files) -> CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["gateway.test".to_owned()]).unwrap();
    std::fs::write(&files.certificate, made.cert.pem()).unwrap();
    std::fs::write(&files.key, made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

#[test]
fn files_that_cannot_be_used_are_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let files = files(folder.path());
    let said = |files: &Files| Certificate::read(files.clone()).unwrap_err().to_string();
    assert!(said(&files).contains("tls.crt cannot be read"));
    renew(&files);
    std::fs::rename(&files.key, folder.path().join("first.key")).unwrap();
    assert!(said(&files).contains("tls.key cannot be read"));
    std::fs::write(&files.key, "no key").unwrap();
    assert!(said(&files).contains("tls.key is no private key in PEM"), "{}", said(&files));
    renew(&files);
    std::fs::rename(folder.path().join("first.key"), &files.key).unwrap();
    assert!(said(&files).contains("tls.key is not the key of"), "{}", said(&files));
    std::fs::write(&files.certificate, "no certificate").unwrap();
    assert!(said(&files).contains("tls.crt is no certificate in PEM"), "{}", said(&files));
}
