package balancer

import (
	"os"
	"syscall"
)

// The take-over itself. The house has no init functions; this line is one in
// all but name and the only one, because a worker that waits for func main
// costs three to six times the CPU, forty times a second (README, "Start-up").
var _ = TakeOver()

// TakeOver makes this process one of the lab's and never returns
// if argv[0] says that it was started as one; else it does nothing and returns
// false. Package initialisation calls it: nobody else needs to.
//
// The lab's processes end by syscall.Exit: they defer nothing, and os.Exit
// would make each wait a second for the race detector where that is built in.
func TakeOver() bool {
	if len(os.Args) == 0 {
		return false
	}
	switch os.Args[0] {
	case MainArg:
		syscall.Exit(runMain(os.Args[1:]))
	case WorkerArg:
		syscall.Exit(runWorker(os.Args[1:]))
	case ImposterArg:
		syscall.Exit(runImposter(os.Args[1:]))
	}
	return false
}
