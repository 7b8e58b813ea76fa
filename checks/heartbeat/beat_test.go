package heartbeat_test

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/crosscheck-project/crosscheck/checks/heartbeat"
)

func text(s string) *string { return &s }

func TestParseNotify(t *testing.T) {
	type beat = heartbeat.Beat
	for name, tt := range map[string]struct {
		message string
		want    beat
		err     error
	}{
		"a watchdog's ping":              {"WATCHDOG=1", beat{}, nil},
		"ready, as libsystemd sends it":  {"READY=1\nSTATUS=serving\nMAINPID=12\n", beat{Ready: true, Status: text("serving")}, nil},
		"a status alone is no life sign": {"STATUS=waiting for a lock", beat{Mute: true, Status: text("waiting for a lock")}, nil},
		"an empty status clears it":      {"STATUS=\nWATCHDOG=1", beat{Status: text("")}, nil},
		"stopping":                       {"STOPPING=1\n", beat{Mute: true, Stopping: true}, nil},
		"reloading":                      {"RELOADING=1\nMONOTONIC_USEC=5", beat{Reloading: true}, nil},
		"zero is not one":                {"READY=0\nWATCHDOG=0\nSTOPPING=0", beat{Mute: true}, nil},
		"asks to be taken for dead":      {"WATCHDOG=trigger\nREADY=1", beat{Mute: true, Ready: true, Trigger: true}, nil},
		"a worker":                       {"X_CROSSCHECK_WORKER=mail-2\nWATCHDOG=1", beat{Worker: "mail-2"}, nil},
		"keys of others":                 {"X_VENDOR=a=b\nFDSTORE=1\nBARRIER=1", beat{Mute: true}, nil},
		"nothing":                        {"", beat{Mute: true}, nil},
		"control characters in a status": {"STATUS=a\tb\x1b[31m", beat{Mute: true, Status: text("a b [31m")}, nil},
		"no key":                         {"hello", beat{}, heartbeat.ErrMalformed},
		"an empty key":                   {"=1", beat{}, heartbeat.ErrMalformed},
		"not text":                       {"STATUS=\xff", beat{}, heartbeat.ErrMalformed},
		"a worker that is no name":       {"X_CROSSCHECK_WORKER=../../etc", beat{}, heartbeat.ErrMalformed},
		"too long":                       {"STATUS=" + strings.Repeat("x", heartbeat.MessageLimit), beat{}, heartbeat.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := heartbeat.ParseNotify([]byte(tt.message))
			if !errors.Is(err, tt.err) {
				t.Fatalf("ParseNotify(%q) error = %v, want %v", tt.message, err, tt.err)
			}
			if diff := cmp.Diff(tt.want, got); err == nil && diff != "" {
				t.Errorf("ParseNotify(%q) (-want +got):\n%s", tt.message, diff)
			}
		})
	}
}

func FuzzParseNotify(f *testing.F) {
	for _, s := range []string{"WATCHDOG=1", "READY=1\nSTATUS=é\n", "X_CROSSCHECK_WORKER=a\n\n", "=", "STATUS=\x00", strings.Repeat("é", 300)} {
		f.Add([]byte(s))
	}
	f.Add([]byte("STATUS=" + strings.Repeat("é", 300)))
	f.Fuzz(func(t *testing.T, b []byte) {
		beat, err := heartbeat.ParseNotify(b)
		if err != nil && !errors.Is(err, heartbeat.ErrMalformed) {
			t.Errorf("ParseNotify(%q) error = %v, want one that is ErrMalformed", b, err)
		}
		if s := beat.Status; s != nil && (len(*s) > 256 || !utf8.ValidString(*s) || strings.ContainsFunc(*s, func(r rune) bool { return r < ' ' })) {
			t.Errorf("ParseNotify(%q) status = %q, want at most 256 bytes of plain text", b, *s)
		}
		if strings.ContainsAny(beat.Worker, "/. \n=") {
			t.Errorf("ParseNotify(%q) worker = %q", b, beat.Worker)
		}
	})
}
