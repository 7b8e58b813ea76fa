package serverstatus

import (
	"context"
	"fmt"
	"strings"
)

// Nginx asks an nginx for its stub_status page (ngx_http_stub_status_module) at
// http://HOST:PORT/PATH or http://unix:/SOCKET:/PATH. A worker answers.
func Nginx(address string) (Source, error) {
	p, err := pageAt("nginx", address, "/stub_status")
	return nginx{p}, err
}

type nginx struct{ page }

// Read implements Source.
func (n nginx) Read(ctx context.Context) (Status, error) {
	body, err := n.get(ctx)
	if err != nil {
		return Status{}, err
	}
	s, err := parseNginx(body)
	if err != nil {
		return Status{}, n.errorf("%w", err)
	}
	return s, nil
}

// parseNginx reads the page's four lines. "accepts" counts connections of all
// listeners, and outlives reloads (it lies in shared memory); what was accepted
// and not handled met the limit of connections.
func parseNginx(body []byte) (Status, error) {
	var active, accepts, handled, requests, reading, writing, waiting uint64
	const form = "Active connections: %d\nserver accepts handled requests\n%d %d %d\nReading: %d Writing: %d Waiting: %d"
	text := strings.NewReplacer(" \n", "\n", "\n ", "\n", "\r", "").Replace(string(body))
	if n, err := fmt.Sscanf(text, form, &active, &accepts, &handled, &requests, &reading, &writing, &waiting); err != nil || n != 7 {
		return Status{}, fmt.Errorf("%q is no stub_status page", word(string(body)))
	}
	s := Status{Server: "nginx", Accepted: accepts, AcceptedKnown: true}
	s.Text = fmt.Sprintf("nginx: %s open (%d reading, %d writing, %d waiting), %d accepted, %d of them dropped",
		plural(active, "connection"), reading, writing, waiting, accepts, accepts-min(handled, accepts))
	return s, nil
}
