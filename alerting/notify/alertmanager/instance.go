package alertmanager

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"

	"github.com/crosscheck-project/crosscheck/alerting/notify"
)

// errPostTimeout is the cause of a POST that took too long.
var errPostTimeout = errors.New("alertmanager did not answer in time")

// errorBodyBytes of an answer are quoted in an error. Chosen: one or two lines.
const errorBodyBytes = 512

// instance is one Alertmanager with its own queue and goroutine.
type instance struct {
	url    *url.URL
	client *http.Client
	render func([]alertID) []postableAlert
	log    *slog.Logger
	wake   chan struct{} // capacity 1: something was queued

	// mu guards the fields below.
	mu      sync.Mutex
	order   []alertID
	waiting map[alertID][]chan<- error // the askers of each queued alert
	stats   InstanceStats
	failing bool
}

func newInstance(u *url.URL, client *http.Client, render func([]alertID) []postableAlert, log *slog.Logger) *instance {
	return &instance{
		url:     u,
		client:  client,
		render:  render,
		log:     log.With("alertmanager", u.Redacted()),
		wake:    make(chan struct{}, 1),
		waiting: map[alertID][]chan<- error{},
		stats:   InstanceStats{URL: u.Redacted()},
	}
}

// enqueue queues an alert once, however often it is asked for, so that the queue
// of a dead instance holds at most one entry for each alert. reply may be nil;
// otherwise it gets one value and must have room for it.
func (in *instance) enqueue(id alertID, reply chan<- error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	askers, queued := in.waiting[id]
	if !queued {
		in.order = append(in.order, id)
	}
	if reply != nil {
		askers = append(askers, reply)
	}
	in.waiting[id] = askers
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

func (in *instance) run(ctx context.Context) {
	for {
		ids, askers := in.take()
		if len(ids) == 0 {
			select {
			case <-ctx.Done():
				return
			case <-in.wake:
			}
			continue
		}
		in.deliver(ctx, ids, askers)
		if ctx.Err() != nil {
			return
		}
	}
}

// take removes up to maxBatch alerts from the queue.
func (in *instance) take() ([]alertID, [][]chan<- error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	n := min(len(in.order), maxBatch)
	ids := append([]alertID(nil), in.order[:n]...)
	in.order = append([]alertID(nil), in.order[n:]...)
	askers := make([][]chan<- error, n)
	for i, id := range ids {
		askers[i] = in.waiting[id]
		delete(in.waiting, id)
	}
	return ids, askers
}

// deliver posts the batch and answers its askers. A batch that is called invalid
// is posted one by one, to find the alert that is to blame.
func (in *instance) deliver(ctx context.Context, ids []alertID, askers [][]chan<- error) {
	err := in.post(ctx, ids)
	if notify.IsPermanent(err) && len(ids) > 1 {
		for i := range ids {
			in.deliver(ctx, ids[i:i+1], askers[i:i+1])
		}
		return
	}
	in.record(ctx, err)
	for _, a := range askers {
		for _, reply := range a {
			reply <- err
		}
	}
}

// record counts, and logs when the instance begins or ceases to fail.
func (in *instance) record(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		return // our own shutdown is no failure of the instance
	}
	in.mu.Lock()
	was := in.failing
	in.failing = err != nil
	if err != nil {
		in.stats.Failed++
	} else {
		in.stats.Posted++
	}
	in.mu.Unlock()
	switch {
	case err != nil && !was:
		in.log.Warn("alertmanager does not take alerts", "err", err)
	case err == nil && was:
		in.log.Info("alertmanager takes alerts again")
	}
}

// post sends the alerts once. The error is permanent if the instance said that
// the content is to blame.
func (in *instance) post(ctx context.Context, ids []alertID) error {
	alerts := in.render(ids)
	if len(alerts) == 0 {
		return nil // forgotten while they waited
	}
	body, err := json.Marshal(alerts)
	if err != nil {
		return notify.Permanent(fmt.Errorf("encode alerts: %w", err))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, postTimeout, errPostTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, in.url.String(), bytes.NewReader(body))
	if err != nil {
		return notify.Permanent(fmt.Errorf("post %s: %w", in.url.Redacted(), err))
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := in.client.Do(req)
	if err != nil {
		if context.Cause(ctx) == errPostTimeout {
			err = errPostTimeout
		}
		var ue *url.Error
		if errors.As(err, &ue) {
			err = ue.Err // its text repeats the address
		}
		return fmt.Errorf("post %s: %w", in.url.Redacted(), err)
	}
	defer res.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(res.Body, errorBodyBytes))
	if res.StatusCode/100 == 2 {
		return nil
	}
	err = fmt.Errorf("post %s: %s: %s", in.url.Redacted(), res.Status, bytes.TrimSpace(said))
	switch res.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return notify.Permanent(err)
	}
	return err // also 401, 403, 404: an operator can repair those while we try
}

func (in *instance) snapshot() InstanceStats {
	in.mu.Lock()
	defer in.mu.Unlock()
	s := in.stats
	s.Queued = len(in.order)
	return s
}
