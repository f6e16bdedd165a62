//go:build check

package segments

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coatcheck/coatcheck/segment"
)

// What a process is told by its environment.
const (
	storesVariable = "CHAOS_STORES"
	fileVariable   = "CHAOS_FILE"
)

// play is what a process does in a role, until it is asked to end.
func play(role string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	source, end, err := openSource(ctx, role, os.Getenv(storesVariable))
	if err != nil {
		return err
	}
	defer end()
	file, err := os.OpenFile(os.Getenv(fileVariable), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	ids := segment.New(&noting{source, file}, segment.Config{Period: period})
	var running sync.WaitGroup
	for range clients {
		running.Go(func() { draw(ctx, ids, file) })
	}
	running.Wait()
	ids.Close()
	return file.Close()
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
