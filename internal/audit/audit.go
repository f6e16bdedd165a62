// Package audit writes the lines of a log about acts and refusals of callers. No line holds a
// token, a lease secret or an API key: a principal, the id of a key, the name of a certificate and
// an address identify the caller.
//
// An act always has its line. Refusals cost a stranger nothing, so a bounded number has a line in
// each window of time, of one network and of all; the end of the window reports how many have none.
package audit

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/network"
)

// The modes of the log.
const (
	Names   = "names"    // all
	NoNames = "no-names" // all, without the names of counters, pools and locks
	None    = "none"
)

const (
	window     = 10 * time.Second
	anAddress  = 20 // refusals that have a line in a window
	refusals   = 200
	actRefused = "refused"
)

// Entry is the content of a line. Empty fields are left out.
type Entry struct {
	Action string // such as counter.set; Refused fills it in
	Name   string // of the counter, pool, lock or operation
	By     api.EventBy
}

// Log writes the lines. It is safe for concurrent use.
type Log struct {
	log  *slog.Logger
	mode string

	mu    sync.Mutex
	until time.Time            // end of the window
	from  map[netip.Prefix]int // refusals that have a line in it, by the caller's network
	all   int                  // of them
	left  int                  // refusals that have none
	timer *time.Timer          // tells of those; nil = there are none
}

// New returns a Log that writes the lines of a mode; "" = Names.
func New(log *slog.Logger, mode string) *Log {
	return &Log{log: log, mode: mode, from: map[netip.Prefix]int{}}
}

// Done writes that something was done, or may have been.
func (l *Log) Done(ctx context.Context, entry Entry) {
	if l.mode == None {
		return
	}
	line := []slog.Attr{slog.String("action", entry.Action)}
	for _, one := range []struct{ key, value string }{
		{"name", entry.Name},
		{"principal", entry.By.Principal},
		{"key_id", entry.By.KeyID},
		{"certificate", entry.By.Certificate},
		{"address", entry.By.Address},
		{"route", entry.By.Route},
		{"code", entry.By.Code},
	} {
		if one.value != "" && (one.key != "name" || l.mode != NoNames) {
			line = append(line, slog.String(one.key, one.value))
		}
	}
	l.log.LogAttrs(ctx, slog.LevelInfo, "audit", line...)
}

// Refused writes that a request was refused, and reports whether it did: not if there are too many.
func (l *Log) Refused(ctx context.Context, entry Entry) (told bool) {
	if !l.takes(entry.By.Address) {
		return false
	}
	entry.Action = actRefused
	l.Done(ctx, entry)
	return true
}

// takes reports whether one more refusal from an address has a line, and counts it.
func (l *Log) takes(address string) bool {
	at, _ := netip.ParseAddr(address) // what has none is within the machine
	from := network.Of(at)
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); !now.Before(l.until) {
		l.tellLocked()
		l.until, l.all = now.Add(window), 0
		clear(l.from)
	}
	if l.all < refusals && l.from[from] < anAddress {
		l.all++
		l.from[from]++
		return true
	}
	if l.left++; l.timer == nil {
		l.timer = time.AfterFunc(time.Until(l.until), l.tell)
	}
	return false
}

func (l *Log) tell() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tellLocked()
}

// tellLocked writes how many refusals had no line.
func (l *Log) tellLocked() {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	if l.left > 0 && l.mode != None {
		l.log.LogAttrs(context.Background(), slog.LevelInfo, "audit", slog.String("action", actRefused), slog.Int("left_out", l.left))
	}
	l.left = 0
}

// Close tells of the refusals that had no line yet.
func (l *Log) Close() { l.tell() }
