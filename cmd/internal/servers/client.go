//go:build linux

package servers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// getTimeout is how long one request of ours may take. Chosen: the limit of an
// ordinary outside look.
const getTimeout = 2 * time.Second

// Get asks the server for a path on a fresh connection and returns the body.
func (s *Server) Get(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	return s.get(ctx, path)
}

// get is Get without a limit of its own.
func (s *Server) get(ctx context.Context, path string) (string, error) {
	if s.Spec.FastCGI {
		return s.askFastCGI(ctx, path)
	}
	body, err := s.open(ctx, path)
	if err != nil {
		return "", err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, 1<<16))
	return string(text), err
}

// open asks for a path and returns the body that is still to come.
func (s *Server) open(ctx context.Context, path string) (io.ReadCloser, error) {
	if s.Spec.FastCGI {
		return s.openFastCGI(ctx, path)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Options.Addr.String()+path, nil)
	if err != nil {
		return nil, err
	}
	// A fresh connection for each: kept ones would stay with one worker.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("GET %s: %s", path, resp.Status)
	}
	return resp.Body, nil
}

// Hold asks for a path and waits for as long as ctx lives: the worker that
// takes it is busy until then. Errors are its purpose and of no interest.
func (s *Server) Hold(ctx context.Context, path string) {
	_, _ = s.get(ctx, path)
	<-ctx.Done()
}

// Download reads /big slowly until ctx ends, and returns how many bytes came and
// whether the server cut it off before.
func (s *Server) Download(ctx context.Context, began chan<- struct{}) (n int64, cut error) {
	body, err := s.open(ctx, "/big")
	if err != nil {
		close(began)
		return 0, err
	}
	defer body.Close()
	close(began)
	buf := make([]byte, 64<<10)
	for {
		got, err := body.Read(buf)
		n += int64(got)
		if err != nil {
			if ctx.Err() != nil {
				return n, nil
			}
			return n, err
		}
		select {
		case <-ctx.Done():
			return n, nil
		case <-time.After(100 * time.Millisecond): // 640 KiB/s: 32 MiB last for 50 s
		}
	}
}
