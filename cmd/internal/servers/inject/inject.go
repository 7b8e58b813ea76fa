// Package inject breaks a running process from outside, as a bug of its own
// would: it closes a descriptor, makes a thread spin, hang or allocate, shuts a
// listening socket, or takes the descriptors away. It needs the right to trace
// the process, and touches only the one it is given.
package inject

import "errors"

// ErrUnsupported says that machine code for this processor is not written.
var ErrUnsupported = errors.New("injection is written for linux on amd64")
