package cli

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
)

// told is a command of a story, with the exit code that it ends with and, where that is done, what
// it prints; else what it says of the failure.
type told struct {
	args string
	code int
	says string
}

// tell runs a story's commands one after the other.
func tell(t *testing.T, at []string, story []told) {
	t.Helper()
	for _, row := range story {
		words, behind, dashes := strings.Cut(row.args, " -- ")
		args := append(strings.Split(words, " "), at...)
		if dashes {
			args = append(append(args, "--"), strings.Split(behind, " ")...)
		}
		ran := execute(t, nil, args...).exits(row.code)
		if row.code == done {
			expect.Equal(t, "stdout of "+ran.line, ran.stdout, row.says)
			continue
		}
		expect.Equal(t, "stdout of "+ran.line, ran.stdout, "")
		expect.Contains(t, "stderr of "+ran.line, ran.stderr, row.says)
	}
}

func TestIncrPrintsTheValuesThatAreTheCallersOneALine(t *testing.T) {
	lockDoors(t, func(t *testing.T, at []string) {
		tell(t, at, []told{
			{"incr orders", done, "1\n"},
			{"incr orders --by 3", done, "2\n3\n4\n"},
			{"incr --json orders --by=2", done, `{"key":"orders","value":6,"first":5}` + "\n"},
			{"incr orders --request-id order-1 --by 2", done, "7\n8\n"},
			{"incr orders", done, "9\n"},
			{"incr orders --request-id order-1 --by 2", done, "7\n8\n"},
			{"incr orders --request-id order-1", failed, "used"},
			{"counter get orders", done, "9\n"},
			{"counter set -- full 9223372036854775806", done, "9223372036854775806\n"},
			{"incr full --by 2", failed, "overflow"},
			{"incr full", done, "9223372036854775807\n"},
			{"incr full --template {n}", failed, "overflow"},
			{"incr tickets --limit 3 --by 2", done, "1\n2\n"},
			{"incr tickets --limit 3 --by 2", failed, "3 is the largest"},
			{"incr tickets --limit 3", done, "3\n"},
			{"incr tickets --limit 3", failed, "limit"},
		})
	})
}

func TestNumbersByATemplateBeginAnewWithEachPeriod(t *testing.T) {
	lockDoors(t, func(t *testing.T, at []string) {
		now := time.Now().Add(-time.Minute)
		moment := " --at " + now.UTC().Format(time.RFC3339)
		zone, err := time.LoadLocation("Asia/Tokyo")
		expect.NoError(t, "load the time zone", err)
		day, tokyo := now.UTC().Format("20060102"), now.In(zone).Format("20060102")
		year := now.UTC().Format("2006")
		tell(t, at, []told{
			{"incr orders --template ORD-{yyyyMMdd}-{n:6}" + moment, done, "ORD-" + day + "-000001\n"},
			{"incr orders --by 2 --template ORD-{yyyyMMdd}-{n:6}" + moment, done, "ORD-" + day + "-000002\nORD-" + day + "-000003\n"},
			{"incr orders --json --template ORD-{yyyyMMdd}-{n:6}" + moment, done, `{"key":"orders:` + day + `","value":4,"first":4,"number":"ORD-` + day + `-000004"}` + "\n"},
			{"incr orders:{yyyyMMdd}" + moment, done, "5\n"},
			{"counter get orders:" + day, done, "5\n"},
			{"incr tokyo:{yyyyMMdd} --json --zone Asia/Tokyo" + moment, done, `{"key":"tokyo:` + tokyo + `","value":1,"first":1}` + "\n"},
			{"incr yearly:{yyyy} --template {yyyyMMdd}/{n} --by 2 --json" + moment, done, `{"key":"yearly:` + year + `","value":2,"first":1,"numbers":["` + day + `/1","` + day + `/2"]}` + "\n"},
			{"incr plain --template No.{n:2}", done, "No.01\n"},
			{"counter set plain 98", done, "98\n"},
			{"incr plain --template No.{n:2} --by 2", failed, ""}, // and nothing is added
			{"incr plain --template No.{n:2}", done, "No.99\n"},
			{"incr plain --template No.{n:2}", failed, ""},
			{"counter get plain", done, "99\n"},
		})
		for _, key := range []string{"orders:" + day, "tokyo:" + tokyo, "yearly:" + year} {
			if left := ttlOfCounter(t, at, key); left >= 0 && left < int((46*time.Hour).Seconds()) {
				t.Errorf("time to live of %s: got %d s, want two days, or little less", key, left)
			}
		}
	})
}

// ttlOfCounter is how long a counter has to live, in seconds; -1 where there is no Redis to ask.
func ttlOfCounter(t *testing.T, at []string, key string) int {
	t.Helper()
	if at[0] != "--redis" {
		return -1
	}
	options, err := redis.ParseURL(at[1])
	expect.NoError(t, "parse the URL of Redis", err)
	client := redis.NewClient(options)
	defer client.Close()
	found := onstore.Key(storetest.Open(t, redisstore.Config{URL: at[1]}), "counter", key)
	left, err := client.TTL(t.Context(), found).Result()
	if err != nil || left <= 0 {
		t.Errorf("TTL %s: got %v, %v, want one", found, left, err)
	}
	return int(left.Seconds())
}

// Each row is refused before anything is asked, or by what is asked, and nothing is added.
func TestWhatIncrCanNotMeanIsWrongUsage(t *testing.T) {
	lockDoors(t, func(t *testing.T, at []string) {
		var story []told
		for args, says := range map[string]string{
			"incr": "one counter's key", "incr a b": "one counter's key", "incr a/b": "key", "incr ..": "key", "incr ä": "key", "incr " + strings.Repeat("a", 201): "key",
			"incr {yyyy}": "after a colon", "incr orders-{yyyy}": "after a colon", "incr orders:{yyyy": "position", "incr orders:{n}": "", "incr orders:{yyyy}:{MM}": "",
			"incr a --by 0": "by", "incr a --by 1000001": "by", "incr a --by x": "by", "incr a --ttl 1ms": "ttl", "incr a --ttl never": "ttl", "incr a --request-id ä": "request-id", "incr a --limit 0": "limit", "incr a --limit x": "limit",
			"incr a --zone UTC": "zone", "incr a --at 2026-11-21T00:00:00Z": "--at", "incr a:{yyyy} --zone Nowhere/None": "zone", "incr a:{yyyy} --zone Local": "zone",
			"incr a:{yyyy} --ttl 1h": "ttl", "incr a --template {n} --ttl 1h": "ttl", "incr a --template x": "", "incr a --template {n} --by 1001": "by",
			"incr a:{yyyy} --at 2020-01-01T00:00:00Z": "within", "incr a:{yyyy} --at 9000-01-01T00:00:00Z": "within", "incr a:{yyyyMMdd} --template {n}": "", "incr a --template {yyyy/MM}-{n}": "template", "incr a --at yesterday": "--at",
			"incr a --server http://h --redis redis://h": "", "counter get": "one counter's key", "counter get a --zone UTC": "zone", "counter ls a b": "one prefix",
			"counter set a": "a value", "counter set a 1.5": "whole number", "counter set a 9223372036854775808": "whole number", "counter set a -5": "two dashes", "counter nonsense": "",
			"id segment": "one tag", "id segment a/b": "tag", "id segment a --format timed": "format", "id uuid 5": "4 or 7", "id uuid 4 4": "4 or 7", "id uuid -n 0": "count",
		} {
			story = append(story, told{args, usage, says})
		}
		for _, row := range story {
			args := strings.Split(row.args, " ")
			if !strings.Contains(row.args, "uuid") && !strings.Contains(row.args, "--server") {
				args = append(args, at...)
			}
			refused := execute(t, nil, args...).exits(usage, row.says)
			expect.Equal(t, "stdout of "+refused.line, refused.stdout, "")
		}
		tell(t, at, []told{{"counter ls", done, "There is no counter.\n"}})
	})
}

func TestCountersAreListedSetAndRemoved(t *testing.T) {
	lockDoors(t, func(t *testing.T, at []string) {
		today := time.Now().UTC().Format("2006")
		tell(t, at, []told{
			{"counter get orders", failed, "counter"},
			{"counter rm orders", failed, "orders"},
			{"counter rm orders --yes", failed, ""},
			{"counter set orders 41", done, "41\n"}, // a new one takes no --back
			{"counter set orders 100 --json", done, `{"key":"orders","value":100}` + "\n"},
			{"counter set orders 100", done, "100\n"},
			{"counter set orders 41", usage, "orders is at 100: set to 41 it hands values out again"},
			{"counter get orders", done, "100\n"},
			{"counter set orders 41 --back", done, "41\n"},
			{"incr orders", done, "42\n"},
			{"counter set --back -- orders -5", done, "-5\n"},
			{"counter set yearly:{yyyy} 7", done, "7\n"},
			{"counter get yearly:{yyyy} --json", done, `{"key":"yearly:` + today + `","value":7}` + "\n"},
			{"counter ls", done, "COUNTER      VALUE\norders       -5\nyearly:" + today + "  7\n"},
			{"counter ls year --json", done, `{"counters":[{"key":"yearly:` + today + `","value":7}]}` + "\n"},
			{"counter ls nothing --json", done, `{"counters":[]}` + "\n"},
			{"counter rm orders", usage, "orders is at -5: removed, it hands values out again"},
			{"counter rm orders --yes", done, ""},
			{"counter get orders", failed, ""},
			{"incr orders", done, "1\n"},
			{"counter set short 1 --ttl 1m", done, "1\n"},
		})
		if left := ttlOfCounter(t, at, "short"); left > 60 {
			t.Errorf("time to live of a counter that was set for a minute: got %d s", left)
		}
	})
}

func TestAListIsAllPages(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	counters := counter.New(storetest.Open(t, redisstore.Config{URL: redis.URL()}), counter.Config{})
	defer counters.Close()
	var want []string
	for i := range 230 {
		want = append(want, fmt.Sprintf("c%03d", i))
		if _, err := counters.IncrBy(t.Context(), want[i], 5); err != nil {
			t.Fatalf("add to the counter: %v", err)
		}
	}
	straight := []string{"--redis", redis.URL(), "--store-timeout", "30s"}
	for _, at := range [][]string{{"--server", serve(t, straight...).banner.URL}, straight} {
		var page api.Counters
		execute(t, nil, append([]string{"counter", "ls", "c", "--json"}, at...)...).exits(done).into(&page)
		var got []string
		for _, one := range page.Counters {
			got = append(got, one.Key)
		}
		expect.Equal(t, "counter ls c "+at[0], got, want)
	}
}

// What others have written there is shown as what it is, and replaced only on purpose.
func TestACounterThatHoldsNoInteger(t *testing.T) {
	redis := redistest.Start(t)
	key := onstore.Key(storetest.Open(t, redisstore.Config{URL: redis.URL()}), "counter", "text")
	for name, at := range map[string][]string{"service": {"--server", serve(t, "--redis", redis.URL()).banner.URL}, "redis": {"--redis", redis.URL()}} {
		t.Run(name, func(t *testing.T) {
			tell(t, at, []told{{"counter set text 5 --back", done, "5\n"}})
			expect.NoError(t, "set a key", redis.Client().Set(t.Context(), key, "abc", 0).Err())
			tell(t, at, []told{
				{"incr text", failed, "integer"},
				{"counter get text", failed, "integer"},
				{"counter ls", done, "COUNTER  VALUE\ntext     (not-an-integer)\n"},
				{"counter ls --json", done, `{"counters":[{"key":"text","value":null,"error":"not-an-integer"}]}` + "\n"},
				{"counter set text 5", usage, "--back"},
				{"counter rm text", usage, "--yes"},
				{"counter set text 6 --back", done, "6\n"},
				{"incr text", done, "7\n"},
			})
		})
	}
}

// A service and a Redis that are away, and one that stands still, are a failure that may pass, and
// so is the hold-off after a loss of everything.
func TestIncrWithoutAnybodyToAskIsToBeTriedAgain(t *testing.T) {
	redis := redistest.Start(t)
	gone := serve(t)
	gone.stop()
	p := serve(t, "--redis", redis.URL(), "--counter-hold-off", "1m")
	served := []string{"--server", p.banner.URL}
	tell(t, served, []told{{"incr orders", done, "1\n"}})
	expect.NoError(t, "remove all keys", redis.Client().FlushAll(t.Context()).Err())
	eventually(t, "the loss is noticed", func() bool {
		code, _, stderr := coatcheck(t, nil, append([]string{"incr", "orders"}, served...)...)
		return code == tryLater && strings.Contains(stderr, "pool-quarantined")
	})
	tell(t, []string{"--redis", redis.URL()}, []told{{"incr orders", tryLater, "nothing is added"}})
	redis.Kill()
	for _, at := range [][]string{{"--server", gone.banner.URL}, served, {"--redis", redis.URL()}} {
		for _, args := range []string{"incr orders", "incr orders --request-id a", "counter get orders", "counter ls", "counter set orders 5", "id segment orders"} {
			ran := execute(t, nil, append(strings.Split(args, " "), at...)...).exits(tryLater)
			if ran.stdout != "" || ran.stderr == "" {
				t.Errorf("%s: got %q on stdout and %q on stderr, want words on stderr alone", ran.line, ran.stdout, ran.stderr)
			}
		}
	}
}

// A reply that is lost is an unknown outcome, and the same request id gets the values.
func TestIncrWhoseReplyIsLostIsRepeatedByItsRequestID(t *testing.T) {
	p := serve(t)
	link := redistest.StartProxy(t, strings.TrimPrefix(p.banner.URL, "http://"), nil)
	link.SwallowAnswers()
	r := start(t, "incr", "orders", "--by", "2", "--request-id", "order-1", "--server", "http://"+link.Addr())
	eventually(t, "it is added", func() bool { return p.do("GET", "/counter/orders", "").status == 200 })
	link.Close()
	r.exits(tryLater, "outcome unknown")
	expect.Equal(t, "stdout of an incr whose reply is lost", r.stdout.String(), "")
	tell(t, []string{"--server", p.banner.URL}, []told{
		{"incr orders --by 2 --request-id order-1", done, "1\n2\n"},
		{"incr orders", done, "3\n"},
	})
}

// A counter that has gone back is refused where that is asked for, on both ways, and the way out is
// told.
func TestIncrOfACounterThatHasGoneBack(t *testing.T) {
	redis := redistest.Start(t)
	p := serve(t, "--redis", redis.URL(), "--counter-after-loss", "refuse")
	served := []string{"--server", p.banner.URL}
	tell(t, served, []told{{"incr orders --by 10 --json", done, `{"key":"orders","value":10,"first":1}` + "\n"}})
	key := onstore.Key(storetest.Open(t, redisstore.Config{URL: redis.URL()}), "counter", "orders")
	expect.NoError(t, "set a key", redis.Client().Set(t.Context(), key, "3", 0).Err())
	tell(t, served, []told{
		{"incr orders", failed, "coatcheck: add to counter: the counter has gone back, or may have: the value in Redis went back by itself"},
		{"incr orders", failed, "coatcheck counter set orders 10 (else the last one that was)"},
		{"incr orders", failed, "; give it the same --server as here"},
		{"counter set orders 50", done, "50\n"},
		{"incr orders", done, "51\n"},
	})
	tell(t, served, []told{
		{"incr tries --limit 9 --ttl 1h --after-loss stay --by 3 --json", done, `{"key":"tries","value":3,"first":1}` + "\n"},
	})
	expect.NoError(t, "set a key", redis.Client().Set(t.Context(), strings.Replace(key, "orders", "tries", 2), "1", 0).Err())
	tell(t, served, []told{
		{"incr tries --limit 9 --ttl 1h --after-loss stay", done, "4\n"},
		{"incr tries --limit 9 --ttl 1h --after-loss guess", usage, "stay"},
		{"incr tries --after-loss stay", usage, "only with limit"},
	})
}

// Both ways are to one counter, and no value is handed out by both.
func TestProcessesThatIncrAtOnceGetDifferentValues(t *testing.T) {
	redis := redistest.Start(t)
	p := serve(t, "--redis", redis.URL())
	var all []*running
	for i := range 8 {
		at := []string{"incr", "orders", "--by", "20", "--redis", redis.URL()}
		if i%2 == 0 {
			at = []string{"incr", "orders", "--by", "20", "--server", p.banner.URL}
		}
		all = append(all, start(t, at...))
	}
	seen := map[string]bool{}
	for _, r := range all {
		r.exits(done)
		for value := range strings.FieldsSeq(r.stdout.String()) {
			if seen[value] {
				t.Errorf("value %s was handed out twice", value)
			}
			seen[value] = true
		}
	}
	expect.Equal(t, "values of 8 commands with --by 20", len(seen), 160)
}

// A signal ends a command that waits for a service which stands still: here nothing takes its
// connection.
func TestASignalEndsIncr(t *testing.T) {
	still, err := net.Listen("tcp", "127.0.0.1:0")
	expect.NoError(t, "listen on a free port", err)
	defer still.Close()
	connected := make(chan net.Conn, 1)
	go func() {
		conn, _ := still.Accept() // nil once the test has ended
		connected <- conn
	}()
	r := start(t, "incr", "orders", "--server", "http://"+still.Addr().String())
	conn := <-connected // so it has begun
	if conn == nil {
		t.Fatal("the service that stands still has no connection")
	}
	defer conn.Close()
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	if code := r.code(); code != failed && code != tryLater || r.stdout.String() != "" {
		t.Errorf("incr after SIGTERM: got exit code %d and %q, want %d or %d and nothing", code, r.stdout, failed, tryLater)
	}
}

func TestIDsOfSegments(t *testing.T) {
	lockDoors(t, func(t *testing.T, at []string) {
		var all []int
		for _, args := range []string{"id segment orders", "id segment orders -n 5000", "id segment orders --count=3"} {
			for line := range strings.Lines(execute(t, nil, append(strings.Split(args, " "), at...)...).exits(done).stdout) {
				id := 0
				if _, err := fmt.Sscan(line, &id); err != nil {
					t.Fatalf("%s printed %q: %v", args, line, err)
				}
				all = append(all, id)
			}
		}
		if distinct := slices.Compact(slices.Clone(all)); len(all) != 5004 || !slices.IsSorted(all) || len(distinct) != len(all) || all[0] != 1 {
			t.Errorf("ids of calls for 1, 5000 and 3: got %d, %d of them different, from %d on, sorted: %v; want 5004 different from 1 on, sorted", len(all), len(distinct), all[0], slices.IsSorted(all))
		}
		tell(t, at, []told{
			{"id segment orders --format padded --width 8", done, "00005005\n"},
			{"id segment orders --json --format base36", done, `{"tag":"orders","ids":["3v2"]}` + "\n"},
		})
	})
}

// Straight on Redis the ids come from where a service takes its own, so that the two never meet.
func TestSegmentsOfAServiceAndOfCallsDoNotMeet(t *testing.T) {
	redis := redistest.Start(t)
	p := serve(t, "--redis", redis.URL())
	seen := map[string]bool{}
	for range 5 {
		for _, at := range [][]string{{"--server", p.banner.URL}, {"--redis", redis.URL()}} {
			for id := range strings.FieldsSeq(execute(t, nil, append([]string{"id", "segment", "orders", "-n", "300"}, at...)...).exits(done).stdout) {
				if seen[id] {
					t.Errorf("id %s was handed out twice", id)
				}
				seen[id] = true
			}
		}
	}
	expect.Equal(t, "ids of ten calls for 300", len(seen), 3000)
}

func TestUUIDs(t *testing.T) {
	for version, form := range map[string]*regexp.Regexp{
		"7": regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`),
		"4": regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`),
	} {
		ids := strings.Fields(execute(t, nil, "id", "uuid", version, "-n", "1000").exits(done).stdout)
		expect.Equal(t, "ids of version "+version, len(ids), 1000)
		expect.Equal(t, "whether ids of version "+version+" are sorted", slices.IsSorted(ids), version == "7")
		for _, id := range ids {
			if !form.MatchString(id) {
				t.Errorf("an id of version %s: got %s, want the form %s", version, id, form)
			}
		}
		slices.Sort(ids)
		expect.Equal(t, "different ids of version "+version, len(slices.Compact(ids)), 1000)
	}
	var made api.UUIDs
	execute(t, nil, "id", "uuid", "--json").exits(done).into(&made)
	expect.Equal(t, "version of id uuid", made.Version, 7)
	expect.Equal(t, "ids of id uuid", len(made.IDs), 1)
}

// A slip with a TTL does not make order numbers begin at 1 again, and the refusal names the way to
// do it on purpose.
func TestATTLDoesNotEndACounterWithoutAnEnd(t *testing.T) {
	t.Parallel()
	lockDoors(t, func(t *testing.T, at []string) {
		tell(t, at, []told{
			{"incr orders --by 5", done, "1\n2\n3\n4\n5\n"},
			{"incr orders --ttl 3s", failed, "orders is at 5, and a TTL, which a call with a template or a calendar has as well, counts only for the call that begins a counter; nothing was added."},
			{"incr orders --ttl 3s --limit 9 --request-id a", failed, "coatcheck counter set orders 5 --ttl 3s"},
			{"incr orders", done, "6\n"},
			{"counter set orders 6 --ttl 1h", done, "6\n"},
			{"incr orders --ttl 3s", done, "7\n"},
		})
	})
}
