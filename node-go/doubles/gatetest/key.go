// Package gatetest signs tokens of commits in tests, as the control plane does.
package gatetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Key signs tokens; its certificate is the file.
type Key struct {
	Private     *ecdsa.PrivateKey
	Certificate string
	t           *testing.T
}

// New returns a key of its own.
func New(t *testing.T) *Key {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "commits"}}
	made, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "commits.crt")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made}), 0o600); err != nil {
		t.Fatal(err)
	}
	return &Key{key, file, t}
}

// Claims returns those of a token for some repositories, with changes.
func Claims(rights map[string][]string, changes jwt.MapClaims) jwt.MapClaims {
	access := []map[string]any{}
	for name, actions := range rights {
		access = append(access, map[string]any{"type": "repository", "name": name, "actions": actions})
	}
	claims := jwt.MapClaims{
		"iss": "rollbox-controlplane", "aud": "rollbox-commits", "nbf": time.Now().Unix(),
		"exp": time.Now().Add(time.Hour).Unix(), "access": access,
	}
	for name, value := range changes {
		claims[name] = value
	}
	return claims
}

// Token signs one.
func (k *Key) Token(rights map[string][]string, changes jwt.MapClaims) string {
	k.t.Helper()
	text, err := jwt.NewWithClaims(jwt.SigningMethodES256, Claims(rights, changes)).SignedString(k.Private)
	if err != nil {
		k.t.Fatal(err)
	}
	return text
}
