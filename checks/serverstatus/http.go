package serverstatus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// page is a status page, which a worker answers. It is read with HTTP/1.0, whose
// answer ends when the server closes: neither chunks nor kept connections need a
// client.
type page struct {
	place
	host string
	path string // and query
}

// pageAt is the page at http://HOST[:PORT]/PATH or, as nginx writes it,
// http://unix:/SOCKET:/PATH. An empty path is fallback.
func pageAt(server, address, fallback string) (page, error) {
	if rest, ok := strings.CutPrefix(address, "http://unix:"); ok {
		path, uri, _ := strings.Cut(rest, ":")
		p, err := socket(server, path)
		p.inBand = true
		return page{p, "localhost", cleanURI(uri, fallback)}, err
	}
	u, err := url.Parse(address)
	switch {
	case err != nil: // what it says may hold a password
		return page{}, errors.New("the address is not a URL")
	case u.User != nil:
		return page{}, errors.New("user info is not sent to a status page; let it be read from loopback")
	case u.Scheme != "http" || u.Hostname() == "":
		return page{}, fmt.Errorf("%q is neither http://HOST:PORT/PATH nor http://unix:/SOCKET:/PATH", address)
	}
	at := u.Host
	if u.Port() == "" {
		at += ":80"
	}
	uri := u.RequestURI()
	if u.Path == "" && u.RawQuery == "" {
		uri = ""
	}
	p, err := socketOrPort(server, at)
	p.inBand = true
	return page{p, u.Host, cleanURI(uri, fallback)}, err
}

// cleanURI is a request target without anything that could end its line.
func cleanURI(uri, fallback string) string {
	if uri == "" {
		return fallback
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return -1
		}
		return r
	}, uri)
}

// get fetches the page's body; anything but 200 is an error.
func (p page) get(ctx context.Context) ([]byte, error) {
	answer, err := p.ask(ctx, "GET "+p.path+" HTTP/1.0\r\nHost: "+p.host+"\r\nUser-Agent: Crosscheck\r\n\r\n")
	if err != nil {
		return nil, err
	}
	body, err := parseHTTP(answer)
	if err != nil {
		return nil, p.errorf("%s: %w", word(p.path), err)
	}
	return body, nil
}

// parseHTTP takes the body out of an answer to an HTTP/1.0 request.
func parseHTTP(answer []byte) ([]byte, error) {
	head, body, ok := bytes.Cut(answer, []byte("\r\n\r\n"))
	line, fields, _ := strings.Cut(string(head), "\r\n")
	version, status, _ := strings.Cut(line, " ")
	switch {
	case !ok || !strings.HasPrefix(version, "HTTP/1."):
		return nil, fmt.Errorf("%q is no HTTP", word(line))
	case !strings.HasPrefix(status, "200 ") && status != "200":
		return nil, fmt.Errorf("answered %s", word(status))
	case strings.Contains(strings.ToLower(fields), "\r\ntransfer-encoding:"), strings.HasPrefix(strings.ToLower(fields), "transfer-encoding:"):
		return nil, errors.New("answered in pieces (transfer-encoding), which HTTP/1.0 does not have")
	}
	return body, nil
}
