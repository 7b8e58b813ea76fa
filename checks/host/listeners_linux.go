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

// OwnerOf returns the main process among those that hold a listening unix socket,
// by its path or "@name"; 0 if nobody listens there, or nobody who may be seen.
func OwnerOf(name string) (pid int, err error) {
	d, err := openDiag()
	if err != nil {
		return 0, err
	}
	defer d.close()
	d.unix = true
	all, err := d.listening()
	if err != nil {
		return 0, err
	}
	want := map[uint64]bool{}
	for _, s := range all {
		if s.path == name {
			want[s.inode] = true
		}
	}
	if len(want) == 0 {
		return 0, nil
	}
	o := &Observer{kernel: kernel{fs: newProcfs("/proc"), now: BootTime}}
	held, _, err := o.holders(want)
	if err != nil {
		return 0, err
	}
	var owners []stat
	for _, of := range held {
		for _, h := range of {
			if s, err := o.kernel.fs.stat(h.pid); err == nil && s.running() {
				owners = append(owners, s)
			}
		}
	}
	if len(owners) == 0 {
		return 0, nil
	}
	main := o.mainAmong(owners)
	return main.pid, nil
}
