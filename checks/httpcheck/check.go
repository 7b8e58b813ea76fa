// Package httpcheck is the kind that asks a URL and waits for the end of the
// answer. Each look has a connection of its own, so that a look meets what a
// new customer meets. It keeps no history and judges nothing but its own
// expectations.
package httpcheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// Check is a configured http look. It may look from several goroutines.
type Check struct {
	config    Config
	url       *url.URL
	shown     string // the URL without its secrets
	transport *http.Transport
	dialer    net.Dialer
}

// New returns a check, or all of Validate's faults in one error.
func New(c Config) (*Check, error) {
	if faults := c.Validate(); len(faults) > 0 {
		all := make([]error, len(faults))
		for i, f := range faults {
			all[i] = f
		}
		return nil, fmt.Errorf("http check: %w", errors.Join(all...))
	}
	u, err := url.Parse(c.URL)
	if err != nil {
		return nil, err // Validate has parsed it
	}
	c = c.withDefaults()
	http1 := new(http.Protocols)
	http1.SetHTTP1(true)
	check := &Check{config: c, url: u, shown: redactURL(u), dialer: net.Dialer{KeepAlive: -1}}
	check.transport = &http.Transport{
		Proxy:                  nil, // the environment's proxy is not the customers' way
		DialContext:            check.dial,
		DisableKeepAlives:      true,
		Protocols:              http1,
		MaxResponseHeaderBytes: headLimitBytes,
	}
	return check, nil
}

// headLimitBytes bounds an answer's head. Chosen: servers send 8 KiB at most.
const headLimitBytes = 256 << 10

// errTimeout is the cause of the end of a look whose own time was up.
var errTimeout = errors.New("timeout of the check")

// Look implements checks.Check. Its longest duration is the check's Timeout.
func (c *Check) Look(outer context.Context) checks.Finding {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(outer, c.config.Timeout, errTimeout)
	defer cancel()
	var times timeline
	got := c.exchange(ctx, &times)
	got.at = times.stop()
	got.began, got.limit, got.outer, got.ctx = began, c.config.Timeout, outer, ctx

	finding := c.judge(got)
	finding.Phases = got.at.phases
	finding.HTTP = c.facts(got)
	if finding.Outcome == checks.Fail {
		finding.Urgent = true
		finding.HTTP.Repeat = c.config.repeat(c.url, got.at.first)
	}
	finding.Duration = time.Since(began)
	return finding
}

// answer is what one look got, before it is judged.
type answer struct {
	response  *http.Response // nil if no head came
	err       error          // of the exchange up to the head
	bodyErr   error
	body      []byte // kept only if something must occur in it
	bodyBytes int64
	redirects int

	at         *timeline // stopped
	began      time.Time
	limit      time.Duration
	outer, ctx context.Context
}

// exchange sends the request and reads the answer to its end.
func (c *Check) exchange(ctx context.Context, times *timeline) (got answer) {
	request := (&http.Request{
		Method: c.config.Method, URL: c.url, Host: c.config.Host,
		Header: http.Header{"User-Agent": {c.config.UserAgent}},
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(withTrace(ctx, times))
	for name, value := range c.config.Headers {
		request.Header.Set(name, value)
	}
	client := http.Client{Transport: c.transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		if !c.config.FollowRedirects {
			return http.ErrUseLastResponse
		}
		got.redirects = len(via)
		return c.mayFollow(next, via)
	}}
	got.response, got.err = client.Do(request)
	if got.err != nil {
		return got
	}
	defer got.response.Body.Close()
	// One byte beyond the limit: a body of just that length must still end.
	limited := io.LimitReader(got.response.Body, c.config.BodyLimitBytes+1)
	if c.config.BodyContains == "" {
		got.bodyBytes, got.bodyErr = io.Copy(io.Discard, limited)
	} else {
		got.body, got.bodyErr = io.ReadAll(limited)
		got.bodyBytes = int64(len(got.body))
	}
	got.bodyBytes = min(got.bodyBytes, c.config.BodyLimitBytes)
	if got.bodyErr == nil {
		times.enter("")
	}
	return got
}

// redirectError is a redirect that we do not follow.
type redirectError struct{ problem string }

func (e redirectError) Error() string { return e.problem }

// mayFollow decides on one redirect. Credentials stay with the host that they
// were configured for.
func (c *Check) mayFollow(next *http.Request, via []*http.Request) error {
	to := redactURL(next.URL)
	if len(via) > c.config.MaxRedirects {
		return redirectError{fmt.Sprintf("redirected more than %d times, the next time to %s", c.config.MaxRedirects, to)}
	}
	if problem := urlProblem(to); problem != "" {
		return redirectError{fmt.Sprintf("redirected to %q: %s", to, problem)}
	}
	hops := append(via[1:len(via):len(via)], next)
	for _, hop := range hops {
		if hop.URL.Hostname() != c.url.Hostname() || c.url.Scheme == "https" && hop.URL.Scheme == "http" {
			for name := range c.config.Headers {
				next.Header.Del(name)
			}
			next.Header.Del("Referer") // it would carry our query along
		}
	}
	return nil
}

// facts returns what is known of the exchange, whatever became of it.
func (c *Check) facts(got answer) *checks.HTTPFacts {
	facts := &checks.HTTPFacts{URL: c.shown, BodyBytes: got.bodyBytes}
	if got.at.trying.IsValid() {
		facts.Address = got.at.trying.String()
	}
	if got.response != nil {
		facts.Status, facts.Proto = got.response.StatusCode, got.response.Proto
	}
	return facts
}

// judge holds the answer against the expectations. Our own end comes first:
// what it cut short says nothing about the target.
func (c *Check) judge(got answer) checks.Finding {
	if errors.Is(got.outer.Err(), context.Canceled) && (got.err != nil || got.bodyErr != nil) {
		return checks.BlindFinding(checks.ReasonShuttingDown, "the look was cut short because we are shutting down")
	}
	if got.err != nil {
		return got.failure(got.err)
	}
	status := got.response.StatusCode
	if !c.expects(status) {
		return fail(checks.ReasonStatus, "status %d, expected %s%s", status, ranges(c.config.Status), got.where())
	}
	if got.bodyErr != nil {
		return got.failure(got.bodyErr)
	}
	within := got.body[:min(int64(len(got.body)), c.config.BodyLimitBytes)]
	if want := c.config.BodyContains; !bytes.Contains(within, []byte(want)) {
		return fail(checks.ReasonBody, "status %d, but %q is not in the first %d bytes of the body%s", status, want, len(within), got.where())
	}
	return checks.Finding{Outcome: checks.Pass, Detail: fmt.Sprintf("status %d, %d bytes%s", status, got.bodyBytes, got.where())}
}

func (c *Check) expects(status int) bool {
	for _, r := range c.config.Status {
		if r.contains(status) {
			return true
		}
	}
	return false
}

// ranges returns the expected statuses for a sentence.
func ranges(all []StatusRange) string {
	text := ""
	for i, r := range all {
		if i > 0 {
			text += " or "
		}
		text += r.String()
	}
	return text
}

// where says which URL answered, if it was not the one that was asked.
func (got *answer) where() string {
	if got.redirects == 0 || got.response == nil {
		return ""
	}
	return fmt.Sprintf(", after %d redirects, from %s", got.redirects, redactURL(got.response.Request.URL))
}

func fail(reason checks.Reason, format string, args ...any) checks.Finding {
	return checks.Finding{Outcome: checks.Fail, Reason: reason, Detail: fmt.Sprintf(format, args...)}
}
