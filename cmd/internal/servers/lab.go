//go:build linux

package servers

import (
	"context"

	labs "github.com/crosscheck-project/crosscheck/cmd/internal/lab"
)

// The lab is our own load balancer: the program that starts it must import
// package lab, of which this package sees to.
func lab() Spec {
	return Spec{Name: "lab", Workers: labs.DefaultWorkers, ownPID: true, Answer: "hello from worker",
		refresh: func(s *Server) error { return s.Lab.Reload() }, launch: launchLab(labs.Shared)}
}

func labReuseport() Spec {
	return Spec{Name: "lab-reuseport", Workers: labs.DefaultWorkers, Reuseport: true, ownPID: true, Answer: "hello from worker",
		refresh: func(s *Server) error { return s.Lab.Reload() }, launch: launchLab(labs.Reuseport)}
}

// launchLab starts the lab; it returns when its workers serve.
func launchLab(listener string) func(context.Context, *Server) error {
	return func(ctx context.Context, s *Server) error {
		l, err := labs.Start(ctx, labs.Options{Listener: listener, Addr: s.Options.Addr, PIDFile: s.PIDFile()})
		if err != nil {
			return err
		}
		s.Lab = l
		return nil
	}
}
