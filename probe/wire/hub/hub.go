// Package hub runs the NATS server inside the core: its store, its one account
// and its streams. Only the core links it; it decides nothing about evidence.
package hub

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/crosscheck-project/crosscheck/probe/wire"
)

// Errors callers tell apart with errors.Is.
var (
	// ErrInUse: another process runs on the same directory.
	ErrInUse = errors.New("data directory in use")
	// ErrCorrupt: the store holds something the server could not read. Nothing
	// was deleted.
	ErrCorrupt = errors.New("store damaged")
)

const (
	// account and user exist from the first release: a store made without
	// accounts cannot be opened with them (nats-server issue 5219).
	account = "CROSSCHECK"
	user    = "crosscheck"
	// serverName is stable: the server names what it stores after it.
	serverName = "crosscheck-hub"

	// maxPayloadBytes is the server's own default, and twice what a vantage
	// sends at most.
	maxPayloadBytes = 1 << 20
	// eventsBytes is what the store has left for the journal. Chosen: 400 days
	// of one step of 1 kB every 10 s are 3.5 GB.
	eventsBytes = 4 << 30
	// memoryBytes bounds streams in memory. There are none; consumers of
	// readers need a few kB.
	memoryBytes = 64 << 20
	// readyTimeout bounds the wait for a listener after the store is open.
	readyTimeout = 10 * time.Second
)

// Options says where the hub keeps its store and whom it lets in.
type Options struct {
	// Dir is created if it is missing. It is locked for as long as the hub
	// runs. Required.
	Dir string
	// Log takes what the server says: warnings and errors as they are, the rest
	// at debug. Required.
	Log *slog.Logger
	// ResultsBytes bounds the stream of results; zero means
	// wire.DefaultResultsBytes.
	ResultsBytes int64
	// Listen opens a TCP listener there; the zero value opens none. It must be
	// a loopback address, for the connection is not encrypted. Port 0 takes a
	// free one.
	Listen netip.AddrPort
	// Password is what clients must know. Empty means a new random one with
	// every start, which only InProcess and Loopback tell.
	Password string
}

// Hub is a running server.
type Hub struct {
	srv      *server.Server
	lock     *os.File
	log      *slog.Logger
	password string
	listens  bool
	stop     sync.Once
}

// Start locks the directory, opens the store, and returns when clients can
// connect and the streams exist. Opening takes about 3 s per million stored
// messages and cannot be cut short; ctx bounds what follows.
//
// Errors: ErrInUse, ErrCorrupt.
func Start(ctx context.Context, o Options) (*Hub, error) {
	if o.Dir == "" || o.Log == nil {
		return nil, errors.New("start hub: directory and log must be set")
	}
	if o.Listen.IsValid() && !o.Listen.Addr().IsLoopback() {
		return nil, fmt.Errorf("start hub: listen on %s: not a loopback address, and the connection is not encrypted", o.Listen)
	}
	if o.ResultsBytes == 0 {
		o.ResultsBytes = wire.DefaultResultsBytes
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("start hub: %w", err)
	}
	lock, err := lockDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("start hub: %w", err)
	}
	if o.Password == "" {
		o.Password = rand.Text()
	}
	h := &Hub{lock: lock, log: o.Log, password: o.Password, listens: o.Listen.IsValid()}
	if err := h.start(ctx, o); err != nil {
		h.Stop()
		return nil, fmt.Errorf("start hub on %s: %w", o.Dir, err)
	}
	return h, nil
}

func (h *Hub) start(ctx context.Context, o Options) error {
	// The server creates directories as it goes: look what was there first.
	stored, err := storedStreams(o.Dir)
	if err != nil {
		return err
	}
	cut, err := verifyBlocks(wire.StreamEvents, filepath.Join(streamsDir(o.Dir), wire.StreamEvents, "msgs"))
	if err != nil {
		return err
	}
	if cut > 0 {
		o.Log.Warn("the journal ends in the middle of a record, as after a power cut; the server will cut it off", "bytes", cut)
	}
	logger := &logAdapter{log: o.Log}
	if h.srv, err = server.NewServer(h.options(o)); err != nil {
		return err
	}
	h.srv.SetLoggerV2(logger, false, false, false)
	h.srv.Start()
	if err := logger.fatal(); err != nil {
		return err
	}
	acc, err := h.srv.LookupAccount(account)
	if err != nil {
		return fmt.Errorf("account %s: %w", account, err)
	}
	if err := acc.EnableJetStream(nil, nil); err != nil {
		return fmt.Errorf("open store: %w", err)
	}
	if !h.srv.ReadyForConnections(readyTimeout) {
		return errors.Join(fmt.Errorf("not ready for connections after %s", readyTimeout), logger.fatal())
	}
	c, err := wire.Connect(h.InProcess())
	if err != nil {
		return err
	}
	defer c.Close()
	if err := checkRecovered(ctx, c, o.Dir, stored); err != nil {
		return err
	}
	return c.EnsureStreams(ctx, wire.Streams{ResultsBytes: o.ResultsBytes})
}

// options returns fresh options: the server changes them.
func (h *Hub) options(o Options) *server.Options {
	acc := server.NewAccount(account)
	opts := &server.Options{
		ServerName: serverName,
		DontListen: true,
		NoSigs:     true, // else it calls os.Exit on SIGINT

		JetStream:              true,
		StoreDir:               o.Dir,
		JetStreamMaxStore:      o.ResultsBytes + eventsBytes,
		JetStreamMaxMemory:     memoryBytes,
		DisableJetStreamBanner: true,
		// An acknowledged message is on the disk (jepsen.io/analyses/nats-2.12.1).
		SyncAlways: true,

		MaxPayload: maxPayloadBytes,
		Accounts:   []*server.Account{acc},
		Users:      []*server.User{{Username: user, Password: h.password, Account: acc}},
	}
	if o.Listen.IsValid() {
		opts.DontListen = false
		opts.Host, opts.Port = o.Listen.Addr().String(), int(o.Listen.Port())
		if opts.Port == 0 {
			opts.Port = server.RANDOM_PORT // to the server, 0 means 4222
		}
	}
	return opts
}

// InProcess returns how to connect from this process.
func (h *Hub) InProcess() wire.Options {
	return wire.Options{InProcess: h.srv, User: user, Password: h.password, Name: "core", Log: h.log}
}

// Loopback returns how to connect over TCP from this machine, and false if the
// hub does not listen.
func (h *Hub) Loopback() (wire.Options, bool) {
	if !h.listens {
		return wire.Options{}, false
	}
	return wire.Options{URL: h.srv.ClientURL(), User: user, Password: h.password, Log: h.log}, true
}

// Stop closes all connections and the store, waits until both are closed, and
// gives the lock back. A second call does nothing.
func (h *Hub) Stop() {
	h.stop.Do(func() {
		if h.srv != nil {
			h.srv.Shutdown()
			h.srv.WaitForShutdown()
		}
		_ = h.lock.Close() // the kernel releases the lock with the descriptor
	})
}

// storedStreams lists the streams the store holds. Names that begin with a dot
// are half deleted.
func storedStreams(dir string) ([]string, error) {
	entries, err := os.ReadDir(streamsDir(dir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read store: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// checkRecovered reports a stream that is on disk and that the server passed
// over with a warning. Creating it anew would bury what it held.
func checkRecovered(ctx context.Context, c *wire.Client, dir string, stored []string) error {
	if len(stored) == 0 {
		return nil
	}
	have, err := c.StreamNames(ctx)
	if err != nil {
		return err
	}
	for _, name := range stored {
		if !slices.Contains(have, name) {
			path := filepath.Join(streamsDir(dir), name)
			return fmt.Errorf("%w: stream %s in %s could not be read (the warning above says why); nothing was changed: "+
				"restore the directory from a backup, or move %s away to start without its contents", ErrCorrupt, name, path, path)
		}
	}
	return nil
}

func streamsDir(dir string) string {
	return filepath.Join(dir, server.JetStreamStoreDir, account, "streams")
}
