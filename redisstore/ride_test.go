package redisstore_test

import (
	"errors"
	"testing"

	"github.com/coatcheck/coatcheck/internal/expect"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// rider adds once.
type rider struct {
	addition pipeline.Addition
	stays    bool
	landed   chan landing // has room for one
	boarded  chan struct{}
}

type landing struct {
	sum int64
	err error
}

func (r *rider) Board() (pipeline.Addition, bool) {
	close(r.boarded)
	return r.addition, !r.stays
}

func (r *rider) Land(sum int64, err error) { r.landed <- landing{sum, err} }

// Riders of one flight each get what their own addition came to: a sum, that another life has
// begun, that the mark is gone, that the value is none; one that stays gets nothing.
func TestRidersOfOneFlightAreAnsweredOneByOne(t *testing.T) {
	server := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: server.URL()})
	ctx := t.Context()
	_, life, err := pipeline.Of(store).RunFor(ctx, scripts.NameAdd, []string{"names"}, "name")
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"mark": "1 era x", "text": "not a number", "a": "4"} {
		if err := server.Client().Set(ctx, key, value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	mark := pipeline.Mark{Key: "mark", Word: "era"}
	rows := []struct {
		name     string
		addition pipeline.Addition
		stays    bool
		sum      int64
		err      error
	}{
		{"added", pipeline.Addition{Key: "a", By: 3, Life: life, Mark: mark}, false, 7, nil},
		{"no integer", pipeline.Addition{Key: "text", By: 1, Life: life, Mark: mark}, false, 0, pipeline.ErrNotAnInteger},
		{"another word", pipeline.Addition{Key: "b", By: 1, Life: life, Mark: pipeline.Mark{Key: "mark", Word: "other"}}, false, 0, pipeline.ErrOtherLife},
		{"no mark", pipeline.Addition{Key: "c", By: 1, Life: life, Mark: pipeline.Mark{Key: "none", Word: "era"}}, false, 0, pipeline.ErrOtherLife},
		{"no life", pipeline.Addition{Key: "d", By: 1, Mark: mark}, false, 0, pipeline.ErrOtherLife},
		{"stays", pipeline.Addition{Key: "e", By: 1, Life: life, Mark: mark}, true, 0, nil},
		{"added last", pipeline.Addition{Key: "f", By: 1, Life: life, Mark: mark}, false, 1, nil},
	}
	line := pipeline.Of(store).Line(life)
	riders := make([]*rider, len(rows))
	for i, row := range rows {
		riders[i] = &rider{row.addition, row.stays, make(chan landing, 1), make(chan struct{})}
		if !line.Ride(riders[i]) {
			t.Fatal("the line leads nowhere")
		}
	}
	for i, row := range rows {
		<-riders[i].boarded
		if row.stays {
			continue
		}
		if got := <-riders[i].landed; got.sum != row.sum || !errors.Is(got.err, row.err) {
			t.Errorf("%s: got %+v, want %d, %v", row.name, got, row.sum, row.err)
		}
	}
	for key, want := range map[string]int64{"d": 0, "e": 0} { // what did not fly has not been sent
		got, err := server.Client().Exists(ctx, key).Result()
		expect.Error(t, "EXISTS "+key, err, nil)
		expect.Equal(t, "EXISTS "+key, got, want)
	}
}

func TestNobodyJoinsAnIdleServer(t *testing.T) {
	server := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: server.URL()})
	_, life, err := pipeline.Of(store).RunFor(t.Context(), scripts.NameAdd, []string{"names"}, "name")
	if err != nil {
		t.Fatal(err)
	}
	r := &rider{landed: make(chan landing, 1), boarded: make(chan struct{})}
	if pipeline.Of(store).Line(life).Join(r) {
		t.Error("joined a flight though none was under way")
	}
	if (pipeline.Line{}).Join(r) || (pipeline.Line{}).Ride(r) {
		t.Error("rode on a line that leads nowhere")
	}
}

// Riders that ask for a replica where there is none are told that their outcome is unknown, each of
// them: what was added counts for no caller.
func TestRidersShareTheirAcknowledgement(t *testing.T) {
	server := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: server.URL()})
	if err := server.Client().Set(t.Context(), "mark", "1 era x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	_, life, err := pipeline.Of(store).RunFor(t.Context(), scripts.NameAdd, []string{"names"}, "name")
	if err != nil {
		t.Fatal(err)
	}
	line := pipeline.Of(store.WithAck(1)).Line(life)
	riders := make([]*rider, 3)
	for i := range riders {
		riders[i] = &rider{addition: pipeline.Addition{Key: "k", By: 1, Life: life, Mark: pipeline.Mark{Key: "mark", Word: "era"}}, landed: make(chan landing, 1), boarded: make(chan struct{})}
		if !line.Ride(riders[i]) {
			t.Fatal("the line leads nowhere")
		}
	}
	for _, r := range riders {
		if got := <-r.landed; !errors.Is(got.err, redisstore.ErrUnknownOutcome) || got.sum != 0 {
			t.Errorf("without a replica: %+v", got)
		}
	}
}
