// Package checks is the vocabulary of looking: what a look is and what it saw.
// It knows no schedule, no vantage, no bus and no alert; one sub-package per
// kind says how that kind looks.
package checks

import (
	"context"
	"time"
)

// Kind names a way of looking.
type Kind string

// The kinds that exist.
const (
	KindHTTP    Kind = "http"
	KindPort    Kind = "port"
	KindWorkers Kind = "workers"
	// KindHeartbeat looks at what a workload says of itself.
	KindHeartbeat Kind = "heartbeat"
)

// Inside reports whether the kind looks from inside a host.
func (k Kind) Inside() bool { return k == KindPort || k == KindWorkers || k == KindHeartbeat }

// Check is a configured look.
type Check interface {
	// Look looks once and returns what it saw. It returns when ctx ends at the
	// latest; a look that ctx cut short because we are shutting down is Blind.
	// It never panics on anything a target can send.
	Look(ctx context.Context) Finding
}

// Reason is the machine-readable ground of a finding; Detail is its sentence.
type Reason string

// Reasons of outside kinds. The phase that failed is in the word.
const (
	ReasonResolveFailed  Reason = "resolve_failed"
	ReasonConnectRefused Reason = "connect_refused"
	ReasonConnectTimeout Reason = "connect_timeout"
	ReasonConnectFailed  Reason = "connect_failed"
	ReasonTLSFailed      Reason = "tls_failed"
	ReasonNoAnswer       Reason = "no_answer"    // connected and asked, no first byte in time
	ReasonTransferCut    Reason = "transfer_cut" // answer began and did not end
	ReasonBadProtocol    Reason = "bad_protocol" // what came back was not HTTP
	ReasonStatus         Reason = "status"       // a status outside the expected
	ReasonBody           Reason = "body"         // the body lacks what was expected
	ReasonRedirect       Reason = "redirect"     // redirected further than allowed
)

// Reasons of inside kinds.
const (
	ReasonNotListening    Reason = "not_listening"
	ReasonMainGone        Reason = "main_gone"
	ReasonNoServingWorker Reason = "no_serving_worker"
	ReasonFewerWorkers    Reason = "fewer_workers"
	ReasonWorkersStuck    Reason = "workers_stuck" // frozen, spinning or looping, some or all
	ReasonMainStuck       Reason = "main_stuck"    // main is stopped
	ReasonQueueStuck      Reason = "queue_stuck"   // connections wait and nobody takes them
	ReasonNoProgress      Reason = "no_progress"   // our own connection was taken and not answered
	ReasonForeignOwner    Reason = "foreign_owner" // a stranger holds the listener
	ReasonHeartbeatMissed Reason = "heartbeat_missed"
	ReasonStopping        Reason = "stopping" // on its way out, as intended
)

// Reasons of Blind.
const (
	ReasonShuttingDown Reason = "shutting_down"
	ReasonNoPermission Reason = "no_permission"
	ReasonMainUnknown  Reason = "main_unknown" // no pid file, nobody on the port: nothing to look at yet
	ReasonUnsupported  Reason = "unsupported"  // this operating system cannot show it
	ReasonPanic        Reason = "panic"        // a bug of ours
	ReasonOwnNetwork   Reason = "own_network"  // our own side had no way out
	ReasonOwnLimit     Reason = "own_limit"    // out of descriptors, ports or memory of our own
)

// Finding is what one look saw. Exactly the facts of its kind are set.
type Finding struct {
	Outcome Outcome `json:"outcome"`
	Reason  Reason  `json:"reason,omitempty"`
	// Detail is one sentence for a person, without a full stop.
	Detail string `json:"detail,omitempty"`
	// Suspicious asks for outside looks now: something is not as when healthy,
	// though it may prove nothing yet.
	Suspicious bool `json:"suspicious,omitempty"`
	// Urgent asks that this finding leave at once instead of with its batch.
	Urgent bool `json:"urgent,omitempty"`
	// Duration is the whole look, our own share included.
	Duration time.Duration `json:"duration_ns"`
	// Phases are in the order in which they happened. A phase that did not
	// happen is absent, not zero; their sum never exceeds Duration.
	Phases []Phase `json:"phases,omitempty"`

	HTTP      *HTTPFacts      `json:"http,omitempty"`
	Listener  *ListenerFacts  `json:"listener,omitempty"`
	Workers   *WorkerFacts    `json:"workers,omitempty"`
	Heartbeat *HeartbeatFacts `json:"heartbeat,omitempty"`
}

// BlindFinding is a finding that says we could not look, and why.
func BlindFinding(reason Reason, detail string) Finding {
	return Finding{Outcome: Blind, Reason: reason, Detail: detail}
}

// Phase is one timed part of an outside look: resolve, connect, tls, request,
// wait (to the first byte of the answer), transfer.
type Phase struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took_ns"`
}
