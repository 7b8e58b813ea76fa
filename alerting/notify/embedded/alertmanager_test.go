package embedded_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/crosscheck-project/crosscheck/alerting/notify"
	"github.com/crosscheck-project/crosscheck/alerting/notify/alertmanager"
	"github.com/crosscheck-project/crosscheck/alerting/notify/embedded"
)

// silenceIncident mutes one incident and returns the silence's id.
func silenceIncident(t *testing.T, am *embedded.Alertmanager, incident string) string {
	t.Helper()
	now := time.Now()
	status, body := call(t, am, "POST", "/api/v2/silences", map[string]any{
		"matchers":  []map[string]any{{"name": "incident", "value": incident, "isRegex": false, "isEqual": true}},
		"startsAt":  now,
		"endsAt":    now.Add(time.Hour),
		"createdBy": "somebody",
		"comment":   "known",
	})
	var answer struct {
		SilenceID string `json:"silenceID"`
	}
	if err := json.Unmarshal(body, &answer); status != http.StatusOK || err != nil || answer.SilenceID == "" {
		t.Fatalf("POST silences: %d %s", status, body)
	}
	return answer.SilenceID
}

// TestAlertmanager_PagesThroughLoopAndSender is the whole road of a notice: loop,
// sender, in-process API, pipeline, webhook.
func TestAlertmanager_PagesThroughLoopAndSender(t *testing.T) {
	t.Parallel()
	p := newPager(t)
	am := open(t, paging(t.TempDir(), p), embedded.Deps{})
	sender, err := alertmanager.New(alertmanager.Config{URLs: []string{embedded.InProcessURL}},
		alertmanager.Deps{Transport: am.Transport()})
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	done := make(chan string, 10)
	loop := notify.NewLoop(notify.Config{}, notify.Deps{
		Notifiers: []notify.Notifier{sender},
		Done:      func(key, receiver string) { done <- key + " " + receiver },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- sender.Run(ctx) }()
	go func() { ended <- loop.Run(ctx) }()
	defer func() { cancel(); <-ended; <-ended }()

	n := notify.Notice{
		Incident: "i1", Step: 1, Service: "lb", Severity: notify.SeverityPage, Firing: true,
		StartsAt: time.Now(), Summary: "lb DOWN", Cause: "workers_crash_looping", ConsoleURL: "http://127.0.0.1/x",
	}
	loop.Post(n)
	select {
	case got := <-p.pages:
		if a := got.Alerts[0]; got.String() != "i1 page firing" || a.Annotations["cause"] != "workers_crash_looping" {
			t.Errorf("page: got %+v, want i1 firing with its cause", got)
		}
	case <-time.After(patience):
		t.Fatal("no page")
	}
	n.Step, n.Firing, n.EndsAt = 2, false, time.Now()
	loop.Post(n)
	p.wants(t, "i1 page resolved")
	if got := []string{<-done, <-done}; !slices.Equal(got, []string{"i1/1 alertmanager", "i1/2 alertmanager"}) {
		t.Errorf("done: got %v, want both steps", got)
	}
}

func TestAlertmanager_SilenceMutesUntilItIsDeleted(t *testing.T) {
	t.Parallel()
	p := newPager(t)
	am := open(t, paging(t.TempDir(), p), embedded.Deps{})
	id := silenceIncident(t, am, "i1")
	post(t, am, fire("i1", "page"))
	p.staysQuiet(t)
	_, body := call(t, am, "GET", "/api/v2/alerts", nil)
	if !strings.Contains(string(body), id) {
		t.Errorf("GET alerts does not say that %s mutes it: %s", id, body)
	}
	if status, body := call(t, am, "DELETE", "/api/v2/silence/"+id, nil); status != http.StatusOK {
		t.Fatalf("DELETE silence: %d %s", status, body)
	}
	p.wants(t, "i1 page firing")
}

func TestAlertmanager_PageMutesTheTicketOfItsIncidentOnly(t *testing.T) {
	t.Parallel()
	p := newPager(t)
	am := open(t, paging(t.TempDir(), p), embedded.Deps{})
	post(t, am, fire("i1", "page"))
	p.wants(t, "i1 page firing")
	post(t, am, fire("i1", "ticket"), fire("i2", "ticket"))
	p.wants(t, "i2 ticket firing")
	p.staysQuiet(t)
}

func TestAlertmanager_ResendMendsTheResolveThatAlertmanagerDropsOfAMutedTicket(t *testing.T) {
	t.Parallel()
	p := newPager(t)
	quick := strings.NewReplacer("group_interval: 30s", "group_interval: 1s", "group_wait: 5s", "group_wait: 0s").
		Replace(string(embedded.DefaultConfig(p.url)))
	am := open(t, embedded.Config{Dir: t.TempDir(), Raw: []byte(quick)}, embedded.Deps{})
	post(t, am, fire("i1", "ticket"))
	p.wants(t, "i1 ticket firing")
	post(t, am, fire("i1", "page"))
	p.wants(t, "i1 page firing")
	post(t, am, resolve("i1", "ticket"))
	p.staysQuiet(t) // muted, and forgotten by Alertmanager
	post(t, am, resolve("i1", "page"))
	p.wants(t, "i1 page resolved")
	post(t, am, resolve("i1", "ticket"))
	p.wants(t, "i1 ticket resolved")
}

func TestAlertmanager_WithoutAReceiverItStillKnowsItsAlerts(t *testing.T) {
	t.Parallel()
	am := open(t, embedded.Config{Dir: t.TempDir()}, embedded.Deps{})
	post(t, am, fire("i1", "page"))
	eventually(t, "alert in its group", func() bool {
		_, body := call(t, am, "GET", "/api/v2/alerts/groups", nil)
		return strings.Contains(string(body), `"incident":"i1"`)
	})
}

func TestAlertmanager_RefusesAnAlertThatIsInvalid(t *testing.T) {
	t.Parallel()
	am := open(t, embedded.Config{Dir: t.TempDir()}, embedded.Deps{})
	now := time.Now()
	bad := alert("i1", "page", now, now.Add(-time.Minute)) // ends before it starts
	if status, body := call(t, am, "POST", "/api/v2/alerts", []any{bad}); status != http.StatusBadRequest {
		t.Errorf("POST of an alert that ends before it starts: got %d %s, want 400", status, body)
	}
}

func TestHandler_ServesUnderThePrefixOverHTTP(t *testing.T) {
	t.Parallel()
	am := open(t, embedded.Config{Dir: t.TempDir()}, embedded.Deps{})
	srv := httptest.NewServer(am.Handler())
	defer srv.Close()
	rows := []struct {
		method, path string
		want         int
	}{
		{"GET", "/alertmanager/-/healthy", 200},
		{"GET", "/alertmanager/-/ready", 200},
		{"GET", "/alertmanager/api/v2/status", 200},
		{"GET", "/alertmanager/api/v2/alerts", 200},
		{"GET", "/alertmanager/api/v2/silences", 200},
		{"GET", "/alertmanager/api/v2/receivers", 200},
		{"POST", "/alertmanager/-/reload", 200},
		{"GET", "/alertmanager/-/reload", 404},
		{"GET", "/alertmanager/", 404},
		{"GET", "/api/v2/status", 404},
		{"GET", "/alertmanager/debug/pprof/", 404},
	}
	for _, row := range rows {
		req, err := http.NewRequestWithContext(t.Context(), row.method, srv.URL+row.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := srv.Client().Do(req)
		if err != nil {
			t.Fatalf("%s %s: %v", row.method, row.path, err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if res.StatusCode != row.want {
			t.Errorf("%s %s: got %d %s, want %d", row.method, row.path, res.StatusCode, body, row.want)
		}
	}
}

func TestNew_TwoInstancesStandSideBySideAndMetricsGoWhenClosed(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	am := open(t, embedded.Config{Dir: t.TempDir()}, embedded.Deps{Registerer: reg})
	open(t, embedded.Config{Dir: t.TempDir()}, embedded.Deps{})
	if _, err := embedded.New(embedded.Config{Dir: t.TempDir()}, embedded.Deps{Registerer: reg}); err == nil {
		t.Error("New with a registry that has these metrics: got nil, want an error")
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatalf("Gather: %v", err)
	}
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	for _, want := range []string{"alertmanager_alerts", "alertmanager_config_last_reload_successful", "crosscheck_alertmanager_snapshots_total"} {
		if !slices.Contains(names, want) {
			t.Errorf("metrics: %s is missing in %v", want, names)
		}
	}
	am.Close()
	if families, _ := reg.Gather(); len(families) != 0 {
		t.Errorf("metrics after Close: got %d families, want none", len(families))
	}
}

func TestNew_RefusesAConfigurationAndSaysWhere(t *testing.T) {
	t.Parallel()
	good := string(embedded.DefaultConfig())
	rows := []struct {
		name, yaml string
		want       []string
	}{
		{"an unknown key", "route:\n  receiver: default\n  grop_by: [x]\nreceivers:\n  - name: default\n", []string{"line 3", "grop_by"}},
		{"broken YAML", "route:\n  receiver: [\n", []string{"yaml"}},
		{"an empty file", "", []string{"no route"}},
		{"a receiver that does not exist", strings.Replace(good, "receiver: default", "receiver: nobody", 1), []string{"nobody"}},
		{"a duration without unit", strings.Replace(good, "group_wait: 5s", "group_wait: 5", 1), []string{"duration"}},
		{"a template that does not parse", good + "templates: [broken.tmpl]\n", []string{"broken.tmpl"}},
		{"tracing, which only a full Alertmanager does", good + "tracing:\n  endpoint: localhost:4317\n", []string{"tracing", "alertmanager.urls"}},
		{"an event recorder, which only a full one has", good + "event_recorder:\n  stdout_outputs:\n    - name: x\n", []string{"event_recorder"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "alertmanager.yml")
			if err := os.WriteFile(file, []byte(row.yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "broken.tmpl"), []byte("{{ if"), 0o600); err != nil {
				t.Fatal(err)
			}
			am, err := embedded.New(embedded.Config{Dir: filepath.Join(dir, "data"), File: file}, embedded.Deps{})
			if err == nil {
				am.Close()
				t.Fatal("New: got nil, want an error")
			}
			for _, want := range append(row.want, file) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("New: got %q, want it to name %q", err, want)
				}
			}
			if err := embedded.Check(file); err == nil {
				t.Error("Check: got nil, want an error")
			}
		})
	}
}

func TestCheck_RefusesWhatIsNoFileToRead(t *testing.T) {
	t.Parallel()
	huge := filepath.Join(t.TempDir(), "huge.yml")
	if err := os.WriteFile(huge, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(huge, 1<<30); err != nil { // sparse
		t.Fatal(err)
	}
	for file, want := range map[string]string{"/dev/zero": "no regular file", t.TempDir(): "no regular file", huge: "bytes long"} {
		if err := embedded.Check(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Check(%s): %v, want an error with %q", file, err, want)
		}
	}
}

func TestCheck_AcceptsTheDefaultWithAWebhook(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "alertmanager.yml")
	if err := os.WriteFile(file, embedded.DefaultConfig("http://127.0.0.1:1/a?b=%20\"#x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := embedded.Check(file); err != nil {
		t.Errorf("Check: %v", err)
	}
	if err := embedded.Check(file + ".missing"); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("Check of a missing file: got %v, want an error that names it", err)
	}
}

func TestReload_KeepsTheOldConfigurationWhenTheNewIsBad(t *testing.T) {
	t.Parallel()
	before, after := newPager(t), newPager(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "alertmanager.yml")
	write := func(content []byte) {
		t.Helper()
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(embedded.DefaultConfig(before.url))
	am := open(t, embedded.Config{Dir: dir, File: file}, embedded.Deps{})

	write([]byte("route:\n  recever: x\n"))
	if err := am.Reload(); err == nil || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), file) {
		t.Errorf("Reload: got %v, want an error with %s and line 2", err, file)
	}
	if status, body := call(t, am, "POST", "/-/reload", nil); status != 500 || !strings.Contains(string(body), "line 2") {
		t.Errorf("POST /-/reload: got %d %s, want 500 with line 2", status, body)
	}
	post(t, am, fire("i1", "page"))
	before.wants(t, "i1 page firing")

	write(embedded.DefaultConfig(after.url))
	if err := am.Reload(); err != nil {
		t.Fatalf("Reload: %v", err)
	}
	post(t, am, fire("i2", "page"))
	after.wants(t, "i2 page firing")
	after.staysQuiet(t) // i1 was told to the same receiver and place in it: once is enough
}

func TestReload_With100OpenIncidentsSendsNothing(t *testing.T) {
	t.Parallel()
	p := newPager(t)
	am := open(t, paging(t.TempDir(), p), embedded.Deps{})
	var alerts []map[string]any
	for i := range 100 {
		alerts = append(alerts, fire(fmt.Sprint("i", i), "page"))
	}
	post(t, am, alerts...)
	for range alerts {
		select {
		case <-p.pages:
		case <-time.After(patience):
			t.Fatal("not all pages came")
		}
	}
	if err := am.Reload(); err != nil {
		t.Fatalf("Reload: %v", err)
	}
	p.staysQuiet(t)
}

// TestReload_DuringANotificationSendsItOnce holds a webhook open over a reload.
func TestReload_DuringANotificationSendsItOnce(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-release
	}))
	defer srv.Close()
	am := open(t, embedded.Config{Dir: t.TempDir(), Raw: embedded.DefaultConfig(srv.URL)}, embedded.Deps{})
	post(t, am, fire("i1", "page"))
	<-arrived
	reloaded := make(chan error, 1)
	go func() { reloaded <- am.Reload() }()
	select {
	case err := <-reloaded:
		t.Errorf("Reload did not wait for the notification: %v", err)
		reloaded <- err
	case <-time.After(200 * time.Millisecond):
	}
	close(release)
	if err := <-reloaded; err != nil {
		t.Fatalf("Reload: %v", err)
	}
	select {
	case <-arrived:
		t.Error("the page was sent twice")
	case <-time.After(settle):
	}
}

func TestRun_StopsWithinTheDrainLimitWhenAReceiverHangs(t *testing.T) {
	t.Parallel()
	arrived, release := make(chan struct{}, 10), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, _ *http.Request) {
		arrived <- struct{}{}
		<-release
	}))
	defer srv.Close()
	defer close(release)
	am := open(t, embedded.Config{Dir: t.TempDir(), Raw: embedded.DefaultConfig(srv.URL)}, embedded.Deps{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- am.Run(ctx) }()
	post(t, am, fire("i1", "page"))
	<-arrived
	begun := time.Now()
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(begun); took > 4*time.Second {
			t.Errorf("Run took %s to stop, want 2 s and a little", took)
		}
	case <-time.After(patience):
		t.Fatal("Run did not stop")
	}
}

// TestLatency_FromPostToWebhook logs the figures that stand in the README.
func TestLatency_FromPostToWebhook(t *testing.T) {
	p := newPager(t)
	am := open(t, paging(t.TempDir(), p), embedded.Deps{})
	measure := func(a map[string]any) time.Duration {
		begun := time.Now()
		post(t, am, a)
		select {
		case got := <-p.pages:
			return got.at.Sub(begun)
		case <-time.After(patience):
			t.Fatal("no page")
			return 0
		}
	}
	var pages, resolves []time.Duration
	for i := range 30 {
		pages = append(pages, measure(fire(fmt.Sprint("i", i), "page")))
	}
	for i := range 3 {
		resolves = append(resolves, measure(resolve(fmt.Sprint("i", i), "page")))
	}
	slices.Sort(pages)
	slices.Sort(resolves)
	t.Logf("post to webhook, n=%d: p50 %s, p95 %s, max %s; resolve p50 %s",
		len(pages), pages[15], pages[28], pages[29], resolves[1])
	// Chosen: the page must take 0.5 s in all, and this is one part of it.
	if pages[15] > 250*time.Millisecond {
		t.Errorf("post to webhook: p50 %s, want at most 250ms", pages[15])
	}
}
