package server_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/snowflake"
)

// rangeOrError is what a source answers.
type rangeOrError struct {
	got segment.Range
	err error
}

// sourceFunc is a source of the test's own.
type sourceFunc func(tag string, step int64) rangeOrError

func (f sourceFunc) Take(_ context.Context, tag string, step int64) (segment.Range, error) {
	answer := f(tag, step)
	return answer.got, answer.err
}

// leafRow is a source with one row, as a table has it: an id below maxID is taken, and step ids are taken at once if not told otherwise.
func leafRow(tag string, maxID, step int64) sourceFunc {
	return func(asked string, n int64) rangeOrError {
		if asked != tag {
			return rangeOrError{err: segment.ErrUnknownTag}
		}
		if n == 0 {
			n = step
		}
		maxID += n
		return rangeOrError{got: segment.Range{Lo: maxID - n, Hi: maxID, Step: step}}
	}
}

func (s *service) segmentIDs(t testing.TB, path string) wire.SegmentIDs {
	t.Helper()
	return must[wire.SegmentIDs](t, s, 200, "GET", "/id/segment/"+path, "")
}

func TestSegmentIDsOverHTTP(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		a := s.do(t, "GET", "/id/segment/orders", "")
		if want := `{"tag":"orders","id":"1","ids":["1"]}` + "\n"; a.status != 200 || string(a.body) != want || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%d %v %q, want %q", a.status, a.header, a.body, want)
		}
		next := int64(2)
		for _, n := range []int64{1, 2, 999, 1000, 10_000, 10_000, 3} {
			got := s.segmentIDs(t, "orders?n="+strconv.FormatInt(n, 10))
			if int64(len(got.IDs)) != n || got.ID != "" || got.Tag != "orders" || got.IDs[0] != fmt.Sprint(next) || got.IDs[n-1] != fmt.Sprint(next+n-1) {
				t.Fatalf("n=%d behind %d: %.100v", n, next, got)
			}
			next += n
		}
		if a := s.do(t, "GET", "/id/segment/orders?n=3", "", "Accept: text/plain"); string(a.body) != fmt.Sprintf("%d\n%d\n%d\n", next, next+1, next+2) {
			t.Errorf("%q behind %d", a.body, next)
		}
		if got := s.segmentIDs(t, "a%3Ab"); got.Tag != "a:b" || got.ID != "1" {
			t.Errorf("%+v", got)
		}
		another := serve(t, server.Config{Store: store})
		if id, err := strconv.ParseInt(another.segmentIDs(t, "orders").ID, 10, 64); err != nil || id < next+3 {
			t.Errorf("another server gives %d after %d: %v", id, next+3, err)
		}
		if a := s.do(t, "GET", "/counter/orders", ""); a.status != 404 {
			t.Errorf("a tag is a counter of its own: %d %s", a.status, a.body)
		}
	})
}

func TestSegmentIDsInEveryFormat(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), SegmentSource: leafRow("t", 123_456_789, 1000)})
	for i, row := range []struct{ query, want string }{
		{"", "123456789"},
		{"format=decimal", "123456790"},
		{"format=padded", "0000000000123456791"},
		{"format=padded&width=12", "000123456792"},
		{"format=base36", snowflake.ID(123_456_793).Base36()},
		{"format=base62", snowflake.ID(123_456_794).Base62()},
		{"format=base32", snowflake.ID(123_456_795).Base32()},
	} {
		if got := s.segmentIDs(t, "t?"+row.query); got.ID != row.want || got.IDs[0] != row.want {
			t.Errorf("%d %s: %+v, want %s", i, row.query, got, row.want)
		}
	}
	if problem := checkProblem(t, s.do(t, "GET", "/id/segment/t?format=padded&width=8", ""), wire.InvalidRequest); problem.Field != "width" || !strings.Contains(problem.Detail, "9 digits") {
		t.Errorf("%+v", problem)
	}
}

var opaqueKeys = []idempotency.Key{{ID: "new", Secret: []byte(strings.Repeat("n", 32))}, {ID: "old", Secret: []byte(strings.Repeat("o", 32))}}

func TestOpaqueIDsAreReadBackWithTheirKeyAndTag(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{})
	s := serve(t, server.Config{Store: store, OpaqueKeys: opaqueKeys})
	for _, width := range []string{"", "&width=6", "&width=9", "&width=18"} {
		digits, _ := strconv.Atoi(strings.TrimPrefix(width, "&width="))
		if digits == 0 {
			digits = 18
		}
		got := s.segmentIDs(t, "orders?n=50&format=opaque"+width)
		if got.Key != "new" || slices.IsSorted(got.IDs) {
			t.Errorf("%s: %+v", width, got)
		}
		var read []int64
		for _, text := range got.IDs {
			id := must[wire.DecodedOpaque](t, s, 200, "GET", "/id/decode/"+text+"?format=opaque&tag=orders", "")
			n, err := strconv.ParseInt(id.ID, 10, 64)
			if len(text) != digits || err != nil || id.Tag != "orders" || id.Key != "new" {
				t.Fatalf("%q: %+v", text, id)
			}
			read = append(read, n)
		}
		if read[49]-read[0] != 49 || !slices.IsSorted(read) {
			t.Errorf("%s: %v", width, read)
		}
		other := must[wire.DecodedOpaque](t, s, 200, "GET", "/id/decode/"+got.IDs[0]+"?format=opaque&tag=invoices", "")
		old := must[wire.DecodedOpaque](t, s, 200, "GET", "/id/decode/"+got.IDs[0]+"?format=opaque&tag=orders&key=old", "")
		if first := strconv.FormatInt(read[0], 10); other.ID == first || old.ID == first || old.Key != "old" {
			t.Errorf("another tag %+v, another key %+v", other, old)
		}
	}
	// What was made with the key that is the older one now is read with it.
	before := serve(t, server.Config{Store: store, OpaqueKeys: opaqueKeys[1:]})
	got := before.segmentIDs(t, "orders?format=opaque")
	is := must[wire.DecodedOpaque](t, before, 200, "GET", "/id/decode/"+got.ID+"?format=opaque&tag=orders", "")
	if again := must[wire.DecodedOpaque](t, s, 200, "GET", "/id/decode/"+got.ID+"?format=opaque&tag=orders&key=old", ""); got.Key != "old" || again != is {
		t.Errorf("%+v %+v %+v", got, is, again)
	}
	if a := s.do(t, "GET", "/id/decode/"+got.ID+"?format=opaque&tag=orders&key=old", "", "Accept: text/plain"); string(a.body) != is.ID+"\n" {
		t.Errorf("%q", a.body)
	}
}

func TestOpaqueIDsThatCanNotBe(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), OpaqueKeys: opaqueKeys, SegmentSource: leafRow("t", 999_999, 10)})
	if got := s.segmentIDs(t, "t?format=opaque&width=6"); len(got.ID) != 6 {
		t.Errorf("%+v", got)
	}
	for query, field := range map[string]string{
		"/id/segment/t?format=opaque&width=6": "width", "/id/segment/t?format=opaque&width=5": "width", "/id/segment/t?format=opaque&width=19": "width", "/id/segment/t?format=opaque&key=old": "key",
		"/id/decode/12345?format=opaque&tag=t": "id", "/id/decode/1234567890123456789?format=opaque&tag=t": "id", "/id/decode/12345x?format=opaque&tag=t": "id",
		"/id/decode/123456?format=opaque&tag=t&key=": "key", "/id/decode/123456?format=opaque&tag=t&key=gone": "key", "/id/decode/123456?format=opaque&tag=t&layout=41/10/12": "layout",
		"/id/decode/123456?format=opaque&tag=t&pool=p": "pool", "/id/decode/123456?format=opaque&tag=t&n=1": "n",
	} {
		if problem := checkProblem(t, s.do(t, "GET", query, ""), wire.InvalidRequest); problem.Field != field {
			t.Errorf("%s: %+v", query, problem)
		}
	}
	checkProblem(t, s.do(t, "GET", "/id/decode/123456?format=opaque&tag=a%20b", ""), wire.InvalidName)
	keyless := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})})
	if problem := checkProblem(t, keyless.do(t, "GET", "/id/segment/t?format=opaque", ""), wire.InvalidRequest); !strings.Contains(problem.Detail, "--opaque-key") {
		t.Errorf("it does not say how to set one: %+v", problem)
	}
	for _, key := range opaqueKeys {
		if secret := base64.StdEncoding.EncodeToString(key.Secret); strings.Contains(s.log.String(), secret) || strings.Contains(s.log.String(), string(key.Secret)) {
			t.Errorf("key %s is in the log", key.ID)
		}
	}
}

func TestErrorsOfSegmentsAreProblems(t *testing.T) {
	source := errors.New("the source's own words, with secret.example:3306 in them")
	for _, row := range []struct {
		err  error
		code wire.Code
	}{
		{segment.ErrUnknownTag, wire.NotFound},
		{segment.ErrExhausted, wire.CounterOverflow},
		{fmt.Errorf("%w: %w", redisstore.ErrUnavailable, source), wire.StoreUnavailable},
		{fmt.Errorf("%w: %w", redisstore.ErrUnknownOutcome, source), wire.OutcomeUnknown},
		{fmt.Errorf("%w: %w", redisstore.ErrUnknownOutcome, context.DeadlineExceeded), wire.OutcomeUnknown},
		{&counter.HoldOffError{RetryAfter: 4 * time.Second}, wire.PoolQuarantined},
		{counter.ErrBehind, wire.CounterBehind},
		{source, wire.InternalError},
	} {
		s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), SegmentSource: sourceFunc(func(string, int64) rangeOrError { return rangeOrError{err: row.err} })})
		a := s.do(t, "GET", "/id/segment/t", "")
		checkProblem(t, a, row.code)
		if strings.Contains(string(a.body), "secret.example") {
			t.Errorf("%v: the client is told %s", row.err, a.body)
		}
	}
	wrong := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), SegmentSource: sourceFunc(func(string, int64) rangeOrError { return rangeOrError{} })})
	checkProblem(t, wrong.do(t, "GET", "/id/segment/t", ""), wire.StoreUnavailable)
	few := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Segments: segment.Config{MaxTags: 1}})
	few.segmentIDs(t, "first")
	checkProblem(t, few.do(t, "GET", "/id/segment/second", ""), wire.StoreUnavailable)
	few.segmentIDs(t, "first")
}

func TestSourceThatIsAwayIsToldOnceTheIDsAreUsedUp(t *testing.T) {
	redis := redistest.Start(t)
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: time.Second}), SegmentStep: 10})
	s.segmentIDs(t, "t")
	redis.Kill()
	for range 9 {
		s.segmentIDs(t, "t")
	}
	var a answer
	eventually(t, "the ids are used up", func() bool { a = s.do(t, "GET", "/id/segment/t?n=100", ""); return a.status != 200 })
	checkProblem(t, a, wire.StoreUnavailable)
	checkProblem(t, s.do(t, "GET", "/id/segment/other", ""), wire.StoreUnavailable)
	redis.Restart()
	eventually(t, "there are ids again", func() bool { return s.do(t, "GET", "/id/segment/t", "").status == 200 })
}

func TestKnownSegmentsOnly(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{})
	s := serve(t, server.Config{Store: store, KnownSegments: true, SegmentStep: 5})
	for range 2 {
		checkProblem(t, s.do(t, "GET", "/id/segment/orders", ""), wire.NotFound)
	}
	counters := counter.New(store, server.SegmentCounters(counter.Config{}))
	t.Cleanup(func() { _ = counters.Close() })
	if err := counters.Set(t.Context(), "orders", 41, 0); err != nil {
		t.Fatal(err)
	}
	if got := s.segmentIDs(t, "orders?n=3"); got.IDs[0] != "42" || got.IDs[2] != "44" {
		t.Errorf("%+v", got)
	}
	checkProblem(t, s.do(t, "GET", "/id/segment/others", ""), wire.NotFound)
	if found, _, err := counters.List(t.Context(), "", "", 10); err != nil || len(found) != 1 {
		t.Errorf("%+v %v", found, err)
	}
}

func TestUUIDs(t *testing.T) {
	s := onEmbedded(t)
	last := ""
	for _, row := range []struct {
		query   string
		version int
		n       int
		one     bool
	}{{"", 7, 1, true}, {"?version=7&n=10000", 7, 10_000, false}, {"?n=1", 7, 1, false}, {"?version=4", 4, 1, true}, {"?version=4&n=500", 4, 500, false}} {
		got := must[wire.UUIDs](t, s, 200, "GET", "/id/uuid"+row.query, "")
		if got.Version != row.version || len(got.IDs) != row.n || (got.ID == got.IDs[0]) != row.one {
			t.Errorf("%+v: %.200v", row, got)
		}
		seen := map[string]bool{}
		for _, id := range got.IDs {
			if len(id) != 36 || int(id[14]-'0') != row.version || strings.IndexByte("89ab", id[19]) < 0 || seen[id] {
				t.Fatalf("%+v: %q", row, id)
			}
			if seen[id] = true; row.version == 7 {
				if id <= last {
					t.Fatalf("%q behind %q", id, last)
				}
				last = id
			}
		}
	}
	if a := s.do(t, "GET", "/id/uuid?n=2", "", "Accept: text/plain"); len(a.body) != 74 || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%q %v", a.body, a.header)
	}
}
