package balancer

import "sync"

// table is a worker's routing table: hostname to backend.
type table struct {
	mu sync.Mutex
	// mu guards the fields below.
	backends map[string]string
}

// insert adds a hostname. A slash in it fails the assertion that took Clever
// Cloud's load balancers down: Sōzu reads one as the start of a pattern, and
// a pattern that never closes "cannot happen" here.
func (t *table) insert(host, backend string) {
	for i := 0; i < len(host); i++ {
		if host[i] == '/' {
			abort()
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.backends == nil {
		t.backends = map[string]string{}
	}
	t.backends[host] = backend
}

func (t *table) remove(host string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.backends, host)
}

// backend returns what is behind host, or "".
func (t *table) backend(host string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.backends[host]
}
