package wire

import (
	"context"
	"fmt"
	"time"
)

// LastResult returns the sequence of the newest result and when it was stored;
// zero values if there is none.
func (c *Client) LastResult(ctx context.Context) (seq uint64, stored time.Time, err error) {
	info, err := c.info(ctx, StreamResults)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("read the newest result: %w", err)
	}
	if info.State.Msgs == 0 {
		return 0, time.Time{}, nil
	}
	return info.State.LastSeq, info.State.LastTime, nil
}
