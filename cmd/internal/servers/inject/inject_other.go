//go:build !linux || !amd64

package inject

// Spin makes a thread loop in user space for ever.
func Spin(int) error { return ErrUnsupported }

// Hang makes a thread sleep for ever.
func Hang(int) error { return ErrUnsupported }

// Allocate makes a thread ask for memory and touch it.
func Allocate(int, uint64) error { return ErrUnsupported }

// CloseFD closes a descriptor in a process.
func CloseFD(int, int) error { return ErrUnsupported }

func limitFiles(int, uint64, uint64) error { return ErrUnsupported }
