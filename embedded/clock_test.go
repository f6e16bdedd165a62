package embedded

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

func TestALeaseEndsInRealTimeAndNotEarlierWhileOthersHammer(t *testing.T) {
	s := open(t, Config{})
	c := client(t, s)
	stop := make(chan struct{})
	var others sync.WaitGroup
	for i := range 4 {
		others.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					c.Set(t.Context(), fmt.Sprint("other:", i, n%1000), n, time.Duration(200+n%1000)*time.Millisecond)
				}
			}
		})
	}
	sent := time.Now()
	want(t, c, "OK", "SET", "lease", "me", "PX", 500)
	for !errors.Is(c.Get(t.Context(), "lease").Err(), redis.Nil) {
		expect.NoError(t, "waiting for the lease to end", t.Context().Err())
	}
	if held := time.Since(sent); held < 500*time.Millisecond {
		t.Errorf("the lease ended after %v", held)
	}
	close(stop)
	others.Wait()
}

// bubble runs a test with a store in fake time.
func bubble(t *testing.T, cfg Config, test func(t *testing.T, s *Store, c *redis.Client)) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, cfg)
		test(t, s, client(t, s))
	})
}

func TestExpiryIsExact(t *testing.T) {
	at := func(d time.Duration) int64 { return time.Now().Add(d).UnixMilli() }
	for name, give := range map[string]func(t *testing.T, c *redis.Client){
		"SET PX":   func(t *testing.T, c *redis.Client) { want(t, c, "OK", "SET", "k", "v", "px", 2000) },
		"SET EX":   func(t *testing.T, c *redis.Client) { want(t, c, "OK", "SET", "k", "v", "NX", "EX", 2) },
		"SET PXAT": func(t *testing.T, c *redis.Client) { want(t, c, "OK", "SET", "k", "v", "PXAT", at(2*time.Second)) },
		"SET EXAT": func(t *testing.T, c *redis.Client) { want(t, c, "OK", "SET", "k", "v", "EXAT", at(2*time.Second)/1000) },
		"SETEX":    func(t *testing.T, c *redis.Client) { want(t, c, "OK", "SETEX", "k", 2, "v") },
		"PSETEX":   func(t *testing.T, c *redis.Client) { want(t, c, "OK", "PSETEX", "k", 2000, "v") },
		"EXPIRE":   func(t *testing.T, c *redis.Client) { do(t, c, "SET", "k", "v"); want(t, c, "1", "EXPIRE", "k", 2) },
		"PEXPIRE":  func(t *testing.T, c *redis.Client) { do(t, c, "SET", "k", "v"); want(t, c, "1", "PEXPIRE", "k", 2000) },
		"EXPIREAT": func(t *testing.T, c *redis.Client) {
			do(t, c, "SET", "k", "v")
			want(t, c, "1", "EXPIREAT", "k", at(2*time.Second)/1000)
		},
		"PEXPIREAT": func(t *testing.T, c *redis.Client) {
			do(t, c, "SET", "k", "v")
			want(t, c, "1", "PEXPIREAT", "k", at(2*time.Second))
		},
		"GETEX": func(t *testing.T, c *redis.Client) {
			do(t, c, "SET", "k", "v")
			want(t, c, "v", "GETEX", "k", "PX", 2000)
		},
		"KEEPTTL": func(t *testing.T, c *redis.Client) {
			do(t, c, "SET", "k", "u", "PX", 2000)
			want(t, c, "OK", "SET", "k", "v", "KEEPTTL")
		},
		"RENAME": func(t *testing.T, c *redis.Client) {
			do(t, c, "SET", "j", "v", "PX", 2000)
			want(t, c, "OK", "RENAME", "j", "k")
		},
		"a script": func(t *testing.T, c *redis.Client) {
			want(t, c, "2000", "EVAL", `redis.call('SET', KEYS[1], 'v', 'PX', ARGV[1]) return redis.call('PTTL', KEYS[1])`, 1, "k", 2000)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, Config{}, func(t *testing.T, s *Store, c *redis.Client) {
				time.Sleep(time.Hour)
				give(t, c)
				until := at(2 * time.Second)
				want(t, c, "2000", "PTTL", "k")
				want(t, c, "2", "TTL", "k")
				want(t, c, fmt.Sprint(until), "PEXPIRETIME", "k")
				want(t, c, fmt.Sprint(until/1000), "EXPIRETIME", "k")
				time.Sleep(1999 * time.Millisecond)
				want(t, c, "v", "GET", "k")
				want(t, c, "1", "PTTL", "k")
				time.Sleep(time.Millisecond)
				want(t, c, "<nil>", "GET", "k")
				want(t, c, "-2", "PTTL", "k")
				want(t, c, "0", "DBSIZE")
			})
		})
	}
}

func TestExpiryCanBeComparedPutOffAndTakenAway(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, s *Store, c *redis.Client) {
		time.Sleep(time.Hour)
		do(t, c, "SET", "k", "v", "PX", 1000)
		want(t, c, "0", "PEXPIRE", "k", 900, "GT")
		want(t, c, "0", "PEXPIRE", "k", 1100, "LT")
		want(t, c, "0", "PEXPIRE", "k", 1100, "NX")
		want(t, c, "1", "PEXPIRE", "k", 1100, "GT")
		time.Sleep(1050 * time.Millisecond)
		want(t, c, "50", "PTTL", "k")
		want(t, c, "1", "PERSIST", "k")
		want(t, c, "-1", "PTTL", "k")
		want(t, c, "-1", "EXPIRETIME", "k")
		time.Sleep(time.Hour)
		want(t, c, "v", "GET", "k")
		want(t, c, "1", "PEXPIRE", "k", 0)
		want(t, c, "0", "EXISTS", "k")
		do(t, c, "SET", "k", "v", "PX", 1000)
		do(t, c, "SET", "k", "w")
		want(t, c, "-1", "PTTL", "k")
		do(t, c, "SET", "k", "v", "PX", 1000)
		do(t, c, "DEL", "k")
		do(t, c, "SET", "k", "v")
		time.Sleep(time.Hour)
		want(t, c, "v", "GET", "k")
	})
}

func TestAnIdleStoreLetsGoOfExpiredKeys(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, s *Store, c *redis.Client) {
		for i := range 100 {
			do(t, c, "SET", fmt.Sprint("k", i), "v", "PX", 1000+i*100)
		}
		time.Sleep(12 * time.Second)
		synctest.Wait()
		if keys := s.redis.Keys(); len(keys) > 0 {
			t.Errorf("%d keys are left", len(keys))
		}
	})
}

func TestTimeIsTheClockOfTheProcess(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, s *Store, c *redis.Client) {
		time.Sleep(24 * time.Hour)
		want(t, c, strconv.FormatInt(time.Now().UnixMilli(), 10), "EVAL", `local t = redis.call('TIME') return string.format('%.0f', t[1] * 1000 + t[2] / 1000)`, 0)
	})
}

func TestAnExpiryThatCannotBeKeptIsRefused(t *testing.T) {
	bubble(t, Config{}, func(t *testing.T, _ *Store, c *redis.Client) { refuseExpiries(t, c) })
}

func refuseExpiries(t *testing.T, c *redis.Client) {
	do(t, c, "SET", "k", "v")
	short := "ERR embedded store: a TTL under 100 ms cannot be kept, got "
	refused(t, c, short+"99 ms", "PEXPIRE", "k", 99)
	refused(t, c, short+"1 ms", "SET", "k", "w", "PX", 1)
	refused(t, c, short+"50 ms", "PSETEX", "k", 50, "w")
	refused(t, c, short, "PEXPIREAT", "k", time.Now().Add(90*time.Millisecond).UnixMilli())
	refused(t, c, short+"99 ms", "EVAL", `return redis.call('PEXPIRE', KEYS[1], 99)`, 1, "k")
	refused(t, c, short+"7 ms", "EVAL", `return redis.call('SET', KEYS[1], 'w', 'PX', 7)`, 1, "k")
	refused(t, c, "ERR embedded store: a TTL over 100 years", "PEXPIRE", "k", int64(1<<62))
	refused(t, c, "ERR embedded store: a TTL over 100 years", "SET", "k", "w", "EX", int64(1<<40))
	refused(t, c, "ERR embedded store: the expiry is in the past", "SET", "k", "w", "PXAT", 1)
	refused(t, c, "ERR invalid expire time", "SET", "k", "w", "PX", 0)
	refused(t, c, "ERR value is not an integer", "SET", "k", "w", "PX", "soon")
	want(t, c, "v", "GET", "k")
	want(t, c, "-1", "PTTL", "k")
	want(t, c, "1", "PEXPIRE", "k", 100)
}
