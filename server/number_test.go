package server_test

import (
	"fmt"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// numbered is a service whose clock the test sets.
func numbered(t *testing.T, store *redisstore.Store) (s *service, set func(at string)) {
	t.Helper()
	var now atomic.Pointer[time.Time]
	set = func(text string) {
		at, err := time.Parse(time.RFC3339, text)
		expect.NoError(t, "the time that the test sets", err)
		now.Store(&at)
	}
	set("2026-11-20T12:00:00Z")
	s = serve(t, server.Config{Store: store}, func(s *server.Server) { s.SetNow(func() time.Time { return *now.Load() }) })
	return s, set
}

// numbers asks for numbers by their parameters, a name and a value in turn.
func (s *service) numbers(t testing.TB, key string, parameters ...string) api.Incremented {
	t.Helper()
	query := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		query.Set(parameters[i], parameters[i+1])
	}
	return must[api.Incremented](t, s, 200, "POST", "/incr/"+key+"?"+query.Encode(), "")
}

func TestDailyNumbersBeginAtOneOnEachDayOfTheZone(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s, set := numbered(t, store)
		for _, row := range []struct{ at, zone, key, number string }{
			{"2026-11-20T12:00:00Z", "Europe/Berlin", "orders:20261120", "ORD-20261120-000001"},
			{"2026-11-20T22:59:59Z", "Europe/Berlin", "orders:20261120", "ORD-20261120-000002"},
			{"2026-11-20T23:00:00Z", "Europe/Berlin", "orders:20261121", "ORD-20261121-000001"},
			// another server's clock is behind
			{"2026-11-20T22:59:59Z", "Europe/Berlin", "orders:20261120", "ORD-20261120-000003"},
			{"2026-11-20T23:00:00Z", "UTC", "orders:20261120", "ORD-20261120-000004"},
			{"2026-11-20T23:00:00Z", "Pacific/Kiritimati", "orders:20261121", "ORD-20261121-000002"},
			{"2026-11-21T23:00:00Z", "America/Argentina/Buenos_Aires", "orders:20261121", "ORD-20261121-000003"},
		} {
			set(row.at)
			got := s.numbers(t, "orders", "template", "ORD-{yyyyMMdd}-{n:6}", "zone", row.zone)
			want := api.Incremented{Key: row.key, Value: got.Value, First: got.Value, Number: row.number}
			expect.Equal(t, "POST /incr/orders at "+row.at+" with zone "+row.zone, got, want)
			read := must[api.Counter](t, s, 200, "GET", "/counter/"+got.Key, "")
			expect.Equal(t, "GET /counter/"+got.Key, read, api.Counter{Key: got.Key, Value: got.Value})
		}
	})
}

func TestNumbersOfManyValuesAndAsText(t *testing.T) {
	t.Parallel()
	s, _ := numbered(t, storetest.Open(t, redisstore.Config{}))
	got := s.numbers(t, "k", "template", "A{n:3}", "by", "3")
	expect.Equal(t, "POST /incr/k?template=A{n:3}&by=3", got, api.Incremented{Key: "k", Value: 3, First: 1, Numbers: []string{"A001", "A002", "A003"}})
	a := s.do(t, "GET", "/incr/k?template=A%7Bn:3%7D&by=2", "", "Accept: text/plain")
	a.wantBody(t, "A004\nA005\n")
	a.wantHeader(t, "Cache-Control", "no-store")
	s.do(t, "GET", "/incr/k?template=%7Byyyy%7D/%7Bn%7D&calendar=%7Byyyy%7D", "").wantBody(t, `{"key":"k:2026","value":1,"first":1,"number":"2026/1"}`+"\n")
	got = s.numbers(t, "many", "template", "{n}", "by", "1000")
	expect.MustEqual(t, "POST /incr/many?by=1000: number of numbers", len(got.Numbers), 1000)
	expect.Equal(t, "POST /incr/many?by=1000: the last number", got.Numbers[999], "1000")
}

func TestNumberThatDoesNotFitIsRefusedWithoutChange(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s, _ := numbered(t, store)
		s.numbers(t, "k", "template", "N{n:2}", "by", "98")
		checkProblem(t, s.do(t, "POST", "/incr/k?template=N%7Bn:2%7D&by=2", ""), api.CounterOverflow)
		expect.Equal(t, "POST /incr/k?template=N{n:2} after 98 numbers and a refusal", s.numbers(t, "k", "template", "N{n:2}").Number, "N99")
		for range 3 {
			checkProblem(t, s.do(t, "POST", "/incr/k?template=N%7Bn:2%7D", ""), api.CounterOverflow)
		}
		expect.Equal(t, "GET /counter/k after the refusals", must[api.Counter](t, s, 200, "GET", "/counter/k", "").Value, 99)
		expect.Equal(t, "POST /incr/k?template=N{n:3} after the refusals", s.numbers(t, "k", "template", "N{n:3}").Number, "N100")
		must[api.Counter](t, s, 200, "PUT", "/counter/negative", `{"value":-5}`)
		for _, template := range []string{"N%7Bn:2%7D", "N%7Bn%7D"} {
			wantDetail(t, s.do(t, "POST", "/incr/negative?template="+template, ""), api.CounterOverflow, "0")
		}
		expect.Equal(t, "GET /counter/negative after the refusals", must[api.Counter](t, s, 200, "GET", "/counter/negative", "").Value, -5)
	})
}

func TestCalendarWithoutTemplate(t *testing.T) {
	s, set := numbered(t, storetest.Open(t, redisstore.Config{}))
	for _, row := range []struct {
		at, calendar, zone, key string
		value                   int64
	}{
		{"2026-11-20T12:00:00Z", "{yyyyMMdd}", "", "k:20261120", 1},
		{"2026-11-20T12:00:01Z", "{yyyyMMdd}", "", "k:20261120", 2},
		{"2026-12-31T23:30:00Z", "{yyyy}", "Europe/Berlin", "k:2027", 1},
		{"2026-12-31T23:30:00Z", "{YYYY-Www}", "Europe/Berlin", "k:2026-W53", 1},
		{"2026-12-31T23:30:00Z", "eu.{yyyy}.x", "UTC", "k:eu.2026.x", 1},
	} {
		set(row.at)
		path := "/incr/k?calendar=" + url.QueryEscape(row.calendar)
		if row.zone != "" {
			path += "&zone=" + url.QueryEscape(row.zone)
		}
		want := fmt.Sprintf("{\"key\":%q,\"value\":%d,\"first\":%d}\n", row.key, row.value, row.value)
		expect.Equal(t, "at "+row.at+" GET "+path, string(s.do(t, "GET", path, "").body), want)
	}
}

// A day's counter must outlive the day, on whatever clock: if it began again, its numbers would be
// told twice.
func TestCounterOfAPeriodLivesForTwoDaysBehindItsEnd(t *testing.T) {
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL()})
	s, set := numbered(t, store)
	for _, row := range []struct {
		at, template, key string
		want              time.Duration
	}{
		{"2026-11-20T12:00:00Z", "{yyyyMMdd}-{n}", "k:20261120", 60 * time.Hour},
		{"2026-11-20T23:59:59Z", "{yyyy-MM-dd}-{n}", "k:2026-11-20", 48*time.Hour + time.Second},
		{"2026-11-20T12:00:00Z", "{yyyy}-{n}", "k:2026", (41*24 + 12 + 48) * time.Hour},
	} {
		set(row.at)
		s.numbers(t, "k", "template", row.template)
		got := redis.Client().PTTL(t.Context(), onstore.Key(store, "counter", row.key)).Val()
		wantBetween(t, "PTTL of counter "+row.key+", counted at "+row.at, got, row.want-10*time.Minute, row.want)
	}
	s.numbers(t, "k", "template", "{n}")
	if got := redis.Client().PTTL(t.Context(), onstore.Key(store, "counter", "k")).Val(); got >= 0 {
		t.Errorf("PTTL of counter k, which has no date: got %v, want none", got)
	}
}

// Without the moment a repeat after midnight is another day's.
func TestRepeatOverMidnightGetsTheSameNumberIfItSaysOfWhen(t *testing.T) {
	s, set := numbered(t, storetest.Open(t, redisstore.Config{}))
	path := "/incr/orders?template=" + url.QueryEscape("{yyyyMMdd}-{n:4}")
	ask := func(query string) string {
		return must[api.Incremented](t, s, 200, "POST", path+query, "", "Idempotency-Key: order-1").Number
	}
	set("2026-11-20T23:59:59Z")
	first := ask("&at=2026-11-20T23:59:59Z")
	set("2026-11-21T00:00:01Z")
	expect.Equal(t, "the number of order-1 before midnight", first, "20261120-0001")
	expect.Equal(t, "the number of order-1 after midnight, with the same at", ask("&at=2026-11-20T23:59:59Z"), first)
	expect.Equal(t, "the number of order-1 after midnight, without at", ask(""), "20261121-0001")
	set("2026-11-21T23:59:59Z")
	ask("&at=2026-11-20T23:59:59Z")
	set("2026-11-22T00:00:00Z")
	wantField(t, s.do(t, "POST", path+"&at=2026-11-20T23:59:59Z", ""), api.InvalidRequest, "at")
}

func TestFaultsOfTemplatesSayWhatToWrite(t *testing.T) {
	s, _ := numbered(t, storetest.Open(t, redisstore.Config{}))
	for query, part := range map[string]string{
		"template=" + url.QueryEscape("ORD-{yyyyMMDD}-{n}"):                    "position 12",
		"template=" + url.QueryEscape("ORD"):                                   "write {n}",
		"template=" + url.QueryEscape("{dd/MM/yyyy}-{n}"):                      "with calendar, such as {yyyyMMdd}",
		"template=" + url.QueryEscape("{n}") + "&zone=Berlin":                  "Europe/Berlin, or UTC",
		"calendar=" + url.QueryEscape("{MM}"):                                  "write yyyy",
		"calendar={yyyyMMdd}&template=" + url.QueryEscape("{yyyy}-{n}"):        "write {yyyyMMdd}",
		"calendar={yyyyMMdd}&template=" + url.QueryEscape("{n:6}"):             "write {yyyyMMdd} into it",
		"template=" + url.QueryEscape("{n}") + "&by=2000":                      "1 to 1000",
		"template=" + url.QueryEscape("{n}") + "&at=" + "2026-11-18T11:00:00Z": "within 24h0m0s of now",
		"after_loss=guess&limit=1&ttl_ms=1000":                                 "stay",
		"after_loss=stay&limit=1":                                              "and with ttl_ms or calendar",
		"after_loss=stay&calendar={yyyy}":                                      "only with limit",
		"after_loss=stay&limit=9&calendar={yyyy}&template={n}":                 "could be written twice",
		"template=" + url.QueryEscape("{n}") + "&ttl_ms=100000":                "48h0m0s after its end",
	} {
		wantDetail(t, s.do(t, "GET", "/incr/k?"+query, ""), api.InvalidRequest, part)
	}
}
