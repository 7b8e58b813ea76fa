// Package balancer is the lab's load balancer: a main process that never
// serves, and workers that are processes of their own; and an imposter, who is
// none of it and wants its port. All are the running executable started again
// under another argv[0]; importing the package is all that a program must do to
// be able to become one of them.
//
// It imports almost nothing, on purpose: Go initialises packages in the order
// of their import paths as soon as their imports are ready, so that a package
// with few imports takes the process over before the rest of a large program
// has initialised itself (README, "Start-up"). It never touches an address
// that its parent did not give it, and never outlives that parent.
package balancer

// The argv[0] of the roles, as ps shows them.
const (
	MainArg     = "crosscheck-lab-main"
	WorkerArg   = "crosscheck-lab-worker"
	ImposterArg = "crosscheck-lab-imposter"
)

// Doomed is main's last argument if it must die before it serves.
const Doomed = "doomed"

// PoisonCookie is the Cookie header that a worker never finishes reading: a
// valid cookie and a malformed one.
const PoisonCookie = "session=4711; broken; lang=en"

// Listener is how workers come by their listening socket.
type Listener string

// The ways there are.
const (
	// Shared: main listens and hands the socket to every worker; it holds it
	// too, as nginx does.
	Shared Listener = "shared"
	// Reuseport: each worker binds its own socket with SO_REUSEPORT, after it
	// has inserted the whole routing state, as Sōzu's workers do. Main holds a
	// bound socket that never listens, so that the port stays ours.
	Reuseport Listener = "reuseport"
)

// The commands that main reads from its standard input, one a line. It answers
// each with one line of JSON on its standard output: "ok", and "error" if not.
const (
	CmdAddRoute      = "add-route"      // HOST [BACKEND]: into the state, and pushed to every worker
	CmdRemoveRoute   = "remove-route"   // HOST
	CmdShutListeners = "shut-listeners" // shutdown(2) in every worker; descriptors are kept
	CmdClose         = "close"          // close(2) of every listening socket, in workers and main
	CmdReopen        = "reopen"         // new listeners, in new workers
	CmdKillOnce      = "kill-once"      // [PID]: SIGKILL to that worker or to every one, once
	CmdFreeze        = "freeze"         // [PID]: SIGSTOP likewise
	CmdThaw          = "thaw"           // SIGCONT to every worker, old ones too
	CmdReload        = "reload"         // new workers, then the old ones drain
	CmdStatus        = "status"
	CmdQuit          = "quit"

	// CmdTake is the one command to an imposter: bind the port, and answer.
	CmdTake = "take"
)

// tempPrefix begins the names of the directories that we make.
const tempPrefix = "crosscheck-lab-"

// TempDirOf returns the directory of a file, and whether it is one that the lab
// made for it and has to remove after it.
func TempDirOf(file string) (dir string, ours bool) {
	base, slash := 0, -1
	for i := range len(file) {
		if file[i] == '/' {
			base, slash = slash+1, i
		}
	}
	if slash <= 0 {
		return "", false
	}
	dir = file[:slash]
	name := dir[base:]
	return dir, len(name) > len(tempPrefix) && name[:len(tempPrefix)] == tempPrefix
}
