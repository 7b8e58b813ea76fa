package wire

import "context"

// DeleteConsumers takes the consumers of RESULTS away from their readers, as a
// server that forgets them would, and returns how many there were.
func (c *Client) DeleteConsumers(ctx context.Context) (int, error) {
	s, err := c.js.Stream(ctx, StreamResults)
	if err != nil {
		return 0, err
	}
	n := 0
	for name := range s.ConsumerNames(ctx).Name() {
		if err := s.DeleteConsumer(ctx, name); err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// ReplaceResults empties RESULTS and forgets its sequences, as a replaced store
// would.
func (c *Client) ReplaceResults(ctx context.Context) error {
	if err := c.js.DeleteStream(ctx, StreamResults); err != nil {
		return err
	}
	return c.EnsureStreams(ctx, Streams{})
}
