package balancer

import (
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// server speaks just enough HTTP/1.1 (RFC 9112) to be looked at: a head in,
// 200 and a line of text out, connections kept when the client wishes it. It
// needs neither net nor net/http (see the package comment).
type server struct {
	fd      int      // the listening socket
	file    *os.File // owns fd
	name    string
	backend func(host string) string

	open sync.WaitGroup // one for each connection

	mu sync.Mutex
	// mu guards the fields below.
	draining bool
	deaf     bool // the socket was shut: nothing will ever come
	conns    map[*conn]bool
}

// conn is one accepted connection.
type conn struct {
	file *os.File
	idle bool // has been answered and waits for another request. Guarded by server.mu.
}

const (
	headLimitBytes = 8 << 10          // as most servers
	readTimeout    = 10 * time.Second // chosen: no client of the lab is slower
)

// start serves fd in the background for as long as it listens.
func (s *server) start(fd int) {
	syscall.SetNonblock(fd, true)
	s.fd, s.file = fd, os.NewFile(uintptr(fd), "listener")
	raw, err := s.file.SyscallConn()
	if err != nil {
		syscall.Exit(4)
	}
	go raw.Read(func(uintptr) bool {
		for s.accept() {
		}
		return s.finished() // not yet: wait until a connection comes
	})
}

// accept takes one connection, if there is one. After a shutdown(2) of the
// socket there never is one again (EINVAL); the worker stays alive.
func (s *server) accept() bool {
	fd, _, err := syscall.Accept4(s.fd, syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK)
	if err == syscall.EINTR || err == syscall.ECONNABORTED {
		return true
	}
	if err == syscall.EINVAL {
		s.mu.Lock()
		s.deaf = true
		s.mu.Unlock()
	}
	if err != nil {
		return false
	}
	c := &conn{file: os.NewFile(uintptr(fd), "client")}
	s.mu.Lock()
	if s.conns == nil {
		s.conns = map[*conn]bool{}
	}
	s.conns[c] = true
	s.mu.Unlock()
	s.open.Add(1)
	go s.talk(c)
	return true
}

// drain takes no new connections, finishes those there are and returns, after
// limit at the latest. own says that nobody else accepts from our socket: a
// close would reset what queues in it, so the queue is shut and emptied first.
func (s *server) drain(own bool, limit time.Duration) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	if own {
		refuseNew(s.fd)
		for s.accept() {
		}
	}
	s.file.Close()
	s.mu.Lock()
	for c := range s.conns {
		if c.idle {
			c.file.SetReadDeadline(time.Now())
		}
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.open.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// finished says that no connection will be accepted any more.
func (s *server) finished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining || s.deaf
}

func (s *server) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// talk answers requests until the connection ends.
func (s *server) talk(c *conn) {
	defer s.open.Done()
	defer func() {
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		c.file.Close()
	}()
	s.setIdle(c, false)
	var pending []byte
	for {
		head, rest, ok := s.readHead(c, pending)
		if !ok {
			return
		}
		r := parseHead(head)
		cookieRule(r.cookies)
		keep := r.keep && !s.isDraining()
		if _, err := c.file.Write(s.answer(r, keep)); err != nil || !keep {
			return
		}
		pending = rest
	}
}

// readHead returns the next request head and what was read beyond it.
func (s *server) readHead(c *conn, pending []byte) (head, rest []byte, ok bool) {
	buf := append(make([]byte, 0, 1024), pending...)
	chunk := make([]byte, 1024)
	for {
		if end := headEnd(buf); end > 0 {
			s.setIdle(c, true) // until the answer is out nobody is waiting for more
			return buf[:end], buf[end:], true
		}
		if len(buf) > headLimitBytes {
			return nil, nil, false
		}
		n, err := c.file.Read(chunk)
		if err != nil || n == 0 {
			return nil, nil, false
		}
		s.setIdle(c, false)
		buf = append(buf, chunk[:n]...)
	}
}

// setIdle notes whether the connection waits for a further request, and gives
// the next read its deadline.
func (s *server) setIdle(c *conn, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.idle = idle
	if !s.draining {
		c.file.SetReadDeadline(time.Now().Add(readTimeout))
	}
}

// headEnd returns the length of a complete request head, or 0.
func headEnd(b []byte) int {
	for i := 3; i < len(b); i++ {
		if b[i] == '\n' && b[i-1] == '\r' && b[i-2] == '\n' && b[i-3] == '\r' {
			return i + 1
		}
	}
	return 0
}

// answer is the whole response.
func (s *server) answer(r request, keep bool) []byte {
	status, body := "200 OK", s.name
	if !r.valid {
		status, body = "400 Bad Request", "not HTTP/1.x"
	} else if backend := s.backend(r.host); backend != "" {
		body += " for " + backend
	}
	body += "\n"
	b := append(make([]byte, 0, 256), "HTTP/1.1 "+status+"\r\nServer: crosscheck-lab\r\nContent-Type: text/plain\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	if keep {
		b = append(b, "\r\n\r\n"...)
	} else {
		b = append(b, "\r\nConnection: close\r\n\r\n"...)
	}
	if r.head {
		return b
	}
	return append(b, body...)
}
