//go:build check

package ids

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/chaos/internal/chaostest"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/snowflake"
)

// field is a Redis and the processes that stamp with it.
type field struct {
	*chaostest.Field[*process]

	role   string
	stages []stage
}

// process is a stamping process, and the file that it writes.
type process struct {
	*chaostest.Process

	file string
}

func (p *process) String() string { return filepath.Base(p.file) }

// Progress is how many bytes the process has written.
func (p *process) Progress() int64 { return chaostest.Size(p.file) }

// newField starts a Redis with two replicas, and processes in a role.
func newField(t *testing.T, role string) *field {
	t.Helper()
	f := &field{role: role}
	f.Field = chaostest.NewField(t, f.start)
	if role == "masked" {
		f.Patience = 8 * ttl
	}
	f.declare()
	f.Fill(*processes)
	return f
}

// start starts a process whose writes both replicas have to confirm.
func (f *field) start(number int) *process {
	file := filepath.Join(f.Folder, fmt.Sprintf("%04d.ids", number))
	return &process{chaostest.StartRole(f.T, roleVariable+"="+f.role, redisVariable+"="+f.Redis.URL(), fileVariable+"="+file, ackVariable+"=2"), file}
}

// stage notes what is broken from now on.
func (f *field) stage(name string) {
	f.stages = append(f.stages, stage{time.Since(snowflake.DefaultEpoch).Milliseconds(), name})
}

// any is one of the processes, by lot.
func (f *field) any() *process { return f.Processes[f.Lot.IntN(len(f.Processes))] }

// declare declares the pool new.
func (f *field) declare() {
	f.T.Helper()
	store := openStore(f.T, f.Redis.URL())
	shape, _ := shape()
	expect.NoError(f.T, "Create", poolsOf(store).Create(f.T.Context(), pool, shape, ttl))
}
