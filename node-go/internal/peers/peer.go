package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"rollbox.dev/node/internal/mtls"
)

const (
	// A tracker lets a node wait so long at most: containerd gives up a pull that stands still for five minutes.
	waitFor = 2 * time.Minute
	// Connecting to a node, and its first byte; a node that does not answer costs a pull so long.
	dialFor   = 2 * time.Second
	answerFor = 20 * time.Second
	// Of a call but `ask`, whole.
	callFor = 10 * time.Second
	// Layers that are named in one call.
	maxNamed     = 4096
	maxCallBytes = 1 << 20
)

type call struct {
	Digest  string   `json:"digest,omitempty"`
	Node    string   `json:"node,omitempty"`
	Lease   string   `json:"lease,omitempty"`
	Gone    bool     `json:"gone,omitempty"`
	Digests []string `json:"digests,omitempty"`
}

var errGone = errors.New("it does not have the layer")

// caller calls other nodes.
type caller struct {
	quick *http.Client
	slow  *http.Client
}

func newCaller(folder, name string) (*caller, error) {
	identity, err := mtls.Client(folder, name, "http/1.1")
	if err != nil {
		return nil, err
	}
	transport := func(header time.Duration) *http.Client {
		return &http.Client{Transport: &http.Transport{
			DialContext:           (&net.Dialer{Timeout: dialFor}).DialContext,
			TLSClientConfig:       identity,
			TLSHandshakeTimeout:   answerFor,
			ResponseHeaderTimeout: header,
			IdleConnTimeout:       time.Minute,
			MaxIdleConnsPerHost:   4,
			ReadBufferSize:        64 << 10,
		}}
	}
	return &caller{quick: transport(answerFor), slow: transport(waitFor + answerFor)}, nil
}

func (c *caller) ask(ctx context.Context, tracker, digest, self string) (grant, error) {
	var found grant
	err := c.post(ctx, c.slow, tracker, "ask", call{Digest: digest, Node: self}, &found)
	return found, err
}

// tell says something to a tracker.
func (c *caller) tell(ctx context.Context, tracker, verb string, what call) error {
	ctx, cancel := context.WithTimeout(ctx, callFor)
	defer cancel()
	return c.post(ctx, c.quick, tracker, verb, what, nil)
}

// blob asks a node for a layer.
func (c *caller) blob(ctx context.Context, node, digest string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+node+"/blobs/"+digest, nil)
	if err != nil {
		return nil, err
	}
	answer, err := c.quick.Do(request)
	if err != nil {
		return nil, err
	}
	switch {
	case answer.StatusCode == http.StatusOK && answer.ContentLength >= 0:
		return answer, nil
	case answer.StatusCode == http.StatusNotFound:
		err = errGone
	default:
		err = fmt.Errorf("node %s answers %s", node, answer.Status)
	}
	return nil, errors.Join(err, answer.Body.Close())
}

func (c *caller) post(ctx context.Context, client *http.Client, node, verb string, what call, into any) error {
	body, err := json.Marshal(what)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+node+"/"+verb, bytes.NewReader(body))
	if err != nil {
		return err
	}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("node %s answers %s", node, answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxCallBytes))
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(text, into)
}
