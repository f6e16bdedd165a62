package redissource_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"

	"github.com/coatcheck/coatcheck/counter"
	_ "github.com/coatcheck/coatcheck/embedded"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/segment/redissource"
)

func Example() {
	ctx := context.Background()
	store, err := redisstore.Open(ctx, "embedded:")
	if err != nil {
		slog.Error("no store", "error", err)
		return
	}
	defer store.Close()
	source := redissource.New(store, redissource.Config{})
	defer source.Close()
	ids := segment.New(source, segment.Config{})
	defer ids.Close()

	batch := make([]int64, 3)
	err = ids.Fill(ctx, "orders", batch)
	fmt.Println(batch, err)
	// Output: [1 2 3] <nil>
}

func TestRangesOfATagFollowEachOther(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		source := redissource.New(store, redissource.Config{Step: 10})
		defer source.Close()
		for _, want := range []segment.Range{{Lo: 1, Hi: 11, Step: 10}, {Lo: 11, Hi: 111, Step: 10}} {
			got, err := source.Take(t.Context(), "t", want.Hi-want.Lo)
			got.Valid = nil
			expect.Equal(t, fmt.Sprintf("range, %v", err), got, want)
		}
		got, err := source.Take(t.Context(), "t", 0)
		got.Valid = nil
		expect.Equal(t, fmt.Sprintf("range of the least step, %v", err), got, segment.Range{Lo: 111, Hi: 121, Step: 10})
		tags, err := source.Tags(t.Context(), 10)
		expect.Equal(t, fmt.Sprintf("tags, %v", err), tags, []redissource.Tag{{Name: "t", Next: 121, Step: 10}})

		expect.Error(t, "SetNext to 0", source.SetNext(t.Context(), "t", 0), counter.ErrInvalid)
		expect.Error(t, "SetNext to 120", source.SetNext(t.Context(), "t", 120), redissource.ErrPast)
		expect.Error(t, "SetNext to 9223372036854775807", source.SetNext(t.Context(), "t", 1<<63-1), nil)
		_, err = source.Take(t.Context(), "t", 1)
		expect.Error(t, "Take at the end of the numbers", err, segment.ErrExhausted)
	})
}

func TestKnownTagsOnly(t *testing.T) {
	t.Parallel()
	source := redissource.New(storetest.Open(t, redisstore.Config{}), redissource.Config{KnownOnly: true})
	defer source.Close()
	_, err := source.Take(t.Context(), "t", 1)
	expect.Error(t, "Take of a tag that is not there", err, segment.ErrNotFound)
	expect.Error(t, "SetNext", source.SetNext(t.Context(), "t", 5), nil)
	got, err := source.Take(t.Context(), "t", 1)
	expect.Equal(t, fmt.Sprintf("range of a tag that is there, %v", err), got, segment.Range{Lo: 5, Hi: 6, Step: 1000})
}
