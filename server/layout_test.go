package server_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// overAlready is a shape whose timestamps have ended in 1970.
var overAlready = workerlease.Shape{Layout: "20/10/13", Epoch: time.Unix(0, 0).UTC()}

// A service whose pool has a layout without timestamps left says so where ids are asked for, is not
// ready, and serves everything else.
func TestPoolWhoseLayoutHasEnded(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		pools := map[string]workerlease.Pin{"over": {Shape: overAlready}}
		s := serve(t, server.Config{Store: store, IDPool: "over", Workers: workerlease.Config{NewPools: workerlease.NewPoolsTrust, Pools: pools}})
		for _, path := range []string{"/id/snowflake", "/id/snowflake/over"} {
			checkProblem(t, s.do(t, "GET", path, ""), api.LayoutUsedUp)
		}
		problem := checkProblem(t, s.do(t, "POST", "/worker/over", ""), api.LayoutUsedUp)
		expect.Contains(t, "detail", problem.Detail, "1970-01-01T00:17:28Z", "coatcheck worker create --replace over --layout 28/10/13")
		s.wantReadiness(t, 503, "the layout of a configured pool has no timestamps left")
		must[api.Incremented](t, s, 200, "GET", "/incr/orders", "")
		must[api.Snowflakes](t, s, 200, "GET", "/id/snowflake/another", "")
	})
}

// Pools tell when their layout ends, and metrics which ends first.
func TestPoolsTellWhenTheirLayoutEnds(t *testing.T) {
	t.Parallel()
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{})})
	ends := time.Now().Add(40 * 24 * time.Hour).UTC().Truncate(time.Second)
	layout := snowflake.MustLayout("30/12/20@s")
	body := fmt.Sprintf(`{"layout":%q,"epoch":%q}`, layout, ends.Add(-layout.Unit<<layout.Timestamp).Format(time.RFC3339))
	made := must[api.WorkerPool](t, s, 201, "PUT", "/worker/short", body)
	expect.Equal(t, "ends_at of a pool that is created", made.EndsAt, api.At(ends))
	must[api.WorkerPool](t, s, 201, "PUT", "/worker/for-ever", `{"layout":"50/1/12@s"}`)
	list := must[api.WorkerPools](t, s, 200, "GET", "/worker", "")
	expect.Equal(t, "ends_at of pools", []time.Time{list.Pools[0].EndsAt.Time, list.Pools[1].EndsAt.Time}, []time.Time{{}, ends})
	figure, told := regexp.MustCompile(`(?m)^coatcheck_worker_layout_left_seconds (\S+)$`), [][]byte(nil)
	expect.Eventually(t, "GET /metrics has coatcheck_worker_layout_left_seconds", func() bool {
		s.server.LookAgain() // a busy machine may have looked at them for longer than it may take
		told = figure.FindSubmatch(s.do(t, "GET", "/metrics", "").body)
		return told != nil
	})
	left, err := strconv.ParseFloat(string(told[1]), 64)
	if want := time.Until(ends).Seconds(); err != nil || left < want-600 || left > want+600 {
		t.Errorf("coatcheck_worker_layout_left_seconds: got %s, want about %v", told[1], want)
	}
}
