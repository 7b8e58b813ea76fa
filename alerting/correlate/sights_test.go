package correlate_test

import (
	"strings"
	"time"

	"github.com/crosscheck-project/crosscheck/checks"
)

type workersSight struct {
	Main       checks.ProcState `yaml:"main"`
	MainAge    time.Duration    `yaml:"main_age"`
	MainComm   string           `yaml:"main_comm"`
	MainHeld   time.Duration    `yaml:"main_stopped_for"`
	MainExit   string           `yaml:"main_exit"`
	MainDeaths int              `yaml:"main_deaths"`
	MainLoop   time.Duration    `yaml:"main_loop_for"`
	GaveUp     bool             `yaml:"gave_up"`
	Generation string           `yaml:"generation"`
	MainServes bool             `yaml:"main_serves"`
	Serving    int              `yaml:"serving"`
	Stopped    int              `yaml:"stopped"`   // seen so once
	Young      int              `yaml:"young"`     // hold the listener, do not serve yet
	NoHolder   bool             `yaml:"no_holder"` // of a listener among the workers
	Living     int              `yaml:"living"`
	EverServed bool             `yaml:"ever_served"`
	NoneLooks  int              `yaml:"none_looks"`
	NoneFor    time.Duration    `yaml:"none_for"`
	NoBirthFor time.Duration    `yaml:"no_birth_for"`
	Chain      int              `yaml:"chain"`
	ChainFor   time.Duration    `yaml:"chain_for"`
	Died       int              `yaml:"died"`
	DiedAge    time.Duration    `yaml:"died_age"`
	Exits      map[string]int   `yaml:"exits"`
	Respawn    time.Duration    `yaml:"respawn"`
	GoneFor    time.Duration    `yaml:"gone_for"`
	Local      checks.LocalLook `yaml:"local"`
	LocalFails int              `yaml:"local_fails"`
	LocalFor   time.Duration    `yaml:"local_for"`
	Frozen     int              `yaml:"frozen"` // pids 200 and on
	FrozenFor  time.Duration    `yaml:"frozen_for"`
	Tracer     string           `yaml:"tracer"`
	Spinning   int              `yaml:"spinning"` // pids 400 and on, all for as long
	SpinFor    time.Duration    `yaml:"spinning_for"`
	Busy       int              `yaml:"young_spinners"` // spin for spinning_for, and are not counted yet
	Looping    int              `yaml:"looping_slots"`
	LoopingFor time.Duration    `yaml:"looping_for"`
	NoFDs      int              `yaml:"fds_exhausted"` // pids 500 and on
	OOMKills   int              `yaml:"oom_kills"`
	Minimum    int              `yaml:"minimum"`
	BelowFor   time.Duration    `yaml:"below_for"`
	OnDemand   bool             `yaml:"on_demand"`
	Stopping   time.Duration    `yaml:"stopping_for"`
	StaleFor   time.Duration    `yaml:"stale_for"`  // of /etc/lb.conf
	Starved    string           `yaml:"starved_by"` // "ours" or another control group
}

type listenerSight struct {
	Listening bool             `yaml:"listening"`
	MainGone  bool             `yaml:"main_gone"`
	Never     bool             `yaml:"never_listening"`
	Dumps     int              `yaml:"dumps"`
	AbsentFor time.Duration    `yaml:"absent_for"`
	Held      bool             `yaml:"held"`
	MainHeld  bool             `yaml:"main_held"`
	Local     checks.LocalLook `yaml:"local"`
	Fails     int              `yaml:"local_fails"`
	LocalFor  time.Duration    `yaml:"local_for"`
	Queue     uint32           `yaml:"queue"` // of 128
	QueueFor  time.Duration    `yaml:"queue_for"`
	Looks     int              `yaml:"queue_dumps"`
	Full      int              `yaml:"full_dumps"`
	Sockets   int              `yaml:"sockets"`
	Stuck     int              `yaml:"stuck_sockets"` // for queue_for
	Foreign   int              `yaml:"foreign_looks"`
	StolenFor time.Duration    `yaml:"foreign_for"`
	Share     float64          `yaml:"lost_share"`
	Stopping  time.Duration    `yaml:"stopping_for"`
}

type heartbeatSight struct {
	Last      time.Duration `yaml:"last"` // of one due every 10 s, with 5 s of grace
	Never     bool          `yaml:"never"`
	Waiting   time.Duration `yaml:"waiting"`
	Expected  int           `yaml:"expected"`
	Missed    []string      `yaml:"missed"`
	Status    string        `yaml:"status"`
	Stopping  time.Duration `yaml:"stopping_for"`
	Reloading time.Duration `yaml:"reloading_for"`
}

func (h heartbeatSight) facts() *checks.HeartbeatFacts {
	f := &checks.HeartbeatFacts{
		Every: 10 * time.Second, Grace: 5 * time.Second, Last: h.Last, Waiting: h.Waiting, Expected: h.Expected, Beating: h.Expected - len(h.Missed),
		Missed: h.Missed, Status: h.Status, Stopping: h.Stopping > 0, Reloading: h.Reloading > 0, IntentFor: max(h.Stopping, h.Reloading),
	}
	if h.Never {
		f.Last = -1
	}
	return f
}

func (w workersSight) facts() *checks.WorkerFacts {
	f := &checks.WorkerFacts{
		Main: checks.Process{PID: 100, State: w.Main, Role: checks.RoleMain, Age: w.MainAge, Comm: w.MainComm, StoppedFor: w.MainHeld}, Generation: w.Generation,
		MainServes: w.MainServes, Serving: w.Serving, Expected: 4, EverServed: w.EverServed, NoneLooks: w.NoneLooks, NoneFor: w.NoneFor,
		LivingWorkers: w.Living, NoBirthFor: w.NoBirthFor, Chain: w.Chain, ChainFor: w.ChainFor, Died: w.Died, DiedAge: w.DiedAge,
		Exits: w.Exits, Respawn: w.Respawn, MainGoneFor: w.GoneFor, Local: w.Local, LocalFails: w.LocalFails, LocalFor: w.LocalFor, NoHolder: w.NoHolder,
		MainExit: w.MainExit, MainDeaths: w.MainDeaths, MainLoopFor: w.MainLoop, MainGaveUp: w.GaveUp,
		Frozen: w.Frozen, FrozenFor: w.FrozenFor, Spinning: w.Spinning, SpinningFor: w.SpinFor, LoopingSlots: w.Looping, LoopingFor: w.LoopingFor,
		FDsExhausted: w.NoFDs, OOMKills: w.OOMKills, Minimum: w.Minimum, BelowFor: w.BelowFor, OnDemand: w.OnDemand,
		Stopping: w.Stopping > 0, StoppingFor: w.Stopping,
	}
	if f.Main.State == "" {
		f.Main.State = checks.ProcAlive
	}
	if f.Generation == "" {
		f.Generation = "100.1"
	}
	if w.StaleFor > 0 {
		f.StaleConfig, f.StaleFor = "/etc/lb.conf", w.StaleFor
	}
	if w.Starved != "" {
		f.Host = &checks.HostFacts{Starved: true, Burner: w.Starved, BurnerOurs: w.Starved == "ours"}
	}
	worker := func(n, pid int, p checks.Process) {
		p.Role = checks.RoleWorker
		for i := range n {
			p.PID = pid + i
			f.Workers = append(f.Workers, p)
		}
	}
	worker(w.Stopped, 200, checks.Process{State: checks.ProcStopped})
	worker(w.Frozen, 200, checks.Process{State: checks.ProcStopped, StoppedFor: w.FrozenFor, Tracer: w.Tracer, Traced: w.Tracer != ""})
	worker(w.Young, 300, checks.Process{State: checks.ProcAlive, Listens: true})
	worker(w.Spinning, 400, checks.Process{State: checks.ProcAlive, SpinFor: w.SpinFor, Age: time.Hour})
	worker(w.Busy, 400, checks.Process{State: checks.ProcAlive, SpinFor: w.SpinFor, Age: time.Hour})
	worker(w.NoFDs, 500, checks.Process{State: checks.ProcAlive, FDsExhausted: true, Age: time.Hour})
	return f
}

func (l listenerSight) facts(check string) *checks.ListenerFacts {
	f := &checks.ListenerFacts{
		Listener: "tcp 192.0.2.1:" + strings.TrimPrefix(check, "port-"), Listening: l.Listening, EverListening: !l.Never, AbsentDumps: l.Dumps,
		AbsentFor: l.AbsentFor, Held: l.Held, MainHeld: l.MainHeld, MainAlive: !l.MainGone, Local: l.Local, LocalFails: l.Fails, LocalFor: l.LocalFor,
		Queue: l.Queue, Backlog: 128, QueueFor: l.QueueFor, QueueDumps: l.Looks, FullDumps: l.Full, Sockets: l.Sockets,
		ForeignLooks: l.Foreign, ForeignFor: l.StolenFor, LostShare: l.Share, Stopping: l.Stopping > 0, StoppingFor: l.Stopping,
	}
	for i := range l.Sockets {
		s := checks.SocketFacts{Inode: uint64(i + 1), Backlog: 128}
		if i < l.Stuck {
			s.Queue, s.QueueFor, s.QueueDumps = l.Queue, l.QueueFor, l.Looks
		}
		f.Group = append(f.Group, s)
	}
	if l.Foreign > 0 {
		f.Owners = append(f.Owners, checks.Process{PID: 4711, Comm: "python3", State: checks.ProcAlive, Role: checks.RoleForeign})
	}
	return f
}
