package httpcheck_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/httpcheck"
)

// BenchmarkLook against BenchmarkBareLoop is the price of a look.
func BenchmarkLook(b *testing.B) {
	u := benchServer(b)
	check, err := httpcheck.New(httpcheck.Config{URL: u, BodyContains: "hello"})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if f := check.Look(b.Context()); f.Outcome != checks.Pass {
			b.Fatal(f)
		}
	}
}

func BenchmarkBareLoop(b *testing.B) {
	u := benchServer(b)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for b.Loop() {
		resp, err := client.Get(u)
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

func benchServer(b *testing.B) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }))
	b.Cleanup(s.Close)
	return s.URL
}
