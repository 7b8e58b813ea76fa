// Package wire carries bytes between vantages and the core over NATS JetStream.
// It is the only importer of the NATS client. It knows subjects, streams and
// sequences; it does not know what is in a body.
package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Errors callers tell apart with errors.Is.
var (
	// ErrName: a place, vantage or kind that cannot be part of a subject.
	ErrName = errors.New("not a usable name")
	// ErrWrongLast: somebody else appended to the journal. The entry was not
	// written.
	ErrWrongLast = errors.New("journal does not end where expected")
	// ErrTooLarge: the body is over the server's limit. Sending it again is
	// pointless.
	ErrTooLarge = errors.New("body too large")
	// ErrBehind: the stream ends before a position that was already read: the
	// store lost messages or was replaced.
	ErrBehind = errors.New("stream ends before what was already read")
	// ErrGap: an entry in the middle of the journal is missing.
	ErrGap = errors.New("journal entry missing")
)

// Dialer opens a connection to a server in the same process.
type Dialer interface {
	InProcessConn() (net.Conn, error)
}

// Options says where the server is and who we are. Exactly one of InProcess and
// URL is set. The connection is plain: a URL leaves the machine only inside a
// tunnel.
type Options struct {
	InProcess Dialer
	// URL is "nats://host:port".
	URL string
	// User and Password may be empty if the server asks for none.
	User, Password string
	// Name is shown in the server's logs.
	Name string
	// Log is where lost and regained connections are reported. Required.
	Log *slog.Logger
}

// Reconnect delays. Chosen: the first attempt soon, because a hub on the same
// machine restarts in well under 1 s; 2 s at most, because evidence waits.
const (
	reconnectFirst = 100 * time.Millisecond
	reconnectMost  = 2 * time.Second
)

// Client is one connection. It is safe for concurrent use.
type Client struct {
	nc  *nats.Conn
	js  jetstream.JetStream
	log *slog.Logger

	mu sync.Mutex // guards the fields below
	// lost and regained end each time the connection goes away or comes back,
	// and are replaced.
	lost, regained turn
}

// turn is a context that ends when the connection changes.
type turn struct {
	context.Context
	end context.CancelCauseFunc
}

func newTurn() turn {
	ctx, end := context.WithCancelCause(context.Background())
	return turn{ctx, end}
}

// Connect connects. It fails if the server cannot be reached now; a connection
// lost later is regained for as long as the client is open.
func Connect(o Options) (*Client, error) {
	if (o.InProcess == nil) == (o.URL == "") || o.Log == nil {
		return nil, errors.New("connect: set a log and exactly one of in-process server and url")
	}
	c := &Client{log: o.Log, lost: newTurn(), regained: newTurn()}
	opts := []nats.Option{
		nats.Name(o.Name),
		nats.MaxReconnects(-1),
		// Nothing is buffered here while the connection is away: the caller
		// keeps what was not acknowledged.
		nats.ReconnectBufSize(-1),
		nats.CustomReconnectDelay(reconnectDelay),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil when we closed it
				c.log.Warn("connection to the hub lost", "error", err)
			}
			c.next(&c.lost, errLost)
		}),
		nats.ReconnectHandler(func(*nats.Conn) {
			c.log.Info("connection to the hub regained")
			c.next(&c.regained, errRegained)
		}),
		nats.ErrorHandler(func(_ *nats.Conn, s *nats.Subscription, err error) {
			subject := ""
			if s != nil {
				subject = s.Subject
			}
			c.log.Warn("hub reports an error", "error", err, "subject", subject)
		}),
	}
	if o.User != "" {
		opts = append(opts, nats.UserInfo(o.User, o.Password))
	}
	where := o.URL
	if o.InProcess != nil {
		where = "in-process"
		opts = append(opts, nats.InProcessServer(o.InProcess))
	}
	nc, err := nats.Connect(o.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to hub (%s): %w", where, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, fmt.Errorf("connect to hub (%s): %w", where, err)
	}
	c.nc, c.js = nc, js
	return c, nil
}

// Close ends the connection. Reads and publishes in flight return with an error.
func (c *Client) Close() { c.nc.Close() }

var (
	errLost     = errors.New("connection to the hub lost")
	errRegained = errors.New("connection to the hub regained")
)

// next ends the current turn and begins another.
func (c *Client) next(t *turn, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.end(cause)
	*t = newTurn()
}

// during returns ctx, ended early with its cause when the turn ends.
func (c *Client) during(ctx context.Context, t *turn) (context.Context, context.CancelFunc) {
	c.mu.Lock()
	now := *t
	c.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(now, func() { cancel(context.Cause(now)) })
	return ctx, func() { stop(); cancel(nil) }
}

// reconnectDelay doubles from reconnectFirst to reconnectMost, less up to a
// quarter so that many vantages do not return in step.
func reconnectDelay(attempts int) time.Duration {
	d := reconnectFirst
	for range min(attempts, 6) {
		d = min(2*d, reconnectMost)
	}
	return d - rand.N(d/4)
}
