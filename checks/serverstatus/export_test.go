package serverstatus

// The parsers, for fuzzing: each with what it may be given.
var Parsers = map[string]func([]byte) error{
	"haproxy procs":     func(b []byte) error { _, err := parseProcs(b); return err },
	"haproxy frontends": func(b []byte) error { _, err := parseFrontends(b); return err },
	"http":              func(b []byte) error { _, err := parseHTTP(b); return err },
	"nginx":             func(b []byte) error { _, err := parseNginx(b); return err },
	"apache":            func(b []byte) error { _, err := parseApache(b); return err },
	"uwsgi":             func(b []byte) error { _, err := parseUWSGI(b); return err },
	"fastcgi":           func(b []byte) error { _, err := parseFCGI(b); return err },
	"php-fpm":           func(b []byte) error { _, err := parseFPM(string(b), "/status?json&full&crosscheck=1"); return err },
	"sozu":              func(b []byte) error { _, _, err := parseSozu(b); return err },
}

var (
	ParseProcs     = parseProcs
	ParseFrontends = parseFrontends
	ParseFPM       = parseFPM
	ParseUWSGI     = parseUWSGI
	ParseApache    = parseApache
	ParseNginx     = parseNginx
	Word           = word
)

// Accepted is for tests of frontends.
func (f frontends) Accepted() uint64 { return f.accepted }

// Sentence is for tests of procs.
func (p procs) Sentence() string { return p.sentence() }
