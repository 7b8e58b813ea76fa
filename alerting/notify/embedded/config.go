package embedded

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/template"
)

//go:embed default.yml
var defaultYAML string

// DefaultConfig returns the alertmanager.yml used when none is given, with every
// alert going to the webhooks, if any. It ends with its only receiver, to which
// the webhooks are appended.
func DefaultConfig(webhookURLs ...string) []byte {
	var b strings.Builder
	b.WriteString(defaultYAML)
	if len(webhookURLs) > 0 {
		b.WriteString("    webhook_configs:\n")
	}
	for _, u := range webhookURLs {
		quoted, _ := json.Marshal(u) // a string always encodes; a JSON string is a YAML string
		fmt.Fprintf(&b, "      - url: %s\n        send_resolved: true\n", quoted)
	}
	return []byte(b.String())
}

// Config is data. Dir must be set; File and Raw exclude each other.
type Config struct {
	// File is the path of an alertmanager.yml. Reload reads it again.
	File string
	// Raw is the content of an alertmanager.yml, for callers without a file.
	// With neither File nor Raw, DefaultConfig() is used.
	Raw []byte
	// Dir holds the notification log and the silences. It is created.
	Dir string
	// ExternalURL is where people reach Handler, for the links in
	// notifications; empty means DefaultExternalURL.
	ExternalURL string
}

// DefaultExternalURL is the base of links when nothing else is known.
const DefaultExternalURL = "http://localhost" + Prefix

// load reads and validates the configuration without touching anything.
func (c Config) load() (*config.Config, error) {
	var conf *config.Config
	var err error
	switch {
	case c.File != "" && c.Raw != nil:
		return nil, errors.New("embedded alertmanager: both a file and raw bytes given")
	case c.File != "":
		if err = readable(c.File); err == nil {
			conf, err = config.LoadFile(c.File)
		}
	case c.Raw != nil:
		conf, err = config.Load(string(c.Raw))
	default:
		conf, err = config.Load(string(DefaultConfig()))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.name(), err)
	}
	if err := refuseUnsupported(conf); err != nil {
		return nil, fmt.Errorf("%s: %w", c.name(), err)
	}
	return conf, nil
}

// maxFileBytes bounds a configuration file. Chosen: a thousand receivers take
// a fifth of it.
const maxFileBytes = 1 << 20

// readable refuses what could be read for ever: a device, a pipe, a huge file.
func readable(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errors.New("is no regular file")
	case info.Size() > maxFileBytes:
		return fmt.Errorf("is %d bytes long; at most %d are read", info.Size(), maxFileBytes)
	}
	return nil
}

// name is how errors call the configuration.
func (c Config) name() string {
	switch {
	case c.File != "":
		return filepath.Clean(c.File)
	case c.Raw != nil:
		return "alertmanager.yml given as bytes"
	}
	return "built-in alertmanager.yml"
}

// refuseUnsupported names what only a full Alertmanager does, rather than
// ignoring it.
func refuseUnsupported(conf *config.Config) error {
	var errs []error
	if conf.TracingConfig.Endpoint != "" {
		errs = append(errs, errors.New("tracing: not in the embedded Alertmanager; name an external one under alertmanager.urls"))
	}
	er := conf.EventRecorder
	if len(er.FileOutputs)+len(er.WebhookOutputs)+len(er.KafkaOutputs)+len(er.StdoutOutputs) > 0 {
		errs = append(errs, errors.New("event_recorder: not in the embedded Alertmanager; name an external one under alertmanager.urls"))
	}
	return errors.Join(errs...)
}

// Check reports what is wrong with an alertmanager.yml, as New would.
func Check(file string) error {
	c := Config{File: file}
	conf, err := c.load()
	if err != nil {
		return err
	}
	tmpl, err := template.FromGlobs(conf.Templates)
	if err != nil {
		return fmt.Errorf("%s: parse templates: %w", c.name(), err)
	}
	if _, err := buildReceivers(conf, tmpl, slog.New(slog.DiscardHandler)); err != nil {
		return fmt.Errorf("%s: %w", c.name(), err)
	}
	return nil
}
