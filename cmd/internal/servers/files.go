//go:build linux

package servers

import (
	"fmt"
	"os"
)

// Prepare writes a server's files and finds its binary. It starts nothing.
func Prepare(spec Spec, o Options) (*Server, error) {
	s := &Server{Spec: spec, Options: o}
	if spec.launch != nil {
		return s, nil
	}
	for _, dir := range []string{"/usr/sbin/", "/usr/bin/"} {
		if _, err := os.Stat(dir + spec.Binary); err == nil {
			s.binary = dir + spec.Binary
			break
		}
	}
	if s.binary == "" {
		return nil, fmt.Errorf("%s (Debian package %s): %w", spec.Binary, spec.Package, ErrMissing)
	}
	// Workers run as another user and must be able to read their files.
	if err := os.Chmod(o.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.path("www"), 0o755); err != nil {
		return nil, err
	}
	files := spec.files(o)
	files["www/index.html"] = Body
	for name, text := range files {
		if err := os.WriteFile(o.path(name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	if !spec.Downloads {
		return s, nil
	}
	return s, writeBig(o.path("www/big"))
}

// Body is what every server but the lab answers to /.
const Body = "served\n"

// BigBytes is the size of /big. Chosen: above what a loopback connection can
// hold in flight, 4 MiB of send buffer (tcp_wmem) and 6 MiB of receive buffer.
const BigBytes = 32 << 20

func writeBig(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := f.Truncate(BigBytes); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
