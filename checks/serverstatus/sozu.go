package serverstatus

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Sozu asks the main process of a Sōzu over its command socket (command_socket).
// Its messages are protobuf (command/src/command.proto in sozu-proxy/sozu) since
// 1.0; each is preceded by its length in eight bytes, those included
// (command/src/channel.rs). Earlier versions spoke JSON and will not answer.
//
// Main tells its own list of workers at once, then asks each of them; one that
// does not answer main within its worker_timeout (10 s by default) is "not
// answering". Nothing it tells is about ports.
func Sozu(path string) (Source, error) {
	p, err := socket("sozu", path)
	return sozu{p}, err
}

type sozu struct{ place }

// Fields of command.proto.
const (
	sozuListWorkers protowire.Number = 4  // Request: answered from main's memory
	sozuStatus      protowire.Number = 12 // Request: main asks each worker

	sozuResponseStatus  protowire.Number = 1
	sozuResponseMessage protowire.Number = 2
	sozuResponseContent protowire.Number = 3
	sozuContentWorkers  protowire.Number = 1 // ResponseContent
	sozuWorkersVec      protowire.Number = 1 // WorkerInfos
	sozuWorkerID        protowire.Number = 1 // WorkerInfo
	sozuWorkerPID       protowire.Number = 2
	sozuWorkerRunState  protowire.Number = 3

	// ResponseStatus.
	sozuOK         = 0
	sozuProcessing = 1

	sozuPrefixBytes = 8
	// sozuAnswers is how many answers one request may have. Chosen: a "processing"
	// and the last one are all that were seen in its source.
	sozuAnswers = 8
	// sozuPatience is how long main may ask its workers. Chosen: below Timeout, so
	// that its own list is told when they do not answer.
	sozuPatience = 2 * time.Second
)

// sozuWorker is a WorkerInfo.
type sozuWorker struct {
	id, pid uint64
	state   uint64
}

// Read implements Source.
func (z sozu) Read(ctx context.Context) (Status, error) {
	var listed, asked []sozuWorker
	var silent bool
	err := z.talk(ctx, func(conn net.Conn) error {
		var err error
		if listed, err = sozuAsk(conn, sozuListWorkers); err != nil {
			return fmt.Errorf("list workers: %w", err)
		}
		// A deadline of our own: what main knows by itself is told anyway.
		if err := conn.SetReadDeadline(time.Now().Add(sozuPatience)); err != nil {
			return err
		}
		if ctx.Err() != nil { // its end may have set a deadline that we took back
			return ctx.Err()
		}
		asked, err = sozuAsk(conn, sozuStatus)
		if timeout := net.Error(nil); errors.As(err, &timeout) && timeout.Timeout() {
			silent, err = true, nil
		}
		if err != nil {
			return fmt.Errorf("status: %w", err)
		}
		return nil
	})
	if err != nil {
		return Status{}, err
	}
	if silent {
		s := sozuTell(listed)
		s.Text += fmt.Sprintf(", as main lists them; it asked them, and not all answered within %s", sozuPatience)
		return s, nil
	}
	return sozuTell(asked), nil
}

// sozuTell puts workers into words. The states are RunState's.
func sozuTell(all []sozuWorker) Status {
	s := Status{Server: "sozu", OutOfBand: true}
	names := []string{"running", "stopping", "stopped", "not answering"}
	var unwell string
	named := 0
	slices.SortFunc(all, func(a, b sozuWorker) int { return int(int32(a.id)) - int(int32(b.id)) })
	for _, w := range all {
		state := fmt.Sprintf("in state %d", w.state)
		if w.state < uint64(len(names)) {
			state = names[w.state]
		}
		s.Workers = append(s.Workers, Worker{PID: int(int32(w.pid)), State: state, Old: state == "stopping"})
		if state != "running" && named < maxNamed {
			named++
			unwell += fmt.Sprintf("; worker %d (%d) %s", w.id, int32(w.pid), state)
		}
	}
	running := count(s.Workers, func(w Worker) bool { return w.State == "running" })
	s.Text = fmt.Sprintf("sozu main: %d of %s running%s", running, plural(len(all), "worker"), unwell)
	return s
}

// sozuAsk sends one request without fields and waits for its last answer.
func sozuAsk(conn net.Conn, request protowire.Number) ([]sozuWorker, error) {
	payload := protowire.AppendBytes(protowire.AppendTag(nil, request, protowire.BytesType), nil)
	frame := binary.LittleEndian.AppendUint64(nil, uint64(sozuPrefixBytes+len(payload)))
	if _, err := conn.Write(append(frame, payload...)); err != nil {
		return nil, err
	}
	for range sozuAnswers {
		answer, err := sozuFrame(conn)
		if err != nil {
			return nil, err
		}
		workers, more, err := parseSozu(answer)
		if err != nil || !more {
			return workers, err
		}
	}
	return nil, fmt.Errorf("more than %d answers", sozuAnswers)
}

// sozuFrame reads one message.
func sozuFrame(r io.Reader) ([]byte, error) {
	var prefix [sozuPrefixBytes]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, err
	}
	length := binary.LittleEndian.Uint64(prefix[:])
	if length < sozuPrefixBytes || length > answerLimitBytes {
		return nil, fmt.Errorf("a message of %d bytes is none of Sōzu 1.0 or later", length)
	}
	// Not all at once: the peer may announce much and send little.
	message, err := io.ReadAll(io.LimitReader(r, int64(length-sozuPrefixBytes)))
	if err == nil && uint64(len(message)) < length-sozuPrefixBytes {
		err = io.ErrUnexpectedEOF
	}
	return message, err
}

// parseSozu reads a Response. more says that another one follows.
func parseSozu(message []byte) (workers []sozuWorker, more bool, err error) {
	status, text := uint64(2), ""
	err = fields(message, func(number protowire.Number, n uint64, content []byte) error {
		switch number {
		case sozuResponseStatus:
			status = n
		case sozuResponseMessage:
			text = string(content)
		case sozuResponseContent:
			return fields(content, func(number protowire.Number, _ uint64, infos []byte) error {
				if number != sozuContentWorkers {
					return nil
				}
				return fields(infos, func(number protowire.Number, _ uint64, info []byte) error {
					if number != sozuWorkersVec {
						return nil
					}
					w, err := parseSozuWorker(info)
					workers = append(workers, w)
					return err
				})
			})
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, false, err
	case status == sozuProcessing:
		return nil, true, nil
	case status != sozuOK:
		return nil, false, fmt.Errorf("refused: %q", word(text))
	}
	return workers, false, nil
}

func parseSozuWorker(info []byte) (w sozuWorker, err error) {
	err = fields(info, func(number protowire.Number, n uint64, _ []byte) error {
		switch number {
		case sozuWorkerID:
			w.id = n
		case sozuWorkerPID:
			w.pid = n
		case sozuWorkerRunState:
			w.state = n
		}
		return nil
	})
	return w, err
}

// fields calls see for each field of a protobuf message: with n if it is a
// number, with content if it has a length. Other types are passed over.
func fields(message []byte, see func(number protowire.Number, n uint64, content []byte) error) error {
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
		var n uint64
		var content []byte
		switch kind {
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			content, size = protowire.ConsumeBytes(message)
		default:
			size = protowire.ConsumeFieldValue(number, kind, message)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
		if kind != protowire.VarintType && kind != protowire.BytesType {
			continue
		}
		if err := see(number, n, content); err != nil {
			return err
		}
	}
	return nil
}
