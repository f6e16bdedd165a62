//go:build check

package locks

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// histories are those of all names, and what they tell beside that.
type histories struct {
	of                         map[string][]porcupine.Operation
	grants, lost, unknown, cut int
}

func (h *histories) String() string {
	return fmt.Sprintf("%d grants of %d names: %d lost, %d ended at an unknown time, %d cut off", h.grants, len(h.of), h.lost, h.unknown, h.cut)
}

// open is a grant whose end has not been read yet.
type open struct {
	name string
	deed deed
	last int64 // when its holder last saw that it has it
}

// reading puts histories together.
type reading struct {
	*histories

	open    map[int]*open
	numbers map[string]map[int]int // of each name's clients
}

// readHistories reads the journals of a folder.
func readHistories(t testing.TB, folder string) *histories {
	t.Helper()
	r := &reading{&histories{of: map[string][]porcupine.Operation{}}, map[int]*open{}, map[string]map[int]int{}}
	files, err := filepath.Glob(filepath.Join(folder, "*.log"))
	expect.NoError(t, "filepath.Glob", err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		expect.NoError(t, "os.ReadFile", err)
		for line := range strings.Lines(string(text)) {
			if err := r.line(line); err != nil {
				t.Fatalf("line %q of %s: got error %v", line, filepath.Base(file), err)
			}
		}
	}
	for client, o := range r.open { // their processes were killed
		r.cut++
		r.close(client, o, o.last, never)
	}
	return r.histories
}

func (r *reading) line(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	var client int
	switch word {
	case "grant":
		o := &open{}
		var asked int64
		if _, err := fmt.Sscan(rest, &client, &o.name, &o.deed.shared, &o.deed.permits, &o.deed.fence, &asked, &o.last); err != nil {
			return err
		}
		return r.grant(client, o, asked)
	case "still":
		var at int64
		_, err := fmt.Sscan(rest, &client, &at)
		r.open[client].last = at
		return err
	case "end":
		var how string
		var from, to int64
		if _, err := fmt.Sscan(rest, &client, &how, &from, &to); err != nil {
			return err
		}
		o := r.open[client]
		switch how {
		case "lost":
			r.lost++
			from = o.last
		case "unknown":
			r.unknown++
		}
		r.close(client, o, from, to)
		return nil
	}
	return fmt.Errorf("what is %q", word)
}

func (r *reading) grant(client int, o *open, asked int64) error {
	if r.numbers[o.name] == nil {
		r.numbers[o.name] = map[int]int{}
	}
	numbers := r.numbers[o.name]
	if _, known := numbers[client]; !known {
		numbers[client] = len(numbers)
	}
	o.deed.client = numbers[client]
	if o.deed.client >= 64 {
		return fmt.Errorf("%s has more than 64 clients", o.name)
	}
	r.grants++
	r.open[client] = o
	r.of[o.name] = append(r.of[o.name], porcupine.Operation{ClientId: o.deed.client, Input: o.deed, Call: asked, Return: o.last})
	return nil
}

func (r *reading) close(client int, o *open, from, to int64) {
	delete(r.open, client)
	o.deed.end = true
	r.of[o.name] = append(r.of[o.name], porcupine.Operation{ClientId: o.deed.client, Input: o.deed, Call: from, Return: to})
}

// modelsOf are those that a name's history has to fit.
func modelsOf(name string) map[string]porcupine.Model {
	switch kind, _, _ := strings.Cut(name, "-"); kind {
	case "exclusive":
		return map[string]porcupine.Model{"mutex": mutexModel, "fenced": fencedModel}
	case "shared":
		return map[string]porcupine.Model{"read/write": sharedModel}
	default:
		return map[string]porcupine.Model{"permits": permitsModel}
	}
}

// violations finds the names whose histories have no explanation.
func (h *histories) violations() (found []string) {
	for name, history := range h.of {
		for title, model := range modelsOf(name) {
			if result := explained(model, history); result != porcupine.Ok {
				found = append(found, fmt.Sprintf("%s, as %s: %v; %d operations; %s", name, title, result, len(history), stuck(model, history)))
			}
		}
	}
	return found
}
