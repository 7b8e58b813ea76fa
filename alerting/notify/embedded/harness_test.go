package embedded_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/alerting/notify/embedded"
)

// patience is how long a test waits for what must come; settle is how long it
// watches that nothing comes: several times the group_interval of 1 s.
const (
	patience = 20 * time.Second
	settle   = 2500 * time.Millisecond
)

// page is one notification as a webhook receiver gets it.
type page struct {
	Status string `json:"status"`
	Alerts []struct {
		Status      string            `json:"status"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"alerts"`
	at time.Time
}

func (p page) String() string {
	var b strings.Builder
	for _, a := range p.Alerts {
		fmt.Fprintf(&b, "%s %s %s;", a.Labels["incident"], a.Labels["severity"], a.Status)
	}
	return strings.TrimSuffix(b.String(), ";")
}

// pager is a webhook receiver.
type pager struct {
	url   string
	pages chan page
}

func newPager(t *testing.T) *pager {
	t.Helper()
	p := &pager{pages: make(chan page, 1000)}
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var got page
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Errorf("webhook body: %v", err)
		}
		got.at = time.Now()
		p.pages <- got
	}))
	t.Cleanup(srv.Close)
	p.url = srv.URL
	return p
}

// wants waits for exactly these notifications, in this order.
func (p *pager) wants(t *testing.T, what ...string) {
	t.Helper()
	for _, want := range what {
		select {
		case got := <-p.pages:
			if got.String() != want {
				t.Fatalf("pager: got %q, want %q", got, want)
			}
		case <-time.After(patience):
			t.Fatalf("pager: got nothing in %s, want %q", patience, want)
		}
	}
}

// staysQuiet watches that nothing comes.
func (p *pager) staysQuiet(t *testing.T) {
	t.Helper()
	select {
	case got := <-p.pages:
		t.Fatalf("pager: got %q, want nothing", got)
	case <-time.After(settle):
	}
}

// open starts an Alertmanager; it is closed when the test ends.
func open(t *testing.T, cfg embedded.Config, deps embedded.Deps) *embedded.Alertmanager {
	t.Helper()
	am, err := embedded.New(cfg, deps)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	t.Cleanup(func() { am.Close() })
	return am
}

// paging is the default configuration with one webhook, on dir.
func paging(dir string, p *pager) embedded.Config {
	return embedded.Config{Dir: dir, Raw: embedded.DefaultConfig(p.url)}
}

// alert is the JSON of one alert of Crosscheck.
func alert(incident, severity string, startsAt, endsAt time.Time) map[string]any {
	a := map[string]any{
		"labels": map[string]string{
			"alertname": "CrosscheckIncident", "service": "lb", "incident": incident, "severity": severity,
		},
		"annotations": map[string]string{"summary": "lb DOWN"},
		"startsAt":    startsAt,
	}
	if !endsAt.IsZero() {
		a["endsAt"] = endsAt
	}
	return a
}

func fire(incident, severity string) map[string]any {
	now := time.Now()
	return alert(incident, severity, now.Add(-time.Minute), now.Add(4*time.Minute))
}

func resolve(incident, severity string) map[string]any {
	now := time.Now()
	return alert(incident, severity, now.Add(-time.Minute), now)
}

// call speaks to an Alertmanager in process and returns status and body.
func call(t *testing.T, am *embedded.Alertmanager, method, path string, body any) (int, []byte) {
	t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		t.Fatalf("encode: %v", err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, embedded.InProcessURL+path, bytes.NewReader(encoded))
	if err != nil {
		t.Fatalf("request: %v", err)
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := am.Transport().RoundTrip(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, answer
}

func post(t *testing.T, am *embedded.Alertmanager, alerts ...map[string]any) {
	t.Helper()
	if status, body := call(t, am, "POST", "/api/v2/alerts", alerts); status != http.StatusOK {
		t.Fatalf("POST alerts: %d %s", status, body)
	}
}

// eventually waits until is says yes.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(patience)
	for !is() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not in %s: %s", patience, what)
		}
	}
}

// onDisk waits until a state file holds at least min bytes.
func onDisk(t *testing.T, dir, file string, min int64) {
	t.Helper()
	eventually(t, file+" on disk", func() bool {
		st, err := os.Stat(filepath.Join(dir, file))
		return err == nil && st.Size() >= min
	})
}

// logBuffer is a log that several goroutines write.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
