package host

import (
	"fmt"
	"net/netip"
	"slices"
)

// ListenersOf returns the TCP addresses on which the process named by a pid file
// listens now, in no order: what a person who names only the pid file would have
// declared. None is no error: a main whose workers listen for it has none.
func ListenersOf(pidFile string) ([]netip.AddrPort, error) {
	pid, _, err := readPIDFile(pidFile)
	if err != nil {
		return nil, err
	}
	d, err := openDiag()
	if err != nil {
		return nil, err
	}
	defer d.close()
	all, err := d.listening()
	if err != nil {
		return nil, err
	}
	var out []netip.AddrPort
	fs := newProcfs("/proc")
	err = fs.numbers(fmt.Sprintf("/proc/%d/fd", pid), func(fd int) {
		inode, ok := fs.fdInode(pid, fd)
		if !ok {
			return
		}
		for _, s := range all {
			if s.inode == inode && !slices.Contains(out, s.addr) {
				out = append(out, s.addr)
			}
		}
	})
	return out, err
}
