package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/crosscheck-project/crosscheck/alerting/correlate"
	"github.com/crosscheck-project/crosscheck/alerting/engine"
	"github.com/crosscheck-project/crosscheck/alerting/engine/memory"
	"github.com/crosscheck-project/crosscheck/alerting/incident"
	"github.com/crosscheck-project/crosscheck/checks"
)

func wantSame(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestRun_FaultIsOneStepAndOneNoticeAndThenAResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		l := h.boot()
		if !l.isReady() {
			t.Fatal("Ready: not closed on an empty world")
		}
		h.during(2*time.Second, h.healthy)
		wantSame(t, "notices while all is well", words(h.heard()), []string{})

		h.fault()
		synctest.Wait()
		opened := h.steps(incident.Opened)
		if len(opened) != 1 {
			t.Fatalf("opened steps: got %d, want 1", len(opened))
		}
		id := opened[0].Incident
		notices := h.heard()
		wantSame(t, "notices of the fault", words(notices), []string{id + "/1 page firing"})
		n := notices[0]
		if !n.First || n.Verdict != "down" || n.Cause != "workers_crash_looping" || n.Scope != "lb par" || !n.EndsAt.IsZero() ||
			!n.StartsAt.Equal(time.Now().Add(-300*time.Millisecond)) || n.Runbook != "https://wiki.example/lb" || n.ConsoleURL != "http://127.0.0.1:8080/" ||
			!strings.HasPrefix(n.Summary, "lb par DOWN: main alive, 0 of 4 workers serving") || !strings.Contains(n.Detail, "inside fail from host/agent") {
			t.Errorf("notice: got %+v", n)
		}
		wantSame(t, "looks asked for", h.asker.Asked(), []memory.Asked{{Place: "a", Vantage: "p", Check: "lb/http", Trigger: "inside"}, {Place: "b", Vantage: "p", Check: "lb/http", Trigger: "inside"}})

		h.during(closeAfter-interval, h.healthy)
		wantSame(t, "notices before the close", words(h.heard()), []string{})
		h.during(2*interval, h.healthy)
		resolves := h.heard()
		wantSame(t, "notices of the close", words(resolves), []string{id + "/2 page resolved"})
		if closed := h.steps(incident.Closed); len(closed) != 1 || !resolves[0].EndsAt.Equal(closed[0].At) || resolves[0].First {
			t.Errorf("resolve: got %+v, want it to end at the close %+v", resolves[0], closed)
		}
		if s := l.Stats(); s.Steps != 2 || s.Asks != 2 || s.Observed != h.seq || s.AppendErrors != 0 {
			t.Errorf("Stats: got %+v, want 2 steps, 2 asks, %d observed, no append errors", s, h.seq)
		}
		l.kill()
	})
}

func TestRun_GoesOnAfterACrashAtAnyPoint(t *testing.T) {
	for _, row := range []struct {
		point string
		die   func(h *house) *life // ends dead, with the fault's evidence stored
		told  bool                 // whether the first life posted
	}{
		{"after the evidence is stored, before it is judged", func(h *house) *life {
			l := h.boot()
			h.during(2*time.Second, h.healthy)
			l.kill()
			h.fault()
			return l
		}, false},
		{"after it is judged, before the append", func(h *house) *life {
			l := h.boot(func(j engine.Journal, die context.CancelFunc) engine.Journal {
				return hooked{Journal: j, before: once("steps", die)}
			})
			h.during(2*time.Second, h.healthy)
			h.fault()
			synctest.Wait()
			return l
		}, false},
		{"after the append, before the post", func(h *house) *life {
			l := h.boot(func(j engine.Journal, die context.CancelFunc) engine.Journal {
				return hooked{Journal: j, after: once("steps", die)}
			})
			h.during(2*time.Second, h.healthy)
			h.fault()
			synctest.Wait()
			return l
		}, false},
		{"after the post, before the receiver accepts", func(h *house) *life {
			l := h.boot()
			h.during(2*time.Second, h.healthy)
			h.fault()
			synctest.Wait()
			l.kill()
			return l
		}, true},
		{"after the receiver accepts, before that is recorded", func(h *house) *life {
			l := h.boot(func(j engine.Journal, die context.CancelFunc) engine.Journal {
				return hooked{Journal: j, before: once("done", die)}
			})
			h.during(2*time.Second, h.healthy)
			h.fault()
			synctest.Wait()
			l.Accepted(h.steps(incident.Opened)[0].Incident+"/1", "r")
			synctest.Wait()
			return l
		}, true},
		{"after everything is recorded", func(h *house) *life {
			l := h.boot()
			h.during(2*time.Second, h.healthy)
			h.fault()
			synctest.Wait()
			l.Accepted(h.steps(incident.Opened)[0].Incident+"/1", "r")
			synctest.Wait()
			l.kill()
			return l
		}, true},
	} {
		for _, healed := range []bool{false, true} {
			name := row.point + ", still broken after"
			if healed {
				name = row.point + ", healed while dead"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := newHouse(t)
					first := row.die(h)
					select {
					case err := <-first.ended:
						if err != nil {
							t.Fatalf("first Run: got %v, want nil", err)
						}
					default: // kill has taken it
					}
					wasTold := h.heard()
					if (len(wasTold) > 0) != row.told {
						t.Fatalf("the first life told %v, want told %t", words(wasTold), row.told)
					}
					known := len(h.steps(incident.Opened)) > 0

					time.Sleep(500 * time.Millisecond)
					if healed {
						h.healthy()
					}
					second := h.boot()
					if !second.isReady() {
						t.Fatal("Ready: not closed after a restart")
					}
					opened := h.steps(incident.Opened)
					if healed && !known {
						// Came and went while nobody was there: nothing to tell.
						wantSame(t, "steps", len(opened), 0)
						wantSame(t, "notices", words(h.heard()), []string{})
						second.kill()
						return
					}
					if len(opened) != 1 {
						t.Fatalf("opened steps over both lives: got %d, want 1", len(opened))
					}
					id := opened[0].Incident
					again := h.heard()
					wantSame(t, "posted again under the same key", words(again), []string{id + "/1 page firing"})
					if again[0].First == known {
						t.Errorf("First: got %t for an incident that was known: %t", again[0].First, known)
					}
					h.during(closeAfter+2*interval, h.healthy)
					heard := words(h.heard())
					if len(heard) == 0 || heard[len(heard)-1] != id+"/2 page resolved" {
						t.Errorf("after the healing: got %v, want it to end with the resolve of %s", heard, id)
					}
					wantSame(t, "opened steps in the end", len(h.steps(incident.Opened)), 1)
					wantSame(t, "closed steps in the end", len(h.steps(incident.Closed)), 1)
					second.kill()
				})
			})
		}
	}
}

// TestRun_SilenceOutlastsARestart: what proved the fault fell silent long before
// the restart, further back than evidence is read again; the rest looks well.
func TestRun_SilenceOutlastsARestart(t *testing.T) {
	outside := func(h *house, f checks.Finding) {
		for _, p := range probes {
			h.publish(p, "lb/http", 0, f)
		}
	}
	refused := checks.Finding{Outcome: checks.Fail, Reason: checks.ReasonConnectRefused}
	for _, row := range []struct {
		name            string
		broken, silence func(h *house)
	}{
		{"the agent's", func(h *house) { outside(h, passing); h.fault() }, func(h *house) { outside(h, passing) }},
		{"the probers'", func(h *house) { outside(h, refused); h.publish(agent, "lb/workers", 0, serving) },
			func(h *house) { h.publish(agent, "lb/workers", 0, serving) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				first := h.boot()
				h.during(2*time.Second, h.healthy)
				h.during(3*time.Second, func() { row.broken(h) })
				h.during(10*time.Minute, func() { row.silence(h) })
				first.kill()
				second := h.boot()
				h.during(time.Minute, func() { row.silence(h) })
				wantSame(t, "closed in silence", len(h.steps(incident.Closed)), 0)
				h.during(closeAfter+3*interval, h.healthy)
				wantSame(t, "closed once somebody says it is well", len(h.steps(incident.Closed)), 1)
				wantSame(t, "opened in all", len(h.steps(incident.Opened)), 1)
				second.kill()
			})
		})
	}
}

func TestRun_ResolveIsOwedUntilAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		first := h.boot()
		// A pool without its main is a ticket; that it then loops, a page.
		orphans := serving
		facts := *serving.Workers
		facts.Main.State, facts.MainGoneFor = checks.ProcGone, 11*time.Second
		orphans.Workers = &facts
		h.healthy()
		h.publish(agent, "lb/workers", 0, orphans)
		synctest.Wait()
		h.fault()
		synctest.Wait()
		id := h.steps(incident.Opened)[0].Incident
		wantSame(t, "a ticket, then a page", words(h.heard()), []string{id + "/1 ticket firing", id + "/2 ticket firing", id + "/2 page firing"})
		h.during(closeAfter+2*interval, h.healthy)
		resolves := []string{id + "/3 ticket resolved", id + "/3 page resolved"}
		wantSame(t, "both end", words(h.heard()), resolves)
		first.kill()

		second := h.boot()
		wantSame(t, "owed after a restart", words(h.heard()), resolves)
		second.Accepted(id+"/3", "r")
		synctest.Wait()
		second.kill()

		third := h.boot()
		wantSame(t, "owed after it was accepted", words(h.heard()), []string{})
		third.kill()
	})
}

func TestRun_ResolveIsNotOwedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		first := h.boot()
		h.healthy()
		h.fault()
		h.during(closeAfter+2*interval, h.healthy)
		first.kill()
		wantSame(t, "heard by the first life", len(h.heard()), 2)
		time.Sleep(time.Hour)
		second := h.boot()
		wantSame(t, "owed an hour later", words(h.heard()), []string{})
		second.kill()
	})
}

func TestRun_IsFencedByASuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		old := h.boot()
		h.during(2*time.Second, h.healthy)
		successor := h.boot()
		h.fault()
		synctest.Wait()
		if err := <-old.ended; !errors.Is(err, engine.ErrFenced) {
			t.Errorf("the old engine's Run: got %v, want ErrFenced", err)
		}
		wantSame(t, "opened steps", len(h.steps(incident.Opened)), 1)
		wantSame(t, "notices", len(h.heard()), 1)
		successor.kill()
	})
}

func TestRun_AppendWhoseAnswerIsLostIsItsOwn(t *testing.T) {
	for _, kind := range []string{"epoch", "steps", "done"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				l := h.boot(func(j engine.Journal, _ context.CancelFunc) engine.Journal {
					return hooked{Journal: j, after: once(kind, nil)}
				})
				h.during(2*time.Second, h.healthy)
				h.fault()
				h.during(time.Second, func() {})
				notices := h.heard()
				if len(notices) != 1 || !notices[0].Firing {
					t.Fatalf("notices: got %v, want one that fires", words(notices))
				}
				l.Accepted(notices[0].Key(), "r")
				h.during(time.Second, func() {})
				for _, k := range []string{"epoch", "steps", "done"} {
					wantSame(t, "entries of kind "+k, h.entries(k), 1)
				}
				if s := l.Stats(); s.AppendErrors != 1 {
					t.Errorf("Stats: got %d append errors, want 1", s.AppendErrors)
				}
				h.during(closeAfter+2*interval, h.healthy)
				wantSame(t, "closed steps", len(h.steps(incident.Closed)), 1)
				l.kill()
			})
		})
	}
}

func TestRun_AppendThatFailedIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		left := 20
		l := h.boot(func(j engine.Journal, _ context.CancelFunc) engine.Journal {
			return hooked{Journal: j, before: func(kind string) error {
				if kind != "steps" || left == 0 {
					return nil
				}
				left--
				return errLost
			}}
		})
		h.healthy()
		h.fault()
		synctest.Wait()
		wantSame(t, "told before it is recorded", words(h.heard()), []string{})
		h.during(30*time.Second, func() {})
		wantSame(t, "told once it is", len(h.heard()), 1)
		wantSame(t, "entries", h.entries("steps"), 1)
		if s := l.Stats(); s.AppendErrors != 20 {
			t.Errorf("Stats: got %d append errors, want 20", s.AppendErrors)
		}
		l.kill()
	})
}

func TestRun_LostAnswerAndASuccessorIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		l := h.boot(func(j engine.Journal, _ context.CancelFunc) engine.Journal {
			return hooked{Journal: j, after: once("steps", func() { // our step is in, and then somebody else's epoch
				if _, err := j.Append(t.Context(), 2, "epoch", []byte(`{"version":1,"writer":"successor","n":1}`)); err != nil {
					t.Error(err)
				}
			})}
		})
		h.healthy()
		h.fault()
		if err := <-l.ended; !errors.Is(err, engine.ErrFenced) {
			t.Errorf("Run: got %v, want ErrFenced", err)
		}
		wantSame(t, "told by the fenced", words(h.heard()), []string{})
	})
}

func TestRun_RefusesWhatItCannotDecode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.results.Publish("a", "p", "http", []byte("before the start"))
		l := h.boot()
		if !l.isReady() {
			t.Fatal("Ready: not closed; the newest message is undecodable")
		}
		for _, body := range []string{"", "{}", `{"version":99,"boot":"b","evidence":[]}`, `{"version":1,"boot":"b","evidence":[{"check":"lb/http","seq":0}]}`} {
			h.results.Publish("a", "p", "http", []byte(body))
		}
		h.publish(agent, "of/nobody", 0, passing)
		h.healthy()
		synctest.Wait()
		if s := l.Stats(); s.Undecodable != 5 || s.Unknown != 1 || s.Observed != 3 {
			t.Errorf("Stats: got %+v, want 5 undecodable, 1 unknown, 3 observed", s)
		}
		l.kill()
	})
}

func TestRun_OpensNoIncidentForThePast(t *testing.T) {
	for _, row := range []struct {
		name string
		play func(h *house) *life
	}{
		{"evidence that was stored an hour before the start", func(h *house) *life {
			h.healthy()
			h.fault()
			time.Sleep(time.Hour)
			return h.boot()
		}},
		{"evidence that was stored a minute before the start", func(h *house) *life {
			h.healthy()
			h.fault()
			time.Sleep(time.Minute)
			return h.boot()
		}},
		{"evidence that waited for an hour at its vantage", func(h *house) *life {
			l := h.boot()
			h.healthy()
			synctest.Wait()
			time.Sleep(time.Hour)
			h.publish(agent, "lb/workers", time.Hour, looping)
			h.publish(probes[0], "lb/http", time.Hour, checks.Finding{Outcome: checks.Fail})
			h.publish(probes[1], "lb/http", time.Hour, checks.Finding{Outcome: checks.Fail})
			synctest.Wait()
			return l
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				l := row.play(h)
				if !l.isReady() {
					t.Fatal("Ready: not closed")
				}
				h.during(2*time.Second, func() {})
				wantSame(t, "opened steps", len(h.steps(incident.Opened)), 0)
				v, err := l.View(t.Context())
				if err != nil || v.Services[0].State.Verdict != correlate.Unknown {
					t.Errorf("View: got %+v, %v, want unknown", v.Services, err)
				}
				l.kill()
			})
		})
	}
}

func TestRun_ClosesTheIncidentOfAServiceThatIsNoLongerConfigured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		first := h.boot()
		h.healthy()
		h.fault()
		synctest.Wait()
		first.kill()
		id := h.steps(incident.Opened)[0].Incident
		h.heard()
		h.policy.Services = nil
		second := h.boot()
		heard := words(h.heard())
		wantSame(t, "notices", heard, []string{id + "/1 page firing", id + "/2 page resolved"})
		second.kill()
	})
}

func TestView_ShowsServicesIncidentsAndHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		l := h.boot()
		h.healthy()
		h.fault()
		h.fault() // tells nothing new; what made the verdict is still shown
		synctest.Wait()
		v, err := l.View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !v.Ready || len(v.Services) != 1 || v.Services[0].State.Verdict != correlate.Down || len(v.Services[0].Evidence) != 3 ||
			len(v.Services[0].State.Evidence) != 3 || len(v.Open) != 1 || len(v.History) != 1 {
			t.Errorf("View: got %+v", v)
		}
		l.kill()
		ended, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := l.View(ended); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("View of an engine that ended: got %v, want deadline exceeded", err)
		}
	})
}

func TestAccepted_NeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		l := h.boot()
		l.kill()
		for i := range 300 {
			l.Accepted(fmt.Sprintf("x/%d", i), "r") // nobody reads; 256 fit
		}
		if s := l.Stats(); s.Unrecorded != 44 {
			t.Errorf("Stats: got %d unrecorded, want 44", s.Unrecorded)
		}
	})
}

type brokenJournal struct{ engine.Journal }

func (brokenJournal) Read(context.Context, uint64, func(engine.Entry) error) (uint64, error) {
	return 0, errLost
}

func TestRun_ReturnsWhatKeepsItFromStarting(t *testing.T) {
	rows := map[string]struct {
		entry   string // already in the journal
		through func(engine.Journal, context.CancelFunc) engine.Journal
		want    string
	}{
		"the journal cannot be read":                   {through: func(j engine.Journal, _ context.CancelFunc) engine.Journal { return brokenJournal{j} }, want: "connection lost"},
		"the journal holds an entry that is not ours":  {entry: "garbage", want: "journal entry 1 (epoch)"},
		"the journal was written by a much newer core": {entry: `{"version":3}`, want: "version 3, this core reads 1 to 2"},
	}
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				if row.entry != "" {
					if _, err := h.journal.Append(t.Context(), 0, "epoch", []byte(row.entry)); err != nil {
						t.Fatal(err)
					}
				}
				var l *life
				if row.through != nil {
					l = h.boot(row.through)
				} else {
					l = h.boot()
				}
				if err := <-l.ended; err == nil || !strings.Contains(err.Error(), row.want) {
					t.Errorf("Run: got %v, want an error that says %q", err, row.want)
				}
			})
		})
	}
}

func TestNew_RefusesAnInvalidPolicy(t *testing.T) {
	p := lb()
	p.Services[0].Checks[0].Interval = 0
	if _, err := engine.New(engine.Config{Policy: p}, engine.Deps{}); err == nil {
		t.Error("New: got nil, want an error about the interval")
	}
}
