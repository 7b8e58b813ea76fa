//go:build linux

// Package hosttest is a tiny server for tests: the test binary started again
// as a main process with workers that can be told to misbehave. It is linked
// into tests only.
package hosttest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Env names the role of a process that is the test binary started again.
const Env = "CROSSCHECK_HOSTTEST"

// Main runs the role and exits, if there is one. TestMain calls it first.
func Main() {
	switch os.Getenv(Env) {
	case "main":
		runMain()
	case "worker":
		runWorker()
	case "lone":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(err)
		every, err := time.ParseDuration(os.Getenv("HT_RUN"))
		check(err)
		child := exec.Command("/proc/self/exe")
		child.Env = []string{Env + "=failing"}
		child.Run() // it has reaped a child before anybody looks
		fmt.Println(l.Addr())
		go serve(l)
		for range time.Tick(every) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = []string{Env + "=failing"}
			cmd.Run()
		}
	case "failing":
		time.Sleep(30 * time.Millisecond)
		os.Exit(1)
	default:
		return
	}
	os.Exit(0)
}

// Options of a server.
type Options struct {
	Workers int
	// Shared: main binds and workers inherit; otherwise each worker binds for
	// itself with SO_REUSEPORT.
	Shared bool
	// Respawn is how long main waits before it replaces a worker.
	Respawn time.Duration
}

// Server is a running main with its workers.
type Server struct {
	Addr    netip.AddrPort
	PIDFile string
	PID     int
	tb      testing.TB
	in      io.Writer
	cmd     *exec.Cmd
	exited  chan struct{}
}

// Start starts a server and has it killed when the test ends.
func Start(tb testing.TB, o Options) *Server {
	tb.Helper()
	return start(tb, Env+"=main", fmt.Sprintf("HT_WORKERS=%d", o.Workers), fmt.Sprintf("HT_SHARED=%t", o.Shared), "HT_RESPAWN="+o.Respawn.String())
}

// StartLone starts a server without workers, which takes no commands. Every so
// often it runs a program that fails within 30 ms or so.
func StartLone(tb testing.TB, every time.Duration) *Server {
	tb.Helper()
	return start(tb, Env+"=lone", "HT_RUN="+every.String())
}

func start(tb testing.TB, env ...string) *Server {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, PIDFile: filepath.Join(tb.TempDir(), "main.pid"), exited: make(chan struct{})}
	s.cmd = exec.Command(exe)
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		tb.Fatalf("start server: %v", err)
	}
	if s.Addr, err = netip.ParseAddrPort(strings.TrimSpace(line)); err != nil {
		tb.Fatal(err)
	}
	s.PID = s.cmd.Process.Pid
	if err := os.WriteFile(s.PIDFile, []byte(strconv.Itoa(s.PID)+"\n"), 0o600); err != nil {
		tb.Fatal(err)
	}
	go func() { s.cmd.Wait(); close(s.exited) }()
	tb.Cleanup(s.Stop)
	return s
}

// Do sends a command: "crash on", "crash off", "kill", "spin one", "shutdown", "close".
// "crash on" kills the workers there are and makes each new one exit 13
// within 5 to 15 ms of its main function. It returns the moment
// just before.
func (s *Server) Do(command string) time.Time {
	s.tb.Helper()
	at := time.Now()
	if _, err := io.WriteString(s.in, command+"\n"); err != nil {
		s.tb.Fatalf("tell server %q: %v", command, err)
	}
	return at
}

// Stop kills main, and its workers by their parent-death signal.
func (s *Server) Stop() {
	s.cmd.Process.Kill()
	<-s.exited
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "hosttest:", err)
		os.Exit(3)
	}
}

type master struct {
	mu     sync.Mutex
	crash  bool
	living map[int]*exec.Cmd
	shared *os.File
	addr   string
	ready  atomic.Int64 // workers that ever were
}

func runMain() {
	n, err := strconv.Atoi(os.Getenv("HT_WORKERS"))
	check(err)
	respawn, err := time.ParseDuration(os.Getenv("HT_RESPAWN"))
	check(err)
	m := &master{living: map[int]*exec.Cmd{}}
	l := listen("127.0.0.1:0")
	m.addr = l.Addr().String()
	m.shared, err = l.(*net.TCPListener).File()
	check(err)
	l.Close()
	if os.Getenv("HT_SHARED") != "true" {
		// Keep the port ours without listening on it until a worker does.
		check(m.shared.Close())
		m.shared = nil
	}
	for range n {
		go m.keep(respawn)
	}
	for m.ready.Load() < int64(n) {
		time.Sleep(time.Millisecond)
	}
	fmt.Println(m.addr)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		m.command(in.Text())
	}
}

// keep fills one slot for ever. Pdeathsig is tied to the thread that forks.
func (m *master) keep(respawn time.Duration) {
	runtime.LockOSThread() // a parent-death signal comes when the forking thread ends
	for {
		m.mu.Lock()
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), Env+"=worker", "HT_ADDR="+m.addr, fmt.Sprintf("HT_CRASH=%t", m.crash))
		cmd.Stderr = os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		ready, tell, err := os.Pipe()
		check(err)
		cmd.ExtraFiles = []*os.File{tell}
		if m.shared != nil {
			cmd.ExtraFiles = append(cmd.ExtraFiles, m.shared)
		}
		check(cmd.Start())
		tell.Close()
		m.living[cmd.Process.Pid] = cmd
		m.mu.Unlock()
		if n, _ := ready.Read(make([]byte, 1)); n == 1 {
			m.ready.Add(1)
		}
		ready.Close()
		cmd.Wait() // how it ended is for the observer to say
		m.mu.Lock()
		delete(m.living, cmd.Process.Pid)
		m.mu.Unlock()
		time.Sleep(respawn)
	}
}

func (m *master) command(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	each := func(sig syscall.Signal) {
		for pid := range m.living {
			syscall.Kill(pid, sig)
		}
	}
	switch line {
	case "crash on":
		m.crash = true
		each(syscall.SIGKILL)
	case "crash off":
		m.crash = false
	case "kill":
		each(syscall.SIGKILL)
	case "stop":
		each(syscall.SIGSTOP)
	case "cont":
		each(syscall.SIGCONT)
	case "spin one":
		for pid := range m.living {
			syscall.Kill(pid, syscall.SIGHUP)
			return
		}
	case "shutdown":
		if m.shared != nil {
			check(unix.Shutdown(int(m.shared.Fd()), unix.SHUT_RDWR))
			return
		}
		each(syscall.SIGUSR1)
	case "close":
		if m.shared != nil {
			m.shared.Close()
			m.shared = nil
		}
		each(syscall.SIGUSR2)
	}
}

func listen(addr string) net.Listener {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}}
	l, err := lc.Listen(context.Background(), "tcp", addr)
	check(err)
	return l
}

func runWorker() {
	if os.Getenv("HT_CRASH") == "true" {
		time.Sleep(5*time.Millisecond + time.Duration(os.Getpid()%10)*time.Millisecond)
		os.Exit(13)
	}
	orders := make(chan os.Signal, 1)
	signal.Notify(orders, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGHUP)
	var l net.Listener
	if f := os.NewFile(4, "shared"); os.Getenv("HT_SHARED") == "true" {
		var err error
		l, err = net.FileListener(f)
		check(err)
		f.Close()
	} else {
		l = listen(os.Getenv("HT_ADDR"))
	}
	go serve(l)
	ready := os.NewFile(3, "ready")
	ready.Write([]byte{1})
	ready.Close()
	for s := range orders {
		switch s {
		case syscall.SIGUSR2:
			l.Close()
			continue
		case syscall.SIGHUP:
			go func() { // behind the main thread, which sleeps
				runtime.LockOSThread()
				debug.SetGCPercent(-1) // it would wait for this thread
				// No preemption: it would be a voluntary switch.
				check(unix.PthreadSigmask(unix.SIG_BLOCK, &unix.Sigset_t{Val: [16]uint64{1 << (syscall.SIGURG - 1)}}, nil))
				//lint:ignore SA5002 a worker that spins is what is asked for
				for {
				}
			}()
			continue
		}
		raw, err := l.(*net.TCPListener).SyscallConn()
		check(err)
		check(raw.Control(func(fd uintptr) { unix.Shutdown(int(fd), unix.SHUT_RDWR) }))
	}
}

func serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			select {} // the listener is gone; the worker lives on
		}
		go func() {
			defer c.Close()
			c.Read(make([]byte, 512))
			io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nok\n")
		}()
	}
}
