package lab

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startProcess starts exe, or this program if it is empty, under the name of a
// role. It ends with us: it reads the end of its input, and watches its parent.
func startProcess(exe, role string, args []string) (*process, error) {
	if exe == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", role, err)
		}
		exe = self
	}
	out, outWriter, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	defer outWriter.Close()
	cmd := &exec.Cmd{
		Path: exe, Args: append([]string{role}, args...),
		Env: []string{"TMPDIR=" + os.TempDir()}, Stdout: outWriter,
		// A group of its own: Ctrl-C ends the one who started the lab, who ends
		// the lab in order.
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	if err := cmd.Start(); err != nil {
		in.Close()
		out.Close()
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	return follow(cmd, in, out), nil
}

// startStranger starts a role from a copy of this program, so that it runs
// another executable than the lab does. The process removes the copy when it
// ends.
func startStranger(role string, args []string) (*process, error) {
	dir, err := os.MkdirTemp("", "crosscheck-lab-")
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	exe := filepath.Join(dir, "imposter")
	err = copySelf(exe)
	var p *process
	if err == nil {
		p, err = startProcess(exe, role, args)
	}
	// A process that another thread forked while we wrote the copy holds it open
	// for writing until its own exec (ETXTBSY, execve(2)).
	for try := 0; errors.Is(err, syscall.ETXTBSY) && try < 100; try++ {
		time.Sleep(time.Millisecond)
		p, err = startProcess(exe, role, args)
	}
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	p.dir = dir
	return p, nil
}

func copySelf(to string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}

// holdPort binds addr, whose port 0 stands for any free one, and never listens:
// no other program is given the port, not even as the near end of a connection,
// and our own processes can bind it beside us (SO_REUSEADDR or, among sockets
// that listen side by side, SO_REUSEPORT; socket(7)).
func holdPort(addr netip.AddrPort, reuseport bool) (*os.File, netip.AddrPort, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, addr, fmt.Errorf("socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), "port")
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil && reuseport {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()})
	}
	if err != nil {
		f.Close()
		return nil, addr, fmt.Errorf("bind %s: %w", addr, err)
	}
	name, err := unix.Getsockname(fd)
	at, ok := name.(*unix.SockaddrInet4)
	if err != nil || !ok {
		f.Close()
		return nil, addr, fmt.Errorf("bind %s: no port was given", addr)
	}
	return f, netip.AddrPortFrom(addr.Addr(), uint16(at.Port)), nil
}
