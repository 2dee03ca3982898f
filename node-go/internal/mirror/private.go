package mirror

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
)

// Private returns a transport for the private registry: the certificates of the file, and of the system without one.
func Private(caFile string) (http.RoundTripper, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if caFile != "" {
		text, err := os.ReadFile(caFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, errors.New(caFile + " has no certificate")
		}
	}
	return &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 32, IdleConnTimeout: time.Minute,
		TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: time.Minute,
	}, nil
}

// Account returns the account of a file that holds USER:PASSWORD. It is read for each request: a renewal is not announced.
func Account(path string) (authn.Authenticator, error) {
	account := accountFile(path)
	_, err := account.Authorization()
	return account, err
}

type accountFile string

// Authorization implements authn.Authenticator.
func (a accountFile) Authorization() (*authn.AuthConfig, error) {
	text, err := os.ReadFile(string(a))
	if err != nil {
		return nil, err
	}
	user, password, found := strings.Cut(strings.TrimSpace(string(text)), ":")
	if !found || user == "" {
		return nil, errors.New(string(a) + " does not hold USER:PASSWORD")
	}
	return &authn.AuthConfig{Username: user, Password: password}, nil
}
