//go:build check

package segments

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/segment"
)

// play is what a process does in a role, until it is asked to end.
func play(role string) error {
	return chaostest.Work(func(ctx context.Context, task chaostest.Task) error {
		source, end, err := openSource(ctx, role, task.Store)
		if err != nil {
			return err
		}
		defer end()
		ids := segment.New(&noting{source, task.File}, segment.Config{Period: period})
		defer ids.Close()
		var running sync.WaitGroup
		for range clients {
			running.Go(func() { draw(ctx, ids, task.File) })
		}
		running.Wait()
		return nil
	})
}

// noting is a source whose ranges are written down.
type noting struct {
	segment.Source

	file *os.File
}

func (n *noting) Take(ctx context.Context, tag string, step int64) (segment.Range, error) {
	taken, err := n.Source.Take(ctx, tag, step)
	if err == nil {
		write(n.file, record{numberOf(tag), taken.Lo, taken.Hi, max(taken.Delta, 1)})
	}
	return taken, err
}

// draw draws ids until it is asked to end, and writes down what it is told.
func draw(ctx context.Context, ids *segment.Segments, file *os.File) {
	for ctx.Err() == nil {
		which := rand.N(tags)
		if id, err := ids.Next(ctx, tagOf(which)); err == nil {
			write(file, record{tag: int64(which), lo: id})
		}
		time.Sleep(rest)
	}
}

func tagOf(which int) string { return fmt.Sprintf("t%d", which) }

func numberOf(tag string) int64 {
	n, err := strconv.Atoi(strings.TrimPrefix(tag, "t"))
	if err != nil {
		panic(err)
	}
	return int64(n)
}
