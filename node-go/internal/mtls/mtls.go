// Package mtls is how the node's programs know who may call them: by the certificates that the chart makes.
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
func Server(folder, client string) (*tls.Config, error) { return ServerOf(folder, client, "h2") }

// ServerOf is Server for another protocol than HTTP/2.
func ServerOf(folder, client, protocol string) (*tls.Config, error) {
	if _, err := handshake(folder, client, protocol); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return handshake(folder, client, protocol)
		},
	}, nil
}

// Anyone returns the configuration of a server whose clients show no certificate: they show something else.
func Anyone(folder string) (*tls.Config, error) {
	certificate := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
		return &pair, err
	}
	if _, err := certificate(); err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate() },
	}, nil
}

// Client returns the configuration of a client of servers with this name, which shows the folder's certificate. The files
// are read once.
func Client(folder, server, protocol string) (*tls.Config, error) {
	pair, authorities, err := read(folder)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{pair},
		RootCAs:      authorities,
		ServerName:   server,
		NextProtos:   []string{protocol},
	}, nil
}

func read(folder string) (tls.Certificate, *x509.CertPool, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
	if err != nil {
		return pair, nil, err
	}
	text, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if err != nil {
		return pair, nil, err
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		return pair, nil, errors.New("ca.crt has no certificate")
	}
	return pair, authorities, nil
}

func handshake(folder, client, protocol string) (*tls.Config, error) {
	pair, authorities, err := read(folder)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    authorities,
		NextProtos:   []string{protocol},
		VerifyConnection: func(state tls.ConnectionState) error {
			// Servers of the installation have certificates of the same authority.
			if err := state.PeerCertificates[0].VerifyHostname(client); err != nil {
				return fmt.Errorf("the client is not %s: %w", client, err)
			}
			return nil
		},
	}, nil
}
