package serverstatus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// place is where a server is asked.
type place struct {
	server  string // who is asked, for errors
	network string // "tcp" or "unix"
	address string
	inBand  bool // a worker has to answer
}

// socket is the place of a unix socket: an absolute path.
func socket(server, path string) (place, error) {
	if !strings.HasPrefix(path, "/") {
		return place{}, fmt.Errorf("%q is not the absolute path of a unix socket", path)
	}
	return place{server: server, network: "unix", address: path}, nil
}

// socketOrPort is the place of a unix socket or of HOST:PORT.
func socketOrPort(server, s string) (place, error) {
	if strings.HasPrefix(s, "/") {
		return socket(server, s)
	}
	host, port, err := net.SplitHostPort(s)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || host == "" {
		return place{}, fmt.Errorf("%q is neither HOST:PORT nor the absolute path of a unix socket", s)
	}
	return place{server: server, network: "tcp", address: s}, nil
}

func (p place) errorf(format string, args ...any) error {
	return fmt.Errorf("ask %s at %s: %w", p.server, p.address, fmt.Errorf(format, args...))
}

// talk connects, lets speak have the connection until ctx or Timeout ends, and
// closes it. Its errors name the place.
func (p place) talk(ctx context.Context, speak func(net.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, p.network, p.address)
	if err != nil {
		return p.failed(ctx, err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // wakes whoever reads
	defer stop()
	if err := speak(conn); err != nil {
		return p.failed(ctx, err)
	}
	return nil
}

// failed makes time that ran out ErrNoAnswer, in words that do not repeat the
// address.
func (p place) failed(ctx context.Context, err error) error {
	switch op := (*net.OpError)(nil); {
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.Canceled), errors.Is(err, os.ErrDeadlineExceeded):
		err = ErrNoAnswer
		if p.inBand {
			err = fmt.Errorf("%w (a worker would have had to)", ErrNoAnswer)
		}
	case ctx.Err() != nil:
		err = ctx.Err()
	case errors.As(err, &op):
		err = fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	return p.errorf("%w", err)
}

// ask sends a request and returns all that comes back until the peer closes.
func (p place) ask(ctx context.Context, request string) ([]byte, error) {
	var answer []byte
	err := p.talk(ctx, func(conn net.Conn) error {
		if _, err := io.WriteString(conn, request); err != nil {
			return err
		}
		var err error
		answer, err = readAll(conn)
		return err
	})
	return answer, err
}

// readAll reads until the peer closes, but never more than a limit.
func readAll(r io.Reader) ([]byte, error) {
	answer, err := io.ReadAll(io.LimitReader(r, answerLimitBytes+1))
	if err == nil && len(answer) > answerLimitBytes {
		return nil, fmt.Errorf("the answer is longer than %d bytes", answerLimitBytes)
	}
	return answer, err
}
