package frontdoor_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coatcheck/coatcheck/internal/frontdoor"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// room is the memory that three requests without a body's bytes take.
const room = 3 * 16 << 10

// stalled is a request by HTTP/2 whose body does not come. It writes its response into itself.
type stalled struct {
	http.ResponseWriter

	deadlines chan time.Time // each that was set
	proceed   chan struct{}  // each deadline waits until it is closed; nil = none waits
	client    *io.PipeWriter
	ended     chan error // what the handler panicked with, or nil
}

// SetReadDeadline waits like net/http for the goroutine of the connection, which may be busy.
func (s *stalled) SetReadDeadline(at time.Time) error {
	s.deadlines <- at
	if s.proceed != nil {
		<-s.proceed
	}
	return nil
}

// stall begins a request whose body does not come.
func stall(t *testing.T, door *frontdoor.Door, handler http.Handler, proceed chan struct{}) *stalled {
	t.Helper()
	body, client := io.Pipe()
	s := &stalled{httptest.NewRecorder(), make(chan time.Time, 10), proceed, client, make(chan error, 1)}
	t.Cleanup(func() { _ = client.Close() })
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	ctx := door.From(context.WithoutCancel(t.Context()), ours)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", body)
	r.ProtoMajor = 2
	go func() {
		defer func() {
			err, _ := recover().(error)
			s.ended <- err
		}()
		handler.ServeHTTP(s, r)
	}()
	return s
}

func (s *stalled) ends(t *testing.T, what string, want error) {
	t.Helper()
	select {
	case err := <-s.ended:
		expect.Error(t, what, err, want)
	case <-time.After(patience):
		t.Fatalf("%s: it waits", what)
	}
}

// The bodies that do not come get a deadline. By HTTP/2 that may take long: it waits for a
// goroutine of the connection. Requests that waited for it, too, would take the memory that is
// missing.
func TestNoRequestWaitsWhileSilentClientsAreHurried(t *testing.T) {
	door := frontdoor.New(frontdoor.Config{MaxBytes: room})
	handler := door.Server(http.HandlerFunc(keeping)).Handler
	proceed, hurried := make(chan struct{}), make(chan *stalled)
	var holders []*stalled
	for range 3 {
		holders = append(holders, stall(t, door, handler, proceed))
	}
	expect.Eventually(t, "three requests have all the memory", func() bool { return door.BytesInFlight() == room })
	hurrying := stall(t, door, handler, proceed)
	var watching sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for _, one := range holders {
		watching.Go(func() {
			select {
			case <-one.deadlines:
				hurried <- one
			case <-ctx.Done():
			}
		})
	}
	busy := <-hurried
	cancel()
	watching.Wait()

	stall(t, door, handler, proceed).ends(t, "a request for which there is not even memory for a refusal", http.ErrAbortHandler)
	for _, one := range holders {
		if one != busy {
			_ = one.client.Close()
			one.ends(t, "a request whose body has come meanwhile", nil)
		}
	}
	close(proceed)
	_ = busy.client.Close()
	busy.ends(t, "a request whose body has come at last", nil)
	hurrying.ends(t, "the request that had to hurry the others", http.ErrAbortHandler)
	expect.Equal(t, "bytes in flight", door.BytesInFlight(), 0)
}

// While memory is missing for long, silent clients do not get another moment again and again.
func TestSilentClientsHaveOneMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		door := frontdoor.New(frontdoor.Config{MaxBytes: room})
		handler := door.Server(http.HandlerFunc(keeping)).Handler
		var holders []*stalled
		for range 3 {
			holders = append(holders, stall(t, door, handler, nil))
		}
		synctest.Wait()
		for range 5 {
			stall(t, door, handler, nil).ends(t, "a request for which there is no memory", http.ErrAbortHandler)
			time.Sleep(800 * time.Millisecond)
		}
		for _, one := range holders {
			expect.Equal(t, "deadlines of a body of which nothing comes", len(one.deadlines), 1)
			_ = one.client.Close()
			one.ends(t, "a request whose body has come", nil)
		}
	})
}
