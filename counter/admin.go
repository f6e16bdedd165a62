package counter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/pipeline"
	"github.com/coatcheck/coatcheck/scripts"
)

const maxListed = 1000

// Get reads a counter: the last value that was handed out, unless others are adding now. ErrUnknown
// if it was never used. It changes nothing and repairs nothing.
func (c *Counters) Get(ctx context.Context, key string) (int64, error) {
	if !names.Valid(key) {
		return 0, Request{By: 1}.check(key)
	}
	reply, err := onstore.Run(ctx, c.store, scripts.CounterGet, []string{c.key(key)})
	if err != nil {
		return 0, err
	}
	switch reply.Word() {
	case "ok":
		var text string
		if err := reply.Scan(&text); err != nil {
			return 0, err
		}
		return parse(text)
	case "unknown":
		return 0, ErrNotFound
	case "not-an-integer":
		return 0, ErrNotAnInteger
	}
	return 0, reply.Unexpected()
}

// parse reads an integer as strictly as Redis does: no plus, no leading zero, no space.
func parse(text string) (int64, error) {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(value, 10) != text {
		return 0, ErrNotAnInteger
	}
	return value, nil
}

// SetOptions are how a counter is set. The zero value sets it forward, for good.
type SetOptions struct {
	TTL time.Duration // how long it lives, MinTTL to MaxTTL; 0 = for ever
	// Back sets it also to a value below the counter, and in the place of a value that is no
	// integer: values may be handed out again, on purpose.
	Back bool
	If   Condition
}

// Condition is what a counter has to be to be changed. The script checks it in the step that
// changes the counter. The zero value has none.
type Condition struct {
	Exists, Absent bool
	In             []int64 // its values, one of which it must have; nil = any
	NotIn          []int64 // its values, none of which it may have
}

// words are the two lists that counter_set takes.
func (c Condition) words() (is, not string) {
	list := func(each bool, values []int64) string {
		if each {
			return "*"
		}
		texts := make([]string, len(values))
		for i, value := range values {
			texts[i] = strconv.FormatInt(value, 10)
		}
		return strings.Join(texts, " ")
	}
	is, not = list(c.Exists && c.In == nil, c.In), list(c.Absent, c.NotIn)
	if c.In != nil && is == "" {
		is = "none"
	}
	return is, not
}

// Set sets a counter to a value: the next value that is handed out is one more. It is [ErrPast],
// and nothing is changed, if the value is below the counter, or below what a process has reported
// of it after a loss, unless [SetOptions.Back] is said; a counter that holds no integer is
// [ErrNotAnInteger] then. [ErrCondition] if the counter is not as
// [SetOptions.If] says. A counter that has lost values is in order from then on.
func (c *Counters) Set(ctx context.Context, key string, value int64, options SetOptions) error {
	if err := (Request{By: 1, TTL: options.TTL}).check(key); err != nil {
		return err
	}
	err := c.set(ctx, key, strconv.FormatInt(value, 10), options)
	if err == nil {
		c.note(ctx, key)
	}
	return err
}

// Reset removes a counter: it begins again at 1. ErrUnknown if there is none.
func (c *Counters) Reset(ctx context.Context, key string) error {
	return c.ResetIf(ctx, key, Condition{})
}

// ResetIf is [Counters.Reset] of a counter that is as the condition says, else [ErrCondition].
func (c *Counters) ResetIf(ctx context.Context, key string, condition Condition) error {
	if !names.Valid(key) {
		return Request{By: 1}.check(key)
	}
	err := c.set(ctx, key, "", SetOptions{Back: true, If: condition})
	if err == nil {
		// a list for people
		_, _ = onstore.Run(ctx, c.store, scripts.NameRemove, []string{c.names()}, key)
	}
	return err
}

func (c *Counters) set(ctx context.Context, key, value string, options SetOptions) error {
	keys := []string{c.key(key), c.recordKey(key), c.marker(key)}
	direction := "forward"
	if options.Back {
		direction = "any"
	}
	is, not := options.If.words()
	reply, err := onstore.Run(ctx, c.store, scripts.CounterSet, keys, value, options.TTL.Milliseconds(),
		removedKept.Milliseconds(), direction, is, not)
	switch {
	case err != nil:
		return err
	case reply.Word() == "unknown":
		return ErrNotFound
	case reply.Word() == "condition":
		return ErrCondition
	case reply.Word() == "not-an-integer":
		return ErrNotAnInteger
	case reply.Word() == "past" && len(reply.Values()) == 1:
		at, err := parse(reply.Values()[0])
		return errors.Join(&PastError{At: at}, err)
	case reply.Word() != "ok" || len(reply.Values()) != 1:
		return reply.Unexpected()
	}
	if known, ok := c.keys.Load(key); ok {
		known.(*entry).doubt()
	}
	return nil
}

// Listed is a counter of a list.
type Listed struct {
	Key   string
	Value int64
	Err   error // why the value is not there, such as ErrNotAnInteger; else nil
}

// List reads up to n (1 to 1000) counters whose keys begin with a prefix, in the order of their
// bytes: those after a key, "" for the first page. next is the key after which the next page
// begins, "" where there is none. Counters are listed that this package has added to or set; those
// that have expired are taken off. A call reads 1000 names at most, so a page may have fewer
// counters than n, or none, although there is a next one.
func (c *Counters) List(ctx context.Context, prefix, after string, n int) (page []Listed, next string, err error) {
	if n < 1 || n > maxListed {
		return nil, "", fmt.Errorf("%w: n %d: 1 to %d", ErrInvalid, n, maxListed)
	}
	if prefix != "" && !names.Valid(prefix) || after != "" && !names.Valid(after) {
		return nil, "", fmt.Errorf("%w: prefix and the key after which to begin: up to 200 characters of A–Z a–z 0–9 . _ : ~ @ -",
			ErrInvalid)
	}
	next = after
	for left, chunk := maxListed, n; left > 0; chunk *= 2 { // more at once where many have expired
		chunk = min(chunk, left)
		reply, err := onstore.Run(ctx, c.store, scripts.NameList, []string{c.names()}, prefix, next, chunk)
		if err != nil {
			return nil, "", err
		}
		if reply.Word() != "ok" {
			return nil, "", reply.Unexpected()
		}
		keys := reply.Values()
		found, err := c.values(ctx, keys)
		if err != nil {
			return nil, "", err
		}
		if len(found) > n {
			return found[:n], found[n-1].Key, nil
		}
		page = found
		if len(keys) < chunk {
			return page, "", nil
		}
		next = keys[len(keys)-1]
		if len(page) > 0 {
			return page, next, nil
		}
		left -= chunk
	}
	return nil, next, nil
}

// values reads several counters, and leaves out those that have ended.
func (c *Counters) values(ctx context.Context, keys []string) ([]Listed, error) {
	all := make([]Listed, len(keys))
	err := pipeline.Together(ctx, len(keys), func(ctx context.Context, i int) error {
		value, err := c.Get(ctx, keys[i])
		all[i] = Listed{keys[i], value, err}
		switch {
		case errors.Is(err, ErrNotFound): // the next addition puts it back
			_, _ = onstore.Run(ctx, c.store, scripts.NameRemove, []string{c.names()}, keys[i])
		case !errors.Is(err, ErrNotAnInteger):
			return err
		}
		return nil
	})
	return slices.DeleteFunc(all, func(one Listed) bool { return errors.Is(one.Err, ErrNotFound) }), err
}
