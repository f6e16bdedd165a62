package redisstore_test

import (
	"errors"
	"testing"

	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// pendingKey adds once.
type pendingKey struct {
	addition pipeline.Addition
	idle     bool
	done     chan result // has room for one
	taken    chan struct{}
}

type result struct {
	sum int64
	err error
}

func (p *pendingKey) Take() (pipeline.Addition, bool) {
	close(p.taken)
	return p.addition, !p.idle
}

func (p *pendingKey) Done(sum int64, err error) { p.done <- result{sum, err} }

// Keys in one pipeline each get what their own addition came to: a sum, that another era or
// incarnation has begun, that the marker is gone, that the value is none; one that adds nothing
// gets nothing.
func TestKeysInOnePipelineAreAnsweredOneByOne(t *testing.T) {
	server := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: server.URL()})
	ctx := t.Context()
	at := find(t, store, "k")
	expect.NoError(t, "COPY", server.Client().Copy(ctx, at.Key, "other era", 0, false).Err())
	for key, value := range map[string]string{"other id": "0123456789 " + at.Era + " 0 1", "text": "not a number", "a": "4"} {
		expect.NoError(t, "SET", server.Client().Set(ctx, key, value, 0).Err())
	}
	place, marker := at.Place, at.Marker
	rows := []struct {
		name     string
		addition pipeline.Addition
		idle     bool
		sum      int64
		err      error
	}{
		{"added", pipeline.Addition{Key: "a", By: 3, Place: place, Marker: marker}, false, 7, nil},
		{"no integer", pipeline.Addition{Key: "text", By: 1, Place: place, Marker: marker}, false, 0, pipeline.ErrNotAnInteger},
		{"another era", pipeline.Addition{Key: "b", By: 1, Place: place, Marker: pipeline.Marker{Key: "other era", Era: "1"}}, false, 0,
			pipeline.ErrOtherIncarnation},
		{"another id", pipeline.Addition{Key: "b", By: 1, Place: place, Marker: pipeline.Marker{Key: "other id", Era: at.Era}}, false, 0,
			pipeline.ErrOtherIncarnation},
		{"no mark", pipeline.Addition{Key: "c", By: 1, Place: place, Marker: pipeline.Marker{Key: "none", Era: at.Era}}, false, 0,
			pipeline.ErrOtherIncarnation},
		{"no place", pipeline.Addition{Key: "d", By: 1, Marker: marker}, false, 0, pipeline.ErrOtherIncarnation},
		{"adds nothing", pipeline.Addition{Key: "e", By: 1, Place: place, Marker: marker}, true, 0, nil},
		{"added last", pipeline.Addition{Key: "f", By: 1, Place: place, Marker: marker}, false, 1, nil},
	}
	queue := pipeline.Of(store).Queue(place)
	keys := make([]*pendingKey, len(rows))
	for i, row := range rows {
		keys[i] = &pendingKey{row.addition, row.idle, make(chan result, 1), make(chan struct{})}
		if !queue.Submit(keys[i]) {
			t.Fatal("the queue leads nowhere")
		}
	}
	for i, row := range rows {
		<-keys[i].taken
		if row.idle {
			continue
		}
		if got := <-keys[i].done; got.sum != row.sum || !errors.Is(got.err, row.err) {
			t.Errorf("%s: got %+v, want %d, %v", row.name, got, row.sum, row.err)
		}
	}
	for key, want := range map[string]int64{"d": 0, "e": 0} { // what was not taken was not sent
		got, err := server.Client().Exists(ctx, key).Result()
		expect.Error(t, "EXISTS "+key, err, nil)
		expect.Equal(t, "EXISTS "+key, got, want)
	}
}

func TestNoKeyWaitsForAnIdleServer(t *testing.T) {
	server := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: server.URL()})
	place := find(t, store, "k").Place
	r := &pendingKey{done: make(chan result, 1), taken: make(chan struct{})}
	if pipeline.Of(store).Queue(place).SubmitIfBusy(r) {
		t.Error("submitted though no call was under way")
	}
	if (pipeline.Queue{}).SubmitIfBusy(r) || (pipeline.Queue{}).Submit(r) {
		t.Error("submitted to a queue that leads nowhere")
	}
}

// Keys that ask for a replica where there is none are told that their outcome is unknown, each of
// them: what was added counts for no caller.
func TestKeysShareTheirAcknowledgement(t *testing.T) {
	server := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: server.URL()})
	at := find(t, store, "k")
	queue := pipeline.Of(store.WithAck(1)).Queue(at.Place)
	keys := make([]*pendingKey, 3)
	for i := range keys {
		keys[i] = &pendingKey{addition: pipeline.Addition{Key: "k", By: 1, Place: at.Place, Marker: at.Marker}, done: make(chan result, 1),
			taken: make(chan struct{})}
		if !queue.Submit(keys[i]) {
			t.Fatal("the queue leads nowhere")
		}
	}
	for _, r := range keys {
		if got := <-r.done; !errors.Is(got.err, redisstore.ErrUnknownOutcome) || got.sum != 0 {
			t.Errorf("without a replica: %+v", got)
		}
	}
}
