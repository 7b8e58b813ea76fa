// Package balancer is the lab's load balancer: a main process that never
// serves, and workers that are processes of their own. Both are the running
// executable started again under another argv[0]; importing the package is all
// that a program must do to be able to become one of them.
//
// It imports almost nothing, on purpose: Go initialises packages in the order
// of their import paths as soon as their imports are ready, so that a package
// with few imports takes the process over before the rest of a large program
// has initialised itself (README, "Start-up"). It never touches an address
// that its parent did not give it, and never outlives that parent.
package balancer

// The argv[0] of the two roles, as ps shows them.
const (
	MainArg   = "crosscheck-lab-main"
	WorkerArg = "crosscheck-lab-worker"
)

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
	CmdReopen        = "reopen"         // new listeners, in new workers
	CmdKillOnce      = "kill-once"      // SIGKILL to every worker, once
	CmdReload        = "reload"         // new workers, then the old ones drain
	CmdStatus        = "status"
	CmdQuit          = "quit"
)
