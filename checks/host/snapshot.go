package host

import (
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

// Snapshot is what is known of one target. It is a value: nobody changes it
// once it was handed out. All times are on the boot clock (CLOCK_BOOTTIME, see
// BootTime), never wall clock.
type Snapshot struct {
	Target string
	// Sweep counts the process sweeps of this target, Dump the listener dumps,
	// both from 1; At and DumpAt are when the last of each ended.
	Sweep  uint64
	Dump   uint64
	At     time.Duration
	DumpAt time.Duration
	Main   Main
	// Workers are main's own children (grandchildren are none), zombies
	// included, by birth. After main is gone they are those it left behind.
	Workers []Process
	// Events are the newest of this target, oldest first, at most EventsKept. A
	// reader keeps the last Seq it saw; a first Seq above the next one is a gap.
	Events    []Event
	Listeners []Listener
	// Trouble says why processes could not be read in the last sweep, and
	// DumpTrouble why sockets could not in the last dump. Zero if they could.
	Trouble     Trouble
	DumpTrouble Trouble
	// FDsUnknown says why a descriptor table could not be read, so that Listens,
	// owners and Held may lack something. Empty if all could.
	FDsUnknown string
	// Cgroup is main's control group, a path under the cgroup mount; empty if it
	// is not known. OOMKills is its count of processes killed for memory
	// (memory.events, oom_kill), children included; it only rises, and is 0 if
	// OOMUnknown.
	Cgroup     string
	OOMKills   uint64
	OOMUnknown bool
	// GaveUp: systemd has given up starting main (start-limit-hit).
	GaveUp bool
	// StaleConfig is a declared configuration file written after the youngest
	// worker, or main if there is none, was born, and StaleSince when it was.
	StaleConfig string
	StaleSince  time.Duration
	Host        HostState
}

// HostState is what is known of the whole machine.
type HostState struct {
	// CPUPressure is PSI's "some avg10" of the CPU, 0 to 1; -1 without PSI.
	CPUPressure float64
	// Late is the longest own lateness in the last 10 s: a wake too late, or the
	// time one of our threads waited for a CPU within a second (schedstat).
	Late time.Duration
	// Burner is the control group that used most CPU in the last reading,
	// BurnerShare of one core; empty if not known.
	Burner      string
	BurnerShare float64
	CPUs        int
}

// EventsKept is how many events a slow reader may lag behind.
const EventsKept = 256

// Listener returns what is known of one declared listener.
func (s *Snapshot) Listener(addr netip.AddrPort) (Listener, bool) {
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	for _, l := range s.Listeners {
		if l.Addr == addr {
			return l, true
		}
	}
	return Listener{}, false
}

// UnixListener returns what is known of one declared unix listener, by its path
// or "@name".
func (s *Snapshot) UnixListener(name string) (Listener, bool) {
	for _, l := range s.Listeners {
		if l.Path == name && name != "" {
			return l, true
		}
	}
	return Listener{}, false
}

// Trouble is why we could not look.
type Trouble struct {
	Reason checks.Reason
	Detail string
}

// MainStatus is what is known of main.
type MainStatus string

// The statuses. Zero is MainUnknown.
const (
	MainUnknown MainStatus = ""      // never found in this observer's life
	MainAlive   MainStatus = "alive" // running or stopped
	MainGone    MainStatus = "gone"  // was there, or is named by a pid file, and is not
)

// Main is the main process of a target.
type Main struct {
	Status MainStatus
	// Process is the last main known; zero if none was.
	Process Process
	// Why explains a status other than alive, and what is odd about an alive one.
	Why string
	// Unnamed: the pid file that named it is gone, or empty: whoever ended it meant
	// to.
	Unnamed bool
	// LastAlive is when it was last seen alive.
	LastAlive time.Duration
	// Reaped: main has waited for a child at some time in its life. A lone
	// server that never had a worker has not.
	Reaped bool
}

// ID is a process's identity: pids are reused.
type ID struct {
	PID int
	// StartTicks is field 22 of /proc/PID/stat, ticks of 10 ms since boot.
	StartTicks uint64
}

// String returns "PID.STARTTICKS".
func (id ID) String() string { return fmt.Sprintf("%d.%d", id.PID, id.StartTicks) }

// Process is one process in one sweep.
type Process struct {
	ID
	PPID  int
	Comm  string
	State checks.ProcState
	// Traced: stopped by a tracer, not by a signal. Tracer is who, zero if that
	// may not be read; TracerComm its name.
	Traced     bool
	Tracer     int
	TracerComm string
	// CgroupFrozen: its control group is frozen. State is then ProcStopped.
	CgroupFrozen bool
	// StoppedSince is when it was first seen stopped without a break; 0 if it
	// is not.
	StoppedSince time.Duration
	// Title is its command line, arguments joined by blanks, at most 128 bytes;
	// empty if it was not read. Servers write their state into it.
	Title string
	// UTime and STime are the CPU time of all its threads since birth in user and
	// kernel mode (ticks of 10 ms), Ran the same in nanoseconds of the scheduler
	// and Waited the time it was ready and not given a CPU, both of the main
	// thread (schedstat). CPUAt is when they were read; 0 if they were not.
	UTime, STime time.Duration
	Ran, Waited  time.Duration
	CPUAt        time.Duration
	Threads      int
	// Clock is the CPU time of all its threads at the sweep, exactly; 0 if it is not
	// known. It moves whenever the process has run at all.
	Clock time.Duration
	// Hot are the threads that used or waited for a CPU more than 2 % of the time
	// since the reading before, with their own counters; of those never read before,
	// the ones that run. Processes are read once a second at most, and only every
	// 5 s if they use less than 0.5 % of a CPU.
	Hot []Thread
	// Sockets is a hash of the socket inodes in its descriptor table (of its lowest
	// 1,024 descriptors, and how many there are). It is read with Hot, if one of those
	// may be spinning: half of the time and no voluntary switch; 0 if it was not.
	Sockets uint64
	// NextFD is its lowest free descriptor number and FDLimit its soft limit; 0 if
	// they were not read. As long as it has fewer descriptors than FDLimit less 2,
	// NextFD is their number: the lowest free one is that or less.
	NextFD, FDLimit int
	// Exe is the executable's path; empty if it may not be read.
	Exe string
	// ExeChanged: it became another program after it was a second old.
	ExeChanged bool
	// Born is the tick in which it was born: true birth is at most 10 ms later.
	Born time.Duration
	// Age is the time from Born to the sweep.
	Age time.Duration
	// Listens: holds a LISTEN socket of the target (any LISTEN socket, if the
	// target declares none).
	Listens bool
	// FDsUnknown: its descriptor table could not be read, so that Listens is
	// false for want of knowledge.
	FDsUnknown bool
}

// Thread is one thread's counters since its birth.
type Thread struct {
	TID         int
	Ran, Waited time.Duration // schedstat
	UTime       time.Duration // ticks
	STime       time.Duration // ticks
	Voluntary   uint64        // voluntary context switches
	At          time.Duration // when it was read
}

// EventKind is what happened.
type EventKind string

// The kinds of event.
const (
	Birth      EventKind = "birth"
	Death      EventKind = "death"       // of a worker we knew
	Unseen     EventKind = "unseen"      // a worker that was born and died between two sweeps
	ExeChanged EventKind = "exe_changed" // a worker became another program
	MainFound  EventKind = "main_found"
	MainDeath  EventKind = "main_death"
)

// Event is one change. Events are in the order in which they were noticed;
// deaths of a sweep stand before its births.
type Event struct {
	Seq  uint64
	Kind EventKind
	// Main is the main process under which it happened.
	Main ID
	// Process is zero for Unseen.
	Process ID
	Comm    string
	// Born is a lower bound of the birth.
	Born time.Duration
	// At is an upper bound of the moment: of the death for deaths, of the first
	// sight otherwise.
	At time.Duration
	// Exit is how it ended, for deaths.
	Exit Exit
	// Brief: a birth or death of a child of main that no sweep saw, told by the
	// process connector alone. It may have been no worker. Comm is empty, Born and
	// At are exact, and StartTicks may be one tick late.
	Brief bool
}

// Age is how old a process was when it died, at most.
func (e *Event) Age() time.Duration { return e.At - e.Born }

// Exit is how a process ended. The zero value is unknown.
type Exit struct {
	Known  bool
	Code   int
	Signal int
}

// exitFromStatus reads a wait(2) status.
func exitFromStatus(status int) Exit {
	return Exit{Known: true, Code: status >> 8 & 0xff, Signal: status & 0x7f}
}

// Abnormal reports whether the process ended by a signal or with a code other
// than 0. An unknown exit is not abnormal.
func (e Exit) Abnormal() bool { return e.Known && (e.Signal != 0 || e.Code != 0) }

// signalNames are those that end a server in practice; signal(7), x86 and arm
// numbers. Others print as numbers.
var signalNames = map[syscall.Signal]string{
	1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
	9: "SIGKILL", 11: "SIGSEGV", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM", 24: "SIGXCPU", 25: "SIGXFSZ", 31: "SIGSYS",
}

// String returns "SIGABRT", "exit 1" or "unknown".
func (e Exit) String() string {
	switch {
	case !e.Known:
		return "unknown"
	case e.Signal != 0:
		if n, ok := signalNames[syscall.Signal(e.Signal)]; ok {
			return n
		}
		return fmt.Sprintf("signal %d", e.Signal)
	}
	return fmt.Sprintf("exit %d", e.Code)
}

// Listener is what is known of one declared listener.
type Listener struct {
	// Addr is as declared, an IPv4 address never mapped into IPv6. Zero for a
	// unix socket, of which Path is the name ("@name" in the abstract namespace).
	Addr      netip.AddrPort
	Path      string
	Listening bool
	// Sockets counts the LISTEN sockets that match.
	Sockets int
	// Queue is the longest accept queue among them, Backlog that socket's limit.
	Queue, Backlog uint32
	// Group are the sockets one by one, by inode.
	Group []Socket
	// Owners hold one of them; OwnersUnknown says why they could not be read.
	Owners        []Owner
	OwnersUnknown string
	// EverListening: seen listening under the present main.
	EverListening bool
	// ForeignLook counts the looks that found a socket here held by strangers
	// alone, one after the other and at least 100 ms apart: a walk of /proc, then
	// the same processes again; ForeignSince is when the first did.
	ForeignLook  int
	ForeignSince time.Duration
	// AbsentDumps counts consecutive dumps without it; AbsentFor is the time
	// from the first of them to the last.
	AbsentDumps int
	AbsentFor   time.Duration
	// Held: absent, and a process of the target still has a socket open that
	// used to listen here: shutdown(2), not close(2).
	Held bool
}

// Socket is one LISTEN socket of a listener.
type Socket struct {
	Inode          uint64
	Queue, Backlog uint32
	// Foreign: only processes outside the target hold it, as of ForeignLook.
	Foreign bool
}

// Owner is a process that holds a listening socket.
type Owner struct {
	Process
	Role checks.Role
}
