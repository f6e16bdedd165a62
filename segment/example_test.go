package segment_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/coatcheck/coatcheck/segment"
)

// memory is a source for this example: what it gives is forgotten with the process.
type memory struct {
	mu   sync.Mutex
	next map[string]int64
}

// Take gives the next ids of a tag that is there.
func (m *memory) Take(_ context.Context, tag string, step int64) (segment.Range, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lo, ok := m.next[tag]
	if !ok {
		return segment.Range{}, segment.ErrNotFound
	}
	if step == 0 {
		step = 100
	}
	m.next[tag] = lo + step
	return segment.Range{Lo: lo, Hi: lo + step, Step: 100}, nil
}

func Example() {
	ctx := context.Background()
	segments := segment.New(&memory{next: map[string]int64{"orders": 1}}, segment.Config{})
	defer segments.Close()

	id, err := segments.Next(ctx, "orders")
	fmt.Println(id, err)

	batch := make([]int64, 3)
	err = segments.Fill(ctx, "orders", batch)
	fmt.Println(batch, err)

	_, err = segments.Next(ctx, "unknown")
	fmt.Println(err)
	// Output:
	// 1 <nil>
	// [2 3 4] <nil>
	// segment: take: segment: no such tag
}

// A handle is for callers that draw many ids of one tag.
func ExampleSegments_Tag() {
	ctx := context.Background()
	segments := segment.New(&memory{next: map[string]int64{"orders": 1}}, segment.Config{})
	defer segments.Close()

	orders, err := segments.Tag(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	for id, err := range orders.All(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(orders.Name(), id)
		if id == 3 {
			break
		}
	}
	// Output:
	// orders 1
	// orders 2
	// orders 3
}

func ExampleSegments_Stats() {
	ctx := context.Background()
	segments := segment.New(&memory{next: map[string]int64{"orders": 1}}, segment.Config{})
	defer segments.Close()

	if err := segments.Fill(ctx, "orders", make([]int64, 5)); err != nil {
		log.Fatal(err)
	}
	for _, tag := range segments.Stats() {
		fmt.Printf("%s: next %d, below %d, %d fetches\n", tag.Tag, tag.Current.Pos, tag.Current.Max, tag.Fetches)
	}
	// Output:
	// orders: next 6, below 101, 1 fetches
}
