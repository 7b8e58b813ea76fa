package wire

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Message is one message of RESULTS.
type Message struct {
	Seq uint64
	// Stored is the server's clock when it stored the message.
	Stored               time.Time
	Place, Vantage, Kind string // from the subject
	Body                 []byte
}

// Entry is one entry of the journal.
type Entry struct {
	Seq    uint64
	Stored time.Time
	Kind   string // from the subject
	Body   []byte
}

// Timing of reads.
const (
	// heartbeat is how often an idle server says that it still knows our
	// consumer; two missed ones make a new one. Chosen: a lost consumer costs
	// 4 s, an idle one a message every 2 s.
	heartbeat = 2 * time.Second
	// pullExpiry is how long one request for messages stays open. Chosen: long,
	// because each renewal costs a round trip.
	pullExpiry = 60 * time.Second
	// stallAfter without a message we ask whether any is pending. The client
	// can forget to ask for more after a change of leader (nats.go issue 2063).
	stallAfter = 10 * time.Second
	// apiTimeout bounds one request to the server.
	apiTimeout = 5 * time.Second
	// consumerLife is how long the server keeps the consumer of a reader that
	// is gone.
	consumerLife = 30 * time.Second
	retryFirst   = 100 * time.Millisecond
	retryMost    = 2 * time.Second
)

var (
	errStalled = errors.New("messages are pending and none comes")
	errSkipped = errors.New("a message was lost on its way to us")
)

// callerError is an error of the caller's function: it ends the read.
type callerError struct{ error }

// ReadResults calls fn with every message of RESULTS stored at or after since,
// in order, each once, and follows the stream until ctx ends or fn returns an
// error. The zero time means from the beginning. It survives lost connections
// and server restarts. It returns fn's error, ErrBehind when the store lost what
// was already read, or the cause of ctx.
func (c *Client) ReadResults(ctx context.Context, since time.Time, fn func(Message) error) error {
	r := reader{c: c, stream: StreamResults, since: since}
	backoff := retryFirst
	for {
		before := r.last
		err := r.session(ctx, func(m jetstream.Msg, md *jetstream.MsgMetadata) error {
			if md.Timestamp.Before(since) {
				return nil // a start beyond the end means "what comes" to the server
			}
			tokens := strings.Split(m.Subject(), ".")
			if len(tokens) != 4 {
				c.log.Warn("message with a strange subject passed over", "subject", m.Subject(), "seq", md.Sequence.Stream)
				return nil
			}
			return fn(Message{
				Seq: md.Sequence.Stream, Stored: md.Timestamp,
				Place: tokens[1], Vantage: tokens[2], Kind: tokens[3], Body: m.Data(),
			})
		})
		var ours callerError
		switch {
		case errors.As(err, &ours):
			return ours.error
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrBehind), c.nc.IsClosed():
			return fmt.Errorf("read results: %w", err)
		case errors.Is(err, errRegained) || r.last > before:
			backoff = retryFirst
		}
		c.log.Info("reading results again", "because", err, "after_seq", r.last, "in", backoff)
		select {
		case <-time.After(backoff):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		backoff = min(2*backoff, retryMost)
	}
}

// ReadJournal calls fn with every entry after the given sequence, in order, up
// to the end as it is now, and returns the last sequence it handed over (or
// after, if there was none). An error comes with how far it got. Entries older
// than the stream's age limit are gone and not missed; ErrGap means one in the
// middle is missing, ErrBehind that the journal ends before after.
func (c *Client) ReadJournal(ctx context.Context, after uint64, fn func(Entry) error) (last uint64, err error) {
	info, err := c.info(ctx, StreamEvents)
	if err != nil {
		return after, fmt.Errorf("read journal: %w", err)
	}
	end := info.State.LastSeq
	switch {
	case after > end:
		return after, fmt.Errorf("read journal: %w: it ends at %d, asked for what follows %d", ErrBehind, end, after)
	case after == end || info.State.Msgs == 0:
		return end, nil
	}
	r := reader{c: c, stream: StreamEvents, last: max(after, info.State.FirstSeq-1), failStalled: true}
	err = r.session(ctx, func(m jetstream.Msg, md *jetstream.MsgMetadata) error {
		if md.Sequence.Stream != r.last+1 {
			return fmt.Errorf("%w: %d is followed by %d", ErrGap, r.last, md.Sequence.Stream)
		}
		kind := strings.TrimPrefix(m.Subject(), headEvents+".")
		if err := fn(Entry{Seq: md.Sequence.Stream, Stored: md.Timestamp, Kind: kind, Body: m.Data()}); err != nil {
			return err
		}
		if md.Sequence.Stream >= end {
			return errEnd
		}
		return nil
	})
	var ours callerError
	switch {
	case errors.Is(err, errEnd):
		return end, nil
	case errors.As(err, &ours):
		err = ours.error
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return r.last, fmt.Errorf("read journal: %w", err)
}

// errEnd ends a read that has reached what it came for.
var errEnd = errors.New("end")

// reader reads a stream in order through a consumer that it makes anew whenever
// it doubts the old one.
type reader struct {
	c      *Client
	stream string
	since  time.Time
	// last is the highest sequence handed over; the next consumer starts behind
	// it.
	last uint64
	// created is when the stream was made: another one's sequences mean nothing.
	created time.Time
	// failStalled: silence ends the session even when nothing is pending.
	failStalled bool
}

// session reads through one consumer until something is wrong or ctx ends. An
// error of fn comes back as a callerError.
func (r *reader) session(ctx context.Context, fn func(jetstream.Msg, *jetstream.MsgMetadata) error) error {
	// After a lost connection whatever the server kept for us may be gone.
	ctx, cancel := r.c.during(ctx, &r.c.regained)
	defer cancel()
	cons, err := r.consumer(ctx)
	if err != nil {
		return sessionError(ctx, err)
	}
	defer r.remove(ctx, cons)
	iter, err := cons.Messages(jetstream.PullExpiry(pullExpiry), jetstream.PullHeartbeat(heartbeat),
		jetstream.WithMessagesErrOnMissingHeartbeat(true))
	if err != nil {
		return sessionError(ctx, err)
	}
	defer iter.Stop()
	defer context.AfterFunc(ctx, iter.Stop)()

	var delivered uint64
	for {
		m, err := iter.Next(jetstream.NextMaxWait(stallAfter))
		if errors.Is(err, nats.ErrTimeout) {
			if err := r.checkStalled(ctx, cons); err != nil {
				return sessionError(ctx, err)
			}
			continue
		}
		if err != nil {
			return sessionError(ctx, err)
		}
		md, err := m.Metadata()
		if err != nil {
			return sessionError(ctx, err)
		}
		if delivered++; md.Sequence.Consumer != delivered {
			return errSkipped
		}
		if md.Sequence.Stream <= r.last {
			continue
		}
		if err := fn(m, md); errors.Is(err, errEnd) {
			return err
		} else if err != nil {
			return callerError{err}
		}
		r.last = md.Sequence.Stream
		if ctx.Err() != nil {
			return sessionError(ctx, ctx.Err())
		}
	}
}

// consumer makes a consumer that starts behind what was read.
func (r *reader) consumer(ctx context.Context) (jetstream.Consumer, error) {
	info, err := r.c.info(ctx, r.stream)
	if err != nil {
		return nil, err
	}
	if info.State.LastSeq < r.last {
		return nil, fmt.Errorf("%w: %s ends at %d, %d was read", ErrBehind, r.stream, info.State.LastSeq, r.last)
	}
	if r.last > 0 && !r.created.IsZero() && !info.Created.Equal(r.created) {
		return nil, fmt.Errorf("%w: %s was made anew at %s, %d of the old one was read", ErrBehind, r.stream, info.Created, r.last)
	}
	r.created = info.Created
	cfg := jetstream.ConsumerConfig{
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1,
		InactiveThreshold: consumerLife, DeliverPolicy: jetstream.DeliverAllPolicy,
	}
	switch {
	case r.last > 0:
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, r.last+1
	case !r.since.IsZero():
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &r.since
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	return r.c.js.CreateConsumer(ctx, r.stream, cfg)
}

// remove tidies a consumer away if the server can be reached; otherwise the
// server does after consumerLife.
func (r *reader) remove(ctx context.Context, cons jetstream.Consumer) {
	if !r.c.nc.IsConnected() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if err := r.c.js.DeleteConsumer(ctx, r.stream, cons.CachedInfo().Name); err != nil {
		r.c.log.Debug("consumer left to the server", "error", err)
	}
}

func (r *reader) checkStalled(ctx context.Context, cons jetstream.Consumer) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	info, err := cons.Info(ctx)
	if err != nil {
		return err
	}
	if info.NumPending > 0 || r.failStalled {
		return errStalled
	}
	return nil
}

func (c *Client) info(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	return s.CachedInfo(), nil
}

// sessionError says why ctx ended if that is why the session did.
func sessionError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
