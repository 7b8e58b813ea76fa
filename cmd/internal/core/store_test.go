package core

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestStoreWatch_GivesUpOnAStoreThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed []error
		s := &storeWatch{fail: func(err error) { failed = append(failed, err) }}
		full := errors.New("no space left on device")
		for range 14 {
			s.note(full)
			time.Sleep(time.Second)
		}
		if len(failed) > 0 || s.refusing() != 14*time.Second {
			t.Fatalf("after 14s: failed %v, refusing for %s", failed, s.refusing())
		}
		s.note(nil)
		if s.refusing() != 0 {
			t.Errorf("it took something, and still refuses for %s", s.refusing())
		}
		for range 16 {
			s.note(full)
			s.note(context.Canceled) // says nothing either way
			time.Sleep(time.Second)
		}
		if len(failed) != 1 || !errors.Is(failed[0], full) || !strings.Contains(failed[0].Error(), "15s") {
			t.Errorf("after 15s without a success: %v, want to give up once", failed)
		}
	})
}
