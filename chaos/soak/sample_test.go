//go:build check && linux

package soak

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
)

// figures are what a process takes at a moment.
type figures struct {
	memory      int // resident, in KiB
	descriptors int
	threads     int
	goroutines  int // -1 = it did not say
}

var statusLine = regexp.MustCompile(`(?m)^(VmRSS|Threads):\s+(\d+)`)

// look reads a process's figures from outside.
func (p *process) look() (figures, error) {
	pid := p.process().Pid()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return figures{}, err
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return figures{}, err
	}
	f := figures{descriptors: len(open), goroutines: p.goroutines()}
	for _, match := range statusLine.FindAllStringSubmatch(string(status), -1) {
		n, err := strconv.Atoi(match[2])
		if err != nil {
			return f, err
		}
		if match[1] == "VmRSS" {
			f.memory = n
		} else {
			f.threads = n
		}
	}
	return f, nil
}

// goroutines asks the process for the figure that cannot be seen from outside.
func (p *process) goroutines() int {
	request, err := http.NewRequest(http.MethodGet, p.metrics, nil)
	if err != nil {
		return -1
	}
	if p.key != "" {
		request.Header.Set("Authorization", "Bearer "+p.key)
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return -1
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "go_goroutines "); ok {
			if n, err := strconv.Atoi(text); err == nil {
				return n
			}
		}
	}
	return -1
}

// series is what was seen of a process, in order.
type series struct {
	process *process
	before  figures // any client came
	seen    []figures
}

// watched begins a series of each of the rig's processes.
func (r *rig) watched() (all []*series) {
	for _, p := range []*process{r.service, r.gateway} {
		all = append(all, &series{process: p, before: r.look(p)})
	}
	return all
}

// left waits until what is left of a process is as little as before, and returns its rows.
func (s *series) left(t *testing.T, r *rig, long bool) []row {
	t.Helper()
	chaostest.Await(t, time.Minute, func() string { return compare(s.process.name, s.before, r.look(s.process)) })
	return s.rows(r.look(s.process), long)
}

// kind is one of the figures, and how much more of it the second half may have: a part of the first
// half's and something besides, for what is drawn by lot. What follows the clients that are
// connected says nothing in a short soak with faults: a process that was replaced begins without
// any.
type kind struct {
	name    string
	of      func(figures) int
	part    float64
	beside  int
	clients bool
}

// kinds say the margins. A short soak has hardly warmed up: its memory may rise by half.
func kinds(long bool) []kind {
	memory := kind{"resident memory, KiB", func(f figures) int { return f.memory }, 1.5, 32 << 10, false}
	if long {
		memory.part, memory.beside = 1.15, 8<<10
	}
	return []kind{
		memory,
		{"file descriptors", func(f figures) int { return f.descriptors }, 1.2, 50, true},
		{"goroutines", func(f figures) int { return f.goroutines }, 1.2, 100, true},
		{"threads", func(f figures) int { return f.threads }, 1.2, 8, false},
	}
}

// row is what a figure came to.
type row struct {
	process, name                      string
	before, first, second, most, after int
	limit                              int
	clients                            bool // as in kind
}

// rows compare the halves of a series after its first fifth, in which the process warms up.
func (s *series) rows(after figures, long bool) (all []row) {
	warm := s.seen[len(s.seen)/5:]
	for _, k := range kinds(long) {
		var values []int
		for _, f := range warm {
			values = append(values, k.of(f))
		}
		all = append(all, halves(row{process: s.process.name, name: k.name, before: k.of(s.before), after: k.of(after), clients: k.clients}, values, k.part, k.beside))
	}
	return all
}

// halves fills a row from what was seen in the time after the first fifth.
func halves(r row, values []int, part float64, beside int) row {
	half := len(values) / 2
	r.first, r.second, r.most = median(values[:half]), median(values[half:]), slices.Max(values)
	r.limit = int(float64(r.first)*part) + beside
	return r
}

func (r row) grows() bool { return r.second > r.limit }

// check fails the test if the figure grows, and says something.
func (r row) check(t *testing.T, long bool) {
	t.Helper()
	if r.grows() && (long || !r.clients) {
		t.Errorf("%s: %s grows: %d, and then %d, where %d is allowed", r.process, r.name, r.first, r.second, r.limit)
	}
}

func median[N int | float64](values []N) N {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// table writes rows as Markdown.
func table(rows []row) string {
	var b strings.Builder
	b.WriteString("| process | | before | first half | second half | allowed | most | when all have left |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d | %d | %d |\n", r.process, r.name, r.before, r.first, r.second, r.limit, r.most, r.after)
	}
	return b.String()
}

// Growth is found: memory that rises steadily, connections that stay. What rises and then stands
// still, or goes up and down, is none.
func TestGrowthIsFound(t *testing.T) {
	of := func(at func(i int) int) []row {
		s := &series{process: &process{name: "p"}}
		for i := range 100 {
			n := at(i)
			s.seen = append(s.seen, figures{memory: n * 1024, descriptors: n, goroutines: n, threads: n})
		}
		return s.rows(figures{}, true)
	}
	for what, rows := range map[string][]row{
		"rises":               of(func(i int) int { return 100 + 5*i }),
		"rises from the half": of(func(i int) int { return 100 + max(0, i-60)*20 }),
	} {
		for _, r := range rows {
			if !r.grows() {
				t.Errorf("%s: %s is not found: %+v", what, r.name, r)
			}
		}
	}
	for what, rows := range map[string][]row{
		"stands":          of(func(int) int { return 500 }),
		"warms up":        of(func(i int) int { return min(100+40*i, 900) }),
		"goes to and fro": of(func(i int) int { return 500 + i%7*10 }),
	} {
		for _, r := range rows {
			if r.grows() {
				t.Errorf("%s: %s is called growth: %+v", what, r.name, r)
			}
		}
	}
}

// What is left behind when all clients have left is found, and what may stay is not.
func TestWhatIsLeftBehindIsFound(t *testing.T) {
	before := figures{descriptors: 20, goroutines: 30}
	for _, each := range []struct {
		descriptors, goroutines int
		found                   bool
	}{
		{20, 30, false}, {120, 200, false}, {382, 30, true}, {20, 400, true},
	} {
		said := compare("serve", before, figures{descriptors: each.descriptors, goroutines: each.goroutines})
		if (said != "") != each.found {
			t.Errorf("%+v: got complaint %q, want one: %v", each, said, each.found)
		}
	}
}
