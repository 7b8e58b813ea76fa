package heartbeat

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// reopenAfter is how long we wait before we try again to open a socket; chosen.
const reopenAfter = 10 * time.Second

// Run reads the socket, if there is one, and calls Deps.Changed at deadlines,
// until ctx ends. It returns nil: a socket that cannot be read makes looks blind
// and is tried again. It may be called once.
func (c *Check) Run(ctx context.Context) error {
	var reader sync.WaitGroup
	if c.cfg.Socket != "" {
		reader.Go(func() { c.receive(ctx) })
	}
	c.mu.Lock()
	c.timer = time.NewTimer(time.Hour)
	c.rearmLocked(c.now())
	timer := c.timer
	c.mu.Unlock()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-timer.C:
			c.mu.Lock()
			c.advanceLocked(c.now())
			c.mu.Unlock()
			c.wake()
		}
	}
	reader.Wait()
	c.mu.Lock()
	c.timer.Stop()
	c.timer = nil
	c.mu.Unlock()
	return nil
}

// receive keeps the socket open and reads it.
func (c *Check) receive(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		conn, err := listen(c.cfg.Socket)
		if err == nil {
			c.setBroken(nil)
			said = ""
			err = c.read(ctx, conn)
		}
		if ctx.Err() != nil {
			return
		}
		c.setBroken(err)
		if err.Error() != said {
			said = err.Error()
			c.log.Error("cannot take heartbeats; trying again", "check", c.cfg.ID, "every", reopenAfter, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(reopenAfter):
		}
	}
}

func (c *Check) setBroken(err error) {
	c.mu.Lock()
	changed := (err == nil) != (c.broken == nil)
	c.broken = err
	c.mu.Unlock()
	if changed {
		c.wake()
	}
}

// read takes datagrams until the connection fails or ctx ends, and closes it.
// A flood is read no faster than ratePerSecond: the kernel makes its sender wait.
func (c *Check) read(ctx context.Context, conn *net.UnixConn) error {
	created, _ := os.Lstat(c.cfg.Socket) // nothing in the abstract namespace
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { _ = conn.Close(); close(closed) })
	defer func() {
		if !stop() {
			<-closed
		}
		_ = conn.Close()
		if now, err := os.Lstat(c.cfg.Socket); err == nil && created != nil && os.SameFile(created, now) {
			_ = os.Remove(c.cfg.Socket)
		}
	}()
	message, control := make([]byte, MessageLimit+1), make([]byte, 512)
	began, n := time.Now(), 0
	for {
		size, controlSize, _, _, err := conn.ReadMsgUnix(message, control)
		if err != nil {
			return fmt.Errorf("read socket: %w", err)
		}
		pid := sender(control[:controlSize])
		beat, err := ParseNotify(message[:size])
		beat.PID = pid
		if err != nil {
			c.Refuse(err)
		} else {
			_ = c.take(beat) // counted there
		}
		if n++; n < ratePerSecond {
			continue
		}
		if rest := time.Second - time.Since(began); rest > 0 {
			select {
			case <-ctx.Done():
			case <-time.After(rest):
			}
		}
		began, n = time.Now(), 0
	}
}

// errInUse says that somebody reads the socket already.
var errInUse = errors.New("another process reads it: give each check, and each agent, a socket of its own")

// listen opens a datagram socket. A socket file that nobody reads any more is
// replaced; anything else at its path is an error.
func listen(path string) (*net.UnixConn, error) {
	addr := &net.UnixAddr{Name: path, Net: "unixgram"}
	conn, err := net.ListenUnixgram("unixgram", addr)
	if errors.Is(err, syscall.EADDRINUSE) && !strings.HasPrefix(path, "@") {
		if err := removeDead(path, addr); err != nil {
			return nil, fmt.Errorf("heartbeat socket %s: %w", path, err)
		}
		conn, err = net.ListenUnixgram("unixgram", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("heartbeat socket %s: %w", path, reason(err))
	}
	if err := passCredentials(conn); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("heartbeat socket %s: %w", path, err)
	}
	if strings.HasPrefix(path, "@") {
		return conn, nil
	}
	// The workload runs as somebody else. Who may reach it is said by the folder.
	if err := os.Chmod(path, 0o666); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("heartbeat socket: %w", err)
	}
	return conn, nil
}

// removeDead removes a socket that refuses connections.
func removeDead(path string, addr *net.UnixAddr) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode()&fs.ModeSocket == 0 {
		return errors.New("is there already and is no socket")
	}
	conn, err := net.DialUnix("unixgram", nil, addr)
	switch {
	case err == nil:
		_ = conn.Close()
		return errInUse
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, syscall.EPROTOTYPE): // a stream socket is there
		return errInUse
	}
	return reason(err)
}

// reason is the error without the address, which the caller names.
func reason(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op.Err
	}
	return err
}
