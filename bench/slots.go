package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/bits"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/coatcheck/coatcheck/internal/onstore"
	"github.com/coatcheck/coatcheck/redisstore"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// turnsOfSlots is how many worker ids are acquired, renewed and released in a round.
const turnsOfSlots = 1000

// slotsCommand measures what the scripts of worker ids take in Redis, on rings of few slots and of
// as many as a layout may have.
func slotsCommand(ctx context.Context, args []string, _ io.Reader, stdout io.Writer) error {
	flags := flag.NewFlagSet("slots", flag.ContinueOnError)
	rounds := flags.Int("rounds", 5, "rounds, in each of which every ring is measured once")
	most := flags.Int("bits", workerlease.MaxBits, "width of a worker id in the largest ring")
	var out output
	out.flags(flags)
	if err := parse(flags, args); err != nil {
		return err
	}
	if *rounds < 1 || *most < 10 || *most > workerlease.MaxBits {
		return usageError{fmt.Errorf("%d rounds, %d bits: at least one, and 10 to %d", *rounds, *most, workerlease.MaxBits)}
	}
	server, err := startRedis(ctx)
	if err != nil {
		return err
	}
	defer server.end()
	about, err := machine(ctx, server)
	if err != nil {
		return err
	}
	t := &table{
		Title: "slots", When: time.Now().UTC(), Machine: about, Rounds: *rounds,
		Columns: []string{"script", "slots", "µs in Redis", "middle half", "to the smallest ring", "middle half"},
	}
	if err := measureRings(ctx, t, server, []int{10, (10 + *most) / 2, *most}, *rounds); err != nil {
		return err
	}
	t.Notes = append(t.Notes, fmt.Sprintf("usec_per_call of EVALSHA, %d calls in a round, %d at once. All slots have records; %[1]d of "+
		"them are free.", turnsOfSlots, inFlight))
	return out.write(stdout, t)
}

// ring is a pool whose slots are all known to Redis.
type ring struct {
	redis  *redisServer
	pools  *workerlease.Pools
	name   string
	shape  workerlease.Shape
	slots  int
	side   string // of the table
	leases []workerlease.Lease
}

func measureRings(ctx context.Context, t *table, server *redisServer, widths []int, rounds int) (err error) {
	store, err := redisstore.OpenConfig(ctx, redisstore.Config{URL: server.url(), Timeout: time.Minute})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	pools := workerlease.New(store, workerlease.Config{NewPools: workerlease.NewPoolsTrust})
	var rings []*ring
	for _, width := range widths {
		r := &ring{redis: server, pools: pools, name: fmt.Sprintf("ring-%d", width), slots: 1 << width,
			leases: make([]workerlease.Lease, turnsOfSlots)}
		r.side = strconv.Itoa(r.slots) + " slots"
		rings = append(rings, r)
	}
	for _, r := range rings {
		if err := r.fill(ctx, store); err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "slots: %s are there\n", r.side)
	}
	values := map[string][][]float64{}
	for round := range rounds + 1 { // the first one warms up
		for i := range rings {
			r := rings[(i+round)%len(rings)]
			took, err := r.turn(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", r.side, err)
			}
			if round > 0 {
				values[r.name] = append(values[r.name], took)
			}
		}
	}
	for at, script := range []string{"acquire", "renew"} {
		for _, r := range rings {
			t.keep(script, r.side, "µs", column(values[r.name], at))
			own, to := t.rounds(script, r.side, "µs"), t.rounds(script, rings[0].side, "µs")
			t.add(script, strings.Replace(r.side, " slots", "", 1), median(own), spread(own), median(ratios(own, to)),
				spread(ratios(own, to)))
		}
	}
	return nil
}

// slotsText fills slots ARGV[1] to ARGV[2]-1 as the scripts would have: all are leased for an hour
// but for ARGV[3], which are spread over the ring of ARGV[4] slots and free.
const slotsText = `local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for id = ARGV[1], ARGV[2] - 1 do
  local till, state = string.format('%.0f', now + 3600000 - id * 7919 % 1200000), 'h'
  if id * 7919 % ARGV[4] < tonumber(ARGV[3]) then
    till, state = string.format('%.0f', now), 'r'
  end
  local nonce, identity = string.format('nonce%017d', id), 'orders-' .. string.format('%.0f', id)
  redis.call('ZADD', KEYS[2], till, id)
  redis.call('HSET', KEYS[1], 's:' .. id, table.concat({nonce, string.format('%.0f', now), till,
    string.format('%.0f', now * 1000), state, identity}, ' '))
  redis.call('HSET', KEYS[3], 'n:' .. nonce, id, 'i:' .. identity, id)
end
return 1`

// fill makes the pool, and writes a record of each slot, in pieces that do not keep Redis for long.
func (r *ring) fill(ctx context.Context, store *redisstore.Store) error {
	width := bits.Len(uint(r.slots)) - 1
	r.shape = workerlease.Shape{Layout: fmt.Sprintf("41/%d/%d", width, 22-width), Epoch: snowflake.DefaultEpoch}
	if err := r.pools.Create(ctx, r.name, r.shape, time.Hour); err != nil {
		return err
	}
	keys := keysOfRing(store, r.name)
	script := redis.NewScript(slotsText)
	const piece = 1 << 15
	for from := 0; from < r.slots; from += piece {
		if err := script.Run(ctx, r.redis, keys, from, min(from+piece, r.slots), turnsOfSlots, r.slots).Err(); err != nil {
			return err
		}
	}
	head, err := r.redis.HGet(ctx, keys[0], "pool").Result()
	if err != nil {
		return err
	}
	words := strings.Fields(head) // scripts/lib/pool.lua says what each is
	words[5], words[6] = strconv.Itoa(r.slots), strconv.Itoa(r.slots)
	return r.redis.HSet(ctx, keys[0], "pool", strings.Join(words, " ")).Err()
}

func keysOfRing(store *redisstore.Store, name string) []string {
	return []string{onstore.Key(store, "worker", name), onstore.Key(store, "worker", name, "ends"), onstore.Key(store,
		"worker", name, "names")}
}

func (r *ring) acquire(ctx context.Context, i int) (err error) {
	r.leases[i], err = r.pools.Acquire(ctx, r.name, workerlease.Request{Shape: r.shape, Identity: identityOf(i)})
	return err
}

func (r *ring) renew(ctx context.Context, i int) (err error) {
	r.leases[i], err = r.pools.Renew(ctx, r.leases[i], 0)
	return err
}

func (r *ring) release(ctx context.Context, i int) error {
	return r.pools.Release(ctx, r.name, r.leases[i].WorkerID, r.leases[i].Token, time.Time{})
}

// identityOf is an identity that has not been before. All are of one length.
func identityOf(i int) string { return fmt.Sprintf("billing-%d-%04d", time.Now().UnixNano(), i) }

// turn acquires, renews and releases worker ids, and returns what a call of the first two took in
// Redis, in microseconds.
func (r *ring) turn(ctx context.Context) ([]float64, error) {
	acquired, err := r.scriptTime(ctx, r.acquire)
	if err != nil {
		return nil, err
	}
	renewed, err := r.scriptTime(ctx, r.renew)
	if err != nil {
		return nil, err
	}
	_, err = r.scriptTime(ctx, r.release)
	return []float64{acquired, renewed}, err
}

var scriptTime = regexp.MustCompile(`usec_per_call=([0-9.]+)`)

// scriptTime is the mean time of the scripts of some calls in Redis, in microseconds.
func (r *ring) scriptTime(ctx context.Context, call func(ctx context.Context, i int) error) (float64, error) {
	if err := r.redis.ConfigResetStat(ctx).Err(); err != nil {
		return 0, err
	}
	errs := make([]error, inFlight)
	var all sync.WaitGroup
	for at := range inFlight {
		all.Go(func() {
			for i := at; i < turnsOfSlots && errs[at] == nil; i += inFlight {
				errs[at] = call(ctx, i)
			}
		})
	}
	all.Wait()
	if at := slices.IndexFunc(errs, func(err error) bool { return err != nil }); at >= 0 {
		return 0, errs[at]
	}
	return r.redis.timeOfScripts(ctx)
}

// timeOfScripts is what a script took since the statistics were reset, in microseconds.
func (s *redisServer) timeOfScripts(ctx context.Context) (float64, error) {
	stats, err := s.info(ctx, "commandstats")
	if err != nil {
		return 0, err
	}
	found := scriptTime.FindStringSubmatch(stats["cmdstat_evalsha"])
	if found == nil {
		return 0, errors.New("INFO commandstats tells nothing of scripts")
	}
	return strconv.ParseFloat(found[1], 64)
}
