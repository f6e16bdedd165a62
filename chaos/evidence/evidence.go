// Package evidence is what the suites under chaos write down of a run, a JSON object in each line,
// and what chaos/proof makes docs/proof.md from.
package evidence

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Promises of docs/guarantees.md, by the names that they have there.
const (
	WorkerIDs = "Worker ids"
	Fences    = "Fences"
	Locks     = "Locks"
	Tokens    = "Idempotency tokens"
	Counters  = "Counters"
	Segments  = "Segments"
	Outages   = "Outages"
)

// Layers of a suite.
const (
	Processes = "processes"
	InProcess = "in one process"
	Simulated = "simulated"
)

// Ours is who a row without a peer is about.
const Ours = "coatcheck"

// Row is what was counted of one kind of fault.
type Row struct {
	Suite      string `json:"suite"`
	Promise    string `json:"promise"`
	Who        string `json:"who"` // a text that begins with Ours, or the name of a peer
	Peer       bool   `json:"peer,omitempty"`
	Layer      string `json:"layer"`
	Fault      string `json:"fault"`
	Faults     int64  `json:"faults"`
	Operations int64  `json:"operations"`
	Violations int64  `json:"violations"`
	Waited     int64  `json:"waited,omitempty"` // processes of a peer that were replaced
	Shared     bool   `json:"shared,omitempty"` // another row of ours has counted the same faults
	Seed       uint64 `json:"seed"`
}

// Tables of cases.
const (
	Engines   = "Engines"
	Resolvers = "Resolvers"
	Upgrades  = "Upgrades"
)

// Case is a row of a table that has no peers: what was tried, and what came of it.
type Case struct {
	Table string   `json:"table"`
	Cells []string `json:"cells"` // in the order of the table's columns
}

// Span is what one client did, or had, between two moments.
type Span struct {
	Who   string    `json:"who"`
	What  string    `json:"what"`
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Wrong bool      `json:"wrong,omitempty"` // a part of the violation
	// a call, of which From is the beginning and To the return
	Asks bool `json:"asks,omitempty"`
}

// Timeline is one violation with what happened around it.
type Timeline struct {
	Who    string    `json:"who"`
	Title  string    `json:"title"`
	Fault  string    `json:"fault"`
	Struck time.Time `json:"struck"`
	Mended time.Time `json:"mended"`
	Spans  []Span    `json:"spans"`
}

// Run says where and how all of it ran.
type Run struct {
	Began   string `json:"began"`
	Ended   string `json:"ended,omitempty"`
	Cores   int    `json:"cores,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
	Load    string `json:"load,omitempty"`
	LoadEnd string `json:"load_end,omitempty"`
	Go      string `json:"go,omitempty"`
	Redis   string `json:"redis,omitempty"`
	Commit  string `json:"commit,omitempty"`
	Command string `json:"command,omitempty"`
	Scale   int    `json:"scale,omitempty"` // percent
	Seed    uint64 `json:"seed,omitempty"`
}

// Step is one command of the run.
type Step struct {
	Name    string `json:"name"`
	Began   string `json:"began,omitempty"`
	Commit  string `json:"commit,omitempty"`
	Seconds int    `json:"seconds"`
	Failed  bool   `json:"failed,omitempty"`
}

// Line is a line of the file. It has one of these.
type Line struct {
	Row      *Row      `json:"row,omitempty"`
	Case     *Case     `json:"case,omitempty"`
	Timeline *Timeline `json:"timeline,omitempty"`
	Run      *Run      `json:"run,omitempty"`
	Step     *Step     `json:"step,omitempty"`
}

// Append writes lines to a file, each of them whole, beside those of other processes.
func Append(name string, lines ...Line) (err error) {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	for _, line := range lines {
		text, err := json.Marshal(line)
		if err != nil {
			return err
		}
		if _, err := file.Write(append(text, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// Read reads all lines.
func Read(from io.Reader) (lines []Line, err error) {
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, 16<<20)
	for n := 1; scanner.Scan(); n++ {
		var line Line
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		lines = append(lines, line)
	}
	return lines, scanner.Err()
}
