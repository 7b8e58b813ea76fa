package httpcheck

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// failure turns the error of an exchange into a finding. The phase that ran
// when it ended decides, then the error itself.
func (got *answer) failure(err error) checks.Finding {
	var redirect redirectError
	if errors.As(err, &redirect) {
		return fail(checks.ReasonRedirect, "%s", redirect.problem)
	}
	if deadline, _ := got.ctx.Deadline(); !time.Now().Before(deadline) { // the dialler may know before ctx does
		return got.timedOut(deadline)
	}
	if name := new(net.DNSError); errors.As(err, &name) {
		return unresolved(name)
	}
	text := plain(err)
	switch {
	case strings.Contains(text, "failed to parse Location header"): // net/http has no type for it
		return fail(checks.ReasonRedirect, "redirected to what is not a URL")
	case !got.at.connected:
		return got.unconnected(text)
	case got.at.current == phaseTLS:
		return fail(checks.ReasonTLSFailed, "TLS handshake with %s: %s%s", got.at.trying, text, got.sofar())
	case !got.at.began && isReset(err):
		return fail(checks.ReasonNoAnswer, "%s reset the connection without an answer%s", got.at.trying, got.sofar())
	case !got.at.began:
		return fail(checks.ReasonNoAnswer, "%s closed the connection without an answer%s", got.at.trying, got.sofar())
	case isReset(err), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF),
		got.at.ended && strings.Contains(text, "malformed MIME header"): // half a line of the head
		return fail(checks.ReasonTransferCut, "the answer was cut off%s%s", got.read(), got.sofar())
	}
	return fail(checks.ReasonBadProtocol, "what came back is not HTTP: %s%s", text, got.sofar())
}

// timedOut names the phase that ate the time. If it ran out while no phase
// ran, none of them having taken half of it, then it was we who were slow.
func (got *answer) timedOut(deadline time.Time) checks.Finding {
	within := fmt.Sprintf("within %s (%s)", got.limit, errTimeout)
	if theirs, ok := got.outer.Deadline(); ok && theirs.Equal(deadline) {
		within = fmt.Sprintf("within %s (time that was given to the look)", short(theirs.Sub(got.began)))
	}
	phase := got.at.current
	if phase == "" {
		for _, p := range got.at.phases {
			if p.Took > got.limit/2 {
				phase = p.Name
			}
		}
	}
	// The sentences name the phase; sofar lists only those that were done.
	switch phase {
	case phaseResolve:
		return fail(checks.ReasonResolveFailed, "no address for the name %s%s", within, got.sofar())
	case phaseConnect:
		return fail(checks.ReasonConnectTimeout, "no connection to %s %s%s", got.at.trying, within, got.sofar())
	case phaseTLS:
		return fail(checks.ReasonTLSFailed, "TLS handshake not done %s%s", within, got.sofar())
	case phaseRequest:
		return fail(checks.ReasonNoAnswer, "request not taken %s%s", within, got.sofar())
	case phaseWait:
		return fail(checks.ReasonNoAnswer, "no first byte %s%s", within, got.sofar())
	case phaseTransfer:
		return fail(checks.ReasonTransferCut, "the answer began but did not end %s%s%s", within, got.read(), got.sofar())
	}
	return checks.BlindFinding(checks.ReasonOwnLimit, "we did not come to look "+within)
}

// unresolved judges a failed name lookup. A timeout of the resolver counts
// against the name: its customers wait for the same answer.
func unresolved(err *net.DNSError) checks.Finding {
	if limit := ownSide(err); limit.Reason != "" {
		return limit
	}
	if err.IsNotFound {
		return fail(checks.ReasonResolveFailed, "the name %s does not exist, or has no address", err.Name)
	}
	return fail(checks.ReasonResolveFailed, "look up %s: %s", err.Name, err.Err)
}

// unconnected judges connection attempts that all failed, one for each address
// of the name. Evidence about the target outweighs our own limits: if one
// address refused, it refused, whatever became of the others.
func (got *answer) unconnected(text string) checks.Finding {
	own := checks.Finding{}
	other := checks.Finding{}
	for _, a := range got.at.attempts {
		var found checks.Finding
		switch {
		case errors.Is(a.err, syscall.ECONNREFUSED):
			return fail(checks.ReasonConnectRefused, "connection refused by %s%s", a.addr, got.sofar())
		case errors.Is(a.err, syscall.ENETUNREACH) && !ownRouteMissing(a.addr):
			found = fail(checks.ReasonConnectFailed, "a router says that the network of %s is unreachable", a.addr)
		case ownSide(a.err).Reason != "":
			own = ownSide(a.err)
			continue
		case isTimeout(a.err):
			found = fail(checks.ReasonConnectTimeout, "no connection to %s: %s%s", a.addr, plain(a.err), got.sofar())
		default:
			found = fail(checks.ReasonConnectFailed, "connect to %s: %s%s", a.addr, plain(a.err), got.sofar())
		}
		if other.Reason != checks.ReasonConnectTimeout {
			other = found
		}
	}
	switch {
	case other.Reason != "":
		return other
	case own.Reason != "":
		return own
	}
	return fail(checks.ReasonConnectFailed, "connect: %s%s", text, got.sofar())
}

// ownSide returns a blind finding if an error is our own side's, else the zero
// finding.
func ownSide(err error) checks.Finding {
	is := func(numbers ...syscall.Errno) bool {
		for _, n := range numbers {
			if errors.Is(err, n) {
				return true
			}
		}
		return false
	}
	switch {
	case is(syscall.EMFILE, syscall.ENFILE):
		return checks.BlindFinding(checks.ReasonOwnLimit, "we are out of file descriptors; raise LimitNOFILE")
	case is(syscall.ENOBUFS, syscall.ENOMEM):
		return checks.BlindFinding(checks.ReasonOwnLimit, "our kernel is out of memory for sockets")
	case is(syscall.EADDRNOTAVAIL):
		return checks.BlindFinding(checks.ReasonOwnLimit, "no local address or port is left for a connection, or the address family is switched off here")
	case is(syscall.ENETUNREACH, syscall.ENETDOWN):
		return checks.BlindFinding(checks.ReasonOwnNetwork, "we have no route to the address: "+plain(err))
	case is(syscall.EPERM, syscall.EACCES):
		return checks.BlindFinding(checks.ReasonNoPermission, "our own host forbids the connection: "+plain(err))
	}
	return checks.Finding{}
}

// ownRouteMissing tells our own missing route from a router's word that the
// network is unreachable, which connect(2) reports by the same number.
// Connecting a datagram socket looks the route up and sends nothing.
func ownRouteMissing(addr string) bool {
	conn, err := net.Dial("udp", addr)
	if err == nil {
		conn.Close()
	}
	return errors.Is(err, syscall.ENETUNREACH)
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNABORTED)
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// plain returns an error's text without what url.Error puts before it, which
// repeats the URL with its secrets, and without the target's own long words.
func plain(err error) string {
	if e := new(url.Error); errors.As(err, &e) {
		err = e.Err
	}
	if e := new(net.OpError); errors.As(err, &e) {
		err = e.Err
	}
	const limit = 200 // chosen: a sentence
	text := strings.ToValidUTF8(err.Error(), "?")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "..."
	}
	return text
}

// read says how much of a body came.
func (got *answer) read() string {
	if got.response == nil {
		return " within its head"
	}
	return fmt.Sprintf(" after %d bytes of the body", got.bodyBytes)
}

// sofar lists the phases that were done, for the end of a sentence.
func (got *answer) sofar() string {
	text := ""
	for _, p := range got.at.phases {
		verb := map[string]string{
			phaseResolve: "resolved", phaseConnect: "connected", phaseTLS: "TLS done", phaseWait: "first byte",
		}[p.Name]
		if p.Name == got.at.current || verb == "" {
			continue
		}
		if text == "" {
			text = "; "
		} else {
			text += ", "
		}
		text += verb + " in " + short(p.Took)
	}
	return text
}

// short returns a duration with the digits a person reads.
func short(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}
