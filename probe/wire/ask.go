package wire

import (
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
)

// Ask sends body to a vantage that listens now. It is not stored and not
// answered: a vantage that is away never hears of it.
func (c *Client) Ask(place, vantage string, body []byte) error {
	subj, err := subject(headAsk, place, vantage)
	if err != nil {
		return fmt.Errorf("ask: %w", err)
	}
	err = c.nc.Publish(subj, body)
	if errors.Is(err, nats.ErrMaxPayload) {
		return fmt.Errorf("ask %s: %w: %d bytes, the server takes %d", subj, ErrTooLarge, len(body), c.nc.MaxPayload())
	}
	if err != nil {
		return fmt.Errorf("ask %s: %w", subj, err)
	}
	return nil
}

// Asks calls fn with each body sent to the vantage, one after the other, until
// stop is called or the client closes. stop waits for a running fn, so fn must
// not call it. fn must not block: what arrives meanwhile waits in memory.
func (c *Client) Asks(place, vantage string, fn func(body []byte)) (stop func(), err error) {
	subj, err := subject(headAsk, place, vantage)
	if err != nil {
		return nil, fmt.Errorf("listen for asks: %w", err)
	}
	sub, err := c.nc.Subscribe(subj, func(m *nats.Msg) { fn(m.Data) })
	if err != nil {
		return nil, fmt.Errorf("listen for asks on %s: %w", subj, err)
	}
	done := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(done) })
	// The server knows of the subscription before we say that we listen.
	if err := c.nc.FlushTimeout(apiTimeout); err != nil {
		_ = sub.Unsubscribe()
		return nil, fmt.Errorf("listen for asks on %s: %w", subj, err)
	}
	return func() {
		_ = sub.Unsubscribe() // fails only on what is closed already
		<-done
	}, nil
}
