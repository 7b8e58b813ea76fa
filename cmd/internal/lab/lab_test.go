//go:build linux

package lab_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/cmd/internal/lab"
)

func TestLab_WorkersServeAndMainDoesNot(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		s := awaitAllReady(t, l)
		if s.Main != l.PID() || s.Addr != l.Addr() || s.Births != lab.DefaultWorkers || s.Deaths != 0 {
			t.Errorf("Status() = %+v, want main %d at %s, %d births and no deaths", s, l.PID(), l.Addr(), lab.DefaultWorkers)
		}
		for range 20 {
			body, err := get(l.Addr(), patience)
			var pid int
			if _, scan := fmt.Sscanf(body, "hello from worker %d\n", &pid); err != nil || scan != nil || !slices.Contains(pids(s), pid) {
				t.Fatalf("get = %q, %v, want a hello from one of %v", body, err, pids(s))
			}
		}
		text, err := os.ReadFile(l.PIDFile())
		if want := fmt.Sprintf("%d\n", l.PID()); err != nil || string(text) != want {
			t.Errorf("pid file = %q, %v, want %q", text, err, want)
		}
	})
}

func TestLab_AnswersWithTheBackendOfARoutedHost(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		if err := l.AddRoute("app.example.com", "the shop"); err != nil {
			t.Fatal(err)
		}
		if err := l.Reload(); err != nil { // the state is replayed to new workers
			t.Fatal(err)
		}
		req, _ := http.NewRequest("GET", "http://"+l.Addr().String(), nil)
		req.Host = "APP.example.com:80"
		client := http.Client{Timeout: patience}
		defer client.CloseIdleConnections()
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if body, _ := io.ReadAll(resp.Body); !strings.HasSuffix(string(body), " for the shop\n") {
			t.Errorf("body = %q, want it to end in the backend", body)
		}
	})
}

func TestLab_AMalformedHostnameCrashLoopsEveryWorkerAndItsRemovalHeals(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		before := awaitAllReady(t, l)
		began := time.Now()
		if err := l.AddRoute("example.com/", "shop"); err != nil {
			t.Fatal(err)
		}
		watch := func(n int) lab.Status {
			var s lab.Status
			await(t, fmt.Sprintf("%d deaths", n), func() bool { s = status(t, l); return s.Deaths >= n })
			return s
		}
		s := watch(5 * lab.DefaultWorkers)
		// One death at once, and one for each 100 ms since: the pacing holds.
		limit := lab.DefaultWorkers * (1 + int(time.Since(began)/lab.DefaultRespawn))
		if s.Deaths > limit {
			t.Errorf("%d deaths in %s, want at most %d with a respawn after %s", s.Deaths, time.Since(began), limit, lab.DefaultRespawn)
		}
		if s.Main != before.Main || syscall.Kill(s.Main, 0) != nil {
			t.Errorf("main %d is not the %d of before, alive", s.Main, before.Main)
		}
		if n := len(pids(s)); n != 0 {
			t.Errorf("%d workers ready in a crash loop, want 0", n)
		}
		if body, err := get(l.Addr(), 200*time.Millisecond); err == nil {
			t.Errorf("get in a crash loop = %q, want no answer", body)
		}
		if err := l.RemoveRoute("example.com/"); err != nil {
			t.Fatal(err)
		}
		awaitAllReady(t, l)
		mustServe(t, l)
	})
}

func TestLab_ShutListenersLeavesLivingDeafWorkersAndReopenHeals(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		before := awaitAllReady(t, l)
		held := map[int]int{}
		for _, pid := range pids(before) {
			held[pid] = sockets(t, pid)
		}
		if err := l.ShutListeners(); err != nil {
			t.Fatal(err)
		}
		conn, err := net.DialTimeout("tcp", l.Addr().String(), patience)
		if err == nil {
			conn.Close()
			t.Errorf("dial after shut-listeners connected, want connection refused")
		}
		after := status(t, l)
		if !slices.Equal(pids(after), pids(before)) || after.Deaths != 0 {
			t.Errorf("workers %v, %d deaths, want %v alive", pids(after), after.Deaths, pids(before))
		}
		for pid, n := range held {
			if got := sockets(t, pid); n < 1 || got != n {
				t.Errorf("worker %d holds %d sockets, want the %d of before", pid, got, n)
			}
		}
		old := watch(t, pids(before)...)
		if err := l.Reopen(); err != nil {
			t.Fatal(err)
		}
		awaitAllReady(t, l)
		mustServe(t, l)
		old()
	})
}

func TestLab_KillOnceIsFollowedByOneReplacementEach(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		before := awaitAllReady(t, l)
		ended := watch(t, pids(before)...)
		if err := l.KillOnce(); err != nil {
			t.Fatal(err)
		}
		ended()
		await(t, "every death is noticed", func() bool { return status(t, l).Deaths == lab.DefaultWorkers })
		after := awaitAllReady(t, l)
		if after.Births != 2*lab.DefaultWorkers || after.Deaths != lab.DefaultWorkers {
			t.Errorf("%d births and %d deaths, want %d and %d", after.Births, after.Deaths, 2*lab.DefaultWorkers, lab.DefaultWorkers)
		}
		mustServe(t, l)
	})
}

func TestLab_ReloadReplacesEveryWorkerAndLosesNoRequest(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		before := awaitAllReady(t, l)
		ended := watch(t, pids(before)...)
		stop := make(chan struct{})
		var served atomic.Int64
		var looks sync.WaitGroup
		looks.Go(func() { // one look after the other, as a prober's are
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := get(l.Addr(), patience); err != nil {
					t.Errorf("a look during the reload: %v", err)
					return
				}
				served.Add(1)
			}
		})
		await(t, "a look before the reload", func() bool { return served.Load() > 0 })
		if err := l.Reload(); err != nil {
			t.Error(err)
		}
		ended()
		n := served.Load()
		await(t, "a look after the reload", func() bool { return served.Load() > n || t.Failed() })
		close(stop)
		looks.Wait()
		after := awaitAllReady(t, l)
		for _, pid := range pids(before) {
			if slices.Contains(pids(after), pid) {
				t.Errorf("worker %d outlived the reload", pid)
			}
		}
		await(t, "draining is over", func() bool { return status(t, l).Draining == 0 })
	})
}

func TestLab_ReloadFinishesAKeptConnection(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(patience))
		answers := bufio.NewReader(conn)
		ask := func(rest string) *http.Response {
			io.WriteString(conn, rest)
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("read answer: %v", err)
			}
			io.Copy(io.Discard, resp.Body)
			return resp
		}
		if ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").Close {
			t.Fatal("the first answer closes, want the connection kept")
		}
		io.WriteString(conn, "GET / HTTP/1.1\r\n") // half a request is under way
		reloaded := make(chan error, 1)
		go func() { reloaded <- l.Reload() }()
		if err := <-reloaded; err != nil {
			t.Fatal(err)
		}
		if resp := ask("Host: a\r\n\r\n"); resp.StatusCode != 200 {
			t.Errorf("answer after the reload = %s, want 200", resp.Status)
		}
	})
}

func TestLab_AReloadInACrashLoopFailsAndMainLives(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		if err := l.AddRoute("example.com/", ""); err != nil {
			t.Fatal(err)
		}
		if err := l.Reload(); err == nil {
			t.Error("Reload() in a crash loop = nil, want an error")
		}
		if err := l.RemoveRoute("example.com/"); err != nil {
			t.Fatal(err)
		}
		awaitAllReady(t, l)
	})
}

func TestLab_StopEndsEveryProcess(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		ended := watch(t, append(pids(awaitAllReady(t, l)), l.PID())...)
		l.Stop()
		ended()
		if err := l.KillOnce(); err == nil {
			t.Error("KillOnce() after Stop = nil, want an error")
		}
	})
}

func TestLab_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l, err := lab.Start(ctx, lab.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Stop()
	ended := watch(t, append(pids(awaitAllReady(t, l)), l.PID())...)
	cancel()
	ended()
	<-l.Done()
}

func TestLab_WorkersDieWithAKilledMain(t *testing.T) {
	bothKinds(t, func(t *testing.T, l *lab.Lab) {
		ended := watch(t, pids(awaitAllReady(t, l))...)
		if err := syscall.Kill(l.PID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		ended()
		<-l.Done()
	})
}

func TestLab_NothingOutlivesAKilledParent(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{lab.Shared, lab.Reuseport, lab.Shared + " steal", lab.Reuseport + " steal", lab.Shared + " freeze", lab.Reuseport + " spin"} {
		t.Run(what, func(t *testing.T) {
			parent := exec.Command(exe)
			parent.Env = append(os.Environ(), parentVar+"="+what)
			out, err := parent.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := parent.Start(); err != nil {
				t.Fatal(err)
			}
			defer parent.Wait()
			defer parent.Process.Kill()
			var said parentSays
			if err := json.NewDecoder(out).Decode(&said); err != nil {
				t.Fatalf("the parent's lab: %v", err)
			}
			processes, files := append(pids(said.Lab), said.Lab.Main), []string{said.Lab.PIDFile}
			if said.Imposter != 0 {
				exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", said.Imposter))
				if err != nil {
					t.Fatal(err)
				}
				processes, files = append(processes, said.Imposter), append(files, exe)
			}
			ended := watch(t, processes...)
			parent.Process.Kill()
			ended()
			for _, f := range files {
				if _, err := os.Stat(filepath.Dir(f)); !os.IsNotExist(err) {
					t.Errorf("the directory of %s: %v, want it gone", f, err)
				}
			}
		})
	}
}

func TestStart_RefusesWhatCannotBeMeant(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, o := range map[string]lab.Options{
		"an unknown listener":     {Listener: "both"},
		"a negative count":        {Workers: -1},
		"too many workers":        {Workers: 65},
		"a respawn without pause": {Respawn: time.Nanosecond},
		"a public address":        {Addr: netip.MustParseAddrPort("0.0.0.0:8080")},
		"an IPv6 address":         {Addr: netip.MustParseAddrPort("[::1]:8080")},
		"a port that is taken":    {Addr: netip.MustParseAddrPort(taken.Addr().String())},
		"a pid file in no place":  {PIDFile: t.TempDir() + "/none/lab.pid"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := lab.Start(t.Context(), o)
			if err == nil {
				l.Stop()
				t.Fatalf("Start(%+v) = nil, want an error", o)
			}
			if strings.Contains(err.Error(), "it has ended") {
				t.Errorf("Start(%+v) = %q, want main's own reason", o, err)
			}
		})
	}
}

func TestLab_RefusesWhatIsNotOneCommand(t *testing.T) {
	l := start(t, lab.Options{})
	for name, try := range map[string]func() error{
		"a host with a line break":        func() error { return l.AddRoute("a\nquit", "b") },
		"a host of two words":             func() error { return l.AddRoute("a b", "") },
		"no host":                         func() error { return l.AddRoute("", "") },
		"a route that is not there":       func() error { return l.RemoveRoute("nobody.example") },
		"reopening what listens (shared)": l.Reopen,
	} {
		t.Run(name, func(t *testing.T) {
			if try() == nil {
				t.Error("got nil, want an error")
			}
		})
	}
	mustServe(t, l)
}

// BenchmarkCrashLoop reports the CPU time of one worker from birth to death.
func BenchmarkCrashLoop(b *testing.B) {
	l, err := lab.Start(b.Context(), lab.Options{Listener: lab.Reuseport, Respawn: time.Millisecond})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Stop()
	if err := l.AddRoute("example.com/", ""); err != nil {
		b.Fatal(err)
	}
	first, err := l.Status()
	for b.Loop() {
		for last := first; err == nil && last.Deaths <= first.Deaths; {
			last, err = l.Status()
		}
		first, err = l.Status()
	}
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(first.DeadWorkersCPU)/float64(first.Deaths)/1000, "cpu-ms/worker")
}
