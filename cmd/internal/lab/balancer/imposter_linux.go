package balancer

import (
	"errors"
	"os"
	"strconv"
	"syscall"
)

// runImposter is the life of a stranger who takes the port: it waits for the
// word, binds as many sockets as it was told, and answers with a page of its
// own. It ends with its parent, or when its standard input ends, and takes its
// executable with it: that is a copy made for it, so that it runs another
// program than the lab's processes do.
func runImposter(args []string) int {
	setName("imposter")
	whenParentDies(func() { vanish() })
	var in lines
	buf := make([]byte, 512)
	for {
		n, err := syscall.Read(0, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			vanish()
		}
		in.feed(buf[:n], func(line string) {
			err := errors.New("unknown command " + line)
			if line == CmdTake {
				err = take(args)
			}
			if err != nil {
				say(refusal(err))
				return
			}
			say([]byte("{\"ok\":true}\n"))
		})
	}
}

// take binds the sockets: kind, address, port, how many.
func take(args []string) error {
	if len(args) != 4 {
		return errors.New("imposter: want 4 arguments, got " + strconv.Itoa(len(args)))
	}
	at, err := parseEndpoint(args[1], args[2])
	if err != nil {
		return err
	}
	count, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	for range count {
		fd, err := listen(&at, Listener(args[0]) == Reuseport)
		if err != nil {
			return err
		}
		s := &server{name: "another server's page", backend: func(string) string { return "" }}
		s.start(fd)
	}
	return nil
}

// vanish ends the process and leaves nothing behind.
func vanish() {
	if exe, err := os.Executable(); err == nil {
		if dir, ours := TempDirOf(exe); ours {
			os.Remove(exe)
			os.Remove(dir)
		}
	}
	syscall.Exit(0)
}
