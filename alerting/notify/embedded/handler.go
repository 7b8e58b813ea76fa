package embedded

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	"github.com/prometheus/alertmanager/api"
	"github.com/prometheus/common/route"
)

// routes mounts what Alertmanager's own server mounts, without its web
// interface, its pprof and the default registry.
func (a *Alertmanager) routes(v2 *api.API) http.Handler {
	mux := v2.Register(route.New().WithPrefix(Prefix), Prefix)
	ok := func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "OK") }
	for _, path := range []string{"/-/healthy", "/-/ready"} {
		mux.HandleFunc("GET "+Prefix+path, ok)
	}
	mux.HandleFunc("POST "+Prefix+"/-/reload", func(w http.ResponseWriter, _ *http.Request) {
		if err := a.Reload(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	return mux
}

// Handler serves API v2, health and reload under Prefix. It checks nobody's
// credentials.
func (a *Alertmanager) Handler() http.Handler { return a.handler }

// InProcessURL is the base address under which Transport knows this instance.
const InProcessURL = "http://embedded.invalid" + Prefix // RFC 2606: .invalid never resolves

// Transport calls Handler without a network, so that one sender serves embedded
// and external Alertmanagers alike.
func (a *Alertmanager) Transport() http.RoundTripper { return transport{a.handler} }

type transport struct{ handler http.Handler }

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (res *http.Response, err error) {
	in := req.Clone(req.Context())
	in.RequestURI = req.URL.RequestURI()
	in.RemoteAddr = "127.0.0.1:0"
	if in.Host == "" {
		in.Host = req.URL.Host
	}
	if in.Body == nil {
		in.Body = http.NoBody
	}
	defer in.Body.Close()
	rec := &recorder{header: http.Header{}, status: http.StatusOK}
	defer func() {
		if p := recover(); p != nil {
			res, err = nil, fmt.Errorf("embedded alertmanager: handler panicked: %v", p)
		}
	}()
	t.handler.ServeHTTP(rec, in)
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", rec.status, http.StatusText(rec.status)),
		StatusCode:    rec.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        rec.header,
		Body:          io.NopCloser(&rec.body),
		ContentLength: int64(rec.body.Len()),
		Request:       req,
	}, nil
}

// recorder keeps what a handler answers.
type recorder struct {
	header http.Header
	status int
	wrote  bool
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) {
	if !r.wrote && status >= 200 {
		r.status, r.wrote = status, true
	}
}

func (r *recorder) Write(b []byte) (int, error) {
	r.wrote = true
	return r.body.Write(b)
}
