//go:build check && linux

package soak

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

// samples are what was seen over time.
type samples struct {
	scene  *scene
	broken *broken
	paid   func() int64 // payments, of each of which gateway and demo keep a record for a day

	series  []*series            // of the processes
	figures map[string][]float64 // all beside those, by name, in order
	busy    [2]float64           // jiffies of the machine: busy, and all
	listed  time.Time            // when the keys of Redis were listed last
}

func newSamples(s *scene, b *broken) *samples {
	return &samples{scene: s, broken: b, figures: map[string][]float64{}, series: s.watched()}
}

const keysName = "Redis: keys, but for two of each payment"

func (s *samples) add(name string, value float64) { s.figures[name] = append(s.figures[name], value) }

// take samples until the context ends. What is away just then is left out.
func (s *samples) take(ctx context.Context, every time.Duration) {
	for ctx.Err() == nil {
		for _, one := range s.series {
			f, err := one.process.look()
			if err != nil || f.goroutines < 0 {
				continue
			}
			one.seen = append(one.seen, f)
		}
		s.redis(ctx, 30*every)
		s.latency()
		s.pace()
		select {
		case <-ctx.Done():
		case <-time.After(every):
		}
	}
}

// redis samples the connections of a server, the first that answers as a master, and now and then
// its keys.
func (s *samples) redis(ctx context.Context, pause time.Duration) {
	asking, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, server := range s.scene.servers {
		info, err := server.Client().Info(asking).Result()
		if err != nil || !strings.Contains(info, "role:master") {
			continue
		}
		_, text, _ := strings.Cut(info, "\nconnected_clients:")
		text, _, _ = strings.Cut(text, "\r")
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			s.add("Redis: connections", n)
		}
		if time.Since(s.listed) >= pause {
			s.keys(ctx, server)
		}
		return
	}
}

// keys lists the keys of a server. Its own count has those that have expired and that Redis has not
// come upon yet, up to a tenth of all and more.
func (s *samples) keys(ctx context.Context, server *redistest.Server) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s.listed = time.Now()
	n := -2 * float64(s.paid())
	for cursor, more := uint64(0), true; more; more = cursor != 0 {
		names, next, err := server.Client().Scan(ctx, cursor, "", 10_000).Result()
		if err != nil {
			return
		}
		n, cursor = n+float64(len(names)), next
	}
	s.add(keysName, n)
}

func (s *samples) latency() {
	s.broken.mu.Lock()
	took := s.broken.took
	s.broken.took = nil
	s.broken.mu.Unlock()
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	s.add("turns of clients that work: p50, ms", took[len(took)/2].Seconds()*1000)
	s.add("turns of clients that work: p99, ms", took[len(took)*99/100].Seconds()*1000)
}

// pace reads how busy the machine has been since the last time, and has the load follow.
func (s *samples) pace() {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return
	}
	var now [2]float64
	line, _, _ := strings.Cut(string(text), "\n")
	for i, field := range strings.Fields(line)[1:] {
		n, _ := strconv.ParseFloat(field, 64)
		if now[1] += n; i != 3 && i != 4 { // it is neither idle nor waiting for a disk
			now[0] += n
		}
	}
	if all := now[1] - s.busy[1]; s.busy[1] > 0 && all > 0 {
		busy := (now[0] - s.busy[0]) / all
		s.add("machine: busy, %", 100*busy)
		s.broken.pace(busy)
	}
	s.busy = now
}

// verdict waits until what is left is as little as before, compares the halves of all figures, and
// fails the test for one that grows.
func (s *samples) verdict(t *testing.T, long bool) {
	t.Helper()
	var rows []row
	for _, one := range s.series {
		rows = append(rows, one.left(t, s.scene.rig, long)...)
	}
	if long { // keys live for a minute and more
		for _, name := range []string{keysName, "Redis: connections"} {
			var values []int
			for _, value := range s.figures[name][len(s.figures[name])/5:] {
				values = append(values, int(value))
			}
			rows = append(rows, halves(row{process: "Redis", name: strings.TrimPrefix(name, "Redis: ")}, values, 1.2, 500))
		}
	}
	t.Log("\n" + table(rows) + "\n" + s.medians())
	for _, r := range rows {
		r.check(t, long)
	}
	if !t.Failed() {
		t.Log("verdict: flat")
	}
}

// medians are those of both halves of each figure, as a table in Markdown.
func (s *samples) medians() string {
	var b strings.Builder
	b.WriteString("| figure | first half | second half | most |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(s.figures)) {
		values := s.figures[name]
		half := len(values) / 2
		fmt.Fprintf(&b, "| %s | %.4g | %.4g | %.4g |\n", name, median(values[:max(half, 1)]), median(values[half:]), slices.Max(values))
	}
	return b.String()
}
