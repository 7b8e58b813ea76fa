//go:build linux

package servers

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// FastCGI 1.0 record types and the role (specification, section 8).
const (
	fcgiBegin     = 1
	fcgiEnd       = 3
	fcgiParams    = 4
	fcgiStdin     = 5
	fcgiStdout    = 6
	fcgiResponder = 1
)

// record appends one FastCGI record of request 1.
func record(b []byte, kind byte, content []byte) []byte {
	b = append(b, 1, kind, 0, 1)
	b = binary.BigEndian.AppendUint16(b, uint16(len(content)))
	b = append(b, 0, 0)
	return append(b, content...)
}

// fcgiRequest is a GET of a path by a script.
func fcgiRequest(script, path string) []byte {
	var params []byte
	for _, kv := range [][2]string{{"SCRIPT_FILENAME", script}, {"REQUEST_METHOD", "GET"}, {"REQUEST_URI", path},
		{"SCRIPT_NAME", "/index.php"}, {"GATEWAY_INTERFACE", "CGI/1.1"}, {"SERVER_PROTOCOL", "HTTP/1.1"}, {"QUERY_STRING", ""}} {
		// Names and values here are short: lengths up to 127 are one byte, longer
		// ones four with the top bit set.
		params = append(params, byte(len(kv[0])))
		params = binary.BigEndian.AppendUint32(params, uint32(len(kv[1]))|1<<31)
		params = append(append(params, kv[0]...), kv[1]...)
	}
	b := record(nil, fcgiBegin, []byte{0, fcgiResponder, 0, 0, 0, 0, 0, 0})
	b = record(b, fcgiParams, params)
	b = record(b, fcgiParams, nil)
	return record(b, fcgiStdin, nil)
}

// errClosed says that a FastCGI server ended the connection before the answer.
var errClosed = errors.New("closed the connection without an answer")

// fcgiBody reads records to the end of the request and hands on what the script
// wrote.
func fcgiBody(r io.Reader, out io.Writer) error {
	head := make([]byte, 8)
	began := false
	for {
		if _, err := io.ReadFull(r, head); err != nil {
			if !began && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)) {
				return errClosed
			}
			return err
		}
		began = true
		length, padding := binary.BigEndian.Uint16(head[4:]), head[6]
		dst := io.Discard
		if head[1] == fcgiStdout {
			dst = out
		}
		if _, err := io.CopyN(dst, r, int64(length)); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, r, int64(padding)); err != nil {
			return err
		}
		if head[1] == fcgiEnd {
			return nil
		}
	}
}

// openFastCGI sends a request and returns the connection to read from.
func (s *Server) openFastCGI(ctx context.Context, path string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", s.Options.Addr.String())
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		_ = c.SetDeadline(deadline) // cannot fail on an open connection
	}
	if _, err := c.Write(fcgiRequest(s.Options.path("www/index.php"), path)); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// askFastCGI asks php-fpm for a path and returns head and body.
func (s *Server) askFastCGI(ctx context.Context, path string) (string, error) {
	c, err := s.openFastCGI(ctx, path)
	if err != nil {
		return "", err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	var text bytes.Buffer
	err = fcgiBody(bufio.NewReader(c), &text)
	return text.String(), err
}

// Look is one outside look over FastCGI, for servers that do not speak HTTP. It
// implements checks.Check.
type Look struct {
	Server *Server
	// Body must be in the answer.
	Body string
}

// Look implements checks.Check.
func (l Look) Look(ctx context.Context) checks.Finding {
	begin := time.Now()
	f := l.look(ctx)
	f.Duration = time.Since(begin)
	return f
}

func (l Look) look(ctx context.Context) checks.Finding {
	fail := func(r checks.Reason, err error) checks.Finding {
		return checks.Finding{Outcome: checks.Fail, Reason: r, Detail: fmt.Sprintf("FastCGI to %s: %s", l.Server.Options.Addr, err)}
	}
	c, err := l.Server.openFastCGI(ctx, "/")
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fail(checks.ReasonConnectRefused, err)
	case err != nil && ctx.Err() != nil:
		return fail(checks.ReasonConnectTimeout, err)
	case err != nil:
		return fail(checks.ReasonConnectFailed, err)
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	var text bytes.Buffer
	if err := fcgiBody(bufio.NewReader(c), &text); err != nil {
		return fail(checks.ReasonNoAnswer, err)
	}
	if !strings.Contains(text.String(), l.Body) {
		return fail(checks.ReasonBody, fmt.Errorf("the answer lacks %q", l.Body))
	}
	return checks.Finding{Outcome: checks.Pass, Detail: "answered over FastCGI"}
}
