// Package mtlstest makes certificates for tests.
package mtlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates as the chart's does: each is good for both sides of a connection.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes one.
func NewAuthority(t *testing.T) *Authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "rollbox"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	key := newKey(t)
	return &Authority{certificate: sign(t, template, template, key, key), key: key}
}

// Pool has the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.certificate)
	return pool
}

// Pair makes a certificate for a name.
func (a *Authority) Pair(t *testing.T, name string) tls.Certificate {
	t.Helper()
	return a.pair(t, name, time.Now().Add(time.Hour))
}

// Expired makes one whose time is over.
func (a *Authority) Expired(t *testing.T, name string) tls.Certificate {
	t.Helper()
	return a.pair(t, name, time.Now().Add(-time.Minute))
}

// Write writes ca.crt, and tls.crt and tls.key for a name, into a folder.
func (a *Authority) Write(t *testing.T, folder, name string) {
	t.Helper()
	pair := a.Pair(t, name)
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err == nil {
		err = os.MkdirAll(folder, 0o700)
	}
	for _, file := range []struct {
		name, kind string
		bytes      []byte
	}{
		{"ca.crt", "CERTIFICATE", a.certificate.Raw},
		{"tls.crt", "CERTIFICATE", pair.Certificate[0]},
		{"tls.key", "PRIVATE KEY", key},
	} {
		if err == nil {
			text := pem.EncodeToMemory(&pem.Block{Type: file.kind, Bytes: file.bytes})
			err = os.WriteFile(filepath.Join(folder, file.name), text, 0o600)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (a *Authority) pair(t *testing.T, name string, until time.Time) tls.Certificate {
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	signed := sign(t, template, a.certificate, key, a.key)
	return tls.Certificate{Certificate: [][]byte{signed.Raw}, PrivateKey: key, Leaf: signed}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	made, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return made
}
