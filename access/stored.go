package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/scripts"
)

// ErrThere is the error of Add for an id that the store already has.
var ErrThere = errors.New("access: there is a key of that id already")

// Stored is a record as the store has it.
type Stored struct {
	Record
	Added time.Time // by the store's clock, to the second
	Err   error     // why the record cannot be read, and counts for nothing; nil = it can
}

func keysOf(store *redisstore.Store) []string { return []string{onstore.Key(store, "access", "keys")} }

// Add stores a record for all services on the store. It changes no stored record: another record
// with the same id is [ErrThere].
func Add(ctx context.Context, store *redisstore.Store, record Record) error {
	if err := record.Check(); err != nil {
		return fmt.Errorf("access: %w", err)
	}
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	reply, err := onstore.Run(ctx, store, scripts.KeyAdd, keysOf(store), record.ID, text)
	if err != nil {
		return err
	}
	switch reply.Word() {
	case "added":
		return nil
	case "there":
		return ErrThere
	}
	return reply.Unexpected()
}

// Remove removes a key, for each service from its next look on. was reports whether it was there.
func Remove(ctx context.Context, store *redisstore.Store, id string) (was bool, err error) {
	if !idForm.MatchString(id) {
		return false, nil
	}
	reply, err := onstore.Run(ctx, store, scripts.KeyRemove, keysOf(store), id)
	if err != nil {
		return false, err
	}
	switch reply.Word() {
	case "removed":
		return true, nil
	case "none":
		return false, nil
	}
	return false, reply.Unexpected()
}

// List reads all keys of the store, in the order of their ids.
func List(ctx context.Context, store *redisstore.Store) (list []Stored, err error) {
	reply, err := onstore.Run(ctx, store, scripts.KeyList, keysOf(store))
	if err != nil {
		return nil, err
	}
	values := reply.Values()
	for i := 0; i+1 < len(values); i += 2 {
		list = append(list, readStored(values[i], values[i+1]))
	}
	slices.SortFunc(list, func(a, b Stored) int { return strings.Compare(a.ID, b.ID) })
	return list, nil
}

// readStored reads a record as Add wrote it: the second when it was added, a space, and JSON.
func readStored(id, text string) (one Stored) {
	second, record, _ := strings.Cut(text, " ")
	seconds, err := strconv.ParseInt(second, 10, 64)
	if err == nil {
		one.Added = time.Unix(seconds, 0).UTC()
		err = json.Unmarshal([]byte(record), &one.Record)
	}
	if err == nil {
		err = one.Check()
	}
	if err == nil && one.ID != id {
		err = errors.New("it is under another id")
	}
	one.ID = id
	if err != nil {
		one.Err = errors.New("access: the record cannot be read")
	}
	return one
}
