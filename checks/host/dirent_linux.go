package host

import "encoding/binary"

// dirent splits the first struct linux_dirent64 off (getdents64(2): inode 8
// bytes, offset 8, record length 2, type 1, name up to a zero byte). name is nil if what is
// left is malformed.
func dirent(b []byte) (name, rest []byte) {
	const nameAt = 19
	if len(b) < nameAt {
		return nil, nil
	}
	n := int(binary.NativeEndian.Uint16(b[16:]))
	if n < nameAt || n > len(b) {
		return nil, nil
	}
	name = b[nameAt:n]
	for i, c := range name {
		if c == 0 {
			return name[:i], b[n:]
		}
	}
	return name, b[n:]
}
