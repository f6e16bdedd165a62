package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func TestLocksOverHTTP(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		// a request may wait for a lock for nearly that long
		s := serve(t, server.Config{Store: store, RequestTimeout: 2 * time.Hour})
		t.Run("a lock is granted, renewed, seen and released", s.lockRound)
		t.Run("a lock that is held says by whom, since when and until when", s.lockHeld)
		t.Run("a lease is not kept alive by the server", s.lockLost)
		t.Run("those who wait are served in order", s.lockInOrder)
		t.Run("a wait that is over leaves nothing", s.lockWaitOver)
		t.Run("who hangs up leaves nothing", s.lockHangUp)
		t.Run("readers share, a writer waits for all of them", s.lockShared)
		t.Run("permits", s.lockPermits)
		t.Run("a forced release shuts the holder out", s.lockForce)
		t.Run("the list is told page by page", s.lockList)
	})
}

// lock acquires a lock that is there to be had.
func (s *service) lock(t testing.TB, name, body string) api.LockGranted {
	t.Helper()
	return must[api.LockGranted](t, s, 201, "POST", "/lock/"+name, body)
}

func (s *service) unlock(t testing.TB, granted api.LockGranted) {
	t.Helper()
	must[nothing](t, s, 204, "DELETE", "/lock/"+granted.Name, "", "Lease-Token: "+granted.Lease)
}

func (s *service) lockInfo(t testing.TB, name string) api.Lock {
	t.Helper()
	return must[api.Lock](t, s, 200, "GET", "/lock/"+name, "")
}

func (s *service) lockRound(t *testing.T) {
	a := s.do(t, "POST", "/lock/round", `{"ttl_ms":3600000,"wait_ms":0,"owner":"web-1","mode":"exclusive","permits":1}`)
	granted := decode[api.LockGranted](t, a, 201)
	a.wantHeader(t, "Cache-Control", "no-store")
	want := granted
	want.Name, want.TTLMs, want.RenewEveryMs = "round", 3_600_000, 1_200_000
	expect.Equal(t, a.asked, granted, want)
	expect.Equal(t, a.asked+": length of the lease's secret", len(granted.Lease), 22)
	wantBetween(t, a.asked+": fence", granted.Fence, 1, 1<<53-1)
	if granted.ExpiresAt.Sub(granted.Since.Time) < time.Hour || granted.ServerTime.Before(granted.Since.Time) {
		t.Errorf("%s: got %+v, want it to be held for an hour at least, and the server's time to be no earlier than its begin", a.asked, granted)
	}
	mine := "Lease-Token: " + granted.Lease
	renewed := must[api.LockRenewed](t, s, 200, "PUT", "/lock/round", `{"ttl_ms":7200000}`, mine)
	expect.Equal(t, "PUT /lock/round", renewed, api.LockRenewed{
		Name: "round", TTLMs: 7_200_000, RenewEveryMs: 2_400_000, ServerTime: renewed.ServerTime, ExpiresAt: api.At(renewed.ServerTime.Add(2 * time.Hour)),
	})
	info := s.lockInfo(t, "round")
	expect.MustEqual(t, "GET /lock/round: number of holders", len(info.Holders), 1)
	until := info.Holders[0].Until
	expect.Equal(t, "GET /lock/round", info, api.Lock{
		Name: "round", Mode: "exclusive", Fence: granted.Fence, ServerTime: info.ServerTime,
		Holders: []api.LockHolder{{Owner: "web-1", Fence: granted.Fence, Since: granted.Since, Until: until}},
	})
	// the store tells what is left to the millisecond, by its own clock
	if off := until.Sub(renewed.ExpiresAt.Time).Abs(); off > time.Second {
		t.Errorf("GET /lock/round: held until %v, want about %v, until when it was renewed", until, renewed.ExpiresAt)
	}
	s.unlock(t, granted)
	info = s.lockInfo(t, "round")
	expect.Equal(t, "GET /lock/round after its release: holders", info.Holders, []api.LockHolder{})
	expect.Equal(t, "GET /lock/round after its release: mode", info.Mode, "")
	checkProblem(t, s.do(t, "PUT", "/lock/round", "", mine), api.LeaseLost)
	checkProblem(t, s.do(t, "DELETE", "/lock/round", "", mine), api.LeaseLost)
	again := s.lock(t, "round", forAnHourHeld)
	if again.Fence <= granted.Fence || again.Lease == granted.Lease {
		t.Errorf("POST /lock/round again: got fence %d and lease %s, want a larger fence than %d and another lease than %s", again.Fence, again.Lease, granted.Fence, granted.Lease)
	}
	expect.Equal(t, "GET /lock/round: owner of a client that does not name itself", s.lockInfo(t, "round").Holders[0].Owner, "127.0.0.1")
	s.unlock(t, again)
	expect.Equal(t, "POST /lock/default without a body: ttl_ms", s.lock(t, "default", "").TTLMs, 30_000)
}

func (s *service) lockHeld(t *testing.T) {
	first := s.lock(t, "held", forAnHourHeld)
	for _, body := range []string{"", `{"mode":"shared"}`, `{"permits":3}`, `{"wait_ms":1}`, `{"wait_ms":50,"mode":"shared"}`} {
		a := s.do(t, "POST", "/lock/held", body)
		problem := checkProblem(t, a, api.LockHeld)
		expect.Equal(t, a.asked+": since", problem.Since, first.Since)
		expect.Equal(t, a.asked+": detail", problem.Detail, `by "127.0.0.1", since `+first.Since.Format(time.RFC3339Nano))
		a.wantRetryAfter(t, 1, 3600)
	}
	s.unlock(t, first)
}

func (s *service) lockLost(t *testing.T) {
	granted := s.lock(t, "lost", `{"ttl_ms":100}`)
	mine := "Lease-Token: " + granted.Lease
	expect.Eventually(t, "the lease ends", func() bool { return len(s.lockInfo(t, "lost").Holders) == 0 })
	checkProblem(t, s.do(t, "PUT", "/lock/lost", `{"ttl_ms":100}`, mine), api.LeaseLost)
	checkProblem(t, s.do(t, "DELETE", "/lock/lost", "", mine), api.LeaseLost)
}

// forAnHourHeld asks for a lock whose lease no test outlives, and anHoursWait for one that it waits
// for as long as it must.
const (
	forAnHourHeld = `{"ttl_ms":3600000}`
	anHoursWait   = `{"ttl_ms":3600000,"wait_ms":3600000}`
)

// waiting asks for a lock in the background, and returns when the request stands in line behind so
// many.
func (s *service) waiting(ctx context.Context, t *testing.T, name, body string, behind int) <-chan answer {
	t.Helper()
	answers := make(chan answer, 1)
	go func() {
		defer close(answers)
		if a, err := s.send(ctx, call{method: "POST", path: "/lock/" + name, body: body}); err == nil {
			answers <- a
		}
	}()
	expect.Eventually(t, "it stands in line", func() bool { return s.lockInfo(t, name).Waiting > behind })
	return answers
}

func (s *service) lockInOrder(t *testing.T) {
	const many = 20
	first := s.lock(t, "queue", forAnHourHeld)
	var mu sync.Mutex
	var served []int
	var fences []int64
	var all sync.WaitGroup
	for i := range many {
		answers := s.waiting(context.WithoutCancel(t.Context()), t, "queue", fmt.Sprintf(`{"ttl_ms":3600000,"wait_ms":3600000,"owner":"w%d"}`, i), i)
		all.Go(func() {
			a := <-answers
			var granted api.LockGranted
			if a.status != 201 || json.Unmarshal(a.body, &granted) != nil {
				t.Errorf("waiter %d: %v; want status 201", i, a)
				return
			}
			mu.Lock()
			served, fences = append(served, i), append(fences, granted.Fence)
			mu.Unlock()
			if a, err := s.send(context.WithoutCancel(t.Context()), call{method: "DELETE", path: "/lock/queue", header: []string{"Lease-Token: " + granted.Lease}}); err != nil || a.status != 204 {
				t.Errorf("waiter %d: %v, error %v; want status 204", i, a, err)
			}
		})
	}
	info := s.lockInfo(t, "queue")
	expect.Equal(t, "GET /lock/queue: waiting", info.Waiting, many)
	var owners, inOrder []string
	for i, waiter := range info.Queue {
		owners = append(owners, waiter.Mode+" "+waiter.Owner)
		inOrder = append(inOrder, fmt.Sprintf("exclusive w%d", i))
	}
	expect.Equal(t, "GET /lock/queue: number of waiters in the queue", len(info.Queue), many)
	expect.Equal(t, "GET /lock/queue: mode and owner of each waiter", owners, inOrder)
	s.unlock(t, first)
	all.Wait()
	if !slices.IsSorted(served) || len(served) != many || !slices.IsSorted(fences) || fences[0] <= first.Fence {
		t.Errorf("the waiters were served in the order %v with the fences %v, want all %d in order with rising fences above %d", served, fences, many, first.Fence)
	}
}

func (s *service) lockWaitOver(t *testing.T) {
	first := s.lock(t, "over", forAnHourHeld)
	checkProblem(t, s.do(t, "POST", "/lock/over", `{"wait_ms":100}`), api.LockHeld)
	info := s.lockInfo(t, "over")
	expect.Equal(t, "GET /lock/over: waiting", info.Waiting, 0)
	expect.Equal(t, "GET /lock/over: fence of the holder", info.Holders[0].Fence, first.Fence)
	s.unlock(t, first)
}

// One who waits hangs up, then others do at the moment when the lock becomes free: no waiter is
// kept out by one who was not answered.
func (s *service) lockHangUp(t *testing.T) {
	first := s.lock(t, "hang-up", forAnHourHeld)
	ctx, hangUp := context.WithCancel(t.Context())
	s.waiting(ctx, t, "hang-up", anHoursWait, 0)
	hangUp()
	expect.Eventually(t, "it stands in line no more", func() bool { return s.lockInfo(t, "hang-up").Waiting == 0 })
	s.unlock(t, first)
	for i := range 50 {
		s.hangUpWhenFree(t, fmt.Sprintf("hang-up-%d", i))
	}
}

// hangUpWhenFree has a client hang up while it is granted a lock. An answer that was sent by then
// may be lost: that is told by the log.
func (s *service) hangUpWhenFree(t *testing.T, name string) {
	t.Helper()
	held := s.lock(t, name, forAnHourHeld)
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = s.send(ctx, call{method: "POST", path: "/lock/" + name, body: anHoursWait, header: []string{"X-Request-Id: " + name}})
	}()
	expect.Eventually(t, "it stands in line", func() bool { return s.lockInfo(t, name).Waiting == 1 })
	go hangUp()
	s.unlock(t, held)
	<-gone
	var status string
	expect.Eventually(t, "the log tells of the end of the request "+name, func() bool {
		for line := range strings.Lines(s.log.String()) {
			if _, told, ended := strings.Cut(line, "status="); ended && strings.HasSuffix(line, "request_id="+name+"\n") {
				status, _, _ = strings.Cut(told, " ")
			}
		}
		return status != ""
	})
	if info := s.lockInfo(t, name); status != "201" && len(info.Holders)+info.Waiting > 0 {
		t.Errorf("a client that hung up while it was granted %s was answered with status %s: got %+v, want neither a holder nor a waiter", name, status, info)
	}
}

func (s *service) lockShared(t *testing.T) {
	const reader = `{"ttl_ms":3600000,"mode":"shared"}`
	one, two := s.lock(t, "shared", reader), s.lock(t, "shared", reader)
	writer := s.waiting(t.Context(), t, "shared", anHoursWait, 0)
	// it came after the writer
	late := s.waiting(t.Context(), t, "shared", `{"ttl_ms":3600000,"wait_ms":3600000,"mode":"shared"}`, 1)
	info := s.lockInfo(t, "shared")
	expect.Equal(t, "GET /lock/shared: mode", info.Mode, "shared")
	expect.MustEqual(t, "GET /lock/shared: number of holders", len(info.Holders), 2)
	expect.Equal(t, "GET /lock/shared: fence of the first holder", info.Holders[0].Fence, one.Fence)
	expect.MustEqual(t, "GET /lock/shared: length of the queue", len(info.Queue), 2)
	expect.Equal(t, "GET /lock/shared: mode of the first waiter", info.Queue[0].Mode, "exclusive")
	expect.Equal(t, "GET /lock/shared: mode of the second waiter", info.Queue[1].Mode, "shared")
	must[api.LockRenewed](t, s, 200, "PUT", "/lock/shared", forAnHourHeld, "Lease-Token: "+two.Lease)
	s.unlock(t, one)
	s.unlock(t, two)
	wrote := decode[api.LockGranted](t, <-writer, 201)
	info = s.lockInfo(t, "shared")
	expect.Equal(t, "GET /lock/shared after the readers: mode", info.Mode, "exclusive")
	expect.Equal(t, "GET /lock/shared after the readers: fence of the holder", info.Holders[0].Fence, wrote.Fence)
	expect.Equal(t, "GET /lock/shared after the readers: waiting", info.Waiting, 1)
	s.unlock(t, wrote)
	s.unlock(t, decode[api.LockGranted](t, <-late, 201))
}

func (s *service) lockPermits(t *testing.T) {
	one := s.lock(t, "permits", `{"ttl_ms":3600000,"permits":3}`)
	two := s.lock(t, "permits", `{"ttl_ms":3600000,"permits":3,"mode":"permits","take":2}`)
	checkProblem(t, s.do(t, "POST", "/lock/permits", `{"permits":3}`), api.LockHeld)
	problem := checkProblem(t, s.do(t, "POST", "/lock/permits", `{"permits":5}`), api.PermitsMismatch)
	expect.Equal(t, "POST /lock/permits with 5 of 3 permits: detail", problem.Detail, "in use with another number of permits: it has 3")
	info := s.lockInfo(t, "permits")
	expect.Equal(t, "GET /lock/permits: mode", info.Mode, "permits")
	expect.Equal(t, "GET /lock/permits: permits", info.Permits, 3)
	expect.MustEqual(t, "GET /lock/permits: number of holders", len(info.Holders), 2)
	expect.Equal(t, "GET /lock/permits: permits of each holder", []int{info.Holders[0].Take, info.Holders[1].Take}, []int{1, 2})
	s.unlock(t, two)
	s.unlock(t, s.lock(t, "permits", `{"permits":3,"take":2}`))
	s.unlock(t, one)
}

func (s *service) lockForce(t *testing.T) {
	held := s.lock(t, "force", forAnHourHeld)
	next := s.waiting(t.Context(), t, "force", anHoursWait, 0)
	wantField(t, s.do(t, "DELETE", fmt.Sprintf("/lock/force?force=%d", held.Fence+1), ""), api.NotFound, "force")
	broken := must[api.LockBroken](t, s, 200, "DELETE", fmt.Sprintf("/lock/force?force=%d", held.Fence), "")
	granted := decode[api.LockGranted](t, <-next, 201)
	expect.Equal(t, "DELETE /lock/force?force: name", broken.Name, "force")
	if broken.Fence <= held.Fence || granted.Fence <= held.Fence {
		t.Errorf("DELETE /lock/force?force: got fence %d and the next holder %d, want both above %d", broken.Fence, granted.Fence, held.Fence)
	}
	mine := "Lease-Token: " + held.Lease
	checkProblem(t, s.do(t, "PUT", "/lock/force", "", mine), api.LeaseLost)
	checkProblem(t, s.do(t, "DELETE", "/lock/force", "", mine), api.LeaseLost)
	s.unlock(t, granted)
	checkProblem(t, s.do(t, "DELETE", fmt.Sprintf("/lock/force?force=%d", held.Fence), ""), api.NotFound)
}

func (s *service) lockList(t *testing.T) {
	var all []api.LockGranted
	for i := range 5 {
		all = append(all, s.lock(t, fmt.Sprintf("list:%d", i), forAnHourHeld))
	}
	all = append(all, s.lock(t, "other", forAnHourHeld))
	var names []string
	path := "/lock?prefix=list:&n=2"
	for cursor := ""; ; {
		page := must[api.Locks](t, s, 200, "GET", path+cursor, "")
		for _, held := range page.Locks {
			names = append(names, held.Name)
			expect.Equal(t, "GET /lock: number of holders of "+held.Name, len(held.Holders), 1)
			expect.Equal(t, "GET /lock: mode of "+held.Name, held.Mode, "exclusive")
		}
		if page.Next == "" {
			break
		}
		cursor = "&cursor=" + page.Next
	}
	expect.Equal(t, "GET "+path+" and the pages after it", names, []string{"list:0", "list:1", "list:2", "list:3", "list:4"})
	for _, granted := range all {
		s.unlock(t, granted)
	}
	page := must[api.Locks](t, s, 200, "GET", "/lock?prefix=list:", "")
	expect.Equal(t, "GET /lock?prefix=list: once all are released", page, api.Locks{Locks: []api.Lock{}})
}

// However long a client would wait: it hears that the lock is held before the server's own limit
// makes another answer of it.
func TestAWaitIsBoundedByTheRequestTimeout(t *testing.T) {
	t.Parallel()
	inBubble(t, server.Config{RequestTimeout: 30 * time.Second}, func(t *testing.T, s inside) {
		held := decode[api.LockGranted](t, s.ask("POST", "/lock/bounded", forAnHourHeld), 201)
		begin := time.Now()
		problem := checkProblem(t, s.ask("POST", "/lock/bounded", `{"wait_ms":86400000}`), api.LockHeld)
		expect.Equal(t, "how long POST /lock/bounded waited", time.Since(begin), 27*time.Second)
		expect.Equal(t, "POST /lock/bounded with a wait of a day: since", problem.Since, held.Since)
		info := decode[api.Lock](t, s.ask("GET", "/lock/bounded", ""), 200)
		expect.Equal(t, "GET /lock/bounded after it: waiting", info.Waiting, 0)
	})
}

func TestAStopEndsWaitsForLocks(t *testing.T) {
	s := listen(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), RequestTimeout: 2 * time.Hour, StopTimeout: patience})
	s.lock(t, "stopped", forAnHourHeld)
	answers := s.waiting(t.Context(), t, "stopped", `{"wait_ms":86400000}`, 0)
	s.stop()
	checkProblem(t, <-answers, api.LockHeld)
	s.client.CloseIdleConnections()
	expect.Error(t, "Serve", s.end(t), nil)
}

func TestNoLockIsGrantedWhileLeasesMayBeLost(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := serve(t, server.Config{
		Store: storetest.Open(t, redisstore.Config{URL: redis.URL()}), Locks: lock.Config{AfterLoss: lock.AfterLossWait, LongestTTL: 5 * time.Second, Skew: time.Millisecond},
	})
	a := s.do(t, "POST", "/lock/doubt", "")
	checkProblem(t, a, api.PoolQuarantined)
	a.wantRetryAfter(t, 1, 6)
	wantField(t, s.do(t, "POST", "/lock/doubt", `{"ttl_ms":20000}`), api.InvalidRequest, "ttl_ms")
	expect.Equal(t, "POST /lock/doubt with a wait: ttl_ms", s.lock(t, "doubt", `{"wait_ms":3600000}`).TTLMs, 5000)
}

// Redis hangs for longer than a call may take, and grants the lock once it goes on: the client was
// told that the outcome is unknown, and nobody has the lease. It is given back, long before its
// TTL.
func TestLockThatWasGrantedToNobodyIsGivenBack(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{URL: redis.URL(), Timeout: 500 * time.Millisecond})})
	for n := range 3 {
		path := fmt.Sprint("/lock/hangs-", n)
		s.do(t, "GET", path, "").wantStatus(t, 200)
		redis.Pause()
		answered := s.do(t, "POST", path, `{"ttl_ms":3600000}`)
		redis.Resume()
		answered.wantStatus(t, 503)
		expect.Eventually(t, path+" can be had", func() bool { return s.do(t, "POST", path, `{"ttl_ms":3600000}`).status == 201 })
	}
}
