package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/coatcheck/coatcheck/internal/redistest"
	"github.com/coatcheck/coatcheck/internal/storetest"
	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/lock"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/server"
)

func TestLocksOverHTTP(t *testing.T) {
	storetest.Each(t, func(t *testing.T, store *redisstore.Store) {
		s := serve(t, server.Config{Store: store})
		t.Run("a lock is granted, renewed, seen and released", s.lockRound)
		t.Run("a lock that is held says since when and until when", s.lockHeld)
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
func (s *service) lock(t testing.TB, name, body string) wire.LockGranted {
	t.Helper()
	return must[wire.LockGranted](t, s, 201, "POST", "/lock/"+name, body)
}

func (s *service) unlock(t testing.TB, granted wire.LockGranted) {
	t.Helper()
	must[nothing](t, s, 204, "DELETE", "/lock/"+granted.Name, "", "Lease-Token: "+granted.Lease)
}

func (s *service) lockInfo(t testing.TB, name string) wire.Lock {
	t.Helper()
	return must[wire.Lock](t, s, 200, "GET", "/lock/"+name, "")
}

func (s *service) lockRound(t *testing.T) {
	a := s.do(t, "POST", "/lock/round", `{"ttl_ms":30000,"wait_ms":0,"owner":"web-1","mode":"exclusive","permits":1}`)
	granted := decode[wire.LockGranted](t, a, 201)
	if granted.Name != "round" || len(granted.Lease) != 22 || granted.Fence < 1 || granted.Fence >= 1<<53 || granted.TTL != 30_000 || granted.RenewEvery != 10_000 {
		t.Errorf("%+v", granted)
	}
	if granted.ExpiresAt.Sub(granted.Since) < 30*time.Second || granted.ServerTime.Before(granted.Since) || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%+v %v", granted, a.header)
	}
	mine := "Lease-Token: " + granted.Lease
	renewed := must[wire.LockRenewed](t, s, 200, "PUT", "/lock/round", `{"ttl_ms":60000}`, mine)
	if renewed.Name != "round" || renewed.TTL != 60_000 || renewed.RenewEvery != 20_000 || renewed.ExpiresAt.Sub(renewed.ServerTime) != time.Minute {
		t.Errorf("%+v", renewed)
	}
	info := s.lockInfo(t, "round")
	want := wire.LockHolder{Owner: "web-1", Fence: granted.Fence, Since: granted.Since, Until: info.Holders[0].Until}
	if info.Mode != "exclusive" || info.Fence != granted.Fence || len(info.Holders) != 1 || info.Holders[0] != want || info.Waiting != 0 || info.Permits != 0 {
		t.Errorf("%+v, want %+v", info, want)
	}
	if off := info.Holders[0].Until.Sub(renewed.ExpiresAt).Abs(); off > time.Second { // the store tells what is left to the millisecond, by its own clock
		t.Errorf("until %v, renewed until %v", info.Holders[0].Until, renewed.ExpiresAt)
	}
	s.unlock(t, granted)
	if info := s.lockInfo(t, "round"); info.Holders == nil || len(info.Holders) != 0 || info.Mode != "" {
		t.Errorf("%+v", info)
	}
	checkProblem(t, s.do(t, "PUT", "/lock/round", "", mine), wire.LeaseLost)
	checkProblem(t, s.do(t, "DELETE", "/lock/round", "", mine), wire.LeaseLost)
	again := s.lock(t, "round", "")
	if again.Fence <= granted.Fence || again.Lease == granted.Lease || again.TTL != 30_000 {
		t.Errorf("%+v after %+v", again, granted)
	}
	if owner := s.lockInfo(t, "round").Holders[0].Owner; owner != "127.0.0.1" {
		t.Errorf("who does not name itself is %q", owner)
	}
	s.unlock(t, again)
}

func (s *service) lockHeld(t *testing.T) {
	first := s.lock(t, "held", `{"ttl_ms":20000}`)
	for _, body := range []string{"", `{"mode":"shared"}`, `{"permits":3}`, `{"wait_ms":1}`, `{"wait_ms":50,"mode":"shared"}`} {
		a := s.do(t, "POST", "/lock/held", body)
		problem := checkProblem(t, a, wire.LockHeld)
		wait, err := strconv.Atoi(a.header.Get("Retry-After"))
		if err != nil || wait < 1 || wait > 20 || !problem.Since.Equal(first.Since) {
			t.Errorf("%s: Retry-After %q, %+v after %+v", body, a.header.Get("Retry-After"), problem, first)
		}
	}
	s.unlock(t, first)
}

func (s *service) lockLost(t *testing.T) {
	granted := s.lock(t, "lost", `{"ttl_ms":100}`)
	mine := "Lease-Token: " + granted.Lease
	eventually(t, "the lease ends", func() bool { return len(s.lockInfo(t, "lost").Holders) == 0 })
	checkProblem(t, s.do(t, "PUT", "/lock/lost", `{"ttl_ms":100}`, mine), wire.LeaseLost)
	checkProblem(t, s.do(t, "DELETE", "/lock/lost", "", mine), wire.LeaseLost)
}

// waiting asks for a lock in the background, and returns when the request stands in line behind so many.
func (s *service) waiting(ctx context.Context, t *testing.T, name, body string, behind int) <-chan answer {
	t.Helper()
	answers := make(chan answer, 1)
	go func() {
		defer close(answers)
		if a, err := s.send(ctx, call{method: "POST", path: "/lock/" + name, body: body}); err == nil {
			answers <- a
		}
	}()
	eventually(t, "it stands in line", func() bool { return s.lockInfo(t, name).Waiting > behind })
	return answers
}

func (s *service) lockInOrder(t *testing.T) {
	const many = 20
	first := s.lock(t, "queue", "")
	var mu sync.Mutex
	var served []int
	var fences []int64
	var all sync.WaitGroup
	for i := range many {
		answers := s.waiting(context.WithoutCancel(t.Context()), t, "queue", fmt.Sprintf(`{"wait_ms":20000,"owner":"w%d"}`, i), i)
		all.Go(func() {
			a := <-answers
			var granted wire.LockGranted
			if a.status != 201 || json.Unmarshal(a.body, &granted) != nil {
				t.Errorf("%d: %d %s", i, a.status, a.body)
				return
			}
			mu.Lock()
			served, fences = append(served, i), append(fences, granted.Fence)
			mu.Unlock()
			if a, err := s.send(context.WithoutCancel(t.Context()), call{method: "DELETE", path: "/lock/queue", header: []string{"Lease-Token: " + granted.Lease}}); err != nil || a.status != 204 {
				t.Errorf("%d: %v %d %s", i, err, a.status, a.body)
			}
		})
	}
	info := s.lockInfo(t, "queue")
	if info.Waiting != many || len(info.Queue) != many || info.Queue[0].Owner != "w0" || info.Queue[many-1].Owner != fmt.Sprintf("w%d", many-1) || info.Queue[0].Mode != "exclusive" {
		t.Errorf("%+v", info)
	}
	s.unlock(t, first)
	all.Wait()
	if !slices.IsSorted(served) || len(served) != many || !slices.IsSorted(fences) || fences[0] <= first.Fence {
		t.Errorf("%v with fences %v after %d", served, fences, first.Fence)
	}
}

func (s *service) lockWaitOver(t *testing.T) {
	first := s.lock(t, "over", "")
	checkProblem(t, s.do(t, "POST", "/lock/over", `{"wait_ms":100}`), wire.LockHeld)
	if info := s.lockInfo(t, "over"); info.Waiting != 0 || info.Holders[0].Fence != first.Fence {
		t.Errorf("%+v", info)
	}
	s.unlock(t, first)
}

// One who waits hangs up, then others do at the moment when the lock becomes free: nobody is kept out by one who was not answered.
func (s *service) lockHangUp(t *testing.T) {
	first := s.lock(t, "hang-up", "")
	ctx, hangUp := context.WithCancel(t.Context())
	s.waiting(ctx, t, "hang-up", `{"wait_ms":20000}`, 0)
	hangUp()
	eventually(t, "it stands in line no more", func() bool { return s.lockInfo(t, "hang-up").Waiting == 0 })
	s.unlock(t, first)
	for i := range 50 {
		s.hangUpWhenFree(t, fmt.Sprintf("hang-up-%d", i))
	}
}

// hangUpWhenFree has a client hang up while it is granted a lock. An answer that was sent by then may be lost: that is told by the log.
func (s *service) hangUpWhenFree(t *testing.T, name string) {
	t.Helper()
	held := s.lock(t, name, "")
	ctx, hangUp := context.WithCancel(t.Context())
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = s.send(ctx, call{method: "POST", path: "/lock/" + name, body: `{"wait_ms":20000,"ttl_ms":600000}`, header: []string{"X-Request-Id: " + name}})
	}()
	eventually(t, "it stands in line", func() bool { return s.lockInfo(t, name).Waiting == 1 })
	go hangUp()
	s.unlock(t, held)
	<-gone
	ended := regexp.MustCompile(`status=(\d+) .*request_id=` + name + `\n`)
	eventually(t, "the request ends", func() bool { return ended.MatchString(s.log.String()) })
	status := ended.FindStringSubmatch(s.log.String())[1]
	if info := s.lockInfo(t, name); status != "201" && len(info.Holders)+info.Waiting > 0 {
		t.Errorf("answered with %s: %+v", status, info)
	}
}

func (s *service) lockShared(t *testing.T) {
	one, two := s.lock(t, "shared", `{"mode":"shared"}`), s.lock(t, "shared", `{"mode":"shared"}`)
	writer := s.waiting(t.Context(), t, "shared", `{"wait_ms":20000}`, 0)
	late := s.waiting(t.Context(), t, "shared", `{"wait_ms":20000,"mode":"shared"}`, 1) // it came behind the writer
	info := s.lockInfo(t, "shared")
	if info.Mode != "shared" || len(info.Holders) != 2 || info.Holders[0].Fence != one.Fence || info.Queue[0].Mode != "exclusive" || info.Queue[1].Mode != "shared" {
		t.Errorf("%+v", info)
	}
	must[wire.LockRenewed](t, s, 200, "PUT", "/lock/shared", "", "Lease-Token: "+two.Lease)
	s.unlock(t, one)
	s.unlock(t, two)
	wrote := decode[wire.LockGranted](t, <-writer, 201)
	if info := s.lockInfo(t, "shared"); info.Mode != "exclusive" || info.Holders[0].Fence != wrote.Fence || info.Waiting != 1 {
		t.Errorf("%+v", info)
	}
	s.unlock(t, wrote)
	s.unlock(t, decode[wire.LockGranted](t, <-late, 201))
}

func (s *service) lockPermits(t *testing.T) {
	one := s.lock(t, "permits", `{"permits":3}`)
	two := s.lock(t, "permits", `{"permits":3,"mode":"permits","take":2}`)
	checkProblem(t, s.do(t, "POST", "/lock/permits", `{"permits":3}`), wire.LockHeld)
	problem := checkProblem(t, s.do(t, "POST", "/lock/permits", `{"permits":5}`), wire.LayoutMismatch)
	if problem.Detail != "in use with another number of permits: it has 3" {
		t.Errorf("%+v", problem)
	}
	info := s.lockInfo(t, "permits")
	if info.Mode != "permits" || info.Permits != 3 || len(info.Holders) != 2 || info.Holders[0].Take != 1 || info.Holders[1].Take != 2 {
		t.Errorf("%+v", info)
	}
	s.unlock(t, two)
	s.unlock(t, s.lock(t, "permits", `{"permits":3,"take":2}`))
	s.unlock(t, one)
}

func (s *service) lockForce(t *testing.T) {
	held := s.lock(t, "force", "")
	next := s.waiting(t.Context(), t, "force", `{"wait_ms":20000}`, 0)
	if problem := checkProblem(t, s.do(t, "DELETE", fmt.Sprintf("/lock/force?force=%d", held.Fence+1), ""), wire.NotFound); problem.Field != "force" {
		t.Errorf("%+v", problem)
	}
	broken := must[wire.LockBroken](t, s, 200, "DELETE", fmt.Sprintf("/lock/force?force=%d", held.Fence), "")
	granted := decode[wire.LockGranted](t, <-next, 201)
	if broken.Name != "force" || broken.Fence <= held.Fence || granted.Fence <= held.Fence {
		t.Errorf("%+v, then %+v, after %+v", broken, granted, held)
	}
	mine := "Lease-Token: " + held.Lease
	checkProblem(t, s.do(t, "PUT", "/lock/force", "", mine), wire.LeaseLost)
	checkProblem(t, s.do(t, "DELETE", "/lock/force", "", mine), wire.LeaseLost)
	s.unlock(t, granted)
	checkProblem(t, s.do(t, "DELETE", fmt.Sprintf("/lock/force?force=%d", held.Fence), ""), wire.NotFound)
}

func (s *service) lockList(t *testing.T) {
	var all []wire.LockGranted
	for i := range 5 {
		all = append(all, s.lock(t, fmt.Sprintf("list:%d", i), ""))
	}
	all = append(all, s.lock(t, "other", ""))
	var names []string
	path := "/lock?prefix=list:&n=2"
	for cursor := ""; ; {
		page := must[wire.Locks](t, s, 200, "GET", path+cursor, "")
		for _, held := range page.Locks {
			names = append(names, held.Name)
			if len(held.Holders) != 1 || held.Mode != "exclusive" {
				t.Errorf("%+v", held)
			}
		}
		if page.Next == "" {
			break
		}
		cursor = "&cursor=" + page.Next
	}
	if want := []string{"list:0", "list:1", "list:2", "list:3", "list:4"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
	for _, granted := range all {
		s.unlock(t, granted)
	}
	if page := must[wire.Locks](t, s, 200, "GET", "/lock?prefix=list:", ""); page.Locks == nil || len(page.Locks) != 0 {
		t.Errorf("%+v", page)
	}
}

// However long a client would wait: it hears that the lock is held before the server's own limit makes another answer of it.
func TestAWaitIsBoundedByTheRequestTimeout(t *testing.T) {
	s := serve(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), RequestTimeout: time.Second})
	held := s.lock(t, "bounded", "")
	problem := checkProblem(t, s.do(t, "POST", "/lock/bounded", `{"wait_ms":86400000}`), wire.LockHeld)
	if !problem.Since.Equal(held.Since) || s.lockInfo(t, "bounded").Waiting != 0 {
		t.Errorf("%+v", problem)
	}
}

func TestAStopEndsWaitsForLocks(t *testing.T) {
	s := listen(t, server.Config{Store: storetest.Open(t, redisstore.Config{}), StopTimeout: 15 * time.Second})
	s.lock(t, "stopped", "")
	answers := s.waiting(t.Context(), t, "stopped", `{"wait_ms":86400000}`, 0)
	s.stop()
	checkProblem(t, <-answers, wire.LockHeld)
	s.client.CloseIdleConnections()
	if err := s.end(t); err != nil {
		t.Error(err)
	}
}

func TestNoLockIsGrantedWhileLeasesMayBeLost(t *testing.T) {
	redis := redistest.Start(t)
	s := serve(t, server.Config{
		Store: storetest.Open(t, redisstore.Config{URL: redis.URL()}), Locks: lock.Config{AfterLoss: lock.WaitAfterLoss, LongestTTL: time.Second, Skew: time.Millisecond},
	})
	a := s.do(t, "POST", "/lock/doubt", "")
	checkProblem(t, a, wire.PoolQuarantined)
	if a.header.Get("Retry-After") == "" {
		t.Errorf("%v", a.header)
	}
	if problem := checkProblem(t, s.do(t, "POST", "/lock/doubt", `{"ttl_ms":2000}`), wire.InvalidRequest); problem.Field != "ttl_ms" {
		t.Errorf("%+v", problem)
	}
	if granted := s.lock(t, "doubt", `{"wait_ms":20000}`); granted.TTL != 1000 {
		t.Errorf("%+v", granted)
	}
}
