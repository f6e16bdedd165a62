//go:build check

package cli

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/coatcheck/coatcheck/counter"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
	"github.com/coatcheck/coatcheck/internal/testing/sqltest"
	"github.com/coatcheck/coatcheck/internal/testing/storetest"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/segment/redissource"
)

// drain takes ids from a place until the test says that it is enough, and asks again while the tag
// is not there.
type drain struct {
	mu     sync.Mutex
	ranges [][2]int64
	fault  error
}

func (d *drain) from(ctx context.Context, take func(context.Context) (lo, hi int64, err error)) {
	for ctx.Err() == nil {
		lo, hi, err := take(ctx)
		d.mu.Lock()
		switch {
		case err == nil:
			d.ranges = append(d.ranges, [2]int64{lo, hi})
		case ctx.Err() == nil && !errors.Is(err, redisstore.ErrRefused):
			d.fault = err
		}
		d.mu.Unlock()
	}
}

func (d *drain) taken() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.ranges)
}

// A tag moves to Redis and back, three times, while both places are drained all the time: no id is
// taken twice, and each place gets its turn.
func TestTagsMoveWhileTheyAreUsed(t *testing.T) {
	t.Parallel()
	sqltest.Each(t, func(t *testing.T, database *sqltest.Server) {
		url, redis := database.URL(database.Database(t)), redistest.Start(t).URL()
		for _, args := range [][]string{{"create-table"}, {"seed", "orders", "--step", "50"}} {
			if code, _, errs := segmentRun(t, url, args...); code != done {
				t.Fatalf("segment %s: got exit code %d: %s", args, code, errs)
			}
		}
		db, dialect, err := openSQL(url)
		expect.NoError(t, "open the database", err)
		defer db.Close()
		leaf := segment.NewLeafAlloc(db, dialect, segment.LeafConfig{})
		counters := counter.New(storetest.Open(t, redisstore.Config{URL: redis}), redissource.Counters(counter.Config{}))
		defer counters.Close()

		var atSQL, atRedis drain
		ctx, enough := context.WithCancel(t.Context())
		var draining sync.WaitGroup
		for range 2 {
			draining.Go(func() {
				atSQL.from(ctx, func(ctx context.Context) (int64, int64, error) {
					got, err := leaf.Take(ctx, "orders", 0)
					return got.Lo, got.Hi, err
				})
			})
			draining.Go(func() {
				atRedis.from(ctx, func(ctx context.Context) (int64, int64, error) {
					// as serve does with --segment-create=false: the tag is not made here
					if _, err := counters.Get(ctx, "orders"); err != nil {
						return 0, 0, err
					}
					got, err := counters.IncrBy(ctx, "orders", 50)
					return got.First, got.Last + 1, err
				})
			})
		}
		move := func(from, to string, arrived *drain) {
			for range 2 { // repeating it is harmless
				var out, errs bytes.Buffer
				code := run(t.Context(), []string{"segment", "move", "orders", "--from", from, "--to", to, "--step", "50"}, func(string) string { return "" }, &out, &errs)
				result{t, "coatcheck segment move", code, out.String(), errs.String()}.exits(done).conceals(sqltest.Password)
			}
			before := arrived.taken()
			expect.Eventually(t, "20 ranges are taken where the tag went", func() bool { return arrived.taken() >= before+20 })
		}
		for range 3 {
			move(url, redis, &atRedis)
			move(redis, url, &atSQL)
		}
		enough()
		draining.Wait()
		expect.Error(t, "taking ids while the tag moves", errors.Join(atSQL.fault, atRedis.fault), nil)
		all := slices.Concat(atSQL.ranges, atRedis.ranges)
		slices.SortFunc(all, func(a, b [2]int64) int { return int(a[0] - b[0]) })
		for i := 1; i < len(all); i++ {
			if all[i][0] < all[i-1][1] {
				t.Fatalf("%v and %v share ids", all[i-1], all[i])
			}
		}
	})
}

func TestTagIsNotMovedOntoOneThatIsInUse(t *testing.T) {
	t.Parallel()
	database := sqltest.Start(t, sqltest.MariaDB)
	url, redis := database.URL(database.Database(t)), redistest.Start(t).URL()
	counters := counter.New(storetest.Open(t, redisstore.Config{URL: redis}), redissource.Counters(counter.Config{}))
	defer counters.Close()
	if _, err := counters.IncrBy(t.Context(), "orders", 10); err != nil {
		t.Fatalf("add to the counter: %v", err)
	}
	for _, row := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"create-table"}, done, "is there"},
		{[]string{"seed", "orders", "--start", "1000"}, done, "begins at 1000"},
		{[]string{"move", "orders", "--from", url, "--to", redis}, failed, "orders is in use there, at 10, which is less"},
		{[]string{"move", "nobody", "--from", url, "--to", redis}, failed, "no such tag"},
		{[]string{"move", "nobody", "--from", redis, "--to", url}, failed, "no such counter"},
		{[]string{"move", "orders", "--from", url}, usage, "--from and --to belong here"},
		{[]string{"move", "orders", "--from", url, "--to", url}, usage, "two different ones"},
		{[]string{"move", "orders", "--from", url, "--to", "embedded:"}, usage, "the embedded store belongs to the service"},
		{[]string{"move", "orders", "--from", url, "--to", "ftp://x"}, usage, "neither a database nor a Redis"},
	} {
		code, out, errs := segmentRun(t, url, row.args...)
		ended := result{t, "coatcheck segment " + strings.Join(row.args, " "), code, out, errs}.exits(row.code)
		expect.Contains(t, ended.line, out+errs, row.says)
	}
}

// TestCommandsOfTheMigrationPage runs every command of docs/migrating.md that stands after a
// prompt.
func TestCommandsOfTheMigrationPage(t *testing.T) {
	t.Parallel()
	database := sqltest.Start(t, sqltest.MariaDB)
	places := strings.NewReplacer("$SQL", database.URL(database.Database(t)), "$REDIS", redistest.Start(t).URL())
	samePage(t, pages+"migrating.md", without(second), func(steps []step) []string {
		return inOneShell(t, "", steps, places.Replace)
	})
}
