// Package mtls is how the node's programs know their only client: by the certificate that the chart gives the control
// plane.
package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Server returns the configuration of a server that answers one client alone: certificate and key are tls.crt and
// tls.key of the folder, and the client's certificate is signed by its ca.crt and has the name. The files are read at
// every handshake, so that a renewed Secret needs no restart.
func Server(folder, client string) (*tls.Config, error) {
	if _, err := handshake(folder, client); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return handshake(folder, client)
		},
	}, nil
}

func handshake(folder, client string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if err != nil {
		return nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		return nil, errors.New("ca.crt has no certificate")
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    authorities,
		NextProtos:   []string{"h2"},
		VerifyConnection: func(state tls.ConnectionState) error {
			// Servers of the installation have certificates of the same authority.
			if err := state.PeerCertificates[0].VerifyHostname(client); err != nil {
				return fmt.Errorf("the client is not %s: %w", client, err)
			}
			return nil
		},
	}, nil
}
