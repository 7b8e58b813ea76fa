package evidence_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/crosscheck-project/crosscheck/checks"
	"github.com/crosscheck-project/crosscheck/probe/evidence"
)

var par1 = evidence.Vantage{Place: "par", Name: "p1"}

// full is evidence with every field set, facts of all kinds included.
func full() evidence.Evidence {
	worker := checks.Process{PID: 7, StartTicks: 1234567, Comm: "nginx", State: checks.ProcAlive, Role: checks.RoleWorker,
		Age: 3 * time.Second, Serving: true, Listens: true}
	return evidence.Evidence{
		Check: "web/workers", Kind: checks.KindWorkers, Seq: 1<<63 + 1,
		Slot:    time.Date(2026, 11, 30, 3, 0, 0, 123456789, time.UTC),
		Trigger: "host", Waited: 1500 * time.Microsecond,
		Finding: checks.Finding{
			Outcome: checks.Fail, Reason: checks.ReasonNoServingWorker, Detail: "0 of 4 \"workers\" serve\n",
			Suspicious: true, Urgent: true, Duration: time.Millisecond,
			Phases: []checks.Phase{{Name: "connect", Took: time.Microsecond}},
			HTTP:   &checks.HTTPFacts{URL: "http://example.com/", Status: 503, BodyBytes: 9},
			Listener: &checks.ListenerFacts{Listener: "tcp 127.0.0.1:80", Owners: []checks.Process{worker},
				AbsentDumps: 3, AbsentFor: 200 * time.Millisecond, Local: checks.LocalRefused},
			Workers: &checks.WorkerFacts{Main: worker, Generation: "7.1234567", Workers: []checks.Process{worker}, Expected: 4,
				Chain: 3, ChainFor: 300 * time.Millisecond, Exits: map[string]int{"SIGABRT": 3, "unknown": 1}},
		},
	}
}

func encode(t *testing.T, pieces ...evidence.Evidence) []byte {
	t.Helper()
	body, err := evidence.Encode(evidence.Batch{Boot: "b00t", Evidence: pieces})
	if err != nil {
		t.Fatalf("Encode: %v", err)
	}
	return body
}

func TestCodec_WhatIsEncodedIsDecoded(t *testing.T) {
	small := evidence.Evidence{Check: "web/http", Kind: checks.KindHTTP, Seq: 1, Finding: checks.Finding{Outcome: checks.Pass}}
	got, err := evidence.Decode(par1, encode(t, full(), small))
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	want := []evidence.Evidence{full(), small}
	for i := range want {
		want[i].Vantage, want[i].Boot = par1, "b00t"
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("evidence (-want +got):\n%s", d)
	}
}

func TestDecode_TheVantageIsTheSubjectsWhateverTheBodySays(t *testing.T) {
	body := strings.Replace(string(encode(t, full())), `"check"`, `"vantage":{"place":"lon","name":"evil"},"Vantage":{"Place":"lon"},"check"`, 1)
	got, err := evidence.Decode(par1, []byte(body))
	if err != nil {
		t.Fatalf("Decode: %v", err)
	}
	if got[0].Vantage != par1 || got[0].Check != "web/workers" {
		t.Errorf("vantage %s, check %s, want %s", got[0].Vantage, got[0].Check, par1)
	}
}

func TestDecode_AnOutcomeWeDoNotKnowIsBlind(t *testing.T) {
	for _, outcome := range []string{`"splendid"`, `""`, `"PASS"`} {
		body := strings.Replace(string(encode(t, full())), `"outcome":"fail"`, `"outcome":`+outcome, 1)
		got, err := evidence.Decode(par1, []byte(body))
		if err != nil {
			t.Fatalf("Decode with outcome %s: %v", outcome, err)
		}
		if got[0].Finding.Outcome != checks.Blind {
			t.Errorf("outcome %s decodes to %s, want blind", outcome, got[0].Finding.Outcome)
		}
	}
	body := strings.Replace(string(encode(t, full())), `"outcome":"fail",`, ``, 1)
	if got, err := evidence.Decode(par1, []byte(body)); err != nil || got[0].Finding.Outcome != checks.Blind {
		t.Errorf("no outcome: %+v, %v, want blind", got, err)
	}
}

func TestDecode_ReadsTheNextVersionAndRefusesTheOneAfter(t *testing.T) {
	body := string(encode(t, full()))
	with := func(version int, more string) []byte {
		return []byte(strings.Replace(body, `"version":1`, fmt.Sprintf(`"version":%d%s`, version, more), 1))
	}
	next := strings.Replace(string(with(evidence.Version+1, `,"signed_by":"x"`)), `"seq"`, `"weather":{"rain":true},"seq"`, 1)
	got, err := evidence.Decode(par1, []byte(next))
	if err != nil {
		t.Fatalf("the next version: %v", err)
	}
	want := full()
	if d := cmp.Diff([]evidence.Evidence{want}, got, cmpopts.IgnoreFields(evidence.Evidence{}, "Vantage", "Boot")); d != "" {
		t.Errorf("the next version with fields we do not know (-want +got):\n%s", d)
	}
	for _, v := range []int{evidence.Version + 2, 0, -1} {
		if _, err := evidence.Decode(par1, with(v, "")); err == nil || !strings.Contains(err.Error(), "par/p1") {
			t.Errorf("version %d: %v, want an error that names the sender", v, err)
		}
	}
}

func TestDecode_RefusesWhatNoVantageOfOursWrites(t *testing.T) {
	piece := `{"check":"a","seq":1}`
	for name, body := range map[string]string{
		"nothing":         ``,
		"no JSON":         `hello`,
		"a cut message":   `{"version":1,"boot":"b","evidence":[` + piece,
		"no boot":         `{"version":1,"evidence":[` + piece + `]}`,
		"no check":        `{"version":1,"boot":"b","evidence":[{"seq":1}]}`,
		"no sequence":     `{"version":1,"boot":"b","evidence":[` + piece + `,{"check":"a"}]}`,
		"101 pieces":      `{"version":1,"boot":"b","evidence":[` + strings.Repeat(piece+",", 100) + piece + `]}`,
		"sequence minus1": `{"version":1,"boot":"b","evidence":[{"check":"a","seq":-1}]}`,
	} {
		if got, err := evidence.Decode(par1, []byte(body)); err == nil {
			t.Errorf("%s: %+v and no error", name, got)
		}
	}
}

func TestEncode_RefusesBatchesThatCannotBeRead(t *testing.T) {
	for name, b := range map[string]evidence.Batch{
		"empty":      {Boot: "b"},
		"no boot":    {Evidence: []evidence.Evidence{full()}},
		"101 pieces": {Boot: "b", Evidence: make([]evidence.Evidence, evidence.MaxBatch+1)},
	} {
		if _, err := evidence.Encode(b); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestLookTime_IsWhenStoredLessTheWait(t *testing.T) {
	at := time.Date(2026, 11, 30, 3, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name   string
		waited time.Duration
		want   time.Time
	}{
		{"a wait", 2 * time.Second, at.Add(-2 * time.Second)},
		{"no wait", 0, at},
		{"a wait below zero, which no clock of ours gives", -time.Hour, at},
	} {
		s := evidence.Stored{Evidence: evidence.Evidence{Waited: c.waited}, At: at}
		if got := s.LookTime(); !got.Equal(c.want) {
			t.Errorf("%s: look time %s, want %s", c.name, got, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	body, err := evidence.Encode(evidence.Batch{Boot: "b00t", Evidence: []evidence.Evidence{full()}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Add([]byte(`{"version":2,"boot":"b","evidence":[{"check":"a","seq":1,"finding":{"outcome":"new"}}]}`))
	f.Add([]byte(`{"version":1,"boot":"b","evidence":[{"check":"a","seq":1,"slot":"0001-01-01T00:00:00Z"}]}`))
	f.Add([]byte(`{"version":1e0,"boot":"b","evidence":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := evidence.Decode(par1, body)
		if err != nil {
			if len(got) != 0 {
				t.Fatalf("error %v and %d pieces", err, len(got))
			}
			return
		}
		for _, e := range got {
			if e.Vantage != par1 || e.Check == "" || e.Seq == 0 || e.Boot == "" || e.Finding.Outcome > checks.Fail {
				t.Fatalf("accepted %+v", e)
			}
		}
		if len(got) == 0 {
			return
		}
		// What was accepted can be written and reads the same.
		again, err := evidence.Encode(evidence.Batch{Boot: got[0].Boot, Evidence: got})
		if err != nil {
			t.Fatalf("encode what was decoded: %v", err)
		}
		twice, err := evidence.Decode(par1, again)
		if err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		a, _ := json.Marshal(got)
		b, _ := json.Marshal(twice)
		if string(a) != string(b) {
			t.Fatalf("first %s\nthen  %s", a, b)
		}
	})
}
