// Package core composes the one-machine program: the hub, the judge and its
// journal, the pager's side, the console, and the local prober and agent. It
// decides nothing about evidence; it only lets the parts meet, starts them in
// order and stops them in the reverse.
package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/crosscheck-project/crosscheck/alerting/engine"
	"github.com/crosscheck-project/crosscheck/alerting/notify"
	"github.com/crosscheck-project/crosscheck/alerting/notify/alertmanager"
	"github.com/crosscheck-project/crosscheck/alerting/notify/embedded"
	"github.com/crosscheck-project/crosscheck/cmd/internal/config"
	"github.com/crosscheck-project/crosscheck/probe/wire"
	"github.com/crosscheck-project/crosscheck/probe/wire/hub"
)

// Core is the running program.
type Core struct {
	file     *config.File
	compiled config.Compiled
	log      *slog.Logger
	registry *prometheus.Registry

	hub      *hub.Hub
	wire     *wire.Client
	embedded *embedded.Alertmanager // nil with external Alertmanagers
	sender   *alertmanager.Sender
	loop     *notify.Loop
	engine   *engine.Engine
	local    *locals
	listener net.Listener
	web      *http.Server

	store   storeWatch
	stages  []*stage // in the order of their start
	failure chan error
}

// stage is one running part. Stop ends it and waits.
type stage struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
}

// Start starts everything and returns when the engine is ready: the journal is
// folded and every open alert is posted. On an error everything that was
// started is stopped again.
func Start(ctx context.Context, f *config.File, log *slog.Logger) (*Core, error) {
	c := &Core{file: f, compiled: config.Compile(f), log: log, registry: prometheus.NewRegistry(), failure: make(chan error, 1)}
	c.store.fail = c.fail
	if err := c.start(ctx); err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

func (c *Core) start(ctx context.Context) (err error) {
	if err := os.MkdirAll(c.file.DataDir, 0o700); err != nil {
		return fmt.Errorf("data_dir: %w", err)
	}
	// The lock on the data directory comes first: a second core must find
	// nothing it could disturb.
	if c.hub, err = hub.Start(ctx, hub.Options{Dir: filepath.Join(c.file.DataDir, "nats"), Log: c.log.With("part", "hub")}); err != nil {
		return err
	}
	if c.listener, err = net.Listen("tcp", c.file.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if c.wire, err = wire.Connect(c.hub.InProcess()); err != nil {
		return err
	}
	if err := c.startOutputs(); err != nil {
		return err
	}
	if err := c.startEngine(ctx); err != nil {
		return err
	}
	if err := c.startLocals(); err != nil {
		return err
	}
	return c.startWeb()
}

// startOutputs starts what carries notices out of the house.
func (c *Core) startOutputs() error {
	sender, err := c.alertmanagerSender()
	if err != nil {
		return err
	}
	c.sender = sender
	c.run("alertmanager sender", sender.Run)
	c.loop = notify.NewLoop(notify.Config{}, notify.Deps{
		Notifiers: []notify.Notifier{sender},
		Done:      func(key, receiver string) { c.engine.Accepted(key, receiver) },
		Log:       c.log.With("part", "notify"),
	})
	return nil
}

// alertmanagerSender starts the embedded Alertmanager unless others are
// configured, and returns the sender to whichever it is.
func (c *Core) alertmanagerSender() (*alertmanager.Sender, error) {
	deps := alertmanager.Deps{Log: c.log.With("part", "alertmanager sender")}
	if urls := c.file.Alertmanager.URLs; len(urls) > 0 {
		return alertmanager.New(alertmanager.Config{URLs: urls}, deps)
	}
	am, err := embedded.New(embedded.Config{
		File: c.file.Alertmanager.ConfigFile, Dir: filepath.Join(c.file.DataDir, "alertmanager"),
		ExternalURL: c.url() + embedded.Prefix,
	}, embedded.Deps{Registerer: c.registry, Log: c.log.With("part", "alertmanager")})
	if err != nil {
		return nil, err
	}
	c.embedded = am
	c.run("alertmanager", am.Run)
	deps.Transport = am.Transport()
	return alertmanager.New(alertmanager.Config{URLs: []string{embedded.InProcessURL}}, deps)
}

func (c *Core) startEngine(ctx context.Context) (err error) {
	c.engine, err = engine.New(
		engine.Config{Policy: c.compiled.Policy, ConsoleURL: c.url()},
		engine.Deps{Results: Results{c.wire}, Journal: Journal{c.wire, &c.store}, Asker: Asker{c.wire}, Post: c.loop.Post, Log: c.log.With("part", "engine")},
	)
	if err != nil {
		return err
	}
	c.run("notify", c.loop.Run)
	c.run("engine", c.engine.Run)
	select {
	case <-c.engine.Ready():
		return nil
	case err := <-c.failure:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run starts a part. If it ends by itself with an error, the core has failed.
func (c *Core) run(name string, part func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	s := &stage{name: name, cancel: cancel, done: make(chan struct{})}
	c.stages = append(c.stages, s)
	go func() {
		defer close(s.done)
		err := part(ctx)
		if err == nil && ctx.Err() == nil {
			err = errors.New("ended by itself")
		}
		if err != nil && ctx.Err() == nil {
			c.fail(fmt.Errorf("%s: %w", name, err))
		}
	}()
}

// fail says that the core cannot go on; the first reason is the one that counts.
func (c *Core) fail(err error) {
	select {
	case c.failure <- err:
	default:
	}
}

// Failed delivers the error of a part that ended by itself.
func (c *Core) Failed() <-chan error { return c.failure }

// Addr is the address of the console.
func (c *Core) Addr() net.Addr { return c.listener.Addr() }

// url is where people reach the console, without a slash at the end.
func (c *Core) url() string {
	if c.file.ExternalURL != "" {
		return c.file.ExternalURL
	}
	return "http://" + c.listener.Addr().String()
}

// stopWeb is how long requests under way may take at the stop (chosen: well
// under the 5 s that a clean stop may take).
const stopWeb = time.Second

// Stop stops everything in the reverse order of the start and waits for it:
// first nobody looks any more, then nobody judges, then nobody is told, and the
// store is closed last. A second call does nothing.
func (c *Core) Stop() {
	for i := len(c.stages) - 1; i >= 0; i-- {
		c.stages[i].cancel()
		<-c.stages[i].done
	}
	c.stages = nil
	if c.local != nil {
		c.local.close()
		c.local = nil
	}
	if c.listener != nil {
		_ = c.listener.Close() // the web server has closed it already if it ran
	}
	if c.wire != nil {
		c.wire.Close()
		c.wire = nil
	}
	if c.hub != nil {
		c.hub.Stop()
		c.hub = nil
	}
}
