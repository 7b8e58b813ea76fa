package core

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/crosscheck-project/crosscheck/alerting/console"
	"github.com/crosscheck-project/crosscheck/alerting/notify/embedded"
	"github.com/crosscheck-project/crosscheck/cmd/internal/heartbeats"
)

// startWeb serves the console, the API, the metrics and, if it is embedded,
// Alertmanager's API on the one listener.
func (c *Core) startWeb() error {
	if err := c.registerMetrics(); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/", console.New(console.Deps{View: c.consoleView}))
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelError)}))
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "healthy") })
	mux.HandleFunc("GET /-/ready", c.serveReady)
	mux.Handle(heartbeats.Path, c.local.beats.Handler())
	if c.embedded != nil {
		mux.Handle(embedded.Prefix+"/", c.embedded.Handler())
	}
	c.web = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ErrorLog: slog.NewLogLogger(c.log.Handler(), slog.LevelWarn)}
	c.run("web server", c.serveWeb)
	return nil
}

// serveWeb serves until ctx ends; then requests under way get stopWeb.
func (c *Core) serveWeb(ctx context.Context) error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopWeb)
		defer cancel()
		if err := c.web.Shutdown(grace); err != nil {
			_ = c.web.Close()
		}
	}()
	err := c.web.Serve(c.listener)
	if ctx.Err() == nil {
		return err // it ended by itself; the goroutine ends with the core
	}
	<-stopped
	return nil
}

// serveReady answers 200 while the engine judges: after it has caught up, and
// not while it waits for a journal that does not take its decisions.
func (c *Core) serveReady(w http.ResponseWriter, _ *http.Request) {
	if refusing := c.store.refusing(); refusing > notReadyAfter {
		http.Error(w, fmt.Sprintf("not ready: the store has refused everything for %s", refusing.Round(time.Second)), http.StatusServiceUnavailable)
		return
	}
	if v := c.consoleView(); !v.Ready {
		http.Error(w, "not ready: the engine does not answer", http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}
