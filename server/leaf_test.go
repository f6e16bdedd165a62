package server_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

var errorTime = regexp.MustCompile(`"timestamp":[0-9]{13},`)

// wantDoor compares an answer with what the other system answers, byte for byte, but for the time
// of an error.
func wantDoor(t *testing.T, a answer, status int, kind, body string) {
	t.Helper()
	got := errorTime.ReplaceAllString(string(a.body), `"timestamp":0,`)
	a.wantStatus(t, status)
	a.wantHeader(t, "Content-Type", kind)
	expect.Equal(t, a.asked+": body", got, body)
}

const (
	javaJSON = "application/json;charset=UTF-8"
	javaText = "text/plain;charset=UTF-8"
)

func leafError(path string, id int) string {
	return fmt.Sprintf(`{"timestamp":0,"status":500,"error":"Internal Server Error","exception":"com.sankuai.inf.leaf.server.exception.LeafServerException",`+
		`"message":"Result{id=%d, status=EXCEPTION}","path":"%s"}`, id, path)
}

func TestLeafsSegmentDoor(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), SegmentSource: leafRow("leaf-segment-test", 1, 2000)})
	id := 1
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
		wantDoor(t, s.do(t, method, "/api/segment/get/leaf-segment-test", "whatever"), 200, javaText, strconv.Itoa(id))
		id++
	}
	head := s.do(t, "HEAD", "/api/segment/get/leaf-segment-test", "")
	head.wantStatus(t, 200)
	head.wantBody(t, "")
	wantDoor(t, s.do(t, "GET", "/api/segment/get/leaf%2Dsegment-test?any=thing&any=thing", "", "Accept: application/json"), 200, javaText, "7")
	for _, path := range []string{
		"/api/segment/get/unknown", "/api/segment/get/a%20b", "/api/segment/get/a%2Fb", "/api/segment/get/%00", "/api/segment/get/%C3%A9", "/api/segment/get/<b>", "/api/segment/get/" + strings.Repeat("a", 201),
	} {
		wantDoor(t, s.do(t, "GET", path, ""), 500, javaJSON, leafError(path, -2))
	}
	checkProblem(t, s.do(t, "GET", "/api/segment/get/a/b", ""), api.NotFound)
}

func TestLeafsSegmentDoorWithoutIDs(t *testing.T) {
	t.Parallel()
	const path = "/api/segment/get/t"
	for _, err := range []error{
		fmt.Errorf("%w: gone", redisstore.ErrUnavailable), fmt.Errorf("%w: gone", redisstore.ErrUnknownOutcome), segment.ErrExhausted, errors.New("no idea"),
	} {
		s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), SegmentSource: sourceFunc(func(string, int64) rangeOrError { return rangeOrError{err: err} })})
		wantDoor(t, s.do(t, "GET", path, "", "X-Request-Id: here"), 500, javaJSON, leafError(path, -3))
		s.logLine(t, "no id for a door's client", "request_id=here")
	}
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), SegmentSource: leafRow("t", 1, 10)})
	expect.NoError(t, "closing the service", s.server.Close(t.Context()))
	wantDoor(t, s.do(t, "GET", path, ""), 500, javaJSON, leafError(path, -1))
	wantDoor(t, s.do(t, "GET", "/api/snowflake/get/t", ""), 500, javaJSON, leafError("/api/snowflake/get/t", -1))
}

func TestLeafsSnowflakeDoor(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store, IDPool: "default"})
		layout, epoch, last := snowflake.MustLayout("41/10/12"), time.UnixMilli(1288834974657), snowflake.ID(0)
		draw := func(path string) (sequence int64) {
			a := s.do(t, "POST", path, "")
			a.wantStatus(t, 200)
			a.wantHeader(t, "Content-Type", javaText)
			id, err := snowflake.Parse(string(a.body))
			if err != nil || id <= last {
				t.Fatalf("%v; want an id above %d", a, last)
			}
			parts := layout.Decode(id, epoch)
			wantAroundNow(t, a.asked+": time of the id", parts.Time)
			expect.Equal(t, a.asked+": worker id", parts.Worker, 0)
			last = id
			return parts.Sequence
		}
		highest := int64(0)
		for _, path := range []string{"/api/snowflake/get/a", "/api/snowflake/get/b", "/api/snowflake/get/a%2Fb", "/api/snowflake/get/%00", "/api/snowflake/get/" + strings.Repeat("a", 999)} {
			highest = max(highest, draw(path))
		}
		// a sequence that began at 0 would have as many requests in one millisecond
		for drawn := 5; highest <= 16; drawn++ {
			if drawn == 200 {
				t.Fatalf("ids of %d requests: every sequence is 16 or less, want them to begin anywhere", drawn)
			}
			highest = max(highest, draw("/api/snowflake/get/a"))
		}
		ring := must[api.WorkerRing](t, s, 200, "GET", "/worker/leaf?n=1", "")
		expect.Equal(t, "GET /worker/leaf?n=1", ring.WorkerPool, api.WorkerPool{Pool: "leaf", Layout: "41/10/12", Epoch: api.At(epoch), Size: 1024, Used: 1, Held: 1, TTLMs: ring.TTLMs, EndsAt: api.At(endOf("41/10/12", epoch))})
		s.ids(t, "/id/snowflake") // it waits for the lease, which begins beside the requests
		ring = must[api.WorkerRing](t, s, 200, "GET", "/worker/default?n=1", "")
		expect.Equal(t, "GET /worker/default?n=1: epoch", ring.Epoch, api.At(snowflake.DefaultEpoch))
		s.do(t, "GET", "/id/decode/"+last.String()+"?pool=leaf", "").wantStatus(t, 200)
	})
}

func TestLeafsSnowflakeDoorWithoutALease(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: storePatience})
	quarantined := serve(t, server.Config{Store: store, Workers: workerlease.Config{NewPools: workerlease.NewPoolsWait}})
	waits := quarantined.do(t, "GET", "/api/snowflake/get/k", "")
	wantDoor(t, waits, 500, javaJSON, leafError("/api/snowflake/get/k", -1))
	if seconds, err := strconv.Atoi(waits.header.Get("Retry-After")); err != nil || seconds < 1 || seconds > 31 {
		t.Errorf("Retry-After of a pool in quarantine: got %q, want 1 to 31 seconds", waits.header.Get("Retry-After"))
	}
	s := serve(t, server.Config{Store: store, Leaf: server.LeafDoor{Pool: "shared"}})
	other := serve(t, server.Config{Store: store}) // which does not know what the pool is for
	must[api.WorkerPool](t, other, 201, "PUT", "/worker/shared", `{"layout":"41/5/5/12"}`)
	for range 2 { // ids of another layout would be decoded wrongly
		wantDoor(t, s.do(t, "GET", "/api/snowflake/get/k", ""), 500, javaJSON, leafError("/api/snowflake/get/k", -1))
	}
	redis.Kill()
	wantDoor(t, s.do(t, "GET", "/api/snowflake/get/k", ""), 500, javaJSON, leafError("/api/snowflake/get/k", -1))
}

func TestLeafsModesThatAreOff(t *testing.T) {
	segment, snowflake := []string{"/api/segment/get/k", "/api/segment/get/%00"}, []string{"/api/snowflake/get/k"}
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Leaf: server.LeafDoor{NoSegment: true}})
	for _, path := range segment {
		wantDoor(t, s.do(t, "GET", path, ""), 200, javaText, "0")
	}
	for _, path := range []string{"/cache", "/db"} {
		wantDoor(t, s.do(t, "GET", path, ""), 500, javaJSON,
			`{"timestamp":0,"status":500,"error":"Internal Server Error","exception":"java.lang.IllegalArgumentException","message":"You should config leaf.segment.enable=true first","path":"`+path+`"}`)
	}
	s.segmentIDs(t, "k") // is no door
	s = serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Leaf: server.LeafDoor{NoSnowflake: true}})
	for _, path := range snowflake {
		wantDoor(t, s.do(t, "GET", path, ""), 200, javaText, "0")
	}
	checkProblem(t, s.do(t, "GET", "/worker/leaf", ""), api.NotFound)
	s = serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), Leaf: server.LeafDoor{NoSegment: true, NoSnowflake: true}})
	for _, path := range append(append(segment[:1], snowflake...), "/decodeSnowflakeId?snowflakeId=0", "/cache", "/db") {
		checkProblem(t, s.do(t, "GET", path, ""), api.NotFound)
	}
}

func TestLeafsDecode(t *testing.T) {
	s := onEmbedded(t)
	local := func(ms int64) string { return time.UnixMilli(ms).Format("2006-01-02 15:04:05.000") }
	for _, row := range []struct {
		id                   int64
		ms, worker, sequence int64
	}{
		{(1567733700834-1288834974657)<<22 | 39<<12 | 3448, 1567733700834, 39, 3448},
		{0, 1288834974657, 0, 0},
		{math.MaxInt64, 1288834974657 + 1<<41 - 1, 1023, 4095},
		{-1, 1288834974656, 1023, 4095},
	} {
		want := fmt.Sprintf(`{"timestamp":"%d(%s)","workerId":"%d","sequenceId":"%d"}`, row.ms, local(row.ms), row.worker, row.sequence)
		for _, method := range []string{"GET", "POST"} {
			wantDoor(t, s.do(t, method, "/decodeSnowflakeId?snowflakeId="+strconv.FormatInt(row.id, 10), ""), 200, javaJSON, want)
		}
		wantDoor(t, s.do(t, "POST", "/decodeSnowflakeId", "snowflakeId="+strconv.FormatInt(row.id, 10), "Content-Type: application/x-www-form-urlencoded"), 200, javaJSON, want)
	}
	for _, bad := range []string{"", "abc", "1.5", "0x10", "9223372036854775808", "1%202", "1_000", "%00"} {
		wantDoor(t, s.do(t, "GET", "/decodeSnowflakeId?snowflakeId="+bad, ""), 200, javaJSON, `{"errorMsg":"snowflake Id反解析发生异常!"}`) //nolint:gosmopolitan // Leaf says it so
	}
	wantDoor(t, s.do(t, "GET", "/decodeSnowflakeId", ""), 400, javaJSON, `{"timestamp":0,"status":400,"error":"Bad Request",`+
		`"exception":"org.springframework.web.bind.MissingServletRequestParameterException","message":"Required String parameter 'snowflakeId' is not present","path":"/decodeSnowflakeId"}`)
}

func cells(t *testing.T, a answer) (heads, data string) {
	t.Helper()
	if a.status != 200 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
		t.Fatalf("%v; want status 200 and a page", a)
	}
	for _, cell := range regexp.MustCompile(`<(th|td)>([^<]*)</`).FindAllStringSubmatch(string(a.body), -1) {
		if cell[1] == "th" {
			heads += cell[2] + " "
		} else {
			data += cell[2] + " "
		}
	}
	return heads, data
}

func TestLeafsPages(t *testing.T) {
	t.Parallel()
	tags := func(context.Context) ([]server.SegmentTag, error) {
		return []server.SegmentTag{{Tag: "a", Max: 2001, Step: 2000, Updated: "2026-11-21 10:00:00.0"}, {Tag: "<b>", Max: 1, Step: 1}}, nil
	}
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), SegmentSource: leafRow("a", 1, 2000), SegmentTags: tags})
	heads, data := cells(t, s.do(t, "GET", "/cache", ""))
	expect.Equal(t, "GET /cache: heads", heads, "name init next pos value0 max0 step0 value1 max1 step1 ")
	expect.Equal(t, "GET /cache before the first id: cells", data, "")
	s.segmentIDs(t, "a?n=50")
	_, data = cells(t, s.do(t, "GET", "/cache", ""))
	expect.Equal(t, "GET /cache after 50 ids: cells", data, "a true false 0 51 2001 2000 0 0 0 ")
	s.segmentIDs(t, "a?n=500")
	expect.Eventually(t, "the next is there", func() bool {
		_, data := cells(t, s.do(t, "POST", "/cache", ""))
		return data == "a true true 0 551 2001 2000 2001 4001 2000 "
	})
	heads, data = cells(t, s.do(t, "GET", "/db", ""))
	expect.Equal(t, "GET /db: heads", heads, "tag max step update ")
	expect.Equal(t, "GET /db: cells", data, "a 2001 2000 2026-11-21 10:00:00.0 &lt;b&gt; 1 1  ")
	own := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), SegmentStep: 20})
	own.segmentIDs(t, "b")
	own.segmentIDs(t, "a")
	_, data = cells(t, own.do(t, "GET", "/db", ""))
	expect.Equal(t, "GET /db with the store's counters: cells", data, "a 21 20  b 21 20  ")
}
