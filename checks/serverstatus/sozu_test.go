package serverstatus_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/crosscheck-project/crosscheck/checks/serverstatus"
)

// Debian has no Sōzu. What answers here is a FAKE PEER, made from its public
// command.proto and channel.rs; nothing in this file was recorded from a Sōzu.

type fakeSozuWorker struct{ id, pid, runState uint64 }

// fakeSozuResponse encodes Response{status, message, content{workers{vec}}}.
func fakeSozuResponse(status uint64, message string, workers ...fakeSozuWorker) []byte {
	var infos []byte
	for _, w := range workers {
		info := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), w.id)
		info = protowire.AppendVarint(protowire.AppendTag(info, 2, protowire.VarintType), w.pid)
		info = protowire.AppendVarint(protowire.AppendTag(info, 3, protowire.VarintType), w.runState)
		infos = protowire.AppendBytes(protowire.AppendTag(infos, 1, protowire.BytesType), info)
	}
	b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), status)
	b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), message)
	if len(workers) > 0 {
		content := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), infos)
		b = protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), content)
	}
	return b
}

func fakeSozuFrame(payload []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(nil, uint64(8+len(payload))), payload...)
}

// The two requests, byte by byte.
const (
	listWorkersRequest = "\x0a\x00\x00\x00\x00\x00\x00\x00\x22\x00" // length 10, field 4, empty
	statusRequest      = "\x0a\x00\x00\x00\x00\x00\x00\x00\x62\x00" // length 10, field 12, empty
)

// fakeSozu answers each request with frames; a request that has none is left
// without an answer.
func fakeSozu(t *testing.T, answers map[string][][]byte) serverstatus.Source {
	t.Helper()
	path := filepath.Join(folder(t), "command")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			for request := make([]byte, len(statusRequest)); ; {
				if _, err := io.ReadFull(conn, request); err != nil {
					break
				}
				if _, known := answers[string(request)]; !known {
					t.Errorf("the fake Sōzu was asked %q", request)
				}
				for _, frame := range answers[string(request)] {
					_, _ = conn.Write(frame)
				}
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return must(t, "sozu", path)
}

func TestSozu_AgainstAFakePeer(t *testing.T) {
	listed := fakeSozuFrame(fakeSozuResponse(0, "", fakeSozuWorker{1, 4712, 0}, fakeSozuWorker{0, 4711, 0}))
	processing := fakeSozuFrame(fakeSozuResponse(1, "Querying status of workers..."))
	split := fakeSozuFrame(fakeSozuResponse(0, "Successfully collected", fakeSozuWorker{1, 4712, 3}, fakeSozuWorker{0, 4711, 0}, fakeSozuWorker{2, 4713, 1}, fakeSozuWorker{3, 4714, 2}))
	for name, c := range map[string]struct {
		list, status [][]byte
		text, err    string
	}{
		"all running": {[][]byte{listed}, [][]byte{processing, listed}, "sozu main: 2 of 2 workers running", ""},
		"some are not": {[][]byte{listed}, [][]byte{processing, split[:5], split[5:]},
			"sozu main: 1 of 4 workers running; worker 1 (4712) not answering; worker 2 (4713) stopping; worker 3 (4714) stopped", ""},
		"a state of a later version": {[][]byte{listed}, [][]byte{fakeSozuFrame(fakeSozuResponse(0, "", fakeSozuWorker{0, 4711, 9}))},
			"sozu main: 0 of 1 worker running; worker 0 (4711) in state 9", ""},
		"no workers":   {[][]byte{listed}, [][]byte{fakeSozuFrame(fakeSozuResponse(0, ""))}, "sozu main: 0 of 0 workers running", ""},
		"unauthorized": {[][]byte{fakeSozuFrame(fakeSozuResponse(2, "unauthorized: uid 0"))}, nil, "", `list workers: refused: "unauthorized: uid 0"`},
		"an early version": {[][]byte{[]byte(`{"id":"ID_TEST","version":0}` + "\x00")}, nil, "",
			"is none of Sōzu 1.0 or later"},
		"a broken message": {[][]byte{fakeSozuFrame([]byte("\xff\xff\xff"))}, nil, "", "list workers: "},
	} {
		t.Run(name, func(t *testing.T) {
			src := fakeSozu(t, map[string][][]byte{listWorkersRequest: c.list, statusRequest: c.status})
			s, err := src.Read(t.Context())
			if s.Text != c.text || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("Read() = %q, %v, want %q, %q", s.Text, err, c.text, c.err)
			}
			if err == nil && !s.OutOfBand {
				t.Error("main's own answer is not out of band")
			}
		})
	}
}

func TestSozu_WorkersThatDoNotAnswerMain(t *testing.T) {
	t.Parallel() // waits for them
	listed := fakeSozuFrame(fakeSozuResponse(0, "", fakeSozuWorker{0, 4711, 0}))
	processing := fakeSozuFrame(fakeSozuResponse(1, "Querying status of workers..."))
	src := fakeSozu(t, map[string][][]byte{listWorkersRequest: {listed}, statusRequest: {processing}})
	s, err := src.Read(t.Context())
	const want = "sozu main: 1 of 1 worker running, as main lists them; it asked them, and not all answered within 2s"
	if err != nil || s.Text != want {
		t.Errorf("Read() = %q, %v, want %q", s.Text, err, want)
	}
}

func TestSozu_MainThatSaysNothing(t *testing.T) {
	t.Parallel()
	src := fakeSozu(t, map[string][][]byte{listWorkersRequest: nil})
	if _, err := readOnce(t, src, 100*time.Millisecond); !errors.Is(err, serverstatus.ErrNoAnswer) {
		t.Errorf("Read() = %v, want ErrNoAnswer", err)
	}
}
