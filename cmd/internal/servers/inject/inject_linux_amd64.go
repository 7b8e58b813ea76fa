package inject

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Machine code, written over the executable's entry point, which runs once in a
// process's life. The page becomes the process's own; its siblings keep theirs.
var (
	codeSpin = []byte{0xeb, 0xfe} // jmp itself
	// mov eax, 34 (pause); syscall; jmp to the start
	codeHang = []byte{0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7}
	// syscall; int3
	codeCall = []byte{0x0f, 0x05, 0xcc}
	// syscall; jmp itself
	codeCallSpin = []byte{0x0f, 0x05, 0xeb, 0xfe}
)

// Spin makes a thread loop in user space for ever.
func Spin(tid int) error {
	return onThread(tid, func(t *thread) error { return t.jump(codeSpin, nil) })
}

// Hang makes a thread sleep in pause(2) for ever, as in a deadlock.
func Hang(tid int) error {
	return onThread(tid, func(t *thread) error { return t.jump(codeHang, nil) })
}

// Allocate makes a thread ask for that much memory and touch all of it, in one
// system call; a memory control group with a lower limit kills it there.
func Allocate(tid int, size uint64) error {
	return onThread(tid, func(t *thread) error {
		return t.jump(codeCallSpin, &call{unix.SYS_MMAP, [6]uint64{0, size, unix.PROT_READ | unix.PROT_WRITE,
			unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_POPULATE, ^uint64(0), 0}})
	})
}

// CloseFD closes a descriptor in a process, as its own close(2) would.
func CloseFD(pid, fd int) error {
	return onThread(pid, func(t *thread) error {
		return t.mustCall(call{unix.SYS_CLOSE, [6]uint64{uint64(fd)}})
	})
}

// limitFiles sets a process's own limits of descriptors.
func limitFiles(pid int, soft, hard uint64) error {
	return onThread(pid, func(t *thread) error {
		limits := binary.LittleEndian.AppendUint64(nil, soft)
		limits = binary.LittleEndian.AppendUint64(limits, hard)
		return t.with(limits, func(at uintptr) error {
			return t.mustCall(call{unix.SYS_SETRLIMIT, [6]uint64{unix.RLIMIT_NOFILE, uint64(at)}})
		})
	})
}

// with calls f while bytes lie in the thread's memory, behind the code.
func (t *thread) with(bytes []byte, f func(at uintptr) error) error {
	at := t.entry + 16 // the longest code has 9 bytes
	before := make([]byte, len(bytes))
	if _, err := unix.PtracePeekText(t.tid, at, before); err != nil {
		return fmt.Errorf("read memory of %d: %w", t.tid, err)
	}
	if _, err := unix.PtracePokeText(t.tid, at, bytes); err != nil {
		return fmt.Errorf("write memory of %d: %w", t.tid, err)
	}
	err := f(at)
	if _, restored := unix.PtracePokeText(t.tid, at, before); err == nil && restored != nil {
		err = fmt.Errorf("restore memory of %d: %w", t.tid, restored)
	}
	return err
}

// mustCall makes one system call in the thread and returns its error.
func (t *thread) mustCall(c call) error {
	result, err := t.call(c)
	if err == nil && int64(result) < 0 {
		err = fmt.Errorf("system call %d in %d: %w", c.number, t.tid, syscall.Errno(-int64(result)))
	}
	return err
}

// call is a system call and its arguments.
type call struct {
	number uint64
	args   [6]uint64
}

// thread is one that we have stopped. All its methods run on the one system
// thread that traces it (ptrace(2)).
type thread struct {
	tid   int
	entry uintptr
}

// onThread stops a thread, lets f change it and lets it run on.
func onThread(tid int, f func(*thread) error) error {
	done := make(chan error, 1)
	go func() {
		// Not unlocked: the system thread that traced ends with this goroutine.
		runtime.LockOSThread()
		done <- trace(tid, f)
	}()
	return <-done
}

func trace(tid int, f func(*thread) error) error {
	entry, err := entryPoint(tid)
	if err != nil {
		return err
	}
	if err := unix.PtraceSeize(tid); err != nil {
		return fmt.Errorf("trace %d: %w", tid, err)
	}
	if err := unix.PtraceInterrupt(tid); err != nil {
		return fmt.Errorf("stop %d: %w", tid, err)
	}
	if _, err := awaitStop(tid); err != nil {
		return err
	}
	err = f(&thread{tid, entry})
	if gone := unix.PtraceDetach(tid); err == nil && gone != nil {
		err = fmt.Errorf("let %d go: %w", tid, gone)
	}
	return err
}

// awaitStop waits until the thread stops and returns the signal that did it.
func awaitStop(tid int) (unix.Signal, error) {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(tid, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for %d: %w", tid, err)
		case status.Stopped():
			return status.StopSignal(), nil
		default:
			return 0, fmt.Errorf("thread %d ended while it was traced", tid)
		}
	}
}

// jump writes code over the entry point and goes there, into a system call if
// one is given, and never comes back.
func (t *thread) jump(code []byte, c *call) error {
	if _, err := unix.PtracePokeText(t.tid, t.entry, code); err != nil {
		return fmt.Errorf("write code into %d: %w", t.tid, err)
	}
	var regs unix.PtraceRegs
	if err := unix.PtraceGetRegs(t.tid, &regs); err != nil {
		return fmt.Errorf("read registers of %d: %w", t.tid, err)
	}
	return t.setRegs(regs, c)
}

// setRegs sends the thread to the entry point with a call's registers.
func (t *thread) setRegs(regs unix.PtraceRegs, c *call) error {
	regs.Rip = uint64(t.entry)
	// The system call that it was stopped in is over: the kernel must not
	// restart it, which would move the instruction pointer.
	regs.Orig_rax = ^uint64(0)
	if c != nil {
		regs.Rax = c.number
		regs.Rdi, regs.Rsi, regs.Rdx, regs.R10, regs.R8, regs.R9 = c.args[0], c.args[1], c.args[2], c.args[3], c.args[4], c.args[5]
	}
	if err := unix.PtraceSetRegs(t.tid, &regs); err != nil {
		return fmt.Errorf("set registers of %d: %w", t.tid, err)
	}
	return nil
}

// call makes one system call in the thread and puts everything back, so that a
// system call that was interrupted is restarted.
func (t *thread) call(c call) (uint64, error) {
	var before, after unix.PtraceRegs
	if err := unix.PtraceGetRegs(t.tid, &before); err != nil {
		return 0, fmt.Errorf("read registers of %d: %w", t.tid, err)
	}
	text := make([]byte, len(codeCall))
	if _, err := unix.PtracePeekText(t.tid, t.entry, text); err != nil {
		return 0, fmt.Errorf("read code of %d: %w", t.tid, err)
	}
	if _, err := unix.PtracePokeText(t.tid, t.entry, codeCall); err != nil {
		return 0, fmt.Errorf("write code into %d: %w", t.tid, err)
	}
	if err := t.setRegs(before, &c); err != nil {
		return 0, err
	}
	if err := t.untilTrap(); err != nil {
		return 0, err
	}
	if err := unix.PtraceGetRegs(t.tid, &after); err != nil {
		return 0, fmt.Errorf("read registers of %d: %w", t.tid, err)
	}
	if _, err := unix.PtracePokeText(t.tid, t.entry, text); err != nil {
		return 0, fmt.Errorf("restore code of %d: %w", t.tid, err)
	}
	if err := unix.PtraceSetRegs(t.tid, &before); err != nil {
		return 0, fmt.Errorf("restore registers of %d: %w", t.tid, err)
	}
	return after.Rax, nil
}

// untilTrap lets the thread run to the trap; signals on the way are delivered
// after it.
func (t *thread) untilTrap() error {
	for range 100 { // chosen: more stops than that are no accident
		if err := unix.PtraceCont(t.tid, 0); err != nil {
			return fmt.Errorf("let %d run: %w", t.tid, err)
		}
		sig, err := awaitStop(t.tid)
		if err != nil || sig == unix.SIGTRAP {
			return err
		}
	}
	return fmt.Errorf("thread %d does not reach the trap", t.tid)
}

// entryPoint is where the executable's first instruction lies in the process.
func entryPoint(pid int) (uintptr, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/auxv", pid))
	if err != nil {
		return 0, err
	}
	const atEntry = 9 // AT_ENTRY, getauxval(3)
	for ; len(raw) >= 16; raw = raw[16:] {
		if binary.LittleEndian.Uint64(raw) == atEntry {
			return uintptr(binary.LittleEndian.Uint64(raw[8:])), nil
		}
	}
	return 0, fmt.Errorf("process %d tells no entry point", pid)
}
