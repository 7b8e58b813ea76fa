package console

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"html/template"
	"net/http"
	"strconv"
	"time"
)

// Deps are what the console needs from its surroundings.
type Deps struct {
	// View returns what to show now. It is called once per request, from many
	// goroutines; it must not wait for long.
	View func() View
}

// Paths that the console answers. Everything else below it is 404.
const (
	PagePath   = "/"
	StylePath  = "/style.css"
	StatusPath = "/api/v1/status"
)

//go:embed page.html
var pageHTML string

//go:embed style.css
var styleCSS []byte

// New returns the console's handler. It answers GET and HEAD.
func New(deps Deps) http.Handler {
	c := console{
		deps: deps,
		page: template.Must(template.New("page").Parse(pageHTML)),
	}
	sum := sha256.Sum256(styleCSS)
	c.styleHash = hex.EncodeToString(sum[:6])
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+PagePath+"{$}", c.servePage)
	mux.HandleFunc("GET "+StylePath, serveStyle)
	mux.HandleFunc("GET "+StatusPath, c.serveStatus)
	return guard(mux)
}

type console struct {
	deps      Deps
	page      *template.Template
	styleHash string
}

// guard sets the headers of every answer: nothing is loaded but our own style
// sheet, nothing runs, nobody frames the page.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// servePage renders the page. ?refresh=off is the page that stands still, for
// people whom a reloading page disturbs (WCAG 2.2, 2.2.2).
func (c *console) servePage(w http.ResponseWriter, r *http.Request) {
	p := newPage(c.deps.View(), time.Now())
	p.StyleURL = StylePath[1:] + "?" + c.styleHash
	p.Still = r.URL.Query().Get("refresh") == "off"
	var body bytes.Buffer
	if err := c.page.Execute(&body, p); err != nil {
		http.Error(w, "the page could not be rendered: "+err.Error(), http.StatusInternalServerError)
		return
	}
	send(w, "text/html; charset=utf-8", body.Bytes())
}

// send writes a whole answer. An error here is the reader's going away.
func send(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

func serveStyle(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Cache-Control", "max-age=86400") // its URL carries its hash
	send(w, "text/css; charset=utf-8", styleCSS)
}

// status is the View with what follows from its age.
type status struct {
	View
	// Stale: the view is older than StaleAfter, and not to be believed.
	Stale bool `json:"stale"`
}

func (c *console) serveStatus(w http.ResponseWriter, _ *http.Request) {
	v := c.deps.View()
	body, err := json.MarshalIndent(status{View: v.filled(), Stale: v.stale(time.Now())}, "", "  ")
	if err != nil {
		http.Error(w, "the status could not be encoded: "+err.Error(), http.StatusInternalServerError)
		return
	}
	send(w, "application/json", append(body, '\n'))
}
