package chaostest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/coatcheck/coatcheck/redisstore"
)

// What a process is told by its environment.
const (
	RoleVariable    = "CHAOS_ROLE"
	StoreVariable   = "CHAOS_STORE"
	FileVariable    = "CHAOS_FILE"
	numberVariable  = "CHAOS_NUMBER"
	ackVariable     = "CHAOS_ACK"
	numbersVariable = "CHAOS_ACK_NUMBERS"
)

// recordSuffix ends the names of the files of a field's processes.
const recordSuffix = ".record"

// Task is what a process of a field is to do.
type Task struct {
	Store  string
	Ack    int
	Number int      // its own among those of the field
	File   *os.File // in which it writes what it gets done
}

// Work does a task until the process is asked to end.
func Work(do func(ctx context.Context, task Task) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	number, noNumber := strconv.Atoi(os.Getenv(numberVariable))
	ack, noAck := strconv.Atoi(os.Getenv(ackVariable))
	file, err := os.OpenFile(os.Getenv(FileVariable), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err := errors.Join(noNumber, noAck, err); err != nil {
		return fmt.Errorf("the environment of a process: %w", err)
	}
	if ack == 2 && number%2 == 0 && os.Getenv(numbersVariable) != "true" {
		// both replicas, in the other words for it
		ack = redisstore.AckAll
	}
	return errors.Join(do(ctx, Task{Store: os.Getenv(StoreVariable), Ack: ack, Number: number, File: file}), file.Close())
}

// OpenRedis opens the task's store, which is a Redis, with its ack.
func (task Task) OpenRedis(ctx context.Context) (*redisstore.Store, error) {
	return redisstore.OpenConfig(ctx, redisstore.Config{URL: task.Store, Ack: task.Ack})
}

// numberBytes is how many a number takes in a file.
const numberBytes = 8

// WriteRecord appends numbers to a file in one call, so that a process that is killed leaves whole
// ones.
func WriteRecord[N ~int64](file *os.File, numbers ...N) {
	bytes := make([]byte, 0, numberBytes*len(numbers))
	for _, n := range numbers {
		bytes = binary.BigEndian.AppendUint64(bytes, uint64(n))
	}
	if _, err := file.Write(bytes); err != nil {
		panic(err) // a history with holes proves nothing
	}
}

// ReadRecords reads what the processes of a folder have written, so many numbers at a time, by the
// names of their files. What a process has not written whole is left out: no caller has used it.
func ReadRecords[R any](t testing.TB, folder string, numbers int, of func(numbers []int64) R) map[string][]R {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*"+recordSuffix))
	if err != nil {
		t.Fatalf("the files of %s: %v", folder, err)
	}
	records := map[string][]R{}
	for _, file := range files {
		bytes, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("reading what a process has written: %v", err)
		}
		all := make([]R, len(bytes)/numberBytes/numbers)
		one := make([]int64, numbers)
		for i := range all {
			for j := range one {
				one[j] = int64(binary.BigEndian.Uint64(bytes[(i*numbers+j)*numberBytes:]))
			}
			all[i] = of(one)
		}
		records[filepath.Base(file)] = all
	}
	return records
}
