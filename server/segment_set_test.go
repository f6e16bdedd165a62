package server_test

import (
	"fmt"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

// A restart of Redis, after which ids may be lost, does not use up the numbers that opaque ids of
// few digits can be: the tag is held until an operator says where it goes on. Other tags move.
func TestTagWhoseOpaqueIDsAMoveWouldEndIsHeldUntilItIsSet(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "everysec")
	config := server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: storePatience}), OpaqueKeys: opaqueKeys, SegmentStep: 10}
	before := serve(t, config)
	before.segmentIDs(t, "six?n=50&format=opaque&width=6")
	before.segmentIDs(t, "seven?n=50&format=opaque&width=7")
	before.segmentIDs(t, "plain?n=50")
	redis.Stop() // in order, so that the file is whole
	redis.Restart()
	config.Store = storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: storePatience})
	after := serve(t, config)
	for _, path := range []string{"/id/segment/six?n=5&format=opaque&width=6", "/id/segment/six", "/id/segment/seven?format=opaque&width=7"} {
		checkProblem(t, after.do(t, "GET", path, ""), api.CounterBehind)
	}
	if id := after.segmentIDs(t, "plain").ID; len(id) != len("64000051") {
		t.Errorf("an id of a tag without opaque ids after the restart: got %s, want one past the margin", id)
	}
	set := must[api.Segment](t, after, 200, "PUT", "/id/segment/six", `{"next":"5001"}`)
	expect.Equal(t, "answer to the tag's setting", set, api.Segment{Tag: "six", Next: "5001"})
	expect.Equal(t, "the next id of the tag that was set", after.segmentIDs(t, "six").ID, "5001")
	after.segmentIDs(t, "six?n=5&format=opaque&width=6")
	checkProblem(t, after.do(t, "GET", "/id/segment/seven?format=opaque&width=7", ""), api.CounterBehind)
}

// Where a tag comes to the end of the width by itself, other formats of it go on.
func TestTagGoesOnPastTheEndOfItsOpaqueIDs(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), OpaqueKeys: opaqueKeys, SegmentStep: 10})
	must[api.Segment](t, s, 200, "PUT", "/id/segment/t", `{"next":"999991"}`)
	s.segmentIDs(t, "t?n=9&format=opaque&width=6")
	wantField(t, s.do(t, "GET", "/id/segment/t?format=opaque&width=6", ""), api.InvalidRequest, "width")
	expect.Equal(t, "number of decimal ids after the end", len(s.segmentIDs(t, "t?n=100").IDs), 100)
}

// A service that refuses to move what has gone back holds tags as well as counters: there has to be
// a way out for both.
func TestTagOfAStrictServerGoesOnOnceItIsSet(t *testing.T) {
	redis := redistest.Start(t)
	store := storetest.Open(t, redisstore.Config{URL: redis.URL()})
	s := serve(t, server.Config{Store: store, Counters: counter.Config{AfterLoss: counter.AfterLossRefuse}, SegmentStep: 10})
	s.segmentIDs(t, "t?n=15")
	expect.NoError(t, "removing the tag's counter", redis.Client().Del(t.Context(), onstore.Key(store, "segment", "t")).Err())
	expect.Eventually(t, "the ids fetched ahead are used up", func() bool { return s.do(t, "GET", "/id/segment/t?n=10", "").status == 409 })
	must[api.Segment](t, s, 200, "PUT", "/id/segment/t", `{"next":"5001"}`)
	expect.Equal(t, "ids after the tag was set", s.segmentIDs(t, "t?n=2").IDs[1], "5002")
}

func TestTagIsSetForwardOnly(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), SegmentStep: 10})
	s.segmentIDs(t, "t")
	for next, text := range map[string]string{`"10"`: "handed out: it is at 10", `"0"`: "1 to 9223372036854775807", `"-1"`: "1 to", `"9223372036854775808"`: "1 to", `""`: "1 to", `" 1"`: "1 to", `"+11"`: "1 to", `"011"`: "1 to"} {
		wantField(t, s.do(t, "PUT", "/id/segment/t", fmt.Sprintf(`{"next":%s}`, next)), api.InvalidRequest, "next", text)
	}
	checkProblem(t, s.do(t, "PUT", "/id/segment/t", `{"next":11}`), api.InvalidRequest)
	checkProblem(t, s.do(t, "PUT", "/id/segment/t", `{}`), api.InvalidRequest)
	must[api.Segment](t, s, 200, "PUT", "/id/segment/t", `{"next":"11"}`)
	must[api.Segment](t, s, 200, "PUT", "/id/segment/t", `{"next":"11"}`)
	// ids below it that were fetched ahead stay in use
	expect.Equal(t, "ids after the tag was set", s.segmentIDs(t, "t?n=10").IDs[9], "11")
	sql := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), SegmentSource: leafRow("t", 1, 10)})
	wantField(t, sql.do(t, "PUT", "/id/segment/t", `{"next":"11"}`), api.InvalidRequest, "tag", "SQL database")
}
