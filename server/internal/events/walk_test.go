//go:build steps

package events

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/walk"
)

// repeats is a log to which the same event is added by two at once.
func repeats(*testing.T) walk.Play {
	l := New()
	add := func() { l.AddOnce(api.Event{Kind: LockLost, Name: "l"}) }
	return walk.Play{Tasks: []walk.Task{{Name: "one", Do: add}, {Name: "another", Do: add}}, Check: func() error {
		read, _, _, _ := l.after(0, all)
		if counted := l.Tally()[LockLost]; len(read) != 1 || counted != 2 {
			return fmt.Errorf("two refusals at once: %d are sent and %d are counted, want 1 and 2", len(read), counted)
		}
		return nil
	}}
}

var all = access.Caller{Role: access.Admin, Names: access.Names{"*"}}

// follower is a subscriber that comes while events are added. An event is sent, or is counted in
// the first tally.
func follower(t *testing.T) walk.Play {
	t.Helper()
	l := New()
	answer := httptest.NewRecorder()
	ctx, hangUp := context.WithCancel(context.Background())
	gone := make(chan struct{})
	add := func() {
		l.Add(api.Event{Kind: LockLost, Name: "l"})
		l.Add(api.Event{Kind: LockLost, Name: "m"})
	}
	follow := func() {
		go func() {
			defer close(gone)
			_ = l.Serve(answer, httptest.NewRequestWithContext(ctx, "GET", "/events", nil), Subscriber{
				Reader: all, Renew: func() (access.Caller, bool) { return all, true }, Stopping: make(chan struct{}),
			})
		}()
	}
	return walk.Play{Tasks: []walk.Task{{Name: "events", Do: add}, {Name: "subscriber", Do: follow}}, Check: func() error {
		time.Sleep(time.Second / 2)
		hangUp()
		<-gone
		got := answer.Body.String()
		_, tally, _ := strings.Cut(got, `"`+LockLost+`":`)
		var counted int
		fmt.Sscan(strings.FieldsFunc(tally, func(r rune) bool { return r < '0' || r > '9' })[0], &counted)
		if sent := strings.Count(got, `"kind":"`+LockLost); counted+sent != 2 {
			return fmt.Errorf("of two events %d are in the first tally and %d were sent: %s", counted, sent, got)
		}
		return nil
	}}
}

func TestWalkEveryOrderOfRepeatsOfAnEvent(t *testing.T) { walk.Every(t, walk.Scene{Begin: repeats}) }

func TestWalkEveryOrderOfASubscriber(t *testing.T) { walk.Every(t, walk.Scene{Begin: follower}) }

func TestWalkRandomOrdersOfEvents(t *testing.T) {
	walk.Rounds(t, walk.Scene{Begin: repeats})
	walk.Rounds(t, walk.Scene{Begin: follower})
}
