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
	// Traced: stopped by a tracer (strace, a debugger), not by a signal; Tracer
	// names it, "strace 4711".
	Traced bool   `json:"traced,omitempty"`
	Tracer string `json:"tracer,omitempty"`
	// CgroupFrozen: stopped by its control group's freezer.
	CgroupFrozen bool `json:"cgroup_frozen,omitempty"`
	// StoppedFor is how long it has been stopped, in whatever way, as far as seen.
	StoppedFor time.Duration `json:"stopped_for_ns,omitempty"`
	// CPU is the share of one core that all its threads used between the last
	// two readings; -1 if that is not known yet.
	CPU float64 `json:"cpu"`
	// SpinFor is how long one of its threads has now been running or waiting for
	// a CPU all the time, without a system call that took time, a voluntary switch
	// or a change of its sockets (JUDGING section 3, P6).
	SpinFor time.Duration `json:"spin_for_ns,omitempty"`
	// FDsExhausted: its lowest free descriptor number has reached its soft limit.
	FDsExhausted bool `json:"fds_exhausted,omitempty"`
	// Listens says that the process holds a LISTEN socket of the instance.
	Listens bool `json:"listens,omitempty"`
	// FDsUnknown: its descriptors could not be read, so that Listens says nothing.
	FDsUnknown bool `json:"fds_unknown,omitempty"`
}

// HostFacts is what an inside finding says of the machine, when that may explain
// what is seen (JUDGING section 3, P6: starvation).
type HostFacts struct {
	// CPUPressure is PSI's share of the last 10 s in which something waited for a
	// CPU, 0 to 1; -1 if this kernel does not tell.
	CPUPressure float64 `json:"cpu_pressure"`
	// Late is the longest time by which our own process was woken too late, or
	// waited for a CPU, in the last 10 s.
	Late time.Duration `json:"late_ns,omitempty"`
	// Starved: by either of them, others than us do not get the CPU they ask for.
	Starved bool `json:"starved,omitempty"`
	// Burner is the control group that used most of the CPU meanwhile, and
	// BurnerOurs says that it is the instance's own.
	Burner     string `json:"burner,omitempty"`
	BurnerOurs bool   `json:"burner_ours,omitempty"`
}

// HeartbeatFacts is what the heartbeat kind knows of one workload that tells us
// by itself that it lives. Durations end at the look.
type HeartbeatFacts struct {
	// Every is how often a beat is expected, Grace how much later it may come.
	Every time.Duration `json:"every_ns"`
	Grace time.Duration `json:"grace_ns"`
	// Last is the time since the last beat of anybody; -1 if none ever came.
	// Waiting is the time since we began to wait for the first.
	Last    time.Duration `json:"last_ns"`
	Waiting time.Duration `json:"waiting_ns,omitempty"`
	// Expected workers are declared one by one; 0 if the workload beats as one.
	// Beating of them are in time, Missed names those that are not.
	Expected int      `json:"expected,omitempty"`
	Beating  int      `json:"beating,omitempty"`
	Missed   []string `json:"missed,omitempty"`
	// MissedFor is the longest silence among them.
	MissedFor time.Duration `json:"missed_for_ns,omitempty"`
	// Triggered: it asked to be taken for silent (WATCHDOG=trigger), and has not
	// beaten since.
	Triggered bool `json:"triggered,omitempty"`
	// Status is the last STATUS= text; Stopping and Reloading are announced
	// intents (sd_notify(3)), and IntentFor is how long ago the present one came.
	Status    string        `json:"status,omitempty"`
	Stopping  bool          `json:"stopping,omitempty"`
	Reloading bool          `json:"reloading,omitempty"`
	IntentFor time.Duration `json:"intent_for_ns,omitempty"`
}

// SocketFacts is one LISTEN socket of a listener. With SO_REUSEPORT there are
// several, each with an accept queue of its own.
type SocketFacts struct {
	Inode   uint64 `json:"inode"`
	Queue   uint32 `json:"queue"`
	Backlog uint32 `json:"backlog"`
	// QueueFor is how long its queue has been above 0 and has not fallen in
	// QueueDumps consecutive dumps.
	QueueFor   time.Duration `json:"queue_for_ns,omitempty"`
	QueueDumps int           `json:"queue_dumps,omitempty"`
	// Foreign: held by processes outside the service alone.
	Foreign bool `json:"foreign,omitempty"`
}

// ListenerFacts is what the port kind knows of one declared listener.
type ListenerFacts struct {
	// Listener is "tcp ADDRESS:PORT" or "unix PATH" as declared.
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
	// Group lists the sockets one by one, where a queue waits or a stranger holds
	// one; empty if all is as it should be.
	Group []SocketFacts `json:"group,omitempty"`
	// QueueDumps counts consecutive dumps in which the sum of the queues was above
	// 0 and did not fall; QueueFor is the time from the first of them to the last.
	QueueDumps int           `json:"queue_dumps,omitempty"`
	QueueFor   time.Duration `json:"queue_for_ns,omitempty"`
	// FullDumps counts consecutive dumps in which a queue was above its backlog:
	// the kernel turns connections away.
	FullDumps int `json:"full_dumps,omitempty"`
	// ForeignLooks counts consecutive looks at the descriptors in which a socket
	// here was held by strangers alone: neither of the service's tree, unit or
	// container, nor of its family of executables. ForeignFor is the time since
	// the first, LostShare their part of the sockets.
	ForeignLooks int           `json:"foreign_looks,omitempty"`
	ForeignFor   time.Duration `json:"foreign_for_ns,omitempty"`
	LostShare    float64       `json:"lost_share,omitempty"`
	// EverListening: seen listening since the instance's main was born.
	EverListening bool `json:"ever_listening,omitempty"`
	// AbsentDumps counts consecutive dumps without the listener; AbsentFor is
	// the time from the first of them to the last.
	AbsentDumps int           `json:"absent_dumps,omitempty"`
	AbsentFor   time.Duration `json:"absent_for_ns,omitempty"`
	// Held: a socket that used to listen here is still open in a process of the
	// service, which no longer listens (shutdown(2), not close(2)).
	Held bool `json:"held,omitempty"`
	// MainHeld: the present main held it itself, when it was last seen to listen for
	// the service. It cannot have gone because workers died.
	MainHeld bool `json:"main_held,omitempty"`
	// MainAlive: the instance's main process was alive in the last sweep.
	MainAlive bool `json:"main_alive,omitempty"`
	// Local is our own connection to the listener, made while it is absent or its
	// queue does not drain. LocalFails counts consecutive ones that ended as the
	// last did, if that was badly; LocalFor is the time since the first of them
	// began.
	Local      LocalLook     `json:"local,omitempty"`
	LocalFails int           `json:"local_fails,omitempty"`
	LocalFor   time.Duration `json:"local_for_ns,omitempty"`
	// Stopping: the service is on its way out by its own or its operator's intent,
	// for StoppingFor.
	Stopping    bool          `json:"stopping,omitempty"`
	StoppingFor time.Duration `json:"stopping_for_ns,omitempty"`
	Host        *HostFacts    `json:"host,omitempty"`
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
	// MainExit is how the last main ended ("SIGSEGV", "exit 1", "unknown").
	// MainDeaths counts mains that ended badly, one after the other, younger than
	// a main needs to start serving; MainLoopFor is the time since the first.
	MainExit    string        `json:"main_exit,omitempty"`
	MainDeaths  int           `json:"main_deaths,omitempty"`
	MainLoopFor time.Duration `json:"main_loop_for_ns,omitempty"`
	// MainGaveUp: whoever restarts main has given up (systemd's start limit).
	MainGaveUp bool `json:"main_gave_up,omitempty"`

	// Minimum is the declared least number of serving workers; 0 if none is.
	// BelowFor is how long fewer have served.
	Minimum  int           `json:"minimum,omitempty"`
	BelowFor time.Duration `json:"below_for_ns,omitempty"`
	// OnDemand: the pool may be at zero (declared, or seen to be in this
	// generation): nobody serving is then as it should be while nothing waits.
	OnDemand bool `json:"on_demand,omitempty"`
	// Frozen counts workers seen stopped in 2 looks at least 100 ms apart, those
	// that a tracer stops only after 5 s; FrozenFor is how long the first of them
	// has been.
	Frozen    int           `json:"frozen,omitempty"`
	FrozenFor time.Duration `json:"frozen_for_ns,omitempty"`
	// Spinning counts workers whose SpinFor has reached 15 s, SpinningFor is the
	// longest.
	Spinning    int           `json:"spinning,omitempty"`
	SpinningFor time.Duration `json:"spinning_for_ns,omitempty"`
	// LoopingSlots of Expected worker slots loop: the last 3 occupants of each
	// died badly within 60 s. LoopingFor is the time since the first did.
	LoopingSlots int           `json:"looping_slots,omitempty"`
	LoopingFor   time.Duration `json:"looping_for_ns,omitempty"`
	// FDsExhausted counts workers without a free descriptor.
	FDsExhausted int `json:"fds_exhausted,omitempty"`
	// OOMKills counts processes of the instance's control group that the kernel
	// killed for memory in the last 60 s.
	OOMKills int `json:"oom_kills,omitempty"`
	// LocalFails and LocalFor are as in ListenerFacts.
	LocalFails int           `json:"local_fails,omitempty"`
	LocalFor   time.Duration `json:"local_for_ns,omitempty"`
	// Stopping: on its way out by its own or its operator's intent, for
	// StoppingFor.
	Stopping    bool          `json:"stopping,omitempty"`
	StoppingFor time.Duration `json:"stopping_for_ns,omitempty"`
	// StaleConfig names a declared configuration file that is newer than every
	// worker, and StaleFor says by how long: it was not loaded, or refused.
	StaleConfig string        `json:"stale_config,omitempty"`
	StaleFor    time.Duration `json:"stale_for_ns,omitempty"`
	// Source is what the server says of itself over an out-of-band socket (or
	// through a worker: then it says so), in words; it raises confidence and decides
	// nothing.
	Source string     `json:"source,omitempty"`
	Host   *HostFacts `json:"host,omitempty"`

	// Local is our own byte-carrying connection, made while nobody serves or
	// those that should do not look as if they did.
	Local LocalLook `json:"local,omitempty"`
}
