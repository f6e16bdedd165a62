// Package expect compares what a test got with what it wanted. A failure names the request, the
// result and the wanted one, so that it is understood without the test.
package expect

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// patience is how long Eventually waits. It only ends a test that hangs: on a busy machine what
// usually takes milliseconds may take many seconds.
const patience = 2 * time.Minute

// always lets go-cmp look into unexported fields and compare errors by errors.Is.
var always = cmp.Options{
	cmp.Exporter(func(reflect.Type) bool { return true }),
	cmpopts.EquateErrors(),
}

// Equal fails the test if got differs from want, and goes on. Asked is what was done to get it,
// such as `GET /incr/orders` or `Renew after the lease's end`. Structures are compared field by
// field, unexported ones included, and reported as a difference.
func Equal[T any](t testing.TB, asked string, got, want T, options ...cmp.Option) {
	t.Helper()
	if text := difference(got, want, options...); text != "" {
		t.Errorf("%s: %s", asked, text)
	}
}

// MustEqual is Equal, and ends the test where the values differ.
func MustEqual[T any](t testing.TB, asked string, got, want T, options ...cmp.Option) {
	t.Helper()
	if text := difference(got, want, options...); text != "" {
		t.Fatalf("%s: %s", asked, text)
	}
}

func difference(got, want any, options ...cmp.Option) string {
	options = append(cmp.Options{always}, options...)
	if cmp.Equal(want, got, options...) {
		return ""
	}
	if isStructure(got) || isStructure(want) {
		return "got differs from want (-want +got):\n" + cmp.Diff(want, got, options...)
	}
	return fmt.Sprintf("got %s, want %s", printed(got), printed(want))
}

// isStructure reports whether a value is easier to read as a difference than as a whole.
func isStructure(value any) bool {
	switch kind := reflect.ValueOf(value).Kind(); kind {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Array, reflect.Pointer:
		_, isStringer := value.(fmt.Stringer)
		_, isError := value.(error)
		return !isStringer && !isError
	case reflect.String:
		return strings.Contains(reflect.ValueOf(value).String(), "\n")
	default:
		return false
	}
}

func printed(value any) string {
	if text, isText := value.(string); isText {
		return fmt.Sprintf("%q", text)
	}
	return fmt.Sprint(value)
}

// Error fails the test if err is not target by errors.Is, and goes on. A nil target wants none.
func Error(t testing.TB, asked string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: got error %v, want %v", asked, err, target)
	}
}

// NoError ends the test if there is an error of what was asked for.
func NoError(t testing.TB, asked string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: got error %v, want none", asked, err)
	}
}

// Contains fails the test for each part that text lacks, and goes on.
func Contains(t testing.TB, asked, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s: %q is missing in:\n%s", asked, part, text)
		}
	}
}

// Eventually waits until the condition holds, and ends the test if it does not within two minutes.
// What is the condition as a sentence: `the second waiter is granted the lock`.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	pause := time.Millisecond
	for start := time.Now(); !holds(); time.Sleep(pause) {
		if time.Since(start) > patience {
			t.Fatalf("waited %v in vain: %s", patience, what)
		}
		pause = min(2*pause, 50*time.Millisecond)
	}
}

// Asleep returns a moment with a wall clock that was read so much, in whole seconds, before the
// monotonic one: what a machine leaves of it that has slept since.
func Asleep(moment time.Time, slept time.Duration) time.Time {
	const place = 30                           // of the seconds in the first word of a time.Time
	first := (*int64)(unsafe.Pointer(&moment)) // the only way
	*first -= int64(slept/time.Second) << place
	return moment
}
