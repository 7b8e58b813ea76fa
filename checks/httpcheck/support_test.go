//go:build linux

package httpcheck_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"syscall"
	"testing"

	"github.com/crosscheck-project/crosscheck/checks/httpcheck"
)

var quiet = log.New(io.Discard, "", 0)

// backlog listens and never accepts: the kernel completes the connections.
func backlog(t *testing.T) string { return listening(t, 16) }

// fullBacklog listens with an accept queue that is full: further connections
// get no answer at all.
func fullBacklog(t *testing.T) string {
	u := listening(t, 0)
	for range 4 { // the queue holds one; Linux takes one more than its length
		conn, err := net.DialTimeout("tcp", u[len("http://"):], short)
		if err != nil {
			return u
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the accept queue took 4 connections, want fewer")
	return ""
}

func listening(t *testing.T, length int) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, length); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// withResolver returns a check whose resolver asks f; nil is silence.
func withResolver(t *testing.T, c httpcheck.Config, f func(query []byte) []byte) *httpcheck.Check {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			if f == nil {
				continue
			}
			if answer := f(buf[:n]); answer != nil {
				server.WriteTo(answer, from)
			}
		}
	}()
	check, err := httpcheck.New(c)
	if err != nil {
		t.Fatal(err)
	}
	check.SetResolver(&net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", server.LocalAddr().String())
	}})
	return check
}

// answerNXDOMAIN turns a query into its refusal (RFC 1035 section 4.1.1).
func answerNXDOMAIN(query []byte) []byte {
	answer := append([]byte(nil), query...)
	answer[2] |= 0x80 // QR
	answer[3] = 0x83  // RA, RCODE 3
	answer[10], answer[11] = 0, 0
	for end := 12; end < len(answer); end++ { // drop the additional section
		if answer[end] == 0 {
			return answer[:end+5]
		}
	}
	return answer
}
