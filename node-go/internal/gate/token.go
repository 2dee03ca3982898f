package gate

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	issuer  = "rollbox-controlplane"
	service = "rollbox-commits"
	// Clocks of the control plane's node and of this one may differ.
	slack = time.Minute
)

// rights are what a token allows: actions by repository.
type rights map[string][]string

func (r rights) allow(repository string, actions ...string) bool {
	return slices.ContainsFunc(actions, func(one string) bool { return slices.Contains(r[repository], one) })
}

// scopes returns the rights as registries' token services are asked for them; equal rights have equal ones.
func (r rights) scopes() []string {
	var found []string
	for repository, actions := range r {
		found = append(found, fmt.Sprintf("repository:%s:%s", repository, strings.Join(actions, ",")))
	}
	slices.Sort(found)
	return found
}

type claims struct {
	jwt.RegisteredClaims
	Access []struct {
		Type    string   `json:"type"`
		Name    string   `json:"name"`
		Actions []string `json:"actions"`
	} `json:"access"`
}

// judge reads tokens that one key has signed, that of a certificate: a file, which may be renewed.
type judge struct {
	certificate string
	parser      *jwt.Parser
}

func newJudge(certificate string) (*judge, error) {
	if _, err := keyOf(certificate); err != nil {
		return nil, err
	}
	// Whatever certificate a token brings: this key alone.
	parser := jwt.NewParser(jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer(issuer), jwt.WithAudience(service),
		jwt.WithExpirationRequired(), jwt.WithLeeway(slack))
	return &judge{certificate, parser}, nil
}

func keyOf(certificate string) (*ecdsa.PublicKey, error) {
	text, err := os.ReadFile(certificate)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New(certificate + " has no certificate")
	}
	read, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certificate, err)
	}
	key, fits := read.PublicKey.(*ecdsa.PublicKey)
	if !fits {
		return nil, errors.New(certificate + " is of no key on an elliptic curve")
	}
	return key, nil
}

// token is one that holds.
type token struct {
	rights
	id    string
	until time.Time
}

func (j *judge) read(text string) (token, error) {
	var said claims
	if _, err := j.parser.ParseWithClaims(text, &said, func(*jwt.Token) (any, error) { return keyOf(j.certificate) }); err != nil {
		return token{}, err
	}
	allowed := rights{}
	for _, one := range said.Access {
		if one.Type == "repository" {
			allowed[one.Name] = append(allowed[one.Name], one.Actions...)
		}
	}
	return token{allowed, said.ID, said.ExpiresAt.Add(slack)}, nil
}
