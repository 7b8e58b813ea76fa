package wire

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Publish stores one message in RESULTS and returns when the server has it on
// disk. It waits until ctx ends, or 5 s if ctx has no deadline. The server
// remembers msgID for two minutes: sending it again stores nothing and succeeds.
// While the connection is away it fails at once.
//
// Errors: ErrName, ErrTooLarge; anything else is worth another try with the same
// id.
func (c *Client) Publish(ctx context.Context, place, vantage, kind, msgID string, body []byte) error {
	subj, err := subject(headResults, place, vantage, kind)
	if err != nil {
		return fmt.Errorf("publish results: %w", err)
	}
	if msgID == "" {
		return errors.New("publish results: no message id")
	}
	_, err = c.publish(ctx, subj, body, jetstream.WithExpectStream(StreamResults), jetstream.WithMsgID(msgID))
	return err
}

// Append writes one entry at the end of the journal if its last sequence is
// still expectLast (0: the journal is empty), and returns the entry's sequence
// once it is on disk. Otherwise it returns ErrWrongLast and writes nothing.
//
// After any other error the entry may or may not have been written: read the
// journal after expectLast before appending again.
func (c *Client) Append(ctx context.Context, expectLast uint64, kind string, body []byte) (uint64, error) {
	subj, err := subject(headEvents, kind)
	if err != nil {
		return 0, fmt.Errorf("append to journal: %w", err)
	}
	ack, err := c.publish(ctx, subj, body, jetstream.WithExpectStream(StreamEvents), jetstream.WithExpectLastSequence(expectLast))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

func (c *Client) publish(ctx context.Context, subj string, body []byte, opts ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	// No silent retries: whoever publishes keeps the message and backs off.
	opts = append(opts, jetstream.WithRetryAttempts(0))
	// The answer to what was sent before the connection went will never come.
	ctx, cancel := c.during(ctx, &c.lost)
	defer cancel()
	ack, err := c.js.PublishMsg(ctx, &nats.Msg{Subject: subj, Data: body}, opts...)
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
		api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return nil, fmt.Errorf("publish %s: %w: %w", subj, ErrWrongLast, err)
	}
	if errors.Is(err, nats.ErrMaxPayload) {
		return nil, fmt.Errorf("publish %s: %w: %d bytes and headers, the server takes %d", subj, ErrTooLarge, len(body), c.nc.MaxPayload())
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("publish %s: %w", subj, err)
	}
	return ack, nil
}
