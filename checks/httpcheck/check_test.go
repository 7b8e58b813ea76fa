//go:build linux

package httpcheck_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/httpcheck"
)

// short is the timeout of looks that are meant to run into it; long of those
// that are not.
const (
	short = 150 * time.Millisecond
	long  = 20 * time.Second
)

// look makes one look and holds it against what is true of every look.
func look(t *testing.T, c httpcheck.Config) checks.Finding {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = long
	}
	check, err := httpcheck.New(c)
	if err != nil {
		t.Fatalf("New(%+v) = %v", c, err)
	}
	f := check.Look(t.Context())
	mustHold(t, f)
	return f
}

// mustHold checks the promises of checks.Finding.
func mustHold(t *testing.T, f checks.Finding) {
	t.Helper()
	var sum time.Duration
	seen := map[string]bool{}
	for _, p := range f.Phases {
		if seen[p.Name] || p.Took < 0 {
			t.Errorf("phase %+v occurs twice or ran backwards in %+v", p, f.Phases)
		}
		seen[p.Name] = true
		sum += p.Took
	}
	if sum > f.Duration {
		t.Errorf("phases sum to %s, more than the look's %s", sum, f.Duration)
	}
	if f.HTTP == nil {
		t.Fatal("no http facts")
	}
	if failed := f.Outcome == checks.Fail; failed != strings.HasPrefix(f.HTTP.Repeat, "curl ") || failed != f.Urgent {
		t.Errorf("outcome %s, urgent %v, repeat %q: a failing look is urgent and can be repeated, another is neither", f.Outcome, f.Urgent, f.HTTP.Repeat)
	}
	if f.Detail == "" || strings.HasSuffix(f.Detail, ".") || strings.ContainsAny(f.Detail, "\n\r") {
		t.Errorf("detail %q is not one sentence without a full stop", f.Detail)
	}
}

func want(t *testing.T, f checks.Finding, outcome checks.Outcome, reason checks.Reason, detail string, phases ...string) {
	t.Helper()
	if f.Outcome != outcome || f.Reason != reason || !strings.Contains(f.Detail, detail) {
		t.Errorf("finding %s %q %q, want %s %q with %q in its detail", f.Outcome, f.Reason, f.Detail, outcome, reason, detail)
	}
	var got []string
	for _, p := range f.Phases {
		got = append(got, p.Name)
	}
	if !slices.Equal(got, phases) {
		t.Errorf("phases %v, want %v", got, phases)
	}
}

// serve runs a handler on loopback.
func serve(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// raw accepts connections on loopback and gives each to f, which owns it until
// the test ends.
func raw(t *testing.T, f func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go f(conn)
		}
	}()
	return "http://" + l.Addr().String()
}

// says reads the request's head and writes text.
func says(text string, then func(net.Conn)) func(net.Conn) {
	return func(conn net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
			return
		}
		io.WriteString(conn, text)
		then(conn)
	}
}

func closes(conn net.Conn) { conn.Close() }
func stays(net.Conn)       {}
func resets(conn net.Conn) { conn.(*net.TCPConn).SetLinger(0); conn.Close() }

var toTheEnd = []string{"connect", "request", "wait", "transfer"}

func TestLook_PassesWhenEverythingIsAsExpected(t *testing.T) {
	var seen *http.Request
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		seen = r
		io.WriteString(w, "all is well")
	})
	f := look(t, httpcheck.Config{URL: u + "/health?a=b", BodyContains: "is well", Host: "app.example.com", Headers: map[string]string{"x-shape": "odd"}})
	want(t, f, checks.Pass, "", "status 200, 11 bytes", toTheEnd...)
	if f.HTTP.Status != 200 || f.HTTP.BodyBytes != 11 || f.HTTP.Proto != "HTTP/1.1" || "http://"+f.HTTP.Address != u {
		t.Errorf("facts %+v", f.HTTP)
	}
	if seen.Host != "app.example.com" || seen.UserAgent() != "Crosscheck" || seen.Header.Get("X-Shape") != "odd" || seen.RequestURI != "/health?a=b" {
		t.Errorf("the server saw host %q, agent %q, headers %v, %s", seen.Host, seen.UserAgent(), seen.Header, seen.RequestURI)
	}
}

func TestLook_FailsWithThePhaseInItsReason(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\n"
	for name, row := range map[string]struct {
		server func(*testing.T) string
		config httpcheck.Config
		reason checks.Reason
		detail string
		phases []string
	}{
		"nobody listens": {closedPort, httpcheck.Config{}, checks.ReasonConnectRefused, "connection refused by 127.0.0.1:", []string{"connect"}},
		"the accept queue is full": {fullBacklog, httpcheck.Config{Timeout: short},
			checks.ReasonConnectTimeout, "within 150ms (timeout of the check)", []string{"connect"}},
		"it connects and nobody ever accepts": {backlog, httpcheck.Config{Timeout: short},
			checks.ReasonNoAnswer, "no first byte within 150ms (timeout of the check); connected in ", []string{"connect", "request", "wait"}},
		"it closes at once":           {rawly(closes), httpcheck.Config{}, checks.ReasonNoAnswer, "without an answer", nil},
		"it reads, then closes":       {rawly(says("", closes)), httpcheck.Config{}, checks.ReasonNoAnswer, "closed the connection without an answer", []string{"connect", "request", "wait"}},
		"it reads, then resets":       {rawly(says("", resets)), httpcheck.Config{}, checks.ReasonNoAnswer, "reset the connection without an answer", []string{"connect", "request", "wait"}},
		"it speaks first":             {rawly(speaksFirst), httpcheck.Config{}, checks.ReasonBadProtocol, "not HTTP", nil},
		"it speaks another protocol":  {rawly(says("SSH-2.0-OpenSSH_9.2\r\n", closes)), httpcheck.Config{}, checks.ReasonBadProtocol, "not HTTP", toTheEnd},
		"it answers with noise":       {rawly(says("\x00\xff\xfe\x01\r\n\r\n", closes)), httpcheck.Config{}, checks.ReasonBadProtocol, "not HTTP", toTheEnd},
		"it has a head without end":   {rawly(endlessHead), httpcheck.Config{}, checks.ReasonBadProtocol, "exceeded", nil},
		"the head is cut off":         {rawly(says(ok+"Content-Le", closes)), httpcheck.Config{}, checks.ReasonTransferCut, "cut off within its head", toTheEnd},
		"the head stalls":             {rawly(says(ok+"Content-Le", stays)), httpcheck.Config{Timeout: short}, checks.ReasonTransferCut, "did not end within 150ms (timeout of the check) within its head", toTheEnd},
		"the body is cut off":         {rawly(says(ok+"Content-Length: 9\r\n\r\nhalf", closes)), httpcheck.Config{}, checks.ReasonTransferCut, "cut off after 4 bytes", toTheEnd},
		"the body is reset":           {rawly(says(ok+"Content-Length: 9\r\n\r\nhalf", resets)), httpcheck.Config{}, checks.ReasonTransferCut, "cut off", toTheEnd},
		"a chunked body is cut off":   {rawly(says(ok+"Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", closes)), httpcheck.Config{}, checks.ReasonTransferCut, "cut off after 4 bytes", toTheEnd},
		"the body stalls":             {rawly(says(ok+"Content-Length: 9\r\n\r\nhalf", stays)), httpcheck.Config{Timeout: short}, checks.ReasonTransferCut, "after 4 bytes of the body", toTheEnd},
		"a body of the limit stalls":  {rawly(says(ok+"Content-Length: 5\r\n\r\nhalf", stays)), httpcheck.Config{Timeout: short, BodyLimitBytes: 4}, checks.ReasonTransferCut, "did not end", toTheEnd},
		"the chunks are malformed":    {rawly(says(ok+"Transfer-Encoding: chunked\r\n\r\nzz\r\n", closes)), httpcheck.Config{}, checks.ReasonBadProtocol, "not HTTP", toTheEnd},
		"the gzip is none":            {rawly(says(ok+"Content-Encoding: gzip\r\nContent-Length: 20\r\n\r\nthis is no gzip data", closes)), httpcheck.Config{}, checks.ReasonBadProtocol, "gzip", toTheEnd},
		"an error status":             {answering(500, "x"), httpcheck.Config{}, checks.ReasonStatus, "status 500, expected 200-399", toTheEnd},
		"another than that expected":  {answering(200, "x"), httpcheck.Config{Status: []httpcheck.StatusRange{{204, 204}, {300, 399}}}, checks.ReasonStatus, "expected 204 or 3xx", toTheEnd},
		"the body lacks it":           {answering(200, "sorry"), httpcheck.Config{BodyContains: "welcome"}, checks.ReasonBody, `"welcome" is not in the first 5 bytes`, toTheEnd},
		"it comes beyond the limit":   {answering(200, "0123456789x"), httpcheck.Config{BodyContains: "x", BodyLimitBytes: 10}, checks.ReasonBody, "first 10 bytes", toTheEnd},
		"plain HTTP where TLS should": {tlsPort(answering(200, "x")), httpcheck.Config{}, checks.ReasonTLSFailed, "TLS handshake", []string{"connect", "tls"}},
		"a certificate of nobody":     {selfSigned, httpcheck.Config{}, checks.ReasonTLSFailed, "certificate", []string{"connect", "tls"}},
		"the handshake stalls":        {tlsPort(rawly(stays)), httpcheck.Config{Timeout: short}, checks.ReasonTLSFailed, "not done within", []string{"connect", "tls"}},
	} {
		t.Run(name, func(t *testing.T) {
			row.config.URL = row.server(t)
			f := look(t, row.config)
			phases := row.phases
			if phases == nil { // how far it comes is a race
				for _, p := range f.Phases {
					phases = append(phases, p.Name)
				}
			}
			want(t, f, checks.Fail, row.reason, row.detail, phases...)
			if row.config.Timeout == short && f.Duration < short {
				t.Errorf("the look took %s, less than its timeout", f.Duration)
			}
			if f.HTTP.Address == "" {
				t.Error("the address that was dialled is not recorded")
			}
		})
	}
}

func rawly(f func(net.Conn)) func(*testing.T) string {
	return func(t *testing.T) string { return raw(t, f) }
}

func answering(status int, body string) func(*testing.T) string {
	return func(t *testing.T) string {
		return serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			io.WriteString(w, body)
		})
	}
}

func tlsPort(server func(*testing.T) string) func(*testing.T) string {
	return func(t *testing.T) string { return strings.Replace(server(t), "http:", "https:", 1) }
}

func selfSigned(t *testing.T) string {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = quiet
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}

func closedPort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	return "http://" + l.Addr().String()
}

// speaksFirst greets before it was asked, as ssh and smtp do.
func speaksFirst(conn net.Conn) {
	io.WriteString(conn, "SSH-2.0-OpenSSH_9.2\r\n")
	io.Copy(io.Discard, conn)
}

func endlessHead(conn net.Conn) {
	io.WriteString(conn, "HTTP/1.1 200 OK\r\n")
	for {
		if _, err := io.WriteString(conn, "X: "+strings.Repeat("y", 4000)+"\r\n"); err != nil {
			return
		}
	}
}

func TestLook_StatusOutweighsABodyThatIsCut(t *testing.T) {
	u := raw(t, says("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 9\r\n\r\nhalf", closes))
	want(t, look(t, httpcheck.Config{URL: u}), checks.Fail, checks.ReasonStatus, "status 502", toTheEnd...)
}

func TestLook_DefaultAcceptsARedirectThatItDoesNotFollow(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/next", http.StatusFound) })
	f := look(t, httpcheck.Config{URL: u})
	want(t, f, checks.Pass, "", "status 302", toTheEnd...)
}

func TestLook_FollowsRedirectsAndAddsTheirPhases(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/3" {
			http.Redirect(w, r, map[string]string{"/": "/1", "/1": "/2", "/2": "/3?token=t"}[r.URL.Path], http.StatusFound)
		}
	})
	f := look(t, httpcheck.Config{URL: u, FollowRedirects: true, MaxRedirects: 3})
	want(t, f, checks.Pass, "", "after 3 redirects, from "+u+"/3?token=REDACTED", toTheEnd...)
	f = look(t, httpcheck.Config{URL: u, FollowRedirects: true, MaxRedirects: 2})
	want(t, f, checks.Fail, checks.ReasonRedirect, "more than 2 times", toTheEnd...)
}

func TestLook_EndsARedirectLoop(t *testing.T) {
	hops := 0
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		hops++
		http.Redirect(w, r, "/?token=hunter2", http.StatusFound)
	})
	f := look(t, httpcheck.Config{URL: u, FollowRedirects: true})
	want(t, f, checks.Fail, checks.ReasonRedirect, "more than 10 times", toTheEnd...)
	if hops != 11 {
		t.Errorf("%d requests, want 11", hops)
	}
	if strings.Contains(f.Detail, "hunter2") {
		t.Errorf("detail %q shows a secret", f.Detail)
	}
}

func TestLook_RefusesARedirectToWhatIsNoWebAddress(t *testing.T) {
	for _, to := range []string{"ftp://127.0.0.1/", "http://127.0.0.1:70000/", "file:///etc/passwd", "http://%zz/", "//example.com*/"} {
		t.Run(to, func(t *testing.T) {
			u := raw(t, says("HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: "+to+"\r\n\r\n", closes))
			want(t, look(t, httpcheck.Config{URL: u, FollowRedirects: true}), checks.Fail, checks.ReasonRedirect, "redirected to", toTheEnd...)
		})
	}
}

func TestLook_SendsItsHeadersToNoOtherHost(t *testing.T) {
	var got http.Header
	other := serve(t, func(_ http.ResponseWriter, r *http.Request) { got = r.Header })
	other = strings.Replace(other, "127.0.0.1", "localhost", 1)
	u := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, http.StatusFound) })
	u = strings.Replace(u, "http://", "http://me:hunter2@", 1)
	f := look(t, httpcheck.Config{URL: u + "/?token=hunter2", FollowRedirects: true, Headers: map[string]string{"X-Api-Key": "hunter2", "Cookie": "hunter2"}})
	if f.Outcome != checks.Pass {
		t.Fatalf("finding %+v", f)
	}
	if all := fmt.Sprint(got); strings.Contains(all, "hunter2") || got.Get("User-Agent") != "Crosscheck" {
		t.Errorf("the other host got %v, want the user agent and no secret", got)
	}
}

func TestLook_CountsTheBodyAfterDecompression(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		io.WriteString(z, strings.Repeat("z", 5000)+"end")
		z.Close()
	})
	f := look(t, httpcheck.Config{URL: u, BodyContains: "end"})
	want(t, f, checks.Pass, "", "5003 bytes", toTheEnd...)
}

func TestLook_LeavesTheRestOfAHugeBodyUnread(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		z := make([]byte, 1<<20)
		for {
			if _, err := w.Write(z); err != nil {
				return
			}
		}
	})
	f := look(t, httpcheck.Config{URL: u})
	want(t, f, checks.Pass, "", "1048576 bytes", toTheEnd...)
}

func TestLook_ResolvesANameAndPinsItsAddressForRepetition(t *testing.T) {
	u := serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) })
	u = strings.Replace(u, "127.0.0.1", "localhost", 1)
	f := look(t, httpcheck.Config{URL: u})
	if f.Reason != checks.ReasonStatus || len(f.Phases) != 5 || f.Phases[0].Name != "resolve" || f.Phases[1].Name != "connect" {
		t.Errorf("finding %+v, want 404 after resolve, connect and the rest", f)
	}
	_, port, _ := net.SplitHostPort(f.HTTP.Address)
	if !strings.Contains(f.HTTP.Repeat, "--resolve localhost:"+port+":127.0.0.1 ") {
		t.Errorf("repeat %q does not pin %s", f.HTTP.Repeat, f.HTTP.Address)
	}
}

func TestLook_ANameThatDoesNotExistFailsToResolve(t *testing.T) {
	check := withResolver(t, httpcheck.Config{URL: "http://nobody.invalid/", Timeout: long}, answerNXDOMAIN)
	f := check.Look(t.Context())
	mustHold(t, f)
	want(t, f, checks.Fail, checks.ReasonResolveFailed, "does not exist", "resolve")
}

func TestLook_AResolverThatIsSilentFailsToResolve(t *testing.T) {
	check := withResolver(t, httpcheck.Config{URL: "http://slow.example/", Timeout: short}, nil)
	f := check.Look(t.Context())
	mustHold(t, f)
	want(t, f, checks.Fail, checks.ReasonResolveFailed, "no address for the name within 150ms (timeout of the check)", "resolve")
}

func TestLook_CutShortByOurOwnEndIsBlind(t *testing.T) {
	arrived := make(chan struct{}, 1)
	tell := func(f func(net.Conn)) func(net.Conn) {
		return func(conn net.Conn) { arrived <- struct{}{}; f(conn) }
	}
	body := says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", func(net.Conn) { arrived <- struct{}{} })
	plain := func(u string) *httpcheck.Check {
		check, err := httpcheck.New(httpcheck.Config{URL: u, Timeout: long})
		if err != nil {
			t.Fatal(err)
		}
		return check
	}
	for name, check := range map[string]*httpcheck.Check{
		"in resolve": withResolver(t, httpcheck.Config{URL: "http://slow.example/", Timeout: long}, func([]byte) []byte {
			arrived <- struct{}{}
			return nil
		}),
		"in connect":  plain(fullBacklog(t)),
		"in tls":      plain(tlsPort(rawly(tell(stays)))(t)),
		"in wait":     plain(raw(t, says("", func(net.Conn) { arrived <- struct{}{} }))),
		"in transfer": plain(raw(t, body)),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan checks.Finding)
			go func() { done <- check.Look(ctx) }()
			if name != "in connect" { // nothing tells that a SYN was dropped
				<-arrived
			}
			cancel()
			f := <-done
			mustHold(t, f)
			if f.Outcome != checks.Blind || f.Reason != checks.ReasonShuttingDown {
				t.Errorf("finding %+v, want blind, shutting down", f)
			}
			for len(arrived) > 0 {
				<-arrived
			}
		})
	}
}

func TestLook_TheCallersDeadlineIsALimitToo(t *testing.T) {
	check, err := httpcheck.New(httpcheck.Config{URL: backlog(t), Timeout: long})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), short, errors.New("slot is over"))
	defer cancel()
	f := check.Look(ctx)
	mustHold(t, f)
	want(t, f, checks.Fail, checks.ReasonNoAnswer, "(time that was given to the look)", "connect", "request", "wait")
}

func TestLook_TakesAFreshConnectionEachTime(t *testing.T) {
	from := map[string]bool{}
	u := serve(t, func(_ http.ResponseWriter, r *http.Request) { from[r.RemoteAddr] = true })
	check, err := httpcheck.New(httpcheck.Config{URL: u, Timeout: long})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		mustHold(t, check.Look(t.Context()))
	}
	if len(from) != 5 {
		t.Errorf("5 looks came over %d connections", len(from))
	}
}

func TestLook_ShowsNoSecret(t *testing.T) {
	u, err := url.Parse(serve(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }))
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("me", "hunter2")
	u.RawQuery = "q=it's&api_key=hunter2&Access%5FToken=hunter2&plain"
	f := look(t, httpcheck.Config{URL: u.String(), Headers: map[string]string{
		"Authorization": "Bearer hunter2", "Cookie": "a=hunter2", "X-Auth-Token": "hunter2", "X-Shape": "it's odd", "X-Empty": "",
	}})
	if all := fmt.Sprintf("%+v %+v", f, *f.HTTP); strings.Contains(all, "hunter2") || strings.Contains(all, "me@") {
		t.Errorf("the finding shows a secret: %s", all)
	}
	want := "curl -sS -v -g --http1.1 --noproxy '*' -o /dev/null --max-time 20 -u REDACTED -A Crosscheck -H Accept: --compressed " +
		"-H 'Authorization: REDACTED' -H 'Cookie: REDACTED' -H 'X-Auth-Token: REDACTED' -H 'X-Empty;' -H 'X-Shape: it'\\''s odd' " +
		`'http://` + u.Host + `?q=it'\''s&api_key=REDACTED&Access%5FToken=REDACTED&plain'`
	if f.HTTP.Repeat != want {
		t.Errorf("repeat\n got %s\nwant %s", f.HTTP.Repeat, want)
	}
}

func TestLook_PhasesNeverExceedTheLook(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	kinds := []func(net.Conn){closes, resets, says("", closes), says("", resets)}
	for range 20 { // an answer cut at a random byte, in random pieces
		text := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
		cut := random.IntN(len(text) + 1)
		pieces := 1 + random.IntN(4)
		early := random.IntN(2) == 0
		kinds = append(kinds, func(conn net.Conn) {
			defer conn.Close()
			if !early {
				http.ReadRequest(bufio.NewReader(conn))
			}
			for i := range pieces {
				io.WriteString(conn, text[cut*i/pieces:cut*(i+1)/pieces])
			}
		})
	}
	for i, kind := range kinds {
		u := raw(t, kind)
		for range 10 {
			if f := look(t, httpcheck.Config{URL: u}); f.Outcome == checks.Blind {
				t.Errorf("server %d: %+v, want an opinion", i, f)
			}
		}
		look(t, httpcheck.Config{URL: u, Timeout: time.Duration(1 + random.IntN(300_000))})
	}
}
