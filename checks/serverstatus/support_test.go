package serverstatus_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/crosscheck-project/crosscheck/checks/serverstatus"
)

// folder is a new folder that servers may enter which give up their rights.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "serverstatus")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}

// must is for constructors.
func must(t *testing.T, name, place string) serverstatus.Source {
	t.Helper()
	src, err := serverstatus.New(name, place)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func readOnce(t *testing.T, src serverstatus.Source, timeout time.Duration) (serverstatus.Status, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return src.Read(ctx)
}
