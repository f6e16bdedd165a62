package cli

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
	"github.com/coatcheck/coatcheck/internal/testing/redistest"
)

func TestIDsOnePerLine(t *testing.T) {
	doors(t, func(t *testing.T, at []string) {
		all := []string{}
		for _, args := range [][]string{{"id"}, {"id", "-n", "5000"}, {"id", "--count=3"}, {"id", "default", "-n2"}} {
			all = append(all, strings.Fields(execute(t, nil, append(args, at...)...).exits(done).stdout)...)
		}
		slices.Sort(all)
		expect.Equal(t, "ids of calls for 1, 5000, 3 and 2", len(all), 5006)
		expect.Equal(t, "different ones of them", len(slices.Compact(slices.Clone(all))), len(all))
	})
}

// Each is of a call of its own, and so begins a unit of time: they fall on all shards alike.
func TestIDsOfTheCommandAreSpreadOverShards(t *testing.T) {
	doors(t, func(t *testing.T, at []string) {
		const n, shards = 300, 8
		var counts [shards]int
		for range n {
			text := strings.TrimSpace(execute(t, nil, append([]string{"id"}, at...)...).exits(done).stdout)
			id, err := strconv.ParseInt(text, 10, 64)
			expect.MustEqual(t, "error of reading the id "+text, err, nil)
			counts[id%shards]++
		}
		mean, most := n/float64(shards), 5*math.Sqrt(n*(1./shards)*(1-1./shards))
		for shard, count := range counts {
			if math.Abs(float64(count)-mean) > most {
				t.Errorf("ids of shard %d: got %d of %d, want %.1f, and %.1f more or less: %v", shard, count, n, mean, most, counts)
			}
		}
	})
}

func TestIDsInEveryFormatAreDecoded(t *testing.T) {
	doors(t, func(t *testing.T, at []string) {
		create := append([]string{"worker", "create", "orders", "--layout", "41/5/5/12", "--datacenter", "9"}, at...)
		execute(t, nil, create...).exits(done)
		for format, form := range map[string]string{
			"decimal": `^[0-9]{18}$`, "padded": `^0[0-9]{18}$`, "base36": `^[0-9a-z]{12}$`, "base62": `^[0-9A-Za-z]{11}$`, "base32": `^[0-9A-Z]{12}$`, "timed": `^20[0-9]{22}$`,
		} {
			var made idsMade
			execute(t, nil, append([]string{"id", "orders", "--json", "--format", format}, at...)...).exits(done).into(&made)
			if len(made.IDs) != 1 || !regexp.MustCompile(form).MatchString(made.IDs[0]) {
				t.Fatalf("an id as %s: got %q, want one of the form %s", format, made.IDs, form)
			}
			var decoded map[string][]api.DecodedID
			execute(t, nil, append([]string{"id", "decode", "--json", "--pool", "orders", "--format", format, made.IDs[0]}, at...)...).exits(done).into(&decoded)
			parts := decoded["ids"]
			if len(parts) != 1 {
				t.Fatalf("id decode %s: got %+v, want one id", made.IDs[0], parts)
			}
			expect.Equal(t, "datacenter of "+made.IDs[0], parts[0].Datacenter, 9)
			expect.Equal(t, "layout of "+made.IDs[0], parts[0].Layout, "41/5/5/12")
		}
		execute(t, nil, append([]string{"id", "orders", "--format", "padded", "--width", "5"}, at...)...).exits(failed)
	})
}

// The command is called as the path of the HTTP interface is, and makes no pool of that name.
func TestIDSnowflakeIsNoPoolOfThatName(t *testing.T) {
	doors(t, func(t *testing.T, at []string) {
		for args, want := range map[string]string{"id snowflake": "", "id snowflake orders": "orders", "id orders": "orders", "id snowflake segment": "segment"} {
			var made idsMade
			execute(t, nil, append(append(strings.Fields(args), "--json"), at...)...).exits(done).into(&made)
			expect.Equal(t, args+": ids", len(made.IDs), 1)
			if want != "" {
				expect.Equal(t, args+": pool", made.Pool, want)
			}
		}
		pools := execute(t, nil, append([]string{"worker", "ls"}, at...)...).exits(done).stdout
		for _, want := range []string{"orders", "segment"} {
			expect.Contains(t, "worker ls", pools, want)
		}
		if strings.Contains(pools, "snowflake") {
			t.Errorf("worker ls: got a pool that is called snowflake, want none:\n%s", pools)
		}
		execute(t, nil, append([]string{"id", "snowflake", "a", "b"}, at...)...).exits(usage)
	})
}

// Straight on Redis the worker id is given back with the moment of the last id, so that the pool is
// not used up by calls.
func TestWorkerIDOfACallIsGivenBack(t *testing.T) {
	at := []string{"--redis", redistest.Start(t).URL(), "--new-pools", "trust"}
	execute(t, nil, append([]string{"worker", "create", "small", "--layout", "41/1/12"}, at...)...).exits(done)
	for range 10 {
		execute(t, nil, append([]string{"id", "small"}, at...)...).exits(done)
	}
	for i, slot := range ringOf(t, at, "small").Slots {
		expect.Equal(t, fmt.Sprintf("state of worker id %d after ten calls", i), slot.State, "free")
	}
}

// The ids and what they were made of are others' published examples.
func TestDecodeNeedsNoService(t *testing.T) {
	twitter := []string{"--epoch", "2010-11-04T01:42:54.657Z", "--layout", "41/10/12"}
	execute(t, nil, append([]string{"id", "decode", "1169786042799259000", "890399407000784896"}, twitter...)...).
		exits(done).prints("2019-09-06T01:35:00.834Z", "39", "3448", "2017-07-27T02:32:16.107Z")
	var decoded map[string][]api.DecodedID
	execute(t, nil, "id", "decode", "--json", "4194308096").exits(done).into(&decoded)
	parts := decoded["ids"]
	if len(parts) != 1 {
		t.Fatalf("id decode 4194308096: got %+v, want one id", parts)
	}
	expect.Equal(t, "worker id of 4194308096", parts[0].WorkerID, 1)
	expect.Equal(t, "sequence of 4194308096", parts[0].Sequence, 0)
	expect.Equal(t, "time of 4194308096", parts[0].Time.Format("15:04:05"), "00:00:01")
	uid := []string{"id", "decode", "180363646902239241", "--layout", "29/21/13@s", "--epoch", "2016-09-20T00:00:00+08:00"}
	execute(t, nil, uid...).exits(done).prints("2017-01-19T", "4", "9")
	uid[4] = "28/22/13@s" // its default, of which the same number is half as old
	execute(t, nil, uid...).exits(done).prints("2016-11-19T", "4", "9")
	execute(t, nil, "id", "decode", "--layout", "41/10/12@s", "9223372036854775807").exits(usage, "after the year 9999")
}
