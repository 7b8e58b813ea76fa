package httpcheck_test

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/checks/httpcheck"
)

func TestUnconnected_EvidenceOutweighsOurOwnLimits(t *testing.T) {
	system := func(n syscall.Errno) error { return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", n)} }
	for name, row := range map[string]struct {
		errs    []error
		outcome checks.Outcome
		reason  checks.Reason
	}{
		"no port of our own is left":               {[]error{system(syscall.EADDRNOTAVAIL)}, checks.Blind, checks.ReasonOwnLimit},
		"no IPv6 here, IPv4 refused":               {[]error{system(syscall.EADDRNOTAVAIL), system(syscall.ECONNREFUSED)}, checks.Fail, checks.ReasonConnectRefused},
		"refused, then out of descriptors":         {[]error{system(syscall.ECONNREFUSED), system(syscall.EMFILE)}, checks.Fail, checks.ReasonConnectRefused},
		"timed out, then out of descriptors":       {[]error{system(syscall.ETIMEDOUT), system(syscall.EMFILE)}, checks.Fail, checks.ReasonConnectTimeout},
		"the host is unreachable":                  {[]error{system(syscall.EHOSTUNREACH)}, checks.Fail, checks.ReasonConnectFailed},
		"unreachable, then timed out":              {[]error{system(syscall.EHOSTUNREACH), system(syscall.ETIMEDOUT)}, checks.Fail, checks.ReasonConnectTimeout},
		"a router says so, we have a route":        {[]error{system(syscall.ENETUNREACH)}, checks.Fail, checks.ReasonConnectFailed},
		"our own filter forbids it":                {[]error{system(syscall.EPERM)}, checks.Blind, checks.ReasonNoPermission},
		"our kernel has no memory for a socket":    {[]error{system(syscall.ENOBUFS)}, checks.Blind, checks.ReasonOwnLimit},
		"nobody says why":                          {nil, checks.Fail, checks.ReasonConnectFailed},
		"an error that is no number of the system": {[]error{errors.New("odd")}, checks.Fail, checks.ReasonConnectFailed},
	} {
		t.Run(name, func(t *testing.T) {
			if f := httpcheck.Unconnected(row.errs...); f.Outcome != row.outcome || f.Reason != row.reason {
				t.Errorf("Unconnected(%v) = %s %q %q, want %s %q", row.errs, f.Outcome, f.Reason, f.Detail, row.outcome, row.reason)
			}
		})
	}
}
