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

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/idempotency"
	"github.com/coatcheck/coatcheck/internal/fault"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/segment/redissource"
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

// leafRow is a source with one row, as a table has it: an id below maxID is taken, and step ids are
// taken at once if not told otherwise.
func leafRow(tag string, maxID, step int64) sourceFunc {
	return func(asked string, n int64) rangeOrError {
		if asked != tag {
			return rangeOrError{err: segment.ErrNotFound}
		}
		if n == 0 {
			n = step
		}
		maxID += n
		return rangeOrError{got: segment.Range{Lo: maxID - n, Hi: maxID, Step: step}}
	}
}

func (s *service) segmentIDs(t testing.TB, path string) api.SegmentIDs {
	t.Helper()
	return must[api.SegmentIDs](t, s, 200, "GET", "/id/segment/"+path, "")
}

func TestSegmentIDsOverHTTP(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		a := s.do(t, "GET", "/id/segment/orders", "")
		a.wantStatus(t, 200)
		a.wantHeader(t, "Content-Type", "application/json")
		a.wantBody(t, `{"tag":"orders","id":"1","ids":["1"]}`+"\n")
		next := int64(2)
		for _, n := range []int64{1, 2, 999, 1000, 10_000, 10_000, 3} {
			asked := fmt.Sprintf("orders?n=%d", n)
			got := s.segmentIDs(t, asked)
			expect.MustEqual(t, "GET /id/segment/"+asked+": number of ids", int64(len(got.IDs)), n)
			expect.MustEqual(t, "GET /id/segment/"+asked+": its first id", got.IDs[0], strconv.FormatInt(next, 10))
			expect.MustEqual(t, "GET /id/segment/"+asked+": its last id", got.IDs[n-1], strconv.FormatInt(next+n-1, 10))
			expect.Equal(t, "GET /id/segment/"+asked, got, api.SegmentIDs{Tag: "orders", IDs: got.IDs})
			next += n
		}
		s.do(t, "GET", "/id/segment/orders?n=3", "", "Accept: text/plain").wantBody(t, fmt.Sprintf("%d\n%d\n%d\n", next, next+1, next+2))
		expect.Equal(t, "GET /id/segment/a%3Ab", s.segmentIDs(t, "a%3Ab"), api.SegmentIDs{Tag: "a:b", ID: "1", IDs: []string{"1"}})
		another := serve(t, server.Config{Store: store})
		if id, err := strconv.ParseInt(another.segmentIDs(t, "orders").ID, 10, 64); err != nil || id < next+3 {
			t.Errorf("GET /id/segment/orders of another server: got id %d, error %v; want %d or more, which the first has not given", id, err, next+3)
		}
		// a tag is no counter of that name
		checkProblem(t, s.do(t, "GET", "/counter/orders", ""), api.NotFound)
	})
}

func TestSegmentIDsInEveryFormat(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), SegmentSource: leafRow("t", 123_456_789, 1000)})
	for _, row := range []struct{ query, want string }{
		{"", "123456789"},
		{"format=decimal", "123456790"},
		{"format=padded", "0000000000123456791"},
		{"format=padded&width=12", "000123456792"},
		{"format=base36", snowflake.ID(123_456_793).Base36()},
		{"format=base62", snowflake.ID(123_456_794).Base62()},
		{"format=base32", snowflake.ID(123_456_795).Base32()},
	} {
		expect.Equal(t, "GET /id/segment/t?"+row.query, s.segmentIDs(t, "t?"+row.query), api.SegmentIDs{Tag: "t", ID: row.want, IDs: []string{row.want}})
	}
	wantField(t, s.do(t, "GET", "/id/segment/t?format=padded&width=8", ""), api.InvalidRequest, "width", "9 digits")
}

var opaqueKeys = []idempotency.Secret{{ID: "new", Value: []byte(strings.Repeat("n", 32))}, {ID: "old", Value: []byte(strings.Repeat("o", 32))}}

func TestOpaqueIDsAreReadBackWithTheirKeyAndTag(t *testing.T) {
	t.Parallel()
	store := storetest.Open(t, redisstore.Config{})
	s := serve(t, server.Config{Store: store, OpaqueKeys: opaqueKeys})
	for _, width := range []string{"", "&width=6", "&width=9", "&width=18"} {
		digits, _ := strconv.Atoi(strings.TrimPrefix(width, "&width="))
		if digits == 0 {
			digits = 18
		}
		got := s.segmentIDs(t, "orders?n=50&format=opaque"+width)
		asked := "GET /id/segment/orders?n=50&format=opaque" + width
		expect.Equal(t, asked+": key", got.Key, "new")
		expect.MustEqual(t, asked+": number of ids", len(got.IDs), 50)
		if slices.IsSorted(got.IDs) {
			t.Errorf("%s: got %q, want no order", asked, got.IDs)
		}
		var read []int64
		for _, text := range got.IDs {
			id := must[api.DecodedOpaque](t, s, 200, "GET", "/id/decode/"+text+"?format=opaque&tag=orders", "")
			n, err := strconv.ParseInt(id.ID, 10, 64)
			if err != nil || len(text) != digits {
				t.Fatalf("%s: %q is read as %q, want an id of %d digits that stands for a number", asked, text, id.ID, digits)
			}
			expect.Equal(t, "GET /id/decode/"+text+"?format=opaque&tag=orders", id, api.DecodedOpaque{ID: id.ID, Tag: "orders", Key: "new"})
			read = append(read, n)
		}
		if read[49]-read[0] != 49 || !slices.IsSorted(read) {
			t.Errorf("%s: the ids are read as %v, want 50 numbers one after the other", asked, read)
		}
		other := must[api.DecodedOpaque](t, s, 200, "GET", "/id/decode/"+got.IDs[0]+"?format=opaque&tag=invoices", "")
		old := must[api.DecodedOpaque](t, s, 200, "GET", "/id/decode/"+got.IDs[0]+"?format=opaque&tag=orders&key=old", "")
		expect.Equal(t, asked+": key of an id that is read with the old key", old.Key, "old")
		if first := strconv.FormatInt(read[0], 10); other.ID == first || old.ID == first {
			t.Errorf("%s: the id of %s is read as %s with another tag, and as %s with another key; want other numbers", asked, first, other.ID, old.ID)
		}
	}
	// What was made with the key that is the older one now is read with it.
	before := serve(t, server.Config{Store: store, OpaqueKeys: opaqueKeys[1:]})
	got := before.segmentIDs(t, "orders?format=opaque")
	is := must[api.DecodedOpaque](t, before, 200, "GET", "/id/decode/"+got.ID+"?format=opaque&tag=orders", "")
	expect.Equal(t, "an id of a service with the old key: key", got.Key, "old")
	path := "/id/decode/" + got.ID + "?format=opaque&tag=orders&key=old"
	expect.Equal(t, "GET "+path+", compared with how the service that made it reads it", must[api.DecodedOpaque](t, s, 200, "GET", path, ""), is)
	s.do(t, "GET", path, "", "Accept: text/plain").wantBody(t, is.ID+"\n")
}

func TestOpaqueIDsThatCanNotBe(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), OpaqueKeys: opaqueKeys, SegmentSource: leafRow("t", 999_999, 10)})
	expect.Equal(t, "GET /id/segment/t?format=opaque&width=6: digits of the id", len(s.segmentIDs(t, "t?format=opaque&width=6").ID), 6)
	for query, field := range map[string]string{
		"/id/segment/t?format=opaque&width=6": "width", "/id/segment/t?format=opaque&width=5": "width", "/id/segment/t?format=opaque&width=19": "width", "/id/segment/t?format=opaque&key=old": "key",
		"/id/decode/12345?format=opaque&tag=t": "id", "/id/decode/1234567890123456789?format=opaque&tag=t": "id", "/id/decode/12345x?format=opaque&tag=t": "id",
		"/id/decode/123456?format=opaque&tag=t&key=": "key", "/id/decode/123456?format=opaque&tag=t&key=gone": "key", "/id/decode/123456?format=opaque&tag=t&layout=41/10/12": "layout",
		"/id/decode/123456?format=opaque&tag=t&pool=p": "pool", "/id/decode/123456?format=opaque&tag=t&n=1": "n",
	} {
		wantField(t, s.do(t, "GET", query, ""), api.InvalidRequest, field)
	}
	checkProblem(t, s.do(t, "GET", "/id/decode/123456?format=opaque&tag=a%20b", ""), api.InvalidName)
	keyless := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})})
	wantDetail(t, keyless.do(t, "GET", "/id/segment/t?format=opaque", ""), api.InvalidRequest, "--opaque-keys")
	for _, key := range opaqueKeys {
		if secret := base64.StdEncoding.EncodeToString(key.Value); strings.Contains(s.log.String(), secret) || strings.Contains(s.log.String(), string(key.Value)) {
			t.Errorf("key %s is in the log", key.ID)
		}
	}
}

func TestErrorsOfSegmentsAreProblems(t *testing.T) {
	t.Parallel()
	source := errors.New("the source's own words, with secret.example:3306 in them")
	for _, row := range []struct {
		err  error
		code api.Code
	}{
		{segment.ErrNotFound, api.NotFound},
		{segment.ErrExhausted, api.CounterOverflow},
		{segment.ErrRetired, api.CounterOverflow},
		{fmt.Errorf("%w: step -5, max_id 1", segment.ErrBadRow), api.LayoutMismatch},
		{&redisstore.Error{Op: "leaf_alloc take", Class: segment.ErrDatabase, Cause: source}, api.StoreUnavailable},
		{fmt.Errorf("%w: %w", redisstore.ErrUnavailable, source), api.StoreUnavailable},
		{fmt.Errorf("%w: %w", redisstore.ErrUnknownOutcome, source), api.OutcomeUnknown},
		{fmt.Errorf("%w: %w", redisstore.ErrUnknownOutcome, context.DeadlineExceeded), api.OutcomeUnknown},
		{&fault.WaitError{Err: counter.ErrHoldOff, Wait: 4 * time.Second}, api.PoolQuarantined},
		{counter.ErrBehind, api.CounterBehind},
		{source, api.InternalError},
	} {
		s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), SegmentSource: sourceFunc(func(string, int64) rangeOrError { return rangeOrError{err: row.err} })})
		a := s.do(t, "GET", "/id/segment/t", "")
		detail := checkProblem(t, a, row.code).Detail
		if strings.Contains(detail, "take:") || strings.Contains(detail, "segment:") {
			t.Errorf("%v: the client is told of the service's steps and packages: %s", row.err, detail)
		}
		if errors.Is(row.err, segment.ErrDatabase) { // Redis may be well
			expect.Contains(t, a.asked+": detail", detail, "SQL database")
			expect.Equal(t, a.asked+": names Redis", strings.Contains(detail, "Redis"), false)
			a.wantRetryAfter(t, 1, 1)
		}
		if strings.Contains(string(a.body), "secret.example") {
			t.Errorf("%v: the client is told %s", row.err, a.body)
		}
	}
	wrong := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), SegmentSource: sourceFunc(func(string, int64) rangeOrError { return rangeOrError{} })})
	checkProblem(t, wrong.do(t, "GET", "/id/segment/t", ""), api.StoreUnavailable)
	few := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Segments: segment.Config{MaxTags: 1}})
	few.segmentIDs(t, "first")
	a := few.do(t, "GET", "/id/segment/second", "")
	wantDetail(t, a, api.StoreUnavailable, "makes room in 15m0s")
	a.wantRetryAfter(t, 890, 900)
	few.segmentIDs(t, "first")
}

func TestSourceThatIsAwayIsToldOnceTheIDsAreUsedUp(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: storePatience}), SegmentStep: 10})
	s.segmentIDs(t, "t")
	redis.Kill()
	for range 9 {
		s.segmentIDs(t, "t")
	}
	var a answer
	expect.Eventually(t, "the ids are used up", func() bool { a = s.do(t, "GET", "/id/segment/t?n=100", ""); return a.status != 200 })
	checkProblem(t, a, api.StoreUnavailable)
	checkProblem(t, s.do(t, "GET", "/id/segment/other", ""), api.StoreUnavailable)
	redis.Restart()
	expect.Eventually(t, "there are ids again", func() bool { return s.do(t, "GET", "/id/segment/t", "").status == 200 })
}

func TestKnownSegmentsOnly(t *testing.T) {
	store := storetest.Open(t, redisstore.Config{})
	s := serve(t, server.Config{Store: store, KnownSegments: true, SegmentStep: 5})
	for range 2 {
		problem := checkProblem(t, s.do(t, "GET", "/id/segment/orders", ""), api.NotFound)
		expect.Equal(t, "GET /id/segment/orders before there is one: detail", problem.Detail, "no such tag")
	}
	counters := counter.New(store, redissource.Counters(counter.Config{}))
	t.Cleanup(func() { _ = counters.Close() })
	expect.NoError(t, "setting orders to 41", counters.Set(t.Context(), "orders", 41, counter.SetOptions{Back: true}))
	expect.Equal(t, "GET /id/segment/orders?n=3 once orders is 41", s.segmentIDs(t, "orders?n=3"), api.SegmentIDs{Tag: "orders", IDs: []string{"42", "43", "44"}})
	checkProblem(t, s.do(t, "GET", "/id/segment/others", ""), api.NotFound)
	if found, _, err := counters.List(t.Context(), "", "", 10); err != nil || len(found) != 1 {
		t.Errorf("listing the tags: got %+v, error %v; want orders alone", found, err)
	}
}

func TestUUIDs(t *testing.T) {
	t.Parallel()
	s := onEmbedded(t)
	last := ""
	for _, row := range []struct {
		query   string
		version int
		n       int
		one     bool
	}{{"", 7, 1, true}, {"?version=7&n=10000", 7, 10_000, false}, {"?n=1", 7, 1, false}, {"?version=4", 4, 1, true}, {"?version=4&n=500", 4, 500, false}} {
		got := must[api.UUIDs](t, s, 200, "GET", "/id/uuid"+row.query, "")
		asked := "GET /id/uuid" + row.query
		expect.Equal(t, asked+": version", got.Version, row.version)
		expect.MustEqual(t, asked+": number of ids", len(got.IDs), row.n)
		want := ""
		if row.one {
			want = got.IDs[0]
		}
		expect.Equal(t, asked+": id", got.ID, want)
		seen := map[string]bool{}
		for _, id := range got.IDs {
			if len(id) != 36 || int(id[14]-'0') != row.version || strings.IndexByte("89ab", id[19]) < 0 || seen[id] {
				t.Fatalf("%s: got %q, want a UUID of version %d that was not given before", asked, id, row.version)
			}
			if seen[id] = true; row.version == 7 {
				if id <= last {
					t.Fatalf("%s: got %q after %q, want UUIDs of version 7 to rise", asked, id, last)
				}
				last = id
			}
		}
	}
	a := s.do(t, "GET", "/id/uuid?n=2", "", "Accept: text/plain")
	a.wantHeader(t, "Cache-Control", "no-store")
	if lines := strings.Split(string(a.body), "\n"); len(lines) != 3 || len(lines[0]) != 36 || len(lines[1]) != 36 || lines[2] != "" {
		t.Errorf("%v; want two lines of 36 characters", a)
	}
}
