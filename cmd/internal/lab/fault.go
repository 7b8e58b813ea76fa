package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/crosscheck-project/crosscheck/cmd/internal/lab/balancer"
)

// CloseListeners has every worker close its listening socket, and main its copy
// of a shared one. The workers live on; nobody is bound to the port.
func (l *Lab) CloseListeners() error { return l.ask(balancer.CmdClose) }

// FreezeAll sends SIGSTOP to every worker.
func (l *Lab) FreezeAll() error { return l.ask(balancer.CmdFreeze) }

// FreezeOne sends SIGSTOP to one worker and returns its process id.
func (l *Lab) FreezeOne() (pid int, err error) {
	l.turn.Lock()
	defer l.turn.Unlock()
	s, err := l.command(balancer.CmdStatus)
	if err != nil {
		return 0, err
	}
	if len(s.Workers) == 0 {
		return 0, errors.New("freeze one: no worker lives")
	}
	pid = s.Workers[0].PID
	_, err = l.command(balancer.CmdFreeze, strconv.Itoa(pid))
	return pid, err
}

// Thaw sends SIGCONT to every worker.
func (l *Lab) Thaw() error { return l.ask(balancer.CmdThaw) }

// KillWorker sends SIGKILL to one worker. Main replaces it.
func (l *Lab) KillWorker(pid int) error { return l.ask(balancer.CmdKillOnce, strconv.Itoa(pid)) }

// visitPatience is how long a visitor waits for his first answer. Chosen: a
// worker answers within a millisecond, one that spins never.
const visitPatience = 500 * time.Millisecond

// Spin makes n requests that send a worker into an endless loop each, and
// returns the process ids of these workers when the requests are written. Killing
// them heals.
func (l *Lab) Spin(n int) (pids []int, err error) {
	l.turn.Lock()
	defer l.turn.Unlock()
	if n < 1 || n > l.o.Workers {
		return nil, fmt.Errorf("spin: %d of %d workers", n, l.o.Workers)
	}
	// Among SO_REUSEPORT sockets a visitor may come to a worker that spins
	// already. Each try misses the last one with probability (1 - 1/n)^tries.
	for tries := 0; len(pids) < n && tries < 20*n; tries++ {
		var pid int
		if pid, err = visit(l.o.Addr.String()); err == nil && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
	}
	if len(pids) < n {
		return pids, fmt.Errorf("spin: %d of %d workers do: %w", len(pids), n, err)
	}
	return pids, nil
}

// visit asks who serves, and then for the page with the poisoned cookie on the
// same connection.
func visit(addr string) (pid int, err error) {
	conn, err := net.DialTimeout("tcp", addr, visitPatience)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(visitPatience))
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: visitor.example\r\n\r\n"); err != nil {
		return 0, err
	}
	for answer := bufio.NewScanner(conn); answer.Scan(); {
		if _, err := fmt.Sscanf(answer.Text(), "hello from worker %d", &pid); err == nil {
			_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: visitor.example\r\nCookie: "+balancer.PoisonCookie+"\r\n\r\n")
			return pid, err
		}
	}
	return 0, errors.New("no worker answers")
}

// KillMain sends SIGKILL to main, and returns when it is dead. Its workers die
// with it. Nobody restarts it: Restart heals.
func (l *Lab) KillMain() error {
	l.turn.Lock()
	defer l.turn.Unlock()
	return l.killMain()
}

func (l *Lab) killMain() error {
	p := l.current()
	if err := p.kill(); err != nil {
		return fmt.Errorf("kill main: %w", err)
	}
	<-p.done
	p.stop() // closes our end of its input
	return nil
}

// restartPause is how long a supervisor waits before it restarts a main that
// ended: systemd's default (RestartSec=, systemd.service(5)).
const restartPause = 100 * time.Millisecond

// doom is a supervisor at work on a main that cannot start.
type doom struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// LoopMain kills main and has it restarted again and again: each new main
// writes the pid file and dies by SIGABRT before it serves. Restart heals.
func (l *Lab) LoopMain() error {
	l.turn.Lock()
	defer l.turn.Unlock()
	if err := l.killMain(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &doom{cancel: cancel, done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		cancel()
		return errGone
	}
	l.doom = d
	go func() {
		defer close(d.done)
		for {
			select {
			case <-time.After(restartPause):
			case <-ctx.Done():
				return
			}
			if !l.startDoomed() {
				return
			}
		}
	}()
	return nil
}

// startDoomed starts a main that dies, waits for its death, and reports whether
// there is reason to go on.
func (l *Lab) startDoomed() bool {
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		return false
	}
	p, err := l.startMain(balancer.Doomed)
	if err == nil {
		l.main = p
	}
	l.mu.Unlock()
	if err != nil {
		return true // the machine refused a process: next time
	}
	<-p.done
	p.stop()
	return true
}

// Restart starts a new main on the same port with the same pid file, after
// KillMain or LoopMain, and returns when its workers serve.
func (l *Lab) Restart() error {
	l.turn.Lock()
	defer l.turn.Unlock()
	l.mu.Lock()
	d := l.doom
	l.doom = nil
	l.mu.Unlock()
	if d != nil {
		d.cancel()
		<-d.done
	}
	select {
	case <-l.current().done:
	default:
		return errors.New("restart: main lives")
	}
	l.mu.Lock()
	if l.stopped {
		l.mu.Unlock()
		return errGone
	}
	p, err := l.startMain("")
	if err == nil {
		l.main = p
	}
	l.mu.Unlock()
	if err == nil {
		_, err = p.read()
	}
	if err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	return nil
}

// StealPort has a stranger listen on the port and answer everything with a page
// of his own: beside the workers, with as many sockets as they have, where they
// use SO_REUSEPORT; alone, after their socket was shut, where they share one.
func (l *Lab) StealPort() error {
	l.turn.Lock()
	defer l.turn.Unlock()
	sockets := 1
	if l.o.Listener == Reuseport {
		sockets = l.o.Workers
	}
	l.mu.Lock()
	if l.stopped || l.imposter != nil {
		l.mu.Unlock()
		return errors.New("steal port: the lab has stopped, or it was stolen already")
	}
	p, err := startStranger(balancer.ImposterArg, append(l.o.args()[:3], strconv.Itoa(sockets)))
	l.imposter = p
	l.mu.Unlock()
	if err != nil {
		return fmt.Errorf("steal port: %w", err)
	}
	if l.o.Listener == Shared {
		if _, err := l.command(balancer.CmdShutListeners); err != nil {
			return err
		}
	}
	if _, err := p.command(balancer.CmdTake); err != nil {
		return fmt.Errorf("steal port: %w", err)
	}
	return nil
}

// ImposterPID returns the process id of the stranger who holds the port, 0 if
// there is none.
func (l *Lab) ImposterPID() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.imposter == nil {
		return 0
	}
	return l.imposter.pid
}

// EvictImposter ends the stranger, and opens the listener anew where he had it
// alone.
func (l *Lab) EvictImposter() error {
	l.turn.Lock()
	defer l.turn.Unlock()
	l.mu.Lock()
	p := l.imposter
	l.imposter = nil
	l.mu.Unlock()
	if p == nil {
		return errors.New("evict imposter: there is none")
	}
	p.end()
	if l.o.Listener == Shared {
		_, err := l.command(balancer.CmdReopen)
		return err
	}
	return nil
}
