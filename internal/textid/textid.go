// Package textid makes ids that are texts, ULIDs and TypeIDs, and takes them apart. Those of one
// process rise, also where its clock goes back; those of two processes differ by chance, as UUIDs
// do.
package textid

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/oklog/ulid/v2"
	"go.jetify.com/typeid"
)

// The formats.
const (
	ULID   = "ulid"
	TypeID = "typeid"
)

var (
	errULID   = errors.New("not a ULID: 26 characters of Crockford's base 32, of which the first is 0 to 7")
	errTypeID = errors.New("not a TypeID: a prefix and _, or neither, and 26 characters of Crockford's base 32 in small letters, of " +
		"which the first is 0 to 7")
	errPrefix = errors.New("up to 63 characters of a–z and _, neither first nor last a _")
)

// Parts is what an id is made of.
type Parts struct {
	ID     string    // as it is written
	Prefix string    // of a TypeID; may be empty
	UUID   string    // the same 128 bits
	Time   time.Time // zero for a TypeID whose UUID has none
}

// ulids are those of this process. A millisecond's first one is random, and the others follow it.
var ulids = &source{entropy: rand.Reader}

type source struct {
	mu      sync.Mutex
	entropy io.Reader
	last    ulid.ULID
}

// NewULID returns a ULID that is larger than all that this process has made.
func NewULID() (string, error) { return ulids.next(ulid.Now()) }

func (s *source) next(ms uint64) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.last
	if ms > s.last.Time() {
		var err error
		if id, err = ulid.New(ms, s.entropy); err != nil {
			return "", err
		}
	} else if !raise(&id) {
		return "", errors.New("textid: no more ULIDs until the clock has caught up")
	}
	s.last = id
	return id.String(), nil
}

// raise adds a random number to an id, so that the next one cannot be told from it. It reports
// whether that was possible.
func raise(id *ulid.ULID) bool {
	var step [4]byte
	_, _ = rand.Read(step[:]) // which does not fail
	carry := 1
	for i := len(id) - 1; i >= 0; i-- {
		sum := int(id[i]) + carry
		if at := i - (len(id) - len(step)); at >= 0 {
			sum += int(step[at])
		}
		id[i], carry = byte(sum&0xff), sum>>8
	}
	return carry == 0
}

// CheckPrefix returns what is wrong with a TypeID's prefix.
func CheckPrefix(prefix string) error {
	if _, err := typeid.FromUUIDBytesWithPrefix(prefix, make([]byte, 16)); err != nil {
		return errPrefix
	}
	return nil
}

// NewTypeID returns a TypeID with a prefix, which may be empty, and a UUID of version 7.
func NewTypeID(prefix string) (string, error) {
	of, err := uuid.NewV7()
	if err != nil {
		return "", err
	}
	id, err := typeid.FromUUIDBytesWithPrefix(prefix, of[:])
	return id.String(), err
}

// Decode takes an id of a format apart.
func Decode(format, text string) (Parts, error) {
	switch format {
	case ULID:
		id, err := ulid.ParseStrict(text)
		if err != nil {
			return Parts{}, errULID
		}
		return Parts{ID: id.String(), UUID: uuid.UUID(id).String(), Time: id.Timestamp().UTC()}, nil
	case TypeID:
		id, err := typeid.FromString(text)
		if err != nil {
			return Parts{}, errTypeID
		}
		of, err := uuid.FromBytes(id.UUIDBytes())
		if err != nil {
			return Parts{}, errTypeID
		}
		return Parts{ID: id.String(), Prefix: id.Prefix(), UUID: of.String(), Time: timeOf(of)}, nil
	}
	return Parts{}, fmt.Errorf("textid: no format %s", format)
}

// timeOf is the time of a UUID of version 7; the zero time of others.
func timeOf(of uuid.UUID) time.Time {
	if of.Version() != 7 || of.Variant() != uuid.RFC4122 {
		return time.Time{}
	}
	ms := int64(0)
	for _, b := range of[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms).UTC()
}
