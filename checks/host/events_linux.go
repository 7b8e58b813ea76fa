package host

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// aimConnector lets the filter pass what concerns the mains there are now.
// Called after sweeps, which alone find mains.
func (o *Observer) aimConnector(now time.Duration) {
	c := o.connector
	if c == nil || c.fd < 0 && c.retryAt == 0 {
		return
	}
	mains := c.mainsSpare[:0]
	for _, t := range o.targets {
		if t.status == MainAlive && t.main != nil {
			mains = append(mains, t.main.view.PID)
		}
	}
	slices.Sort(mains)
	mains = slices.Compact(mains)
	c.mainsSpare = mains
	all := len(mains) > mainsPerFilter
	if c.fd < 0 {
		if now < c.retryAt && (all || !c.all) {
			return // dropped for want of a filter, it comes back once one fits
		}
		if err := o.connect(); err != nil {
			o.stats.errors.Add(1)
			c.retryAt = now + connectorRetry
			return
		}
	}
	if all == c.all && (all || slices.Equal(mains, c.mains)) {
		return
	}
	err := c.attach(mains, c.orphans, all)
	if err != nil && !all { // net.core.optmem_max bounds filters
		err = c.attach(nil, c.orphans, true)
	}
	if err != nil {
		o.stats.errors.Add(1)
		o.dropConnector(now, err.Error())
	}
}

// readConnector takes the events that wait.
func (o *Observer) readConnector() {
	c := o.connector
	if c == nil || c.fd < 0 {
		return
	}
	now := o.kernel.now()
	toBoot := now - monotonic()
	for range connectorBatch {
		n, err := receiveNow(c.fd, c.buf)
		switch {
		case err == nil:
			c.events, err = parseProcEvents(c.buf[:n], c.events[:0])
			if err != nil {
				o.stats.errors.Add(1)
			}
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ENOBUFS):
			o.resync(now)
			continue
		case errors.Is(err, unix.EAGAIN):
			return
		default:
			o.stats.errors.Add(1)
			o.dropConnector(now, err.Error())
			return
		}
		for i := range c.events {
			if e := &c.events[i]; !e.thread && e.kind != procAck && !o.told(e, e.at+toBoot, now) && o.outside(now) {
				return
			}
		}
	}
}

// told gives an event to the targets it concerns and reports whether there are
// any.
func (o *Observer) told(e *procEvent, at, now time.Duration) (ours bool) {
	o.stats.connectorEvents.Add(1)
	for _, t := range o.targets {
		switch fits, full := t.told(e, at, now); {
		case full:
			o.stats.connectorLost.Add(1)
			ours = true
		case fits:
			ours = true
		}
	}
	return ours
}

// outside counts an event that concerns nobody, and reports that they were too
// many. Then exits without a parent do not pass any more or, if everything
// does because there are too many mains, the connector is dropped.
func (o *Observer) outside(now time.Duration) (dropped bool) {
	c := o.connector
	if now-c.outsideAt >= outsideWindow {
		c.outside, c.outsideAt = 0, now
	}
	if c.outside++; c.outside <= outsideMost {
		return false
	}
	c.outside = 0
	if !c.all && c.attach(slices.Clone(c.mains), false, false) == nil {
		return false
	}
	o.dropConnector(now, fmt.Sprintf("more than %d events of other processes in %s", outsideMost, outsideWindow))
	return true
}

// resync has every target swept, because the kernel threw events away. Numbers
// of events would not tell: it counts those that a filter drops as well.
func (o *Observer) resync(now time.Duration) {
	c := o.connector
	lost := uint64(1)
	if drops, err := socketDrops(c.fd); err == nil && drops != c.drops {
		lost, c.drops = uint64(drops-c.drops), drops
	}
	o.stats.connectorLost.Add(lost)
	o.stats.connectorResyncs.Add(1)
	for _, t := range o.targets {
		t.next, t.rides = min(t.next, max(now, t.lastSweep+wakeGap)), false
	}
}

// dropConnector goes on with pidfds and sweeps.
func (o *Observer) dropConnector(now time.Duration, why string) {
	o.closeConnector()
	o.connector.retryAt = now + connectorRetry
	o.setConnector(ConnectorDropped)
	o.stats.connectorDropped.Add(1)
	o.log.Warn("process connector dropped in favour of pidfds and sweeps", "why", why, "retry_in", connectorRetry)
}
