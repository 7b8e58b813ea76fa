package checks

import "time"

// HTTPFacts is what an http look learnt about the exchange.
type HTTPFacts struct {
	URL     string `json:"url"`               // redacted: no user info
	Address string `json:"address,omitempty"` // the address that was dialled, host:port
	Status  int    `json:"status,omitempty"`
	Proto   string `json:"proto,omitempty"`
	// BodyBytes counts what was read, after decompression, up to the limit.
	BodyBytes int64 `json:"body_bytes,omitempty"`
	// Repeat is a command line that reproduces the look, secrets redacted.
	Repeat string `json:"repeat,omitempty"`
}

// LocalLook is the result of our own connection from inside the host. One is in
// flight per listener at most: our looks would fill a dead accept queue.
type LocalLook string

// The results of a local look. Empty means none was made.
const (
	LocalRefused    LocalLook = "refused"    // nobody listens
	LocalAnswered   LocalLook = "answered"   // bytes, or an orderly close, came back
	LocalUnanswered LocalLook = "unanswered" // connected, nothing came back in time
	LocalAccepted   LocalLook = "accepted"   // unanswered, but somebody took it from the accept queue
	LocalFailed     LocalLook = "failed"     // neither: unreachable, our own limits
)

// Role is a process's part in a service.
type Role string

// The roles.
const (
	RoleMain     Role = "main"
	RoleWorker   Role = "worker"
	RoleForeign  Role = "foreign"  // holds the listener but is none of the service's
	RoleDraining Role = "draining" // an old worker that finishes its connections and takes no new ones
)

// ProcState is a process's state reduced to what judging asks.
type ProcState string

// The states.
const (
	ProcAlive   ProcState = "alive"
	ProcStopped ProcState = "stopped" // SIGSTOP, a tracer
	ProcZombie  ProcState = "zombie"
	ProcGone    ProcState = "gone"
)

// Process is one process as seen in one sweep. Its identity is PID and
// StartTicks (clock ticks since boot, /proc/PID/stat field 22): pids are reused.
type Process struct {
	PID        int           `json:"pid"`
	StartTicks uint64        `json:"start_ticks"`
	Comm       string        `json:"comm,omitempty"`
	State      ProcState     `json:"state"`
	Role       Role          `json:"role,omitempty"`
	Age        time.Duration `json:"age_ns"`
	// Serving is decided by the workers kind (JUDGING section 3, "Serving
	// worker").
	Serving bool `json:"serving,omitempty"`
	// Traced: stopped by a tracer (strace, a debugger), not by a signal.
	Traced bool `json:"traced,omitempty"`
	// Listens says that the process holds a LISTEN socket of the instance.
	Listens bool `json:"listens,omitempty"`
	// FDsUnknown: its descriptors could not be read, so that Listens says nothing.
	FDsUnknown bool `json:"fds_unknown,omitempty"`
}

// ListenerFacts is what the port kind knows of one declared listener.
type ListenerFacts struct {
	// Listener is "tcp ADDRESS:PORT" as declared.
	Listener  string `json:"listener"`
	Listening bool   `json:"listening"`
	// Sockets counts the LISTEN sockets that match (several with SO_REUSEPORT).
	Sockets int `json:"sockets,omitempty"`
	// Owners are the processes that hold one of them.
	Owners []Process `json:"owners,omitempty"`
	// OwnersUnknown says why Owners could not be read; empty if they could.
	OwnersUnknown string `json:"owners_unknown,omitempty"`
	// Queue is the longest accept queue among the sockets, Backlog its limit.
	Queue   uint32 `json:"queue,omitempty"`
	Backlog uint32 `json:"backlog,omitempty"`
	// EverListening: seen listening since the instance's main was born.
	EverListening bool `json:"ever_listening,omitempty"`
	// AbsentDumps counts consecutive dumps without the listener; AbsentFor is
	// the time from the first of them to the last.
	AbsentDumps int           `json:"absent_dumps,omitempty"`
	AbsentFor   time.Duration `json:"absent_for_ns,omitempty"`
	// Held: a socket that used to listen here is still open in a process of the
	// service, which no longer listens (shutdown(2), not close(2)).
	Held bool `json:"held,omitempty"`
	// MainAlive: the instance's main process was alive in the last sweep.
	MainAlive bool `json:"main_alive,omitempty"`
	// Local is our own connection to the listener, made while it is absent.
	Local LocalLook `json:"local,omitempty"`
}

// WorkerFacts is what the workers kind knows of one instance. Durations end at
// the look.
type WorkerFacts struct {
	Main Process `json:"main"`
	// Generation is one life of the main process: "PID.STARTTICKS".
	Generation string `json:"generation"`
	// MainServes: main serves by itself; its children, if any, are helpers.
	MainServes bool      `json:"main_serves,omitempty"`
	Workers    []Process `json:"workers,omitempty"`
	// Serving of Expected: Expected is the stable maximum of this generation.
	Serving  int `json:"serving"`
	Expected int `json:"expected"`
	// EverServed: a worker has served in this generation. Only then can the
	// instance be proven broken (JUDGING section 1).
	EverServed bool `json:"ever_served"`
	// NoHolder: no worker of this generation was ever seen to hold a listener,
	// though all descriptor tables could be read. Whether anybody serves is then
	// more than the processes tell: only a failed local look proves anything.
	NoHolder bool `json:"no_holder,omitempty"`
	// FDsUnknown says why the descriptors of a process could not be read; empty
	// if all could.
	FDsUnknown string `json:"fds_unknown,omitempty"`
	// NoneLooks counts consecutive sweeps without a serving worker; NoneFor is
	// the time since the last one that had any, or since main was first seen.
	NoneLooks int           `json:"none_looks,omitempty"`
	NoneFor   time.Duration `json:"none_for_ns,omitempty"`
	// LivingWorkers counts workers neither zombie nor gone, serving or not.
	LivingWorkers int `json:"living_workers"`
	// NoBirthFor is the time since a worker was last born, while none serves.
	NoBirthFor time.Duration `json:"no_birth_for_ns,omitempty"`
	// Chain counts replacements that failed one after the other: each was born
	// after its predecessor died, under the same main, and died abnormally or
	// at an age under 1 s (or unknown), but never older than 10 s. ChainFor is
	// the time from the death that began it to the last link. Some links may
	// have served for a moment.
	Chain    int           `json:"chain,omitempty"`
	ChainFor time.Duration `json:"chain_for_ns,omitempty"`
	// Died counts the replacements that died since the chain began, siblings
	// included; DiedAge is their median age; Exits counts how they ended by
	// name ("SIGABRT", "exit 1", "unknown").
	Died    int            `json:"died,omitempty"`
	DiedAge time.Duration  `json:"died_age_ns,omitempty"`
	Exits   map[string]int `json:"exits,omitempty"`
	// Respawn is the learnt median time from a death to the next birth; zero
	// until one was seen.
	Respawn time.Duration `json:"respawn_ns,omitempty"`
	// MainGoneFor is the time since main was last seen alive.
	MainGoneFor time.Duration `json:"main_gone_for_ns,omitempty"`
	// Local is our own byte-carrying connection, made while nobody serves.
	Local LocalLook `json:"local,omitempty"`
}
