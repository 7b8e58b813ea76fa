package host

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// ListenersOf returns the TCP addresses on which one of the processes listens now,
// in no order: what a person who names only the processes would have declared.
// None is no error. It looks in the network namespace of the calling thread. What
// may not be read of one process is an error, told with what the others have.
func ListenersOf(pids ...int) (out []netip.AddrPort, err error) {
	d, err := openDiag()
	if err != nil {
		return nil, err
	}
	defer d.close()
	all, err := d.listening()
	if err != nil {
		return nil, err
	}
	fs := newProcfs("/proc")
	for _, pid := range pids {
		err = errors.Join(err, fs.numbers(fmt.Sprintf("/proc/%d/fd", pid), func(fd int) {
			inode, ok := fs.fdInode(pid, fd)
			if !ok {
				return
			}
			for _, s := range all {
				if s.inode == inode && !slices.Contains(out, s.addr) {
					out = append(out, s.addr)
				}
			}
		}))
	}
	return out, err
}
