//go:build check

package chaos

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// step is a moment of a request that a handler tells of.
type step string

// The steps of a handler, in their order. The fault at a step strikes before the handler goes on.
const (
	begun    step = "begun"    // it has begun, and had no effect yet
	effected step = "effected" // it has had its effect
	ended    step = "ended"    // it is about to answer
)

// book is where the handlers, in whatever process, write down what they do. It lives in the test's
// own process, so it survives all of them.
type book struct {
	url string

	mu         sync.Mutex
	operations map[string]*operation
}

// operation is what one token or key stands for.
type operation struct {
	name   string
	policy string
	watch  func(step) // called at each step, while the handler waits; nil = nothing is
	runs   []*run
}

// run is one start of the handler.
type run struct {
	fence   int64
	began   time.Time
	effect  bool
	refused bool // the effect did not happen: one with a larger fence had
	ended   bool
	text    string // what the handler answers
}

func openPolicy(t testing.TB) *book { return openBook(t, "127.0.0.1") }

// openBook opens a book at an address of this machine.
func openBook(t testing.TB, address string) *book {
	t.Helper()
	b := &book{operations: map[string]*operation{}}
	listener, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatalf("an address for the book: %v", err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(b.receive), ReadHeaderTimeout: time.Minute}}
	server.Start()
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

// expect opens an account for an operation.
func (b *book) expect(o *operation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.operations[o.name] = o
}

// receive writes a step down.
func (b *book) receive(w http.ResponseWriter, r *http.Request) {
	at, query := step(strings.TrimPrefix(r.URL.Path, "/")), r.URL.Query()
	fence, _ := strconv.ParseInt(query.Get("fence"), 10, 64) // what has no guard has no fence
	number, _ := strconv.Atoi(query.Get("run"))
	text, o := b.noted(query.Get("operation"), at, number, fence)
	if o == nil {
		http.Error(w, "no such operation", http.StatusNotFound)
		return
	}
	if o.watch != nil {
		o.watch(at)
	}
	_, _ = w.Write([]byte(text)) // its reader may have been killed
}

// noted writes a step of the operation of that name down, and returns what its handler is to know.
// Where there is no such operation or run, the operation is nil.
func (b *book) noted(name string, at step, number int, fence int64) (text string, o *operation) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o = b.operations[name]
	if o == nil || at != begun && number >= len(o.runs) {
		return "", nil
	}
	return o.note(at, number, fence), o
}

// note writes a step of an operation down and returns what the handler is to know.
func (o *operation) note(at step, number int, fence int64) string {
	switch at {
	case begun:
		number = len(o.runs)
		o.runs = append(o.runs, &run{fence: fence, began: time.Now(), text: fmt.Sprintf("%s was done by run %d with fence %d", o.name, number+1, fence)})
	case effected:
		r := o.runs[number]
		r.refused = fence > 0 && fence < o.newestEffect()
		r.effect = !r.refused
	case ended:
		o.runs[number].ended = true
		return o.runs[number].text
	}
	return strconv.Itoa(number)
}

// newestEffect is the largest fence that has had its effect: what the effect's resource remembers,
// to refuse a smaller one.
func (o *operation) newestEffect() (fence int64) {
	for _, r := range o.runs {
		if r.effect {
			fence = max(fence, r.fence)
		}
	}
	return fence
}

// copied returns what is written of an operation, as it is now.
func (b *book) copied(o *operation) operation {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := operation{name: o.name, policy: o.policy}
	for _, r := range o.runs {
		same := *r
		c.runs = append(c.runs, &same)
	}
	return c
}
